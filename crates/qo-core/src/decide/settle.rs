//! Settle: the owner of an attempt says how it ended. The slots are free in the same step.

use super::Decider;
use crate::state::row::{At, Job, Phase, Record, Run, Session};
use crate::state::table::Ix;
use crate::{AttemptEnded, AttemptOutcome, Error, ErrorText, Event, JobState, Outcome, Result, Settle, Time};

impl Decider<'_> {
    /// Applies one settle of a session. Returns the state of the job after it.
    pub(super) fn settle(&mut self, session: Ix<Session>, settle: &Settle) -> Result<JobState> {
        settle.outcome.check()?;
        let fenced = || Error::fenced(format!("token {} does not own job {}", settle.token, settle.job));
        let at = self.state.find(settle.job).ok_or_else(fenced)?;
        let recorded = |record: &Record| {
            let mut settled =
                record.attempts().iter().filter(|at| at.token == settle.token && at.outcome.is_settled());
            settled.next().map(|at| at.then).ok_or_else(fenced)
        };
        let ix = match at {
            At::Live(ix) => ix,
            At::Past(past) => return recorded(&self.state.past[past]),
        };
        let job = &self.state.jobs[ix];
        let run = match job.phase() {
            Phase::Running(run) if (run.token, run.session) == (settle.token, session) => *run,
            Phase::Claimed(claim) if (claim.token, claim.session) == (settle.token, session) => {
                if settle.outcome != Outcome::Release {
                    let rule = "a job that has not started can only be released";
                    return Err(Error::invalid("outcome", settle.outcome.name(), rule));
                }
                return Ok(self.give_back(ix, false));
            }
            Phase::Pending | Phase::Claimed(_) | Phase::Running(_) => return recorded(job),
        };
        let now = self.state.now;
        let (outcome, error, output, then, run_at) = match &settle.outcome {
            Outcome::Succeed { output } => {
                let output = (!output.is_null()).then(|| output.clone());
                (AttemptOutcome::Succeeded, None, output, JobState::Succeeded, None)
            }
            Outcome::Fail { error } => {
                let then = if run.cancel_requested { JobState::Cancelled } else { JobState::Failed };
                (AttemptOutcome::Failed, Some(error.clone()), None, then, None)
            }
            Outcome::Retry { error, delay_ms } => {
                let then = sent_back(job, &run, now, AttemptOutcome::Retried);
                // It counts as retried only if another attempt follows.
                let retried = then == JobState::Pending;
                let outcome = if retried { AttemptOutcome::Retried } else { AttemptOutcome::Failed };
                (outcome, Some(error.clone()), None, then, Some(now.plus_ms(*delay_ms)))
            }
            Outcome::Snooze { delay_ms } => {
                let then = sent_back(job, &run, now, AttemptOutcome::Snoozed);
                (AttemptOutcome::Snoozed, None, None, then, Some(now.plus_ms(*delay_ms)))
            }
            Outcome::Release => (
                AttemptOutcome::Released,
                None,
                None,
                sent_back(job, &run, now, AttemptOutcome::Released),
                None,
            ),
            Outcome::Cancelled => (AttemptOutcome::Cancelled, None, None, JobState::Cancelled, None),
        };
        let run_at = run_at.filter(|_| then == JobState::Pending);
        let (job, token) = (settle.job, settle.token);
        let ended = AttemptEnded { job, token, outcome, error, output, then, run_at, tell_owner: false };
        self.finish(ix, Event::AttemptEnded(Box::new(ended)));
        Ok(then)
    }

    /// Ends an attempt that its owner did not settle. The attempt is used.
    pub(super) fn take_away(&mut self, ix: Ix<Job>, outcome: AttemptOutcome, error: &str, tell_owner: bool) {
        let job = &self.state.jobs[ix];
        let Some(&run) = job.run() else { return };
        let ended = AttemptEnded {
            job: job.id,
            token: run.token,
            outcome,
            error: Some(ErrorText::from(error)),
            output: None,
            then: sent_back(job, &run, self.state.now, outcome),
            run_at: None,
            tell_owner,
        };
        self.finish(ix, Event::AttemptEnded(Box::new(ended)));
    }
}

/// The state in which an attempt that did not finish the job leaves it.
pub(super) fn sent_back(job: &Job, run: &Run, now: Time, outcome: AttemptOutcome) -> JobState {
    let last = outcome.uses_attempt() && job.attempts_used + 1 >= job.max_attempts;
    if run.cancel_requested {
        JobState::Cancelled
    } else if last {
        JobState::Failed
    } else if job.good_until().is_some_and(|good_until| good_until <= now) {
        JobState::Expired
    } else {
        JobState::Pending
    }
}
