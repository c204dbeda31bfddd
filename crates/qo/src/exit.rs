//! The end of a process that must end.
//!
//! `std::process::exit` runs what other code registered for the exit, and that may wait for ever: for a lock, for a pipe
//! that is not read. A worker whose lease is over must not wait: another worker may run its jobs.

use rustix::process::{Signal, getpid, kill_process};
use std::sync::mpsc;
use std::time::Duration;

/// Kills this process after so long, if it has not ended by then.
pub(crate) fn kill_within(patience: Duration) {
    let kill = || {
        let _ = kill_process(getpid(), Signal::KILL);
    };
    let wait = move || {
        let (_never, said) = mpsc::channel::<()>();
        let _ = said.recv_timeout(patience);
        kill();
    };
    if std::thread::Builder::new().name("qo-exit".into()).spawn(wait).is_err() {
        kill();
    }
}
