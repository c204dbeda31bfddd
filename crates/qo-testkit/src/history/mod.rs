//! What happened, in the store's order.
//!
//! The simulator is single-threaded and every call is atomic at one point of the store's order, so a history is one
//! list. [`What::Applied`] marks that point: the call and the store's true answer, whether or not the caller got it.
//! Around it are what the callers saw ([`What::Sent`], [`What::Heard`]), which handlers physically ran, and which
//! faults hit the processes.

pub mod journal;
pub mod trace;

use crate::faulty::Fault;
use qo_core::{
    Answer, Command, Explanation, FenceToken, GroupDetail, GroupStatus, JobDetail, JobId, JobView,
};
use qo_core::{QueueStatus, Result, ScheduleStatus, SessionId, Time, WorkerStatus, WorkflowStatus};
use std::sync::Arc;

/// Everything that happened in one run.
#[derive(Debug, Clone, Default)]
pub struct History {
    /// In the store's order.
    pub entries: Vec<Entry>,
}

/// One thing that happened.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Store time.
    pub at: Time,
    /// The actor that did it, or that it happened to.
    pub actor: Actor,
    /// What it was.
    pub what: What,
}

/// The actors of a simulation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Actor {
    /// A worker process.
    Worker(usize),
    /// A program that submits jobs.
    Submitter(usize),
    /// A program that takes standalone slots.
    Program(usize),
    /// An operator, which changes limits.
    Operator,
    /// The process that sweeps.
    Sweeper,
    /// The network, which delivers late calls.
    Network,
    /// The test itself, which only looks.
    Auditor,
}

/// One kind of thing that happened.
#[derive(Debug, Clone)]
pub enum What {
    /// A call left its caller.
    Sent(Arc<Command>),
    /// A call took effect: the store's true answer at this point of its order.
    Applied(Arc<Command>, Arc<Result<Answer>>),
    /// The caller got this; `Unknown` where the reply was lost.
    Heard(Arc<Command>, Arc<Result<Answer>>),
    /// The network did this to the call that was just delivered.
    Fault(Fault),
    /// A handler began to run, physically.
    HandlerStarted(JobId, FenceToken),
    /// A handler no longer runs, physically.
    HandlerStopped(JobId, FenceToken),
    /// A process died; its handlers died with it.
    Crashed,
    /// A process was paused for so long, without noticing.
    Paused {
        /// How long.
        ms: u64,
        /// Longer than its safety margin, so G1′ does not cover what it ran then.
        beyond_margin: bool,
    },
    /// A worker goes on under a new session, because the old one was fenced, closed or died.
    Session(SessionId),
    /// Faults ended. From now on nothing may be stuck for longer than the bound (G5).
    Healed {
        /// Session lease + sweep + poll, and the network's round trip.
        bound_ms: u64,
    },
    /// The store's views, read at this point.
    Audited(Box<Audit>),
}

/// What the store says about itself.
#[derive(Debug, Clone, Default)]
pub struct Audit {
    /// Every group.
    pub groups: Vec<GroupStatus>,
    /// Groups that have holders.
    pub holders: Vec<GroupDetail>,
    /// Live jobs; all jobs where `complete`.
    pub jobs: Vec<JobView>,
    /// Every queue.
    pub queues: Vec<QueueStatus>,
    /// Every session.
    pub workers: Vec<WorkerStatus>,
    /// Every workflow.
    pub workflows: Vec<WorkflowStatus>,
    /// Every schedule.
    pub schedules: Vec<ScheduleStatus>,
    /// Single jobs, whole.
    pub details: Vec<JobDetail>,
    /// Why some of the live jobs do not run.
    pub explanations: Vec<Explanation>,
    /// Whether `jobs` holds finished jobs too.
    pub complete: bool,
}

impl Audit {
    /// Whether only single jobs were looked at.
    pub fn is_partial(&self) -> bool {
        let Self { groups, jobs, workflows, schedules, .. } = self;
        groups.is_empty() && jobs.is_empty() && workflows.is_empty() && schedules.is_empty()
    }
}
