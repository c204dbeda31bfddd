//! `evolve`: what an event means. It decides nothing and refuses nothing; the assertions say which
//! guarantee an impossible event would break, and stay on in release builds.

use crate::lane::Lane;
use crate::state::row::{Job, JobOptions, Phase, Run, Serves, Session, SessionRow, Track};
use crate::state::{State, table::Ix};
use crate::{
    Attempt, AttemptEnded, ClaimedJob, Configuration, Event, ExchangeReply, Exchanged, FenceToken, Granted,
    GroupRef,
};
use crate::{JobId, JobState, NewJob, NewSession, SessionId, Stop, StopReason, TaskOptions, Time, caps};
use std::sync::Arc;

impl State {
    /// Applies one event. Events must come in the order in which they were decided.
    ///
    /// # Panics
    /// If the event contradicts the state: the log is damaged, or a rule is broken (the message names the
    /// guarantee).
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
            Event::AttemptEnded(ended) => self.attempt_ended(ended),
            Event::CancelRequested(job) => self.cancel_requested(*job),
            Event::Dropped { job, state } => self.dropped(*job, *state),
            Event::Forgotten(job) => {
                let ix = self.job_ix(*job);
                assert!(self.jobs[ix].state().is_terminal(), "G3: job {job} was forgotten while it was live");
                self.remove_job(ix);
            }
            Event::Registered(task) => self.registered(task),
            Event::Configured(configuration) => self.configured(configuration),
            Event::LimitSet { group, limit } => self.change_limits(group, |limits| limits.operator = *limit),
            Event::QueuePaused { queue, paused } => {
                let ix = self.intern_queue(queue);
                self.change_queue(ix, self.queues[ix].priority, *paused);
            }
            Event::SessionOpened { session, lease_until } => self.session_opened(session, *lease_until),
            Event::Renewed { session, lease_until, free_permits, draining } => {
                let ix = self.session_ix(*session);
                self.change_session(ix, |row| {
                    row.lease_until = *lease_until;
                    row.free_permits = *free_permits;
                    row.draining = *draining;
                });
            }
            Event::Exchanged(exchanged) => self.exchanged(exchanged),
            Event::SessionEnded(session) => {
                let ix = self.session_ix(*session);
                self.remove_session(ix);
            }
            Event::SessionForgotten(session) => self.forget_session(*session),
            other => panic!("not yet: {other:?}"),
            Event::LimitSpent(group) => self.change_limits(group, |limits| limits.submit = None),
        }
        self.free_vacant();
    }

    fn accepted(&mut self, new: &NewJob) {
        assert!(self.find_job(new.id).is_none(), "G3: job {} was accepted twice", new.id);
        let group = new.group.as_ref().unwrap_or(&new.task);
        let lane = self.intern_lane(new, group);
        let options = JobOptions {
            good_until: new.good_until,
            timeout_ms: new.timeout_ms,
            retry: new.retry,
            idempotency_key: new.idempotency_key.clone(),
        };
        let job = Job {
            id: new.id,
            lane,
            priority: new.priority,
            number: self.next_number,
            submitted_at: self.now,
            run_at: new.run_at.unwrap_or(self.now),
            attempts_used: 0,
            max_attempts: new.max_attempts,
            payload: new.payload.clone(),
            options: (options != JobOptions::default()).then(|| Arc::new(options)),
            track: None,
        };
        self.next_number += 1;
        self.insert_job(job);
        if let Some(limit) = new.limit {
            let group = match &new.key {
                Some(key) => GroupRef::Key(group.clone(), key.clone()),
                None => GroupRef::Group(group.clone()),
            };
            self.change_limits(&group, |limits| limits.submit = Some(limit));
        }
    }

    fn started(&mut self, job: JobId, session: SessionId, token: FenceToken, timeout_at: Option<Time>) {
        let (ix, session) = (self.job_ix(job), self.session_ix(session));
        let lane = self.jobs[ix].lane;
        assert!(
            *self.jobs[ix].phase() == Phase::Pending,
            "G4: job {job} was claimed while it was not pending"
        );
        assert!(token.0 == self.next_token, "G2: token {token} is not the next one, {}", self.next_token);
        self.assert_room(lane);
        self.next_token += 1;
        let since = self.now;
        self.change_job(ix, |job| {
            let run = Run { session, token, since, timeout_at, cancel_requested: false };
            job.track.get_or_insert_default().phase = Phase::Running(run);
        });
    }

    fn assert_room(&self, lane: Ix<Lane>) {
        for (group, need) in self.needs(lane) {
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
            number: row.attempts_used + 1,
            token: run.token,
            worker: session.worker.clone(),
            session: session.id,
            started_at: run.since,
            ended_at: self.now,
            outcome: ended.outcome,
            error: ended.error.clone(),
            then: ended.then,
        };
        let now = self.now;
        self.change_job(ix, |job| {
            job.attempts_used += u32::from(ended.outcome.uses_attempt());
            job.run_at = ended.run_at.unwrap_or(job.run_at);
            let track = job.track.get_or_insert_default();
            if track.attempts.len() == caps::ATTEMPTS_KEPT {
                track.attempts.remove(0);
            }
            track.attempts.push(attempt);
            track.output.clone_from(&ended.output);
            track.phase = phase(ended.then, now);
        });
        // Whoever ended it, an earlier notice about this claim is out of date.
        let stop = Stop { job: ended.job, token: run.token, reason: StopReason::LeaseEnded };
        let told = ended.tell_owner.then_some(stop);
        if told.is_some() || self.sessions[run.session].stops.contains_key(&run.token) {
            self.set_stop(run.session, run.token, told);
        }
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
        let now = self.now;
        assert!(
            *self.jobs[ix].phase() == Phase::Pending,
            "G4: job {job} was dropped while it was not pending"
        );
        self.change_job(ix, |job| job.track.get_or_insert_default().phase = phase(state, now));
    }

    fn registered(&mut self, task: &Arc<TaskOptions>) {
        let ix = self.intern_task(&task.task);
        if let Some(old) = &self.tasks[ix].options {
            let group = GroupRef::Group(old.group().clone());
            self.change_limits(&group, |limits| limits.code.retain(|(name, _)| *name != task.task));
        }
        if let Some(limit) = task.limit {
            let group = GroupRef::Group(task.group().clone());
            self.change_limits(&group, |limits| limits.code.push((task.task.clone(), limit)));
        }
        self.change_task(ix, Arc::clone(task));
    }

    fn configured(&mut self, new: &Configuration) {
        let gone = |group: &GroupRef| !new.limits.contains_key(group);
        let old = self.limits.iter().filter(|(_, limits)| limits.config.is_some()).map(|(group, _)| group);
        for group in old.filter(|group| gone(group)).cloned().collect::<Vec<_>>() {
            self.change_limits(&group, |limits| limits.config = None);
        }
        for (group, &limit) in &new.limits {
            self.change_limits(group, |limits| limits.config = Some(limit));
        }
        for queue in new.queue_priorities.keys() {
            self.intern_queue(queue);
        }
        for (queue, ix) in self.queue_by_name.clone() {
            let (priority, row) = (new.queue_priorities.get(&queue).copied(), &self.queues[ix]);
            if row.priority != priority {
                self.change_queue(ix, priority, row.paused);
            }
        }
    }

    fn session_opened(&mut self, new: &Arc<NewSession>, lease_until: Time) {
        let mut queues: Vec<_> = new.queues.iter().map(|queue| self.intern_queue(queue)).collect();
        queues.sort_unstable();
        queues.dedup();
        let mut tasks: Vec<_> = new.tasks.iter().map(|task| self.intern_task(task)).collect();
        tasks.sort_unstable();
        tasks.dedup();
        let serves = Serves { queues: (!queues.is_empty()).then_some(queues), tasks };
        self.insert_session(SessionRow {
            new: Arc::clone(new),
            serves: Arc::new(serves),
            opened_at: self.now,
            lease_until,
            free_permits: new.permits,
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
            prefetched: Vec::new(),
            claimed: exchanged.claimed.iter().map(|granted| self.claimed_job(ix, granted)).collect(),
            stop: exchanged.stop.clone(),
            now: self.now,
            lease_until: row.lease_until,
        };
        self.change_session(ix, |row| {
            row.number = exchanged.number;
            row.free_permits = row.free_permits.saturating_sub(exchanged.claimed.len() as u32);
            row.reply = Some(Arc::new(reply));
        });
        for stop in &exchanged.stop {
            self.set_stop(ix, stop.token, None);
        }
    }

    fn claimed_job(&self, session: Ix<Session>, granted: &Granted) -> ClaimedJob {
        let Granted { token, timeout_ms, retry } = *granted;
        let job = self.sessions[session].running.get(&token).copied();
        let row =
            &self.jobs[job.unwrap_or_else(|| panic!("G4: token {token} was answered but owns nothing"))];
        let lane = &self.lanes[row.lane];
        let class = &self.classes[lane.class];
        let desk = &self.desks[class.desk];
        ClaimedJob {
            id: row.id,
            token,
            attempt: row.attempts_used + 1,
            max_attempts: row.max_attempts,
            queue: self.queues[desk.queue].name.clone(),
            task: self.tasks[desk.task].name.clone(),
            group: self.group_name(class.group),
            key: self.lane_key(lane),
            payload: row.payload.clone(),
            timeout_ms,
            retry,
        }
    }

    fn job_ix(&self, job: JobId) -> Ix<Job> {
        // Whoever decided the event has just looked at its job.
        let recent = self.recent.filter(|&ix| self.jobs.get(ix).is_some_and(|row| row.id == job));
        recent
            .or_else(|| self.find_job(job))
            .unwrap_or_else(|| panic!("G3: an event names job {job}, which does not exist"))
    }

    fn session_ix(&self, session: SessionId) -> Ix<Session> {
        let ix = self.session_by_id.get(&session).copied();
        ix.unwrap_or_else(|| panic!("G4: an event names session {session}, which does not exist"))
    }
}

fn phase(state: JobState, at: Time) -> Phase {
    match state {
        JobState::Pending => Phase::Pending,
        JobState::Running | JobState::Claimed => unreachable!("only a claim makes a job run"),
        JobState::Succeeded | JobState::Failed | JobState::Cancelled | JobState::Expired => {
            Phase::Finished { state, at }
        }
    }
}
