//! qo on objects: the rule book, kept as a log of numbered objects.
//!
//! ```text
//! log/00000000000000000001   what was decided first: events, in the order in which they happened
//! log/00000000000000000002   …
//! snapshot/00000000000000001000   the state after record 1,000, row by row
//! ```
//!
//! Objects are created, never changed. **Whoever creates record N decided it**; everyone who reads the log reaches the
//! same state. There is no leader, no lock and no hot object: a writer that loses the race for a number reads what the
//! winner wrote, decides again, and tries the next number.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | a record as bytes: checksum, writer, nonce, events |
//! | [`log`] | numbered objects: read one, create one if it is not there |
//! | [`snapshot`] | the state as an object, so that a reader need not begin at the beginning |
//! | [`store`] | [`LogStore`]: a [`Store`](qo_core::Store) over all that; group commit, races, lost replies |
//!
//! Records hold what was *decided*, not what was asked: replaying them decides nothing.

pub mod log;
pub mod record;
pub mod snapshot;
pub mod store;
mod writer;

pub use store::{LogStore, Options};
