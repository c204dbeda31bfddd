//! The rule book of qo: what every store decides, as a deterministic state machine.
//!
//! The stores in memory, on a directory and in a bucket run it. PostgreSQL decides in SQL, and the equality suite
//! compares it with this crate, command by command. The rules do no I/O, read no clock, use no randomness and are not
//! async. The trait that stores implement, and the simplest store, live beside them.
//!
//! ```text
//! decide(state, now, command) → events + answer        evolve(state, event) → state
//! ```
//!
//! Stores differ in where they keep the state, not in what happens. Read in this order:
//!
//! | module | what it holds |
//! |---|---|
//! | [`id`], [`group`], [`job`], [`workflow`], [`schedule`] | names, groups, jobs and how they follow one another |
//! | [`limit`], [`app`] | limits, and which app sets them |
//! | [`lease`], [`progress`], [`slot`], [`settings`] | sessions, the exchange, slots of programs, how a worker claims |
//! | [`token`], [`deed`], [`operator`] | what a caller of a server may do, and what operators did |
//! | [`retry`], [`retention`] | backoff, how long ended jobs are remembered |
//! | [`command`], [`event`], [`view`] | what a client may ask, what happened, what a client sees |
//! | [`words`] | an explanation in words |
//! | [`unreadable`], [`error`](Error), [`caps`] | rows that cannot be read, what can go wrong, how big things may be |
//! | [`decide()`], [`State::evolve`] | the rules: what happens, and what that means |
//! | [`State`] | rows, and the indexes that make a claim cheap |
//! | [`store`], [`book`], [`memory`] | the trait of all stores, stores that keep this state, the simplest one |
//! | [`clock`], [`watch`] | store time, and which leases a process may end |

pub mod app;
pub mod book;
pub mod caps;
pub mod clock;
pub mod command;
pub mod concurrency;
pub mod decide;
pub mod deed;
mod error;
pub mod event;
mod evolve;
mod explain;
pub mod group;
pub mod id;
mod id_prefix;
pub mod job;
mod lane;
pub mod lease;
pub mod limit;
pub mod memory;
pub mod operator;
pub mod progress;
pub mod retention;
pub mod retry;
pub mod schedule;
pub mod settings;
pub mod slot;
mod state;
pub mod store;
pub mod token;
mod traceparent;
pub mod unreadable;
pub mod view;
pub mod watch;
pub mod words;
pub mod workflow;

pub use app::{Push, Pushed, Setting, SettingChange, default_app};
pub use book::Book;
pub use clock::{Clock, ManualClock, SystemClock, Time, millis};
pub use command::{Answer, Change, Changed, Command, OpenedSession, Swept};
pub use concurrency::{Acquire, ConcurrencyManager, ConcurrencyStatus, HeldSlot, SlotInfo, StoreSlots};
pub use decide::{Decision, decide, decide_watching};
pub use deed::{AuditEntry, AuditText, Deed};
pub use error::{Cause, Error, ErrorKind, Result};
pub use event::{AttemptEnded, Event, Exchanged};
pub use group::GroupRef;
pub use id::{FenceToken, JobId, Key, LeaseId, Name, SessionId};
pub use id_prefix::IdPrefix;
pub use job::{Attempt, AttemptOutcome, ErrorText, JobState, Json, NewJob, OnLimit, Submitted};
pub use lease::{Claim, ClaimedJob, Exchange, ExchangeReply, Granted, NewSession, Outcome, Prefetch};
pub use lease::{PrefetchedJob, Settle, Start, Started, Stop, StopReason, Work};
pub use limit::{CodeLimit, Configuration, DEFAULT_QUEUE_PRIORITY, LimitSource, Limits, TaskOptions};
pub use memory::MemoryStore;
pub use operator::Operator;
pub use progress::{JobProgress, Note, Progress};
pub use retention::{PartialRetention, Retention};
pub use retry::RetryPolicy;
pub use schedule::{Missed, Schedule, TickOutcome};
pub use settings::ClaimSettings;
pub use slot::{SlotLease, SlotRequest, SlotsFreedBy};
pub use state::State;
pub use state::snapshot::{JobSnapshot, Place, SessionSnapshot, SnapshotRow};
pub use store::Store;
pub use token::{Bearer, NewToken, Scope, Token, TokenHash, TokenId};
pub use traceparent::Traceparent;
pub use view::{
    Cursor, Explanation, GroupDetail, GroupPage, GroupStatus, HeldBy, Holder, JobDetail, JobFilter, JobPage,
};
pub use view::{
    JobView, LastTick, LeaseOver, Over, QueueStatus, Reason, Running, ScheduleStatus, SessionOver, StepStatus,
};
pub use view::{WorkerStatus, WorkflowPage, WorkflowStatus};
pub use watch::{StoreTime, Watch};
pub use workflow::{OnFailure, Steer, WorkflowState};
