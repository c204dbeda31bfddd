//! What the machine provides: its clocks, and the signals that end a process.

use qo::{Error, ErrorKind, Result};
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
