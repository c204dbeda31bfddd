//! The rule book of qo.
//!
//! Everything that qo promises is decided here, once, by a deterministic state machine. The rules have no I/O, clock,
//! randomness or async; the seam that stores implement, and the simplest store, live beside them.
//!
//! ```text
//! decide(state, now, command) → events + answer        evolve(state, event) → state
//! ```
//!
//! Stores differ in where they keep the state; they do not differ in what happens. Read in this order:
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`], [`group`], [`job`], [`limit`], [`lease`], [`retry`] | the words: names, groups, jobs, limits, sessions and the exchange, backoff |
//! | [`command`], [`event`], [`view`], [`error`](Error), [`caps`] | what may be asked, what happened, what may be looked at, what can go wrong |
//! | [`decide()`], [`State::evolve`] | the rules: what happens, and what that means |
//! | [`State`] | rows and the indexes that make claiming cheap |
//! | [`store`], [`memory`], [`clock`] | the seam that every store implements, the simplest store, and store time |

pub mod caps;
pub mod clock;
pub mod command;
pub mod decide;
mod error;
pub mod event;
mod evolve;
mod explain;
pub mod group;
pub mod id;
pub mod job;
mod lane;
pub mod lease;
pub mod limit;
pub mod memory;
pub mod retry;
mod state;
pub mod store;
pub mod view;

pub use clock::{Clock, ManualClock, SystemClock, Time};
pub use command::{Answer, Command, OpenedSession, Swept};
pub use decide::{Decision, decide};
pub use error::{Error, ErrorKind, Result};
pub use event::{AttemptEnded, Event, Exchanged, Granted};
pub use group::GroupRef;
pub use id::{FenceToken, JobId, Key, Name, SessionId};
pub use job::{Attempt, AttemptOutcome, ErrorText, JobState, Json, NewJob, OnLimit, Submitted};
pub use lease::{Claim, ClaimedJob, Exchange, ExchangeReply, NewSession, Outcome, Settle, Stop, StopReason};
pub use limit::{Configuration, DEFAULT_QUEUE_PRIORITY, LimitSource, Limits, TaskOptions};
pub use memory::MemoryStore;
pub use retry::RetryPolicy;
pub use state::State;
pub use store::Store;
pub use view::{
    Cursor, Explanation, GroupDetail, GroupPage, GroupStatus, Holder, JobDetail, JobFilter, JobPage,
};
pub use view::{JobView, QueueStatus, Reason, Running, WorkerStatus};

/// Compiles and runs the example of the project's README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
