//! The keeper: the process that remains when a worker and all its guards are killed at once.
//!
//! A worker process has one keeper, from its first program on. The keeper waits on a pipe for the end of the worker.
//! Then it kills every process that carries the worker's id in its environment (`QO_GUARDED_BY`, the *mark* of the code
//! below): programs whose guard is gone, and the processes that they started. It ends when it has found none for a
//! second. Guards that live kill their own programs; guards and keepers carry no such id, neither their own worker's
//! nor another's.
//!
//! One look may miss a process that lives: while `execve` replaces a program the kernel shows an empty environment, and
//! a process that is born after the list was read is not in it. So one look that finds nothing proves nothing. A second
//! of looks does, unless a process is held up in `execve` for longer: G1' allows pauses up to the margin, which is one
//! second or more.
//!
//! It is a shell, and no child of the worker: a kill of `qo` by its name, by its executable or along the process tree
//! does not reach it. Where there is no `sh` there is no keeper, and only the guards are left.
//!
//! It does not find programs that clear or overwrite their environment.

use rustix::process::Pid;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The environment variable of every program of a worker process: the random id of that process, its mark.
pub const VARIABLE: &str = "QO_GUARDED_BY";

/// `$1` is `VARIABLE=MARK`. The script reads until the worker is gone, and then kills until it has found nothing for
/// a second, for half a minute at most.
const SCRIPT: &str = "\
exec 3<&0 </dev/null
trap '' TERM INT HUP QUIT
( while read -r _ <&3; do :; done
  round=0 quiet=0
  while [ $round -lt 600 ] && [ $quiet -lt 20 ]; do
    found=$(grep -lszxF -- \"$1\" /proc/[0-9]*/environ)
    [ \"$found\" ] && quiet=0 || quiet=$((quiet + 1))
    for file in $found; do file=${file#/proc/}; kill -9 \"${file%/environ}\"; done
    round=$((round + 1))
    sleep 0.05
  done ) >/dev/null 2>&1 &";

/// Nothing is left if no look found anything for this long.
const QUIET: Duration = Duration::from_secs(1);
/// How long a process may outlive SIGKILL before a warning is logged.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pauses between looks for processes of a dead guard: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// This process's mark, and the pipe that closes when this process ends.
struct Keeper {
    mark: String,
    _alive: ChildStdin,
}

static KEEPER: OnceLock<Option<Keeper>> = OnceLock::new();

impl Keeper {
    fn start() -> Option<Self> {
        if cfg!(not(target_os = "linux")) {
            return None;
        }
        let mark = uuid::Uuid::new_v4().to_string();
        match start(&mark) {
            Ok(alive) => alive.map(|alive| Self { mark, _alive: alive }),
            Err(error) => {
                tracing::warn!(
                    "no keeper: programs may outlive this worker if it is killed together with their guards: {error}"
                );
                None
            }
        }
    }
}

/// Starts the keeper of a mark. It works when the pipe is closed.
fn start(mark: &str) -> io::Result<Option<ChildStdin>> {
    let mut starting = Command::new("sh");
    starting.args(["-c", SCRIPT, "task-keeper", &format!("{VARIABLE}={mark}")]).current_dir("/");
    starting.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    // This process may be a program of another worker, whose keeper must not kill this one's.
    starting.env_remove(VARIABLE);
    let mut shell = starting.spawn()?;
    let alive = shell.stdin.take();
    // The shell forks the keeper and exits, so that the keeper is not this process's child.
    shell.wait()?;
    Ok(alive)
}

/// The mark of this process, if it has a keeper. The first call starts the keeper.
pub fn mark() -> Option<&'static str> {
    KEEPER.get_or_init(Keeper::start).as_ref().map(|keeper| keeper.mark.as_str())
}

/// Kills every process whose environment has all of these `NAME=VALUE`, until none is left. A process in an
/// uninterruptible system call keeps its slots until it is gone.
pub async fn kill_marked(variables: Vec<String>) {
    let variables: Arc<[String]> = variables.into();
    let (started, mut told, mut pause) = (Instant::now(), false, PAUSES[0]);
    let mut last_found = started;
    loop {
        let looked_for = Arc::clone(&variables);
        // It reads the environment of every process.
        let found = tokio::task::spawn_blocking(move || kill_once(&looked_for)).await.unwrap_or(0);
        if found > 0 {
            last_found = Instant::now();
        } else if last_found.elapsed() >= QUIET {
            return;
        }
        if found > 0 && started.elapsed() > PATIENCE && !std::mem::replace(&mut told, true) {
            let variables = variables.join(" ");
            tracing::error!(
                "{found} processes with {variables} outlive SIGKILL; their job holds its slots until they end"
            );
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSES[1]);
    }
}

/// Kills all that are there now, and returns how many it found.
fn kill_once(variables: &[String]) -> usize {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter_map(Pid::from_raw).filter(|process| kill_if_marked(*process, variables)).count()
}

#[cfg(target_os = "linux")]
fn kill_if_marked(process: Pid, variables: &[String]) -> bool {
    use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    if !is_marked(process, variables) {
        return false;
    }
    // The process may have ended and its id may be another's by now: open a pidfd, then check the mark again.
    let Ok(open) = pidfd_open(process, PidfdFlags::empty()) else { return false };
    is_marked(process, variables) && {
        let _ = pidfd_send_signal(open, Signal::KILL);
        true
    }
}

/// There are no marks to look for.
#[cfg(not(target_os = "linux"))]
fn kill_if_marked(_: Pid, _: &[String]) -> bool {
    false
}

#[cfg(target_os = "linux")]
fn is_marked(process: Pid, variables: &[String]) -> bool {
    // The environment of a process that has ended, or that belongs to another user, cannot be read.
    let environment = fs::read(format!("/proc/{}/environ", process.as_raw_nonzero())).unwrap_or_default();
    let all: Vec<&[u8]> = environment.split(|byte| *byte == 0).collect();
    variables.iter().all(|variable| all.contains(&variable.as_bytes()))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Child;

    /// At once, so that each is held up now and then.
    const PROCESSES: usize = 12;

    /// A process that becomes a new program a thousand times a second. While it does, it has no environment.
    fn restless(folder: &tempfile::TempDir, mark: &str) -> Child {
        let script = folder.path().join("restless.sh");
        if !script.exists() {
            fs::write(&script, "#!/bin/sh\nexec \"$0\"\n").expect("a file");
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
        }
        Command::new(script).env(VARIABLE, mark).process_group(0).spawn().expect("it starts")
    }

    /// Waits until it is gone, and says whether that happened before anything that looks for it had given up.
    async fn is_gone(child: &mut Child) -> bool {
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            if child.try_wait().expect("a child").is_some() {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    #[tokio::test]
    async fn a_worker_kills_a_process_that_is_just_becoming_a_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = (0..PROCESSES).map(|_| async {
            let mark = uuid::Uuid::new_v4().to_string();
            let mut child = restless(&folder, &mark);
            kill_marked(vec![format!("{VARIABLE}={mark}")]).await;
            is_gone(&mut child).await
        });
        assert_eq!(futures::future::join_all(all).await, [true; PROCESSES]);
    }

    #[tokio::test]
    async fn a_keeper_kills_a_process_that_is_just_becoming_a_program() {
        let folder = tempfile::tempdir().expect("a folder");
        let all = (0..PROCESSES).map(|_| async {
            let mark = uuid::Uuid::new_v4().to_string();
            let worker = start(&mark).expect("a keeper").expect("its pipe");
            let mut child = restless(&folder, &mark);
            drop(worker);
            is_gone(&mut child).await
        });
        assert_eq!(futures::future::join_all(all).await, [true; PROCESSES]);
    }
}
