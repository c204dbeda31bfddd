//! What is over: leases end by an event, in every exchange and every sweep, never by somebody's clock.

use super::Decider;
use crate::{Answer, AttemptOutcome, Event, JobState, Result, SlotsFreedBy, Swept, Time, caps};

impl Decider<'_> {
    pub(super) fn sweep(&mut self) -> Result<Answer> {
        if !self.is_anything_over() {
            // A sweep that finds nothing leaves no trace: it must not cost a log a record.
            return Ok(Answer::Swept(Swept::default()));
        }
        self.tick();
        let mut swept = self.end_what_is_over();
        swept.fired = self.fire_schedules();
        swept.forgotten = self.forget();
        Ok(Answer::Swept(swept))
    }

    /// Ends sessions, timeouts, claims, leases and waits whose moment has come.
    pub(super) fn end_what_is_over(&mut self) -> Swept {
        let mut swept = Swept::default();
        let now = self.state.now;

        while let Some((&(at, _), &session)) = self.state.session_ends.first_key_value()
            && at <= now
        {
            let (attempts, claims) = self.end_session(session, "lease ended");
            swept.attempts += attempts;
            swept.claims += claims;
            swept.sessions += 1;
        }
        while let Some((&(at, _), &job)) = self.state.timeouts.first_key_value()
            && at <= now
        {
            self.take_away(job, AttemptOutcome::TimedOut, "timed out", true);
            swept.attempts += 1;
        }
        while let Some((&(at, _), &job)) = self.state.claims.first_key_value()
            && at <= now
        {
            self.give_back(job, true);
            swept.claims += 1;
        }
        while let Some((&(at, _), &hold)) = self.state.hold_ends.first_key_value()
            && at <= now
        {
            self.free_slots(hold, SlotsFreedBy::LeaseEnd);
            swept.slots += 1;
        }
        while let Some((&(at, _), &job)) = self.state.expiries.first_key_value()
            && at <= now
        {
            let id = self.state.jobs[job].id;
            self.finish(job, Event::Dropped { job: id, state: JobState::Expired });
            swept.expired += 1;
        }
        swept
    }

    fn is_anything_over(&self) -> bool {
        let (state, now) = (&self.state, self.now.max(self.state.now));
        let over = |first: Option<Time>| first.is_some_and(|at| at <= now);
        over(state.session_ends.keys().next().map(|key| key.0))
            || over(state.timeouts.keys().next().map(|key| key.0))
            || over(state.claims.keys().next().map(|key| key.0))
            || over(state.hold_ends.keys().next().map(|key| key.0))
            || over(state.expiries.keys().next().map(|key| key.0))
            || over(state.ticks.first().map(|tick| tick.0))
            || state.retained.over(&state.retention, now).is_some()
            || over(state.ended_order.first().map(|ended| ended.0.plus_ms(caps::RETAIN_SESSION_MS)))
    }

    /// Forgets what finished long ago, some of it: nobody waits for it, and a step should stay small.
    fn forget(&mut self) -> u64 {
        let now = self.state.now;
        let mut forgotten = 0;
        while forgotten < caps::FORGOTTEN
            && let Some(past) = self.state.retained.over(&self.state.retention, now)
        {
            let job = self.state.past[past].id;
            self.happen(Event::Forgotten(job));
            forgotten += 1;
        }
        for _ in 0..caps::FORGOTTEN {
            match self.state.ended_order.first() {
                Some(&(at, session)) if at.plus_ms(caps::RETAIN_SESSION_MS) <= now => {
                    self.happen(Event::SessionForgotten(session));
                }
                Some(_) | None => break,
            }
        }
        forgotten as u64
    }
}
