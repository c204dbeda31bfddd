//! qo on objects: the rule book, kept as a log of numbered objects.
//!
//! ```text
//! format/00000000000000000001     how the rest is written, and which namespace it is
//! format/mark-…                   (a bucket only) a record that the log has reached
//! format/hold-…                   a repair lost records, and no operator has spoken since
//! log/00000000000000000041        what was decided: events, in the order in which they happened
//! log/00000000000000000042        …
//! snapshot/00000000000000000040   the state after record 40, row by row
//! history/00000000000000000030-…  jobs that succeeded, and have left the state
//! attempt/00000000000000000007    what the attempt with token 7 wrote to stderr
//! concurrency/…                   (a bucket only) slots for programs, apart from the log: see `slots`
//! bell                            (a directory only) rung after every record
//! mark                            (a directory only) the record that the log has reached
//! turn                            (a directory only) locked while somebody writes a record
//! wanting/b9c5…                   (a directory only) locked by the writer of that name while it has something to write
//! wanting/turn                    (a bucket only) changed by somebody who has lost too many races
//! ```
//!
//! Objects are created, never changed (but for `wanting/turn`, slots and logs of attempts, on which no record rests). **Whoever creates record N decided it**; everyone who reads the log reaches the
//! same state. There is no leader, no lock and no hot object: a writer that loses the race for a number reads what the
//! winner wrote, decides again, and tries the next number.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | a record as bytes: checksum, writer, nonce, events |
//! | [`log`] | numbered objects: read one, create one if it is not there |
//! | `put` | a record at the end of the log, whatever the store answers |
//! | `request` | what a writer is asked for, and how much of it goes into one record |
//! | `writer` | the state, read to the end of the log, and shown |
//! | `commit` | what was asked for becomes the next record: group commit, races, lost replies, the late writer |
//! | `housekeeping` | when a snapshot is due and who writes it, what leaves the state, what is swept, slots too |
//! | `pace` | how often to look for what others wrote, and how far ahead to read |
//! | `write_order` `yield_request` | which writer tries to write the next record, and when; how a writer that keeps losing races asks for room |
//! | `offer` | light clients: submitting without holding the state |
//! | `snapshot` `sweep` | the state as an object; deleting what nobody will read again |
//! | `history` | jobs that succeeded some time ago, out of the state and into segments |
//! | `clock` | store time: what the store stamps |
//! | `watch` | what this process has watched: in a bucket it ends no lease of another one before |
//! | `format` | which releases can work with a namespace, which one it is, how far its log has reached, whether it is on hold |
//! | `bucket` `profile` | where a bucket is, who may use it, and whether it can be relied upon |
//! | `traffic` `prices` | the requests of a bucket, what they cost, and the time that its answers bear |
//! | [`slots`] | slots as objects, for programs on a bare bucket |
//! | `directory` | what a directory can do that a bucket cannot: be made durable, and wake those who wait |
//! | `mount` | whether a directory is on another machine, where files show late |
//! | [`doctor`] | is everything there that a reader needs, and if not, how does it get going again? |
//! | [`store`] | [`LogStore`]: a [`Store`](qo_core::Store) over all that |
//!
//! Records hold what was *decided*, not what was asked: replaying them decides nothing.

mod admission;
mod bucket;
mod clock;
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
