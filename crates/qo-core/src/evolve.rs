//! `evolve`: what an event means. It decides nothing and refuses nothing. Its assertions name the guarantee that an
//! impossible event would break. They stay on in release builds.

use crate::app::{Apps, changes, task_change};
use crate::state::row::{Claimed, Group, Job, JobOptions, Past, Phase, Program, Record, Run, ScheduleRow};
use crate::state::row::{Session, SessionRow, Track, WorkflowRow};
use crate::state::{State, table::Ix};
use crate::{
    Attempt, AttemptEnded, AttemptOutcome, ClaimedJob, CodeLimit, Configuration, Event, ExchangeReply,
};
use crate::{Deed, Exchanged, FenceToken, Json};
use crate::{
    Granted, GroupRef, JobId, JobProgress, JobState, Key, LastTick, LeaseId, Name, NewJob, NewSession, Note,
    PrefetchedJob,
};
use crate::{SessionId, SlotRequest, Stop, StopReason, TaskOptions, TickOutcome, Time, caps};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The keys of two maps.
fn keys<'a, K: Ord, V>(a: &'a BTreeMap<K, V>, b: &'a BTreeMap<K, V>) -> BTreeSet<&'a K> {
    a.keys().chain(b.keys()).collect()
}

impl State {
    /// Applies one event. Events must come in the order in which they were decided.
    ///
    /// # Panics
    /// If the event contradicts the state: the log is damaged, or a rule is broken. The message names the guarantee.
    pub fn evolve(&mut self, event: &Event) {
        match event {
            Event::Ticked(now) => {
                assert!(*now >= self.now, "G9: store time fell from {} to {now}", self.now);
                self.set_now(*now);
            }
            Event::Accepted(job) => self.accepted(job),
            Event::Started { job, session, token, timeout_at } => {
                self.started(*job, *session, *token, *timeout_at)
            }
            Event::Claimed { job, session, token, until } => self.claimed(*job, *session, *token, *until),
            Event::ClaimEnded { job, token, then, tell_owner } => {
                self.claim_ended(*job, *token, *then, *tell_owner)
            }
            Event::AttemptEnded(ended) => self.attempt_ended(ended),
            Event::Progressed { job, token, percent, note } => {
                self.progressed(*job, *token, *percent, note.clone())
            }
            Event::CancelRequested(job) => self.cancel_requested(*job),
            Event::Dropped { job, state } => self.dropped(*job, *state),
            Event::Reopened { job, run_at, good_until } => self.reopened(*job, *run_at, *good_until),
            Event::Hurried { job, run_at } => {
                let ix = self.job_ix(*job);
                assert!(self.jobs[ix].state() == JobState::Pending, "G4: job {job} does not wait");
                self.change_job(ix, |job| job.run_at = *run_at);
            }
            Event::Forgotten(job) => {
                let ix = self.past_ix(*job);
                self.remove_past(ix);
            }
            Event::Archived(job) => {
                let ix = self.past_ix(*job);
                assert!(self.past[ix].may_be_archived(), "G3: job {job} was archived, but is needed here");
                self.remove_past(ix);
            }
            Event::StepSkipped(job) => {
                let ix = self.past_ix(*job);
                self.skip_past(ix);
            }
            Event::WorkflowCancelled(workflow) => {
                let ix = self.find_workflow(workflow);
                let ix = ix.unwrap_or_else(|| panic!("G6: workflow {workflow} does not exist"));
                let row = WorkflowRow { cancelled: true, ..self.workflows[ix].row };
                self.change_workflow(ix, row);
            }
            Event::SlotsTaken { request, token, lease_until } => {
                self.slots_taken(request, *token, *lease_until)
            }
            Event::SlotsExtended { lease, lease_until } => {
                let ix = self.program_ix(*lease);
                self.extend_program(ix, *lease_until);
            }
            Event::SlotsFreed { lease, by: _ } => {
                let ix = self.program_ix(*lease);
                self.remove_program(ix);
            }
            Event::ScheduleMoved { schedule, next } => self.change_schedule(schedule, |row| row.next = *next),
            Event::ScheduleEnabled { schedule, enabled } => {
                self.change_schedule(schedule, |row| row.enabled = *enabled)
            }
            Event::ScheduleFired { schedule, tick, outcome } => {
                let last = LastTick { tick: *tick, outcome: outcome.clone() };
                self.change_schedule(schedule, |row| {
                    row.last = Some(last);
                    if let TickOutcome::Accepted(job) | TickOutcome::Existing(job) = outcome {
                        row.last_job = Some(*job);
                    }
                })
            }
            Event::Registered(task) => self.registered(task),
            Event::Configured(configuration) => self.configured(configuration),
            Event::LimitSet { group, limit } => self.change_limits(group, |limits| limits.operator = *limit),
            Event::QueuePaused { queue, paused } => {
                let ix = self.intern_queue(queue);
                self.change_queue(ix, self.queues[ix].priority, *paused);
            }
            Event::SessionOpened { session, lease_until } => self.session_opened(session, *lease_until),
            Event::Renewed { session, lease_until, free_permits, draining, memory_percent } => {
                let ix = self.session_ix(*session);
                let now = self.now;
                self.change_session(ix, |row| {
                    row.renewed_at = now;
                    row.lease_until = *lease_until;
                    row.free_permits = *free_permits;
                    row.draining = *draining;
                    row.memory_percent = *memory_percent;
                });
            }
            Event::Exchanged(exchanged) => self.exchanged(exchanged),
            Event::SessionEnded(session) => {
                let ix = self.session_ix(*session);
                self.remove_session(ix);
            }
            Event::SessionForgotten(session) => self.forget_session(*session),
            Event::TokenCreated { token, by } => self.token_created(token, by),
            Event::TokenRevoked { token, by } => self.token_revoked(*token, by),
            Event::Recorded(deed) => self.append_deed(Deed::clone(deed)),
            Event::Rejected { group, times } => self.count_rejected(group, *times),
            Event::LimitSpent(group) => self.change_limits(group, |limits| limits.submit = None),
        }
        self.free_vacant();
    }

    fn accepted(&mut self, new: &NewJob) {
        let is_new = self.find_job(new.id).is_none() && self.find_past(new.id).is_none();
        assert!(is_new, "G3: job {} was accepted twice", new.id);
        let group = new.group.as_ref().unwrap_or(&new.task);
        let lane = self.intern_lane((&new.queue, &new.task, group), new.key.as_ref(), new.cost, &new.limits);
        let on_failure = new.on_failure.unwrap_or_default();
        let membership = new.workflow.as_ref().map(|workflow| self.next_step(workflow, on_failure));
        let options = JobOptions {
            good_until: new.good_until,
            timeout_ms: new.timeout_ms,
            retry: new.retry,
            idempotency_key: new.idempotency_key.clone(),
            limit: new.limit,
            traceparent: new.traceparent,
            membership,
        };
        let record = Record {
            id: new.id,
            number: self.next_number,
            submitted_at: self.now,
            run_at: new.run_at.unwrap_or(self.now),
            payload: new.payload.clone(),
            options: (options != JobOptions::default()).then(|| Arc::new(options)),
            track: None,
            priority: new.priority,
            attempts_used: 0,
            max_attempts: u16::try_from(new.max_attempts).unwrap_or(u16::MAX),
        };
        self.next_number += 1;
        self.insert_job(Job { record, lane });
        if new.clear_limit || new.limit.is_some() {
            self.bring_limit(group, new.key.as_ref(), new.limit);
        }
    }

    /// Sets the submit-side limit that a job brings for its group, or with a key for that key. None clears it.
    fn bring_limit(&mut self, group: &Name, key: Option<&Key>, limit: Option<u32>) {
        let group = GroupRef::narrowest(group, key);
        self.change_limits(&group, |limits| limits.submit = limit);
    }

    fn started(&mut self, job: JobId, session: SessionId, token: FenceToken, timeout_at: Option<Time>) {
        let (ix, session) = (self.job_ix(job), self.session_ix(session));
        let may_start = match self.jobs[ix].phase() {
            Phase::Pending => true,
            Phase::Claimed(claimed) => claimed.session == session,
            Phase::Running(_) => false,
        };
        assert!(may_start, "G4: job {job} was started while another owned it");
        self.assert_next(ix);
        self.assert_room(&self.needs(self.jobs[ix].lane));
        self.take_token(token);
        self.count_acquired(self.needs(self.jobs[ix].lane));
        let since = self.now;
        let run = Run { session, token, since, timeout_at, cancel_requested: false };
        self.change_job(ix, |job| job.set_phase(Phase::Running(run)));
    }

    fn claimed(&mut self, job: JobId, session: SessionId, token: FenceToken, until: Time) {
        let (ix, session) = (self.job_ix(job), self.session_ix(session));
        let is_pending = *self.jobs[ix].phase() == Phase::Pending;
        assert!(is_pending, "G4: job {job} was claimed while it was not pending");
        self.assert_next(ix);
        self.take_token(token);
        let claimed = Claimed { session, token, since: self.now, until };
        self.change_job(ix, |job| job.set_phase(Phase::Claimed(claimed)));
    }

    fn claim_ended(&mut self, job: JobId, token: FenceToken, then: JobState, tell_owner: bool) {
        let ix = self.job_ix(job);
        let claimed = self.jobs[ix].claimed().copied();
        let claimed = claimed.unwrap_or_else(|| panic!("G4: job {job} was given back but not claimed"));
        assert!(claimed.token == token, "G2: token {token} ended the claim of token {}", claimed.token);
        if then == JobState::Pending {
            self.change_job(ix, |job| job.set_phase(Phase::Pending));
        } else {
            self.retire_job(ix, then, |_| {});
        }
        if tell_owner {
            let stop = Stop { job, token, reason: StopReason::LeaseEnded };
            self.set_stop(claimed.session, token, Some(stop));
        }
    }

    fn take_token(&mut self, token: FenceToken) {
        assert!(token.0 == self.next_token, "G2: token {token} is not the next one, {}", self.next_token);
        self.next_token += 1;
    }

    fn assert_next(&self, ix: Ix<Job>) {
        let Some(at) = self.jobs[ix].membership() else { return };
        let workflow = &self.workflows[at.workflow];
        let id = self.jobs[ix].id;
        assert!(
            workflow.next == Some(ix),
            "G6: job {id}, step {} of workflow {}, is not the next one",
            at.step,
            workflow.name
        );
    }

    fn assert_room(&self, needs: &[(Ix<Group>, u32)]) {
        for &(group, need) in needs {
            let group = &self.groups[group];
            assert!(
                group.has_room(need),
                "G1: {need} more slots of {} would exceed its limit: {} of {:?} are taken",
                self.group_ref(&group.label),
                group.used,
                group.limit
            );
        }
    }

    fn attempt_ended(&mut self, ended: &AttemptEnded) {
        let ix = self.job_ix(ended.job);
        let row = &self.jobs[ix];
        let run = *row.run().unwrap_or_else(|| panic!("G4: job {} ended but was not running", ended.job));
        assert!(run.token == ended.token, "G2: token {} ended the claim of token {}", ended.token, run.token);
        let session = &self.sessions[run.session].row.new;
        let attempt = Attempt {
            number: u32::from(row.attempts_used) + 1,
            token: run.token,
            worker: session.worker.clone(),
            session: session.id,
            started_at: run.since,
            ended_at: self.now,
            outcome: ended.outcome,
            error: ended.error.clone(),
            then: ended.then,
        };
        let change = |job: &mut Job| {
            job.attempts_used += u16::from(ended.outcome.uses_attempt());
            job.run_at = ended.run_at.unwrap_or(job.run_at);
            let track = job.track.get_or_insert_default();
            if track.attempts.len() == caps::ATTEMPTS_KEPT {
                track.attempts.remove(0);
            }
            track.attempts.push(attempt);
            let succeeded = ended.outcome == AttemptOutcome::Succeeded;
            track.output = ended.output.clone().or_else(|| succeeded.then(Json::null));
            track.phase = Phase::Pending;
            track.progress = None;
        };
        if ended.then == JobState::Pending {
            self.change_job(ix, change);
        } else {
            self.retire_job(ix, ended.then, change);
        }
        // The attempt has ended, so an earlier stop about this claim is out of date. Replace or remove it.
        let stop = Stop { job: ended.job, token: run.token, reason: StopReason::LeaseEnded };
        let told = ended.tell_owner.then_some(stop);
        if told.is_some() || self.sessions[run.session].stops.contains_key(&run.token) {
            self.set_stop(run.session, run.token, told);
        }
    }

    fn progressed(&mut self, job: JobId, token: FenceToken, percent: u8, note: Note) {
        let ix = self.job_ix(job);
        let owner = self.jobs[ix].run().map(|run| run.token);
        assert!(owner == Some(token), "G2: token {token} reported on the claim of {owner:?}");
        let progress = JobProgress { percent, note, at: self.now };
        self.set_progress(ix, Some(Box::new(progress)));
    }

    fn cancel_requested(&mut self, job: JobId) {
        let ix = self.job_ix(job);
        let Some(run) = self.jobs[ix].run().copied() else { return };
        self.change_job(ix, |job| {
            if let Some(Track { phase: Phase::Running(run), .. }) = job.track.as_deref_mut() {
                run.cancel_requested = true;
            }
        });
        let stop = Stop { job, token: run.token, reason: StopReason::Cancelled };
        self.set_stop(run.session, run.token, Some(stop));
    }

    fn dropped(&mut self, job: JobId, state: JobState) {
        let ix = self.job_ix(job);
        let claimed = self.jobs[ix].claimed().copied();
        assert!(self.jobs[ix].run().is_none(), "G4: job {job} was dropped while it ran");
        self.retire_job(ix, state, |_| {});
        if let Some(Claimed { session, token, .. }) = claimed {
            let stop = Stop { job, token, reason: StopReason::Cancelled };
            self.set_stop(session, token, Some(stop));
        }
    }

    fn reopened(&mut self, job: JobId, run_at: Time, good_until: Option<Time>) {
        let ix = self.past_ix(job);
        let past = &self.past[ix];
        assert!(past.state != JobState::Succeeded, "G3: job {job} succeeded and was opened again");
        let (spec, key) = (Arc::clone(&past.spec), past.key.clone());
        let limit = past.options.as_ref().and_then(|options| options.limit);
        self.revive_job(ix, |job| {
            job.attempts_used = 0;
            job.run_at = run_at;
            if job.good_until() != good_until {
                let options = job.options.as_deref().cloned().unwrap_or_default();
                let options = JobOptions { good_until, ..options };
                job.options = (options != JobOptions::default()).then(|| Arc::new(options));
            }
            if let Some(track) = &mut job.track {
                track.output = None;
            }
        });
        if limit.is_some() {
            self.bring_limit(&spec.group, key.as_ref(), limit);
        }
    }

    fn slots_taken(&mut self, request: &Arc<SlotRequest>, token: FenceToken, until: Time) {
        assert!(!self.program_by_id.contains_key(&request.id), "G4: lease {} was taken twice", request.id);
        let needs = self.intern_needs(&request.group, request.slots);
        if let Some(limit) = request.limit {
            self.change_limits(&request.group, |limits| limits.submit = Some(limit));
        }
        self.assert_room(&needs);
        self.take_token(token);
        self.count_acquired(needs.clone());
        self.insert_program(Program {
            request: Arc::clone(request),
            token,
            since: self.now,
            renewed_at: self.now,
            until,
            needs,
        });
    }

    fn change_schedule(&mut self, schedule: &Name, change: impl FnOnce(&mut ScheduleRow)) {
        let row = self.schedules.get(schedule).cloned();
        let mut row =
            row.unwrap_or_else(|| panic!("an event names schedule {schedule}, which does not exist"));
        change(&mut row);
        self.set_schedule(schedule, Some(row));
    }

    fn registered(&mut self, task: &Arc<TaskOptions>) {
        let ix = self.intern_task(&task.task);
        let old = self.registered_by(&task.app, &task.task);
        let change = task_change(old, task);
        let old_group = old.map(|old| GroupRef::Group(old.group().clone()));
        let group = GroupRef::Group(task.group().clone());
        let mine = |code: &CodeLimit| (&code.task, &code.app) == (&task.task, &task.app);
        // In one step where the group stays: it would lose its total with its last limit.
        let code = task.max_concurrent.map(|limit| CodeLimit {
            task: task.task.clone(),
            limit,
            app: task.app.clone(),
        });
        if let Some(old_group) = old_group.filter(|old| code.is_none() || *old != group) {
            self.change_limits(&old_group, |limits| limits.code.retain(|code| !mine(code)));
        }
        if let Some(code) = code {
            self.change_limits(&group, |limits| {
                limits.code.retain(|code| !mine(code));
                limits.code.push(code);
            });
        }
        let others = self.tasks[ix].registered.iter().filter(|other| other.app != task.app).cloned();
        self.change_task(ix, others.chain([Arc::clone(task)]).collect());
        self.remember_push(&task.app, change.into_iter().collect());
    }

    /// Only settings that the app named before, or names now, can have changed.
    fn configured(&mut self, new: &Arc<Configuration>) {
        let apps = self.apps_with(new);
        let old = self.configuration(&new.app).cloned().unwrap_or_else(|| Configuration::of(new.app.clone()));
        let changes = changes(Some(&old), new);
        self.set_apps(apps);
        for group in keys(&old.limits, &new.limits) {
            let newest = self.apps.newest(|app| Some((*app.limits.get(group)?, app.app.clone())));
            self.change_limits(group, |limits| (limits.config, limits.config_app) = newest.unzip());
        }
        self.count_retention();
        for name in keys(&old.schedules, &new.schedules) {
            let row = self.apps.newest(|app| app.schedules.get(name).cloned()).map(|spec| {
                let fresh = || ScheduleRow {
                    spec: spec.clone(),
                    enabled: true,
                    next: None,
                    last: None,
                    last_job: None,
                };
                let row =
                    self.schedules.get(name).map(|old| ScheduleRow { spec: spec.clone(), ..old.clone() });
                row.unwrap_or_else(fresh)
            });
            self.set_schedule(name, row);
        }
        for queue in keys(&old.queue_priorities, &new.queue_priorities) {
            let priority = self.apps.newest(|app| app.queue_priorities.get(queue).copied());
            let ix = self.intern_queue(queue);
            let row = &self.queues[ix];
            if row.priority != priority {
                self.change_queue(ix, priority, row.paused);
            }
        }
        self.remember_push(&new.app, changes);
    }

    fn session_opened(&mut self, new: &Arc<NewSession>, lease_until: Time) {
        let serves = self.intern_serves(new);
        self.insert_session(SessionRow {
            new: Arc::clone(new),
            serves: Arc::new(serves),
            opened_at: self.now,
            renewed_at: self.now,
            lease_until,
            free_permits: new.permits,
            memory_percent: None,
            draining: false,
            number: 0,
            reply: None,
        });
    }

    fn exchanged(&mut self, exchanged: &Exchanged) {
        let ix = self.session_ix(exchanged.session);
        let row = &self.sessions[ix].row;
        assert!(exchanged.number == row.number + 1, "exchange {} follows {}", exchanged.number, row.number);
        let reply = ExchangeReply {
            number: exchanged.number,
            settled: exchanged.settled.clone(),
            started: exchanged.started.clone(),
            claimed: exchanged.claimed.iter().map(|granted| self.claimed_job(ix, granted)).collect(),
            prefetched: exchanged.prefetched.iter().map(|granted| self.prefetched_job(ix, granted)).collect(),
            stop: exchanged.stop.clone(),
            now: self.now,
            lease_until: row.lease_until,
        };
        let started = exchanged.started.iter().flatten().filter(|started| started.run.is_some()).count();
        self.change_session(ix, |row| {
            row.number = exchanged.number;
            row.free_permits = row.free_permits.saturating_sub((exchanged.claimed.len() + started) as u32);
            row.reply = Some(Arc::new(reply));
        });
        for stop in &exchanged.stop {
            self.set_stop(ix, stop.token, None);
        }
    }

    fn claimed_job(&self, session: Ix<Session>, granted: &Granted) -> ClaimedJob {
        let job = self.sessions[session].running.get(&granted.token).copied();
        self.granted_job(job, granted)
    }

    fn prefetched_job(&self, session: Ix<Session>, granted: &Granted) -> PrefetchedJob {
        let job = self.sessions[session].claimed.get(&granted.token).copied();
        let claimed = job.and_then(|job| self.jobs[job].claimed());
        let claim_until = claimed.map_or(self.now, |claimed| claimed.until);
        PrefetchedJob { job: self.granted_job(job, granted), claim_until }
    }

    fn granted_job(&self, job: Option<Ix<Job>>, granted: &Granted) -> ClaimedJob {
        let Granted { token, timeout_ms, retry } = *granted;
        let row =
            &self.jobs[job.unwrap_or_else(|| panic!("G4: token {token} was answered but owns nothing"))];
        let lane = &self.lanes[row.lane];
        let class = &self.classes[lane.class];
        let desk = &self.desks[class.desk];
        ClaimedJob {
            id: row.id,
            token,
            attempt: u32::from(row.attempts_used) + 1,
            max_attempts: row.max_attempts.into(),
            queue: self.queues[desk.queue].name.clone(),
            task: self.tasks[desk.task].name.clone(),
            group: self.group_name(class.group),
            key: self.lane_key(lane),
            payload: row.payload.clone(),
            timeout_ms,
            retry,
            traceparent: row.traceparent(),
            due_at: Some(row.run_at),
        }
    }

    fn job_ix(&self, job: JobId) -> Ix<Job> {
        // The rule that decided the event has just looked up its job.
        let recent = self.recent.filter(|&ix| self.jobs.get(ix).is_some_and(|row| row.id == job));
        recent
            .or_else(|| self.find_job(job))
            .unwrap_or_else(|| panic!("G3: an event names job {job}, which does not exist"))
    }

    fn past_ix(&self, job: JobId) -> Ix<Past> {
        let ix = self.find_past(job);
        ix.unwrap_or_else(|| panic!("G3: an event names job {job} as ended, which it is not"))
    }

    fn program_ix(&self, lease: LeaseId) -> Ix<Program> {
        let ix = self.program_by_id.get(&lease).copied();
        ix.unwrap_or_else(|| panic!("G4: an event names lease {lease}, which does not exist"))
    }

    fn session_ix(&self, session: SessionId) -> Ix<Session> {
        let ix = self.session_by_id.get(&session).copied();
        ix.unwrap_or_else(|| panic!("G4: an event names session {session}, which does not exist"))
    }
}
