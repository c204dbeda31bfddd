//! Snapshots: a state as rows that stand on their own, and back. A store that keeps a log writes them now and then, so
//! that a reader need not replay the log from its beginning.
//!
//! Rows come one by one, each after the rows that it refers to. Nothing is collected on the way, because there may be
//! millions. A row refers to others by name, because handles mean nothing outside one process.

use super::State;
use super::row::{At, Claimed, Job, JobOptions, Membership, Past, Phase, Program, Record, Run, ScheduleRow};
use super::row::{Serves, SessionRow, Spec, Track, Workflow, WorkflowRow};
use super::table::Ix;
use super::total::Totals;
use crate::job::{default_cost, is_default, is_one};
use crate::{
    Attempt, AuditEntry, Configuration, Error, ErrorKind, ExchangeReply, FenceToken, GroupRef, JobDetail,
    JobId, JobProgress, JobState, JobView, Json, Key, Limits, Push,
};
use crate::{
    Name, NewSession, OnFailure, Result, Retention, RetryPolicy, ScheduleStatus, SessionId, SlotRequest,
};
use crate::{Stop, TaskOptions, Time, Token, Traceparent, caps, unreadable};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A row of a snapshot. The first one is the clock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotRow {
    /// Store time, and the next numbers.
    Clock {
        /// Store time of the last event.
        now: Time,
        /// The next job's acceptance number.
        next_number: u64,
        /// The next fence token.
        next_token: u64,
        /// How long ended jobs are remembered.
        retention: Retention,
    },
    /// A task as an app registered it. Of one task the newest registration comes last.
    Task(Arc<TaskOptions>),
    /// A queue that was configured or paused.
    Queue {
        /// The queue.
        queue: Name,
        /// As configured.
        priority: Option<u32>,
        /// Whether it is paused.
        paused: bool,
    },
    /// The limits of one group reference, by source.
    Limits {
        /// The reference.
        group: GroupRef,
        /// The limits.
        limits: Limits,
    },
    /// How often slots of a group that has a limit were taken and refused. It comes after the limits.
    Total {
        /// The group, or every key of one.
        group: GroupRef,
        /// Jobs and programs that took slots.
        acquired: u64,
        /// Submits and programs that were refused.
        rejected: u64,
    },
    /// A live session.
    Session(Box<SessionSnapshot>),
    /// A session that ended and is remembered.
    EndedSession {
        /// The session.
        session: SessionId,
        /// When it ended.
        at: Time,
    },
    /// A workflow.
    Workflow {
        /// The workflow.
        workflow: Name,
        /// What it does when a step does not succeed.
        on_failure: OnFailure,
        /// Whether it was cancelled.
        cancelled: bool,
        /// Steps that were ever accepted.
        accepted: u32,
    },
    /// A job, live or remembered.
    Job(Box<JobSnapshot>),
    /// Slots that a program holds.
    Program {
        /// The program's request.
        request: Arc<SlotRequest>,
        /// Its token.
        token: FenceToken,
        /// When they were taken.
        since: Time,
        /// When the lease was last extended. None if that follows from `since` and `lease_until`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        renewed_at: Option<Time>,
        /// When the lease is over.
        lease_until: Time,
    },
    /// A schedule.
    Schedule(Box<ScheduleStatus>),
    /// The configuration of an app. The newest push comes last. A snapshot that was written before there were apps has
    /// no such row; its configuration then belongs to the app `default`.
    App(Arc<Configuration>),
    /// A push that changed something. The newest comes last.
    Push(Arc<Push>),
    /// A token.
    Token(Arc<Token>),
    /// An entry of the audit log. The newest comes last.
    Audit(Arc<AuditEntry>),
}

/// A live session with all its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionSnapshot {
    /// The request that opened it.
    pub session: Arc<NewSession>,
    /// When it was opened.
    pub opened_at: Time,
    /// When it was last renewed. None if that follows from its lease and `lease_until`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<Time>,
    /// When it ends unless it is renewed.
    pub lease_until: Time,
    /// The free permits that it last reported, less the jobs that it got since.
    pub free_permits: u32,
    /// How full the worker's memory was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_percent: Option<u8>,
    /// Whether it takes no more jobs.
    pub draining: bool,
    /// The last exchange that was answered.
    pub number: u64,
    /// The reply to that exchange.
    pub reply: Option<Arc<ExchangeReply>>,
    /// What its next exchange tells it to stop.
    pub stops: Vec<Stop>,
}

/// A job with all its details.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSnapshot {
    /// Its id.
    pub id: JobId,
    /// Its acceptance number.
    pub number: u64,
    /// Its queue.
    pub queue: Name,
    /// Its task.
    pub task: Name,
    /// Its group.
    pub group: Name,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Key>,
    /// Slots it takes in its group and key.
    #[serde(default = "default_cost", skip_serializing_if = "is_one")]
    pub cost: u32,
    /// Slots it takes in further groups.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<GroupRef, u32>,
    /// Lower runs first.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: i32,
    /// When it was accepted.
    pub submitted_at: Time,
    /// It does not run before this time.
    pub run_at: Time,
    /// It expires if it has not started by then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub good_until: Option<Time>,
    /// Its own timeout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Its own backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryPolicy>,
    /// Its idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Key>,
    /// The submit-side limit that it brought.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
    /// Its workflow and its step number there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<(Name, u32)>,
    /// Attempts used so far.
    #[serde(default, skip_serializing_if = "is_default")]
    pub attempts_used: u16,
    /// Attempts it may use.
    pub max_attempts: u16,
    /// What the handler gets.
    #[serde(default = "Json::null", skip_serializing_if = "Json::is_null")]
    pub payload: Json,
    /// What the handler returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Its attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<Attempt>,
    /// Its last progress report, if it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<JobProgress>,
    /// Its phase.
    pub place: Place,
}

/// The phase of a job, in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// In line, or waiting.
    Pending,
    /// Claimed ahead of time.
    Claimed {
        /// The session that claimed it.
        session: SessionId,
        /// The claim's token.
        token: FenceToken,
        /// When it was claimed.
        since: Time,
        /// When the claim is over.
        until: Time,
    },
    /// Running.
    Running {
        /// The session that runs it.
        session: SessionId,
        /// The run's token.
        token: FenceToken,
        /// When it started.
        since: Time,
        /// When its timeout ends the attempt.
        timeout_at: Option<Time>,
        /// Whether it was cancelled while it runs.
        cancel_requested: bool,
    },
    /// Ended, and remembered.
    Ended {
        /// How it ended.
        state: JobState,
        /// When it ended.
        at: Time,
        /// Whether it was skipped in its workflow.
        skipped: bool,
    },
}

impl JobSnapshot {
    /// What [`State::job`] shows of it, if it has ended. A store shows an archived job as if it were still in the
    /// state.
    pub fn detail(&self) -> Option<JobDetail> {
        let Place::Ended { state, at, skipped } = self.place else { return None };
        let view = JobView {
            id: self.id,
            state,
            queue: self.queue.clone(),
            task: self.task.clone(),
            group: self.group.clone(),
            key: self.key.clone(),
            cost: self.cost,
            limits: self.limits.clone(),
            priority: self.priority,
            submitted_at: self.submitted_at,
            run_at: self.run_at,
            good_until: self.good_until,
            timeout_ms: self.timeout_ms,
            retry: self.retry,
            limit: self.limit,
            idempotency_key: self.idempotency_key.clone(),
            traceparent: self.traceparent,
            attempts_used: self.attempts_used.into(),
            max_attempts: self.max_attempts.into(),
            cancel_requested: false,
            running: None,
            claimed: None,
            workflow: self.step.as_ref().map(|(workflow, _)| workflow.clone()),
            step: self.step.as_ref().map(|&(_, step)| step),
            skipped,
            finished_at: Some(at),
            unreadable: unreadable::said(&self.payload).map(Into::into),
        };
        let (payload, output, attempts) = (self.payload.clone(), self.output.clone(), self.attempts.clone());
        Some(JobDetail { view, payload, output, attempts })
    }
}

impl State {
    /// The state as rows. A state [restored](State::restore) from them decides the same from there on.
    pub fn snapshot(&self) -> impl Iterator<Item = SnapshotRow> {
        let State { now, next_number, next_token, retention, .. } = *self;
        let clock = SnapshotRow::Clock { now, next_number, next_token, retention };
        let tasks = self.tasks.iter().flat_map(|(_, task)| task.registered.iter().cloned());
        let tasks = tasks.map(SnapshotRow::Task);
        let queues = self.queues.iter().map(|(_, queue)| queue);
        let queues = queues.filter(|queue| queue.priority.is_some() || queue.paused).map(|queue| {
            SnapshotRow::Queue { queue: queue.name.clone(), priority: queue.priority, paused: queue.paused }
        });
        let limits = self
            .limits
            .iter()
            .map(|(group, limits)| SnapshotRow::Limits { group: group.clone(), limits: limits.clone() });
        let totals = self.limits.keys().map(|group| (group, self.total(group)));
        let totals = totals.filter(|(_, total)| *total != Totals::default()).map(|(group, total)| {
            let Totals { acquired, rejected } = total;
            SnapshotRow::Total { group: group.clone(), acquired, rejected }
        });
        let sessions = self.sessions.iter().map(|(_, session)| {
            let row = &session.row;
            SnapshotRow::Session(Box::new(SessionSnapshot {
                session: Arc::clone(&row.new),
                opened_at: row.opened_at,
                renewed_at: Some(row.renewed_at)
                    .filter(|at| *at != session_renewed(&row.new, row.opened_at, row.lease_until)),
                lease_until: row.lease_until,
                free_permits: row.free_permits,
                memory_percent: row.memory_percent,
                draining: row.draining,
                number: row.number,
                reply: row.reply.clone(),
                stops: session.stops.values().copied().collect(),
            }))
        });
        let ended = self.ended_order.iter().map(|&(at, session)| SnapshotRow::EndedSession { session, at });
        let workflows = self.workflows.iter().map(|(_, workflow)| workflow);
        let workflows = workflows.filter(|workflow| !workflow.steps.is_empty()).map(|workflow| {
            let WorkflowRow { on_failure, cancelled, accepted } = workflow.row;
            SnapshotRow::Workflow { workflow: workflow.name.clone(), on_failure, cancelled, accepted }
        });
        let jobs =
            self.in_order(0..u64::MAX).map(|(_, at)| SnapshotRow::Job(Box::new(self.job_snapshot(at))));
        let programs = self.program_ends.values().map(|&ix| &self.programs[ix]);
        let programs = programs.map(|program| SnapshotRow::Program {
            request: Arc::clone(&program.request),
            token: program.token,
            since: program.since,
            renewed_at: Some(program.renewed_at)
                .filter(|at| *at != program_renewed(program.since, program.until)),
            lease_until: program.until,
        });
        let schedules = self.schedules().into_iter().map(|row| SnapshotRow::Schedule(Box::new(row)));
        let apps = self.apps.iter().cloned().map(SnapshotRow::App);
        let pushes = self.pushes.iter().cloned().map(SnapshotRow::Push);
        let said =
            std::iter::once(clock).chain(tasks).chain(queues).chain(limits).chain(totals).chain(sessions);
        let all = said.chain(ended).chain(workflows).chain(jobs).chain(programs).chain(schedules);
        let tokens = self.tokens.values().cloned().map(SnapshotRow::Token);
        let audit_log = self.audit_log.iter().cloned().map(SnapshotRow::Audit);
        all.chain(apps).chain(pushes).chain(tokens).chain(audit_log)
    }

    pub(super) fn job_snapshot(&self, at: At) -> JobSnapshot {
        let record = self.record(at);
        let (spec, key) = self.asked_for(at);
        let options = record.options.as_deref().cloned().unwrap_or_default();
        let session = |ix: Ix<_>| self.sessions[ix].row.new.id;
        let place = match at {
            At::Past(ix) => {
                let Past { state, finished_at: at, skipped, .. } = self.past[ix];
                Place::Ended { state, at, skipped }
            }
            At::Live(ix) => match *self.jobs[ix].phase() {
                Phase::Pending => Place::Pending,
                Phase::Claimed(Claimed { session: by, token, since, until }) => {
                    Place::Claimed { session: session(by), token, since, until }
                }
                Phase::Running(Run { session: by, token, since, timeout_at, cancel_requested }) => {
                    Place::Running { session: session(by), token, since, timeout_at, cancel_requested }
                }
            },
        };
        JobSnapshot {
            id: record.id,
            number: record.number,
            queue: spec.queue,
            task: spec.task,
            group: spec.group,
            key,
            cost: spec.cost,
            limits: spec.limits,
            priority: record.priority,
            submitted_at: record.submitted_at,
            run_at: record.run_at,
            good_until: options.good_until,
            timeout_ms: options.timeout_ms,
            retry: options.retry,
            idempotency_key: options.idempotency_key,
            limit: options.limit,
            traceparent: options.traceparent,
            step: options.membership.map(|at| (self.workflows[at.workflow].name.clone(), at.step)),
            attempts_used: record.attempts_used,
            max_attempts: record.max_attempts,
            payload: record.payload.clone(),
            output: record.track.as_ref().and_then(|track| track.output.clone()),
            attempts: record.attempts().to_vec(),
            progress: record.progress().cloned(),
            place,
        }
    }

    /// A state from the rows of a [snapshot](State::snapshot). `Data` if the rows are not a valid snapshot.
    pub fn restore(rows: impl IntoIterator<Item = SnapshotRow>) -> Result<Self> {
        let mut rows = rows.into_iter();
        let mut restored = Restored { state: Self::new(), specs: BTreeMap::new() };
        match rows.next() {
            Some(SnapshotRow::Clock { now, next_number, next_token, retention }) => {
                let state = &mut restored.state;
                (state.now, state.next_number, state.next_token) = (now, next_number, next_token);
                state.retention = retention;
            }
            _ => return Err(bad("its first row must be the clock")),
        }
        rows.try_for_each(|row| restored.take(row))?;
        let mut state = restored.state;
        if state.apps.is_empty() {
            state.adopt_configuration();
        }
        if state.workflows.iter().any(|(_, workflow)| workflow.steps.is_empty()) {
            return Err(bad("a workflow has no steps"));
        }
        let mut faults = Vec::new();
        state.audit_apps(&mut faults);
        if let Some(fault) = faults.pop() {
            return Err(bad(format_args!("what apps said is not what counts: {fault}")));
        }
        state.free_vacant();
        Ok(state)
    }
}

fn bad(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Data, format!("snapshot: {what}"))
}

/// When a session was last renewed, for a row of an older release, which does not say. A process that watches a lease
/// watches it for its length, so the length must not count from when the session was opened, perhaps days ago.
fn session_renewed(new: &NewSession, opened_at: Time, lease_until: Time) -> Time {
    opened_at.max(before(lease_until, new.lease_ms))
}

/// The same for a program's lease. An extension may have had another length than the request, but none is longer than
/// the cap.
fn program_renewed(since: Time, lease_until: Time) -> Time {
    since.max(before(lease_until, caps::LEASE_MAX_MS))
}

fn before(time: Time, ms: u64) -> Time {
    Time::from_millis(time.as_millis().saturating_sub_unsigned(ms))
}

/// A state under construction.
struct Restored {
    state: State,
    /// Ended jobs that asked for the same share one row of what they asked for.
    specs: BTreeMap<Spec, Arc<Spec>>,
}

impl Restored {
    fn take(&mut self, row: SnapshotRow) -> Result<()> {
        let state = &mut self.state;
        match row {
            SnapshotRow::Clock { .. } => return Err(bad("it has two clocks")),
            SnapshotRow::Task(options) => {
                let ix = state.intern_task(&options.task);
                let others = state.tasks[ix].registered.iter().filter(|other| other.app != options.app);
                let registered = others.cloned().chain([Arc::clone(&options)]).collect();
                state.change_task(ix, registered);
            }
            SnapshotRow::Queue { queue, priority, paused } => {
                let ix = state.intern_queue(&queue);
                state.change_queue(ix, priority, paused);
            }
            SnapshotRow::Limits { group, limits } => state.change_limits(&group, |at| *at = limits),
            SnapshotRow::Total { group, acquired, rejected } => {
                state.totals.insert(group, Totals { acquired, rejected });
            }
            SnapshotRow::Session(session) => self.take_session(*session)?,
            SnapshotRow::EndedSession { session, at } => {
                state.ended_sessions.insert(session, at);
                state.ended_order.insert((at, session));
            }
            SnapshotRow::Workflow { workflow, on_failure, cancelled, accepted } => {
                if state.workflow_by_name.contains_key(&workflow) {
                    return Err(bad(format_args!("workflow {workflow} comes twice")));
                }
                let row = WorkflowRow { on_failure, cancelled, accepted };
                let ix = state.workflows.insert(Workflow::new(workflow.clone(), row));
                state.workflow_by_name.insert(workflow, ix);
            }
            SnapshotRow::Job(job) => self.take_job(*job)?,
            SnapshotRow::Program { request, token, since, renewed_at, lease_until } => {
                if state.program_by_id.contains_key(&request.id) || token.0 >= state.next_token {
                    return Err(bad(format_args!("lease {} comes twice or from the future", request.id)));
                }
                request.check().map_err(|error| bad(error.message()))?;
                let needs = state.intern_needs(&request.group, request.slots);
                let renewed_at = renewed_at.unwrap_or_else(|| program_renewed(since, lease_until));
                state.insert_program(Program {
                    request,
                    token,
                    since,
                    renewed_at,
                    until: lease_until,
                    needs,
                });
            }
            SnapshotRow::Schedule(schedule) => {
                let ScheduleStatus { schedule, spec, enabled, next, last, last_job } = *schedule;
                state.set_schedule(&schedule, Some(ScheduleRow { spec, enabled, next, last, last_job }));
            }
            SnapshotRow::App(said) => state.set_apps(state.apps_with(&said)),
            SnapshotRow::Push(push) => state.pushes.push_back(push),
            SnapshotRow::Token(token) => state.restore_token(token).map_err(bad)?,
            SnapshotRow::Audit(entry) => state.restore_entry(entry).map_err(bad)?,
        }
        Ok(())
    }

    fn take_session(&mut self, session: SessionSnapshot) -> Result<()> {
        let state = &mut self.state;
        let id = session.session.id;
        if state.session_by_id.contains_key(&id) {
            return Err(bad(format_args!("session {id} comes twice")));
        }
        let serves: Serves = state.intern_serves(&session.session);
        let renewed_at = session
            .renewed_at
            .unwrap_or_else(|| session_renewed(&session.session, session.opened_at, session.lease_until));
        state.insert_session(SessionRow {
            new: session.session,
            serves: Arc::new(serves),
            opened_at: session.opened_at,
            renewed_at,
            lease_until: session.lease_until,
            free_permits: session.free_permits,
            memory_percent: session.memory_percent,
            draining: session.draining,
            number: session.number,
            reply: session.reply,
        });
        let ix = state.session_by_id[&id];
        for stop in session.stops {
            state.set_stop(ix, stop.token, Some(stop));
        }
        Ok(())
    }

    fn take_job(&mut self, job: JobSnapshot) -> Result<()> {
        let id = job.id;
        let state = &mut self.state;
        let known = state.find(id).is_some()
            || state.job_by_number.contains_key(&job.number)
            || state.past_by_number.contains_key(&job.number)
            || job.idempotency_key.as_ref().is_some_and(|key| state.find_by_idempotency_key(key).is_some());
        if known || job.number >= state.next_number {
            return Err(bad(format_args!("job {id} comes twice or from the future")));
        }
        let membership =
            job.step.as_ref().map(|(name, step)| state.restored_step(id, name, *step)).transpose()?;
        let phase = state.restored_phase(id, membership, &job.place)?;
        let options = JobOptions {
            good_until: job.good_until,
            timeout_ms: job.timeout_ms,
            retry: job.retry,
            idempotency_key: job.idempotency_key,
            limit: job.limit,
            traceparent: job.traceparent,
            membership,
        };
        let is_fresh = phase == Phase::Pending && job.attempts.is_empty() && job.output.is_none();
        let progress = job.progress.filter(|_| matches!(phase, Phase::Running(_))).map(Box::new);
        let track = Track { phase, attempts: job.attempts.into(), output: job.output, progress };
        let record = Record {
            id,
            number: job.number,
            submitted_at: job.submitted_at,
            run_at: job.run_at,
            payload: job.payload,
            options: (options != JobOptions::default()).then(|| Arc::new(options)),
            track: (!is_fresh).then(|| Box::new(track)),
            priority: job.priority,
            attempts_used: job.attempts_used,
            max_attempts: job.max_attempts,
        };
        let spec =
            Spec { queue: job.queue, task: job.task, group: job.group, cost: job.cost, limits: job.limits };
        if let Place::Ended { state: end, at, skipped } = job.place {
            let spec = self.specs.entry(spec).or_insert_with_key(|spec| Arc::new(spec.clone()));
            let (spec, key) = (Arc::clone(spec), job.key);
            self.state.add_past(Past { record, spec, key, finished_at: at, state: end, skipped });
        } else {
            let names = (&spec.queue, &spec.task, &spec.group);
            let lane = self.state.intern_lane(names, job.key.as_ref(), spec.cost, &spec.limits);
            self.state.insert_job(Job { record, lane });
        }
        Ok(())
    }
}

impl State {
    fn restored_step(&self, job: JobId, workflow: &Name, step: u32) -> Result<Membership> {
        let ix = self.workflow_by_name.get(workflow).copied();
        let ix =
            ix.ok_or_else(|| bad(format_args!("job {job} is of workflow {workflow}, which is not there")))?;
        let row = &self.workflows[ix];
        if step > row.row.accepted || row.steps.contains_key(&step) {
            return Err(bad(format_args!(
                "step {step} of workflow {workflow} comes twice or from the future"
            )));
        }
        Ok(Membership { workflow: ix, step })
    }

    fn restored_phase(&self, job: JobId, at: Option<Membership>, place: &Place) -> Result<Phase> {
        let session = |id: &SessionId| {
            let ix = self.session_by_id.get(id).copied();
            ix.ok_or_else(|| bad(format_args!("job {job} is held by session {id}, which is not there")))
        };
        let phase = match *place {
            Place::Pending => Phase::Pending,
            Place::Claimed { session: by, token, since, until } => {
                Phase::Claimed(Claimed { session: session(&by)?, token, since, until })
            }
            Place::Running { session: by, token, since, timeout_at, cancel_requested } => {
                if at.is_some_and(|at| self.workflows[at.workflow].running.is_some()) {
                    return Err(bad(format_args!("job {job} runs beside another step of its workflow")));
                }
                Phase::Running(Run { session: session(&by)?, token, since, timeout_at, cancel_requested })
            }
            Place::Ended { state, .. } if state.is_terminal() => Phase::Pending,
            Place::Ended { state, .. } => return Err(bad(format_args!("job {job} ended as {state:?}"))),
        };
        let held = match &phase {
            Phase::Pending => None,
            Phase::Claimed(claimed) => Some((claimed.session, claimed.token)),
            Phase::Running(run) => Some((run.session, run.token)),
        };
        if let Some((by, token)) = held {
            let row = &self.sessions[by];
            let twice = row.running.contains_key(&token) || row.claimed.contains_key(&token);
            if twice || token.0 >= self.next_token {
                return Err(bad(format_args!("token {token} of job {job} comes twice or from the future")));
            }
        }
        Ok(phase)
    }
}

#[cfg(test)]
mod tests;
