//! The end of an attempt: settled by its worker, or taken away.

use super::slot::Program;
use super::state::{Job, Toy};
use super::views::slots_of;
use super::{Flaw, fenced, not_found};
use qo_core::{
    Attempt, AttemptOutcome, Error, ErrorText, FenceToken, GroupRef, JobState, Json, Outcome, Result,
};
use qo_core::{SessionId, Settle, Stop, StopReason, Time, caps};

impl Toy {
    pub fn settle(&mut self, session: SessionId, settle: &Settle) -> Result<JobState> {
        settle.outcome.check()?;
        let Some(at) = self.jobs.iter().position(|job| job.new.id == settle.job) else {
            return Err(not_its_owner(settle));
        };
        if self.has_claimed(at, session, settle.token) {
            return self.release_claim(at, settle);
        }
        if !self.owns(at, session, settle.token) {
            return self.settle_again(at, settle);
        }
        let now = self.now;
        let outcome = settle.outcome.clone();
        Ok(match outcome {
            Outcome::Succeed { output } => {
                self.end_attempt(at, AttemptOutcome::Succeeded, None, Some(output), None)
            }
            Outcome::Fail { error } => self.end_attempt(at, AttemptOutcome::Failed, Some(error), None, None),
            Outcome::Retry { error, delay_ms } => {
                self.end_attempt(at, AttemptOutcome::Retried, Some(error), None, Some(now.plus_ms(delay_ms)))
            }
            Outcome::Snooze { delay_ms } => {
                self.end_attempt(at, AttemptOutcome::Snoozed, None, None, Some(now.plus_ms(delay_ms)))
            }
            Outcome::Release => self.end_attempt(at, AttemptOutcome::Released, None, None, None),
            Outcome::Cancelled => self.end_attempt(at, AttemptOutcome::Cancelled, None, None, None),
        })
    }

    /// A claimed job can only be given back: it has not started.
    fn release_claim(&mut self, at: usize, settle: &Settle) -> Result<JobState> {
        if settle.outcome != Outcome::Release {
            let rule = "must be release: the job has not started";
            return Err(Error::invalid("outcome", format_args!("{:?}", settle.outcome), rule));
        }
        Ok(self.give_back(at))
    }

    fn owns(&self, at: usize, session: SessionId, token: FenceToken) -> bool {
        let job = &self.jobs[at];
        let Some(holding) = &job.holding else { return false };
        match self.flaw {
            Flaw::SettleByJob => true,
            Flaw::SettleByWorker => self.session(session).is_some_and(|s| s.new.worker == holding.worker),
            _ => holding.session == session && holding.token == token,
        }
    }

    /// A settle that owns nothing: the token that settled before gets the recorded state again.
    fn settle_again(&mut self, at: usize, settle: &Settle) -> Result<JobState> {
        let last = self.jobs[at].attempts.iter().rev().find(|attempt| attempt.token == settle.token);
        if let Some(attempt) = last.filter(|attempt| attempt.outcome.is_settled()) {
            return Ok(attempt.then);
        }
        match self.flaw {
            Flaw::DoubleRelease => {
                for (group, slots) in self.jobs[at].needs() {
                    *self.wrong.entry(group).or_default() -= i64::from(slots);
                }
            }
            Flaw::SettleAfterLeaseEnd if last.is_some() && self.jobs[at].state == JobState::Pending => {
                self.finish(at, JobState::Succeeded);
                return Ok(JobState::Succeeded);
            }
            _ => {}
        }
        Err(not_its_owner(settle))
    }

    /// Ends a running job's attempt, frees its slots, and returns the state of the job after it.
    pub fn end_attempt(
        &mut self,
        at: usize,
        outcome: AttemptOutcome,
        error: Option<ErrorText>,
        output: Option<Json>,
        run_at: Option<Time>,
    ) -> JobState {
        self.leak_slots(at, outcome);
        self.wake_jobs_that_met_a_full_group(at);
        let uses_attempt = self.uses_attempt(outcome);
        let job = &mut self.jobs[at];
        let holding = job.holding.take().expect("it runs");
        job.last_progress = holding.progress.filter(|_| self.flaw == Flaw::ProgressOutlivesAttempt);
        let number = job.attempts_used + 1;
        job.attempts_used += u32::from(uses_attempt);
        let then = self.state_after(at, outcome);
        let retried_in_vain = outcome == AttemptOutcome::Retried
            && then != JobState::Pending
            && self.flaw != Flaw::LastAttemptIsRetried;
        let outcome = if retried_in_vain { AttemptOutcome::Failed } else { outcome };
        let job = &mut self.jobs[at];
        job.attempts.push(Attempt {
            number,
            token: holding.token,
            worker: holding.worker,
            session: holding.session,
            started_at: holding.since,
            ended_at: self.now,
            outcome,
            error,
            then,
        });
        if job.attempts.len() > caps::ATTEMPTS_KEPT {
            job.attempts.remove(0);
        }
        job.output = output;
        job.state = then;
        if then == JobState::Pending {
            job.run_at = run_at.unwrap_or(job.run_at);
        } else {
            self.finish(at, then);
        }
        if let Some(session) = self.session_mut(holding.session) {
            session.stops.remove(&holding.token);
        }
        then
    }

    fn uses_attempt(&self, outcome: AttemptOutcome) -> bool {
        match self.flaw {
            Flaw::LostLeaseIsFree if outcome == AttemptOutcome::LeaseEnded => false,
            Flaw::SnoozeUsesAttempt if outcome == AttemptOutcome::Snoozed => true,
            _ => outcome.uses_attempt(),
        }
    }

    /// The state of a job after an attempt; the attempt has been counted.
    fn state_after(&self, at: usize, outcome: AttemptOutcome) -> JobState {
        let job = &self.jobs[at];
        let cancelled = job.cancel_requested
            && !(self.flaw == Flaw::RetryAfterCancel && outcome == AttemptOutcome::Retried);
        match outcome {
            AttemptOutcome::Succeeded => JobState::Succeeded,
            AttemptOutcome::Cancelled => JobState::Cancelled,
            _ if cancelled => JobState::Cancelled,
            AttemptOutcome::Failed => JobState::Failed,
            _ if self.uses_attempt(outcome) && job.attempts_used >= job.new.max_attempts => JobState::Failed,
            _ if is_over(job.new.good_until, self.now) => JobState::Expired,
            _ => JobState::Pending,
        }
    }

    /// The flaw `CrashLeaksSlots`.
    fn leak_slots(&mut self, at: usize, outcome: AttemptOutcome) {
        if self.flaw == Flaw::CrashLeaksSlots && outcome == AttemptOutcome::LeaseEnded {
            for (group, slots) in self.jobs[at].needs() {
                *self.wrong.entry(group).or_default() += i64::from(slots);
            }
        }
    }

    /// Only the flaw `RaiseWakesNoJob` depends on it.
    fn wake_jobs_that_met_a_full_group(&mut self, at: usize) {
        let freed = self.jobs[at].needs();
        for job in &mut self.jobs {
            job.met_full = job.met_full.take().filter(|full| freed.iter().all(|(group, _)| group != full));
        }
    }

    /// A job reaches its terminal state.
    pub fn finish(&mut self, at: usize, state: JobState) {
        let job = &mut self.jobs[at];
        job.state = state;
        job.finished_at = Some(self.now);
        self.drop_spent_limits();
    }

    /// Takes a running job away from its worker, which is told.
    pub fn take_away(&mut self, at: usize, outcome: AttemptOutcome, error: &str) {
        let job = self.jobs[at].new.id;
        let holding = self.jobs[at].holding.clone().expect("it runs");
        self.end_attempt(at, outcome, Some(error.into()), None, None);
        self.tell(holding.session, Stop { job, token: holding.token, reason: StopReason::LeaseEnded });
    }

    pub fn release_slot(&mut self, group: &GroupRef, slot: FenceToken) -> Result<()> {
        let holds = |job: &Job| {
            job.holding.as_ref().is_some_and(|holding| holding.token == slot)
                && slots_of(&job.needs(), group) > 0
        };
        let of_program =
            |program: &Program| program.lease.token == slot && slots_of(&program.needs(), group) > 0;
        if let Some(at) = self.programs.iter().position(of_program) {
            self.free_program(at);
            return Ok(());
        }
        let at = self.jobs.iter().position(holds);
        let at = at.ok_or_else(|| not_found(format_args!("slot {slot} of {group}")))?;
        self.take_away(at, AttemptOutcome::ReleasedByOperator, "released by operator");
        Ok(())
    }
}

/// Whether a `good_until` has passed.
pub(super) fn is_over(good_until: Option<Time>, now: Time) -> bool {
    good_until.is_some_and(|until| until <= now)
}

fn not_its_owner(settle: &Settle) -> Error {
    fenced(format_args!("token {} of job {}", settle.token, settle.job))
}
