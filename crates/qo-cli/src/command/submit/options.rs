//! The options of a job, on the command line.

use crate::command::argument;
use crate::trouble::Done;
use clap::{Args, ValueEnum};
use qo::Store;
use qo::core::{GroupRef, Key, Name, NewJob, OnFailure, OnLimit, Time, Traceparent, caps};
use qo::text::{JobText, Moment};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What to do when the live jobs of the group leave no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhenTaken {
    /// Accept the job; it waits in line.
    Wait,
    /// Refuse it: exit code 4.
    Reject,
    /// Drop it, and say so.
    Skip,
}

/// What the workflow does when a step does not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum WhenFailed {
    /// The steps behind it wait until it is retried or skipped.
    Halt,
    /// The steps behind it go on.
    Continue,
}

/// The options of a job.
#[derive(Debug, Clone, Default, Args)]
pub struct Options {
    /// Divides the group: jobs with the same key share its limit.
    #[arg(long, value_name = "KEY", value_parser = argument::key, help_heading = "Job options")]
    pub key: Option<Key>,
    /// The group it shares slots in [default: the task's].
    #[arg(long, value_name = "NAME", value_parser = argument::name, help_heading = "Job options")]
    pub group: Option<Name>,
    /// Slots it takes in its group and key [default: 1].
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")]
    pub cost: Option<u32>,
    /// A limit for its group (with a key: for that key) where no other source has set one.
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")]
    pub limit: Option<u32>,
    /// Clear the limit that earlier submits brought for its group (with a key: for that key).
    #[arg(long, conflicts_with = "limit", help_heading = "Job options")]
    pub clear_limit: bool,
    /// Slots it takes in other groups, as in openai=1,gpu=2 or {"openai": 1}.
    #[arg(long, value_name = "GROUP=N,…", value_parser = limits, help_heading = "Job options")]
    pub limits: Option<Limits>,
    /// The queue it stands in [default: default].
    #[arg(long, value_name = "NAME", value_parser = argument::name, help_heading = "Job options")]
    pub queue: Option<Name>,
    /// Lower runs first [default: 0].
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")]
    pub priority: Option<i32>,
    /// Start it only after this much time, as in 10m.
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true, conflicts_with = "at", help_heading = "Job options")]
    pub delay: Option<u64>,
    /// Start it only from this moment on.
    #[arg(long, value_name = "MOMENT", value_parser = argument::moment, allow_hyphen_values = true, help_heading = "Job options")]
    pub at: Option<Moment>,
    /// It expires if it has not started by this moment.
    #[arg(long, value_name = "MOMENT", value_parser = argument::moment, allow_hyphen_values = true, help_heading = "Job options")]
    pub good_until: Option<Moment>,
    /// How long one attempt may run, as in 60s [default: the task's].
    #[arg(long, value_name = "TIME", value_parser = argument::duration, allow_hyphen_values = true, help_heading = "Job options")]
    pub timeout: Option<u64>,
    /// Tries until it fails for good [default: 3].
    #[arg(long, value_name = "N", allow_negative_numbers = true, help_heading = "Job options")]
    pub max_attempts: Option<u32>,
    /// The workflow that it is the next step of.
    #[arg(long, value_name = "NAME", value_parser = argument::name, help_heading = "Job options")]
    pub workflow: Option<Name>,
    /// What its workflow does when a step does not succeed [default: halt].
    #[arg(long, value_name = "WHAT", help_heading = "Job options")]
    pub on_failure: Option<WhenFailed>,
    /// A second submission with the same key is the same job.
    #[arg(long, value_name = "KEY", value_parser = argument::key, help_heading = "Job options")]
    pub idempotency_key: Option<Key>,
    /// What to do when the live jobs of its group leave no room for it [default: wait].
    #[arg(long, value_name = "WHAT", help_heading = "Job options")]
    pub on_limit: Option<WhenTaken>,
    /// The trace that it belongs to, as in the header `traceparent` of W3C Trace Context.
    #[arg(long, value_name = "TRACEPARENT", value_parser = argument::traceparent, help_heading = "Job options")]
    pub traceparent: Option<Traceparent>,
}

/// Slots in other groups.
pub type Limits = BTreeMap<GroupRef, u32>;

fn limits(text: &str) -> Result<Limits, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text)
            .map_err(|error| format!("must be an object of groups and numbers: {error}"));
    }
    let one = |part: &str| {
        let (group, slots) = part.rsplit_once('=').ok_or("must be GROUP=N, several separated by commas")?;
        let slots = slots.trim().parse().map_err(|_| format!("{slots:?} must be a whole number"))?;
        Ok((argument::group(group.trim())?, slots))
    };
    text.split(',').map(one).collect()
}

impl From<Options> for JobText {
    fn from(options: Options) -> Self {
        let on_limit = options.on_limit.map(|when| match when {
            WhenTaken::Wait => OnLimit::Wait,
            WhenTaken::Reject => OnLimit::Reject,
            WhenTaken::Skip => OnLimit::Skip,
        });
        let on_failure = options.on_failure.map(|when| match when {
            WhenFailed::Halt => OnFailure::Halt,
            WhenFailed::Continue => OnFailure::Continue,
        });
        Self {
            id: None,
            task: None,
            payload: None,
            key: options.key,
            group: options.group,
            cost: options.cost,
            limit: options.limit,
            clear_limit: options.clear_limit,
            limits: options.limits,
            queue: options.queue,
            priority: options.priority,
            delay: options.delay,
            at: options.at,
            good_until: options.good_until,
            timeout: options.timeout,
            max_attempts: options.max_attempts,
            workflow: options.workflow,
            on_failure,
            idempotency_key: options.idempotency_key,
            on_limit,
            traceparent: options.traceparent,
        }
    }
}

/// The store's time, if a job needs it.
pub async fn now(template: &JobText, store: &Arc<dyn Store>) -> Done<Time> {
    Ok(if template.needs_now() { store.now().await? } else { Time::from_millis(0) })
}

/// Bytes of payload that a job adds to a call.
pub fn payload_bytes(job: &NewJob) -> usize {
    job.payload.as_str().len()
}

/// Whether another job fits into a call.
pub fn fits(jobs: usize, bytes: usize, next: usize) -> bool {
    jobs == 0 || (jobs < caps::SUBMIT_JOBS && bytes + next <= caps::SUBMIT_BYTES)
}
