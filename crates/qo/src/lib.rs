//! qo: a client and a worker, on any store.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@connect`] | from a URL to a [`Store`] |
//! | [`client`], [`submit`] | submitting jobs, waiting for them, and what operators do |
//! | [`task`] | a task as a constant: its name, payload and output |
//! | [`handler`], [`context`], [`failure`] | functions that run jobs: what they get, what they return |
//! | [`worker`] | the worker: one session, one loop of exchanges, handlers under supervision |
//! | [`program`], [`guard`] | any executable as a task, and the process that kills it before it outlives its lease |
//! | [`log`] | what an attempt logs |
//! | [`metrics`] | what a worker counts |
//! | `trace` | spans of submits and attempts |
//! | [`doctor`] | is a store whole, and how does a damaged one get going again |
//! | [`migrate`] | the version of a store, and raising it |
//! | [`bucket`] | a bucket: its requests, which are what it costs |
//! | [`postgres`] | PostgreSQL: its store, opened with options of your own, and its transactions |
//! | [`settings`] | what `.qo.toml`, the environment and flags say |

pub mod bucket;
pub mod client;
pub mod connect;
pub mod context;
pub mod doctor;
mod exit;
pub mod failure;
pub mod guard;
pub mod handler;
pub mod log;
pub mod metrics;
pub mod migrate;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod program;
pub mod retry;
pub mod settings;
pub mod submit;
pub mod task;
mod trace;
pub mod worker;

pub use client::{AcquireSlots, Client, Page, SlotGuard};
pub use connect::{connect, connect_to_submit, slot_objects};
pub use context::{CancelReason, Context};
pub use failure::{Failure, IntoFailure};
pub use handler::{Handler, TaskConfig};
pub use metrics::Metrics;
pub use qo_core as core;
pub use qo_core::{Acquire, ConcurrencyManager, HeldSlot};
pub use qo_core::{
    Attempt, AttemptOutcome, Cursor, Explanation, FenceToken, GroupDetail, GroupPage, GroupRef, GroupStatus,
    JobDetail, JobFilter, JobId, JobPage, JobState, JobView, Key, Name, NewJob, OnFailure, OnLimit,
    QueueStatus, Reason, ScheduleStatus, Submitted, Time, WorkerStatus, WorkflowPage, WorkflowState,
    WorkflowStatus,
};
pub use qo_core::{Cause, Error, ErrorKind, Result, Store};
pub use qo_object::SlotObjects;
pub use retry::RetryPolicy;
pub use settings::Settings;
pub use submit::Submit;
pub use task::Task;
pub use worker::{ShutdownHandle, Worker, WorkerBuilder, WorkerOptions};

/// Compiles and runs the examples of the project's README and of its documentation.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;

    #[doc = include_str!("../../../docs/tutorial/rust.md")]
    struct Tutorial;

    #[doc = include_str!("../../../docs/how-to/limits-and-keys.md")]
    struct LimitsAndKeys;

    #[doc = include_str!("../../../docs/how-to/idempotency.md")]
    struct Idempotency;

    #[doc = include_str!("../../../docs/how-to/testing-handlers.md")]
    struct TestingHandlers;

    #[doc = include_str!("../../../docs/how-to/run-on-postgresql.md")]
    struct RunOnPostgresql;
}
