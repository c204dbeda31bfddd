//! What the machine provides: its clocks, randomness, who uses it, and the signals that end a process.

use qo::core::AuditText;
use qo::{Error, ErrorKind, Result};
use rustix::process::{Resource, getrlimit, getuid, setrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

/// Nanoseconds on the machine's monotonic clock: all its processes read the same.
pub fn monotonic_ns() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of processor time that this process has used, all its threads together.
#[cfg(feature = "bench")]
pub fn cpu_ns() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// Bytes of memory that this process has resident; 0 where the kernel does not say.
#[cfg(feature = "bench")]
pub fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = pages.split(' ').nth(1).and_then(|pages| pages.parse().ok()).unwrap_or(0);
    pages * rustix::param::page_size() as u64
}

fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    let (seconds, ns) = (u64::try_from(now.tv_sec).unwrap_or(0), u64::try_from(now.tv_nsec).unwrap_or(0));
    seconds * 1_000_000_000 + ns
}

/// Random bytes of the operating system, which nobody can guess.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::new(ErrorKind::Unavailable, format!("no randomness: {error}"))),
        }
    }
    Ok(bytes)
}

/// Who runs this command, for the audit log: `ada@laptop`.
pub fn operator() -> AuditText {
    let named = ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok());
    // A job of cron or a container may have neither.
    let user = named.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("uid {}", getuid().as_raw()));
    format!("{user}@{}", uname().nodename().to_string_lossy()).into()
}

/// Lets this process have as many files and connections open as it may, and returns how many that is.
///
/// The usual limit is low (1,024) for the sake of programs that cannot bear more. A process may raise it itself.
pub fn open_as_many_files_as_allowed() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    let allowed = limit.maximum;
    if limit.current != allowed {
        let before = std::mem::replace(&mut limit.current, allowed);
        if let Err(error) = setrlimit(Resource::Nofile, limit) {
            tracing::debug!("the limit of open files stays {before:?}: {error}");
            return before.unwrap_or(u64::MAX);
        }
    }
    // None: there is no limit.
    allowed.unwrap_or(u64::MAX)
}

/// Waits for SIGINT, SIGTERM or SIGHUP. From then on these signals no longer end the process by themselves.
pub async fn interrupted() -> Result<()> {
    let listen = |kind| {
        signal(kind).map_err(|error| Error::new(ErrorKind::Unavailable, format!("no signals: {error}")))
    };
    let [mut int, mut term, mut hup] =
        [listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?];
    tokio::select! {
        _ = int.recv() => {}
        _ = term.recv() => {}
        _ = hup.recv() => {}
    }
    Ok(())
}
