//! How a namespace is kept.

use crate::format::Absent;
use std::time::Duration;

/// How often a process polls a bucket while nothing happens, and soon after something did.
const IDLE_POLL: Duration = Duration::from_millis(1_500);
const BUSY_POLL: Duration = Duration::from_millis(100);

/// How often a fleet looks for slots that are objects and whose lease is over.
const SLOTS_EVERY: Duration = Duration::from_secs(900);

/// How a namespace is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often a write is tried whose outcome is unknown. Defaults to 10.
    pub attempts: u32,
    /// How long to wait between two such tries. Defaults to 100 ms.
    pub pause: Duration,
    /// A snapshot is due after this many records … Defaults to 1,000.
    pub snapshot_every: u64,
    /// … or after records with this many bytes, if it would not be much larger than they are. Defaults to 8 MiB.
    pub snapshot_bytes: usize,
    /// How long a record is kept at least. A process that has not looked at the log for half of it reopens from a
    /// snapshot. Every process of a namespace must use the same. Defaults to 60 s, in a bucket to an hour.
    pub sweep_age: Duration,
    /// How often to poll for records of other processes, beside being woken. Defaults to 1 s.
    pub poll: Duration,
    /// How often to poll where no bell wakes this process. Defaults to 50 ms.
    pub poll_without_bell: Duration,
    /// How often the processes that hold a namespace in a bucket look, all of them together, for [slots](crate::slots)
    /// beside it whose lease is over. Defaults to 15 min.
    pub slots_every: Duration,
    /// What to do where there is no namespace. Defaults to making one.
    pub absent: Absent,
    /// How often a process that writes to a bucket makes sure that the namespace there is still the one that it opened:
    /// one GET before a record. On a directory every record checks. Defaults to 10 s.
    pub recognise_every: Duration,
    /// Where the log is written. Defaults to a thread of its own.
    pub host: Host,
}

impl Options {
    /// How a namespace in a bucket is kept, where every request takes time and costs money: a process polls often soon
    /// after something happened and seldom while nothing does, and records are kept for an hour.
    pub fn bucket() -> Self {
        Self {
            attempts: 4,
            pause: Duration::from_millis(200),
            sweep_age: Duration::from_secs(3_600),
            poll: IDLE_POLL,
            poll_without_bell: BUSY_POLL,
            ..Self::default()
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            attempts: 10,
            pause: Duration::from_millis(100),
            snapshot_every: 1_000,
            snapshot_bytes: 8 << 20,
            sweep_age: Duration::from_secs(60),
            poll: Duration::from_secs(1),
            poll_without_bell: Duration::from_millis(50),
            slots_every: SLOTS_EVERY,
            absent: Absent::Make,
            recognise_every: Duration::from_secs(10),
            host: Host::Thread,
        }
    }
}

/// Where the log of an opened namespace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    /// On a thread of its own: a busy event loop of the caller holds up no commit.
    Thread,
    /// As a task of the caller's runtime: for simulations, whose time stands still while a task runs.
    Runtime,
}
