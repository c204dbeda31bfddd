//! The conformance suite: each rule that a store can break is one case, by that rule's name.
//!
//! A store runs the suite with a few lines in its own tests:
//!
//! ```text
//! qo_testkit::conformance!(MyFixtures);
//! ```
//!
//! which makes one `#[test]` per case. As a library, [`cases`] lists them and [`run`] runs one, so that a
//! broken store can be shown to fail. Cases see a store through the [`Store`](qo_core::Store) trait alone.

mod apps;
mod audit_log;
mod catalog;
mod job_spec;
mod program;
mod snapshot;
mod worker;
mod world;

mod cancel;
mod configuration;
mod costs;
mod crash;
mod exchange;
mod explain;
mod fence;
mod fleet;
mod history;
mod idempotency;
mod invalid;
mod limits;
mod log;
mod manager;
mod on_limit;
mod operator;
mod order;
mod passing;
mod prefetch;
mod progress;
mod queues;
mod reopen;
mod reservation;
mod scale;
mod schedule;
mod session;
mod settle;
mod slots;
mod sources;
mod standalone;
mod start;
mod steer;
mod submit;
mod tick;
mod time;
mod timeout;
mod token;
mod totals;
mod trace;
mod views;
mod work;
mod workflow;

pub use job_spec::{JobSpec, job};
pub use program::{Program, ProgramSpec, program};
pub use snapshot::Snapshot;
pub use worker::{SessionSpec, Worker, serving};
pub use world::World;

use crate::{Fixtures, START};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

// What cases use; they begin with `use super::*`.
use job_spec::{at, cron, failure, group_ref, key, name, retry, snooze, step, success, task, traceparent};
use qo_core::{
    Acquire, Attempt, AttemptOutcome, Change, Changed, Claim, ClaimedJob, ConcurrencyManager, Configuration,
};
use qo_core::{AuditEntry, AuditText, Deed, NewToken, Scope, SessionId, Token, TokenHash};
use qo_core::{CodeLimit, PartialRetention, Push, Pushed, Setting, SettingChange, default_app};
use qo_core::{
    DEFAULT_QUEUE_PRIORITY, ErrorKind, Exchange, FenceToken, HeldBy, IdPrefix, JobFilter, JobId, JobState,
};
use qo_core::{
    JobView, Json, LimitSource, Missed, NewSession, OnFailure, Outcome, Over, Prefetch, Reason, Retention,
};
use qo_core::{
    Progress, RetryPolicy, Schedule, Settle, Start, Started, Steer, StepStatus, Stop, StopReason, Submitted,
};
use qo_core::{Swept, TaskOptions, TickOutcome, Time, Work, WorkerStatus, WorkflowState, caps};
use worker::{CLAIM_MS, at_percent, settled, starting};
use world::{invalid, refused, soon};

const DAY_MS: u64 = 24 * 3_600_000;

/// One rule, as a test.
#[derive(Clone, Copy)]
pub struct Case {
    /// The rule as a sentence.
    pub name: &'static str,
    /// The part of the rules that it belongs to: the file that holds it.
    pub area: &'static str,
    /// Panics if the store breaks the rule.
    pub run: for<'a> fn(&'a World) -> BoxFuture<'a, ()>,
}

/// Every case, area by area.
pub fn cases() -> Vec<Case> {
    crate::conformance!(@list cases)
}

/// Runs one case on a fresh store, then checks that the store's views are consistent. `Err` says what broke.
pub fn run(case: &Case, fixtures: &dyn Fixtures) -> Result<(), String> {
    let test = async {
        let world = World::new(fixtures.fresh().await);
        (case.run)(&world).await;
        world.audit().await;
    };
    catch_unwind(AssertUnwindSafe(|| fixtures.block_on(Box::pin(test)))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_string()
    })
}

/// Runs the case of that area and name, and panics if it fails: the body of every generated `#[test]`.
pub fn check(area: &str, name: &str, fixtures: &dyn Fixtures) {
    let found = cases().into_iter().find(|case| case.area == area && case.name == name);
    let case = found.unwrap_or_else(|| panic!("there is no case {area}::{name}"));
    if let Err(broken) = run(&case, fixtures) {
        panic!("{area}::{name}: {broken}");
    }
}
