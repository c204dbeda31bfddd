//! qo on objects: the rule book's state as a log of numbered objects, on a directory or in a bucket.
//!
//! ```text
//! format/00000000000000000001     the format of the rest, and which namespace it is
//! format/mark-…                   (a bucket only) a record that the log has reached
//! format/hold-…                   a repair lost records, and no operator has released the hold
//! log/00000000000000000041        a record: events, in the order in which they happened
//! log/00000000000000000042        …
//! snapshot/00000000000000000040   the state after record 40, row by row
//! history/00000000000000000030-…  jobs that succeeded, and have left the state
//! attempt/00000000000000000007    what the attempt with token 7 wrote to stderr
//! concurrency/…                   (a bucket only) slots for programs, apart from the log: see `slots`
//! bell                            (a directory only) touched after every record
//! mark                            (a directory only) the record that the log has reached
//! turn                            (a directory only) the write lock: locked while a writer creates a record
//! wanting/b9c5…                   (a directory only) a write intent: locked by that writer while it wants to write
//! wanting/turn                    (a bucket only) a yield request of a writer that has lost too many races
//! ```
//!
//! Objects are created and never changed, except `wanting/turn`, slots and logs of attempts, on which no record
//! depends. **The writer that creates record N decides it**; every process that reads the log reaches the same state.
//! There is no leader, no lock that a decision depends on, and no hot object: a writer that loses the race for a number
//! reads the winner's record, decides again, and tries the next number.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | a record as bytes: checksum, writer, nonce, events |
//! | [`log`] | numbered objects: read one, create one if it is not there |
//! | `medium` | what the objects lie on, and how processes behave there |
//! | `directory` `mount` | a directory: durable records, the bell, locks; whether it is on another machine |
//! | `bucket` `profile` | where a bucket is, its credentials, and whether its server can be relied upon |
//! | `traffic` `prices` | the requests to a bucket, what they cost, and the dates of its answers |
//! | `object_error` | what an error of an object store means |
//! | `put` | a record at the end of the log, whatever the store answers |
//! | `request` | the calls that wait for the writer, and how much goes into one record |
//! | `writer` | one for each opened namespace: serves calls, commits batches |
//! | `replica` | the state, and how far the log was read |
//! | `contention` `write_order` `yield_request` | when this writer writes beside others |
//! | `admission` `offer` | jobs of light clients, which submit without holding the state |
//! | `polling` | how often to look for records of other processes |
//! | `housekeeping` | when snapshots, sweeps and marks are due |
//! | `snapshot` `sweep` | the state as an object; deleting objects that no process will read again |
//! | `history` | jobs that succeeded some time ago, out of the state and into segments |
//! | `clock` | store time |
//! | `watch` | which leases this process has watched: in a bucket it ends no other |
//! | `format` | the level and the identity of a namespace, its mark, its hold |
//! | `jitter` | randomness |
//! | [`slots`] | slots as objects, for programs on a bare bucket |
//! | [`doctor`] | checks and repairs |
//! | [`store`] `options` | [`LogStore`]: a [`Store`](qo_core::Store) over all that |
//!
//! Records hold what was *decided*, not what was asked: replaying them decides nothing.

// Without the feature there is no bucket, and what follows one in the code is never reached.
#![cfg_attr(not(feature = "s3"), allow(unreachable_code, unused_variables))]

mod admission;
#[cfg(feature = "s3")]
mod bucket;
#[cfg(not(feature = "s3"))]
#[path = "bucket/absent.rs"]
mod bucket;
mod clock;
#[cfg(feature = "s3")]
mod connector;
mod contention;
mod directory;
pub mod doctor;
mod format;
mod history;
mod housekeeping;
mod jitter;
pub mod log;
mod medium;
mod mount;
mod object_error;
mod offer;
mod options;
mod polling;
mod prices;
#[cfg(feature = "s3")]
mod profile;
mod put;
pub mod record;
mod replica;
mod request;
pub mod slots;
mod snapshot;
pub mod store;
mod sweep;
mod traffic;
mod watch;
mod write_order;
mod writer;
mod yield_request;

pub use bucket::Bucket;
pub use format::{Absent, Hold, Identity};
#[doc(hidden)]
pub use jitter::Jitter;
pub use prices::Requests;
pub use slots::SlotObjects;
pub use store::{Host, LogStore, Options};
pub use traffic::Traffic;
