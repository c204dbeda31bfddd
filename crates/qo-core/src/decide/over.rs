//! What is over: a lease ends by an event of an exchange, a sweep or a request for slots, never by a process's wall
//! clock.
//!
//! A lease may be over by store time although the deciding process has not [watched](Watch) it for its whole length.
//! That process spares it: the lease stays as it is, and its slots stay taken. Skipping spared leases costs their
//! number. They exist for about one lease length after a process opens the namespace, and after a leap of store time.

use super::Decider;
use super::settle::sent_back;
use crate::state::row::{At, Job, Phase, Program, Session};
use crate::state::{State, table::Ix};
use crate::{Answer, AttemptOutcome, Event, Explanation, JobId, JobState, Reason, Result};
use crate::{SlotsFreedBy, StoreTime, Swept, Time, Watch, caps};

impl Decider<'_> {
    pub(super) fn sweep(&mut self) -> Result<Answer> {
        if !self.is_anything_over() {
            // No event, so that an idle sweep costs a log no record.
            return Ok(Answer::Swept(Swept::default()));
        }
        self.tick();
        let mut swept = self.end_what_is_over(u64::MAX);
        swept.fired = self.fire_schedules();
        swept.forgotten = self.forget();
        Ok(Answer::Swept(swept))
    }

    /// Ends sessions, timeouts, claims, programs' leases and waits that are over, but at most `most_waits` waits.
    pub(super) fn end_what_is_over(&mut self, most_waits: u64) -> Swept {
        let mut swept = Swept::default();
        let now = self.state.now;

        // Ending a lease changes no other lease of its kind, so each list stays valid while the loop works on it.
        for session in over(self.watch, self.state.sessions_due(now)).collect::<Vec<_>>() {
            let (attempts, claims) = self.end_session(session, "lease ended");
            swept.attempts += attempts;
            swept.claims += claims;
            swept.sessions += 1;
        }
        for job in over(self.watch, self.state.timeouts_due(now)).collect::<Vec<_>>() {
            self.take_away(job, AttemptOutcome::TimedOut, "timed out", true);
            swept.attempts += 1;
        }
        for job in over(self.watch, self.state.claims_due(now)).collect::<Vec<_>>() {
            self.give_back(job, true);
            swept.claims += 1;
        }
        for program in over(self.watch, self.state.programs_due(now)).collect::<Vec<_>>() {
            self.free_slots(program, SlotsFreedBy::LeaseEnd);
            swept.slots += 1;
        }
        while swept.expired < most_waits
            && let Some((&(at, _), &job)) = self.state.expiries.first_key_value()
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
        let has_passed = |first: Option<Time>| first.is_some_and(|at| at <= now);
        over(self.watch, state.sessions_due(now)).next().is_some()
            || over(self.watch, state.timeouts_due(now)).next().is_some()
            || over(self.watch, state.claims_due(now)).next().is_some()
            || over(self.watch, state.programs_due(now)).next().is_some()
            || has_passed(state.expiries.keys().next().map(|key| key.0))
            || has_passed(state.ticks.first().map(|tick| tick.0))
            || state.retained.over(&state.retention, now).is_some()
            || has_passed(state.ended_order.first().map(|ended| ended.0.plus_ms(caps::RETAIN_SESSION_MS)))
    }

    /// Forgets some of the jobs and session ids that ended long ago. It is not urgent, so a step stays small.
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

/// How an attempt or a claim that is over ends, if its job goes back in line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GoesBack {
    /// The claim or its session is over. No attempt is used.
    Claim,
    /// The attempt ends with this outcome and error.
    Attempt(AttemptOutcome, &'static str),
}

impl State {
    /// Whether a claim at `now` would end a session, an attempt, a claim, a program's lease or a wait.
    fn has_leases_over(&self, now: Time) -> bool {
        let over = |first: Option<Time>| first.is_some_and(|at| at <= now);
        over(self.session_ends.keys().next().map(|key| key.0))
            || over(self.timeouts.keys().next().map(|key| key.0))
            || over(self.claims.keys().next().map(|key| key.0))
            || over(self.program_ends.keys().next().map(|key| key.0))
            || over(self.expiries.keys().next().map(|key| key.0))
    }

    /// Looks at the state as a claim at `now` would find it: what is over counts as ended. It leaves no trace.
    ///
    /// It costs as much as ending what is over, and nothing if nothing is over. Of the jobs that expire in line it ends
    /// the first [`FORESEEN`](caps::FORESEEN): where no worker is alive their number is not bounded.
    pub fn foresee<T>(&mut self, now: Time, look: impl FnOnce(&Self) -> T) -> T {
        let now = now.max(self.now());
        if !self.has_leases_over(now) {
            return self.at(now, look);
        }
        let end = |state: &mut Self| {
            let mut decider = Decider { state, now, watch: &StoreTime, events: Vec::new() };
            decider.tick();
            decider.end_what_is_over(caps::FORESEEN);
        };
        self.suppose(end, look)
    }

    /// [`explain`](Self::explain) as a claim at `now` would find the state.
    ///
    /// A job ends only by a command, and its worker may settle it until then. So a job that would end is shown as it is
    /// stored.
    pub fn explain_at(&mut self, now: Time, job: JobId) -> Result<Explanation> {
        let foreseen = self.foresee(now, |state| state.explain(job))?;
        if !foreseen.state.is_terminal() {
            return Ok(foreseen);
        }
        Ok(self.at(now, |state| state.explain_end(job)).unwrap_or(foreseen))
    }

    /// Why a live job that would end does not run. None if it is not live.
    fn explain_end(&self, job: JobId) -> Option<Explanation> {
        let Some(At::Live(ix)) = self.find(job) else { return None };
        let row = &self.jobs[ix];
        let good_until = row.good_until().filter(|at| *at <= self.now && row.run().is_none());
        let reasons = good_until.map(|good_until| Reason::Expired { good_until }).into_iter().collect();
        Some(Explanation { job, state: row.state(), reasons })
    }

    /// How the attempt or claim of a job ends that is over now, if its job then goes back in line.
    ///
    /// None if it is not over. None too if the job would end: views show that only once it has ended.
    pub(crate) fn goes_back(&self, job: &Job) -> Option<GoesBack> {
        let is_over = |session| self.sessions[session].row.lease_until <= self.now;
        match job.phase() {
            Phase::Pending => None,
            Phase::Claimed(claimed) => {
                let over = is_over(claimed.session) || claimed.until <= self.now;
                let expires = job.good_until().is_some_and(|good_until| good_until <= self.now);
                (over && !expires).then_some(GoesBack::Claim)
            }
            Phase::Running(run) => {
                let (outcome, error) = if is_over(run.session) {
                    (AttemptOutcome::LeaseEnded, "lease ended")
                } else if run.timeout_at.is_some_and(|at| at <= self.now) {
                    (AttemptOutcome::TimedOut, "timed out")
                } else {
                    return None;
                };
                let goes_back = sent_back(job, run, self.now, outcome) == JobState::Pending;
                goes_back.then_some(GoesBack::Attempt(outcome, error))
            }
        }
    }
}

/// A lease that is over by store time, spared or not.
pub(super) struct Due<T> {
    pub of: T,
    granted: Time,
    until: Time,
}

impl<T> Due<T> {
    /// How much longer the deciding process has to watch it.
    pub fn left_ms(&self, watch: &dyn Watch) -> u64 {
        watch.left_ms(self.granted, self.until)
    }
}

/// The leases that the deciding process may end.
fn over<T>(watch: &dyn Watch, due: impl Iterator<Item = Due<T>>) -> impl Iterator<Item = T> {
    due.filter(move |due| due.left_ms(watch) == 0).map(|due| due.of)
}

impl State {
    /// Sessions whose lease is over at `now`.
    pub(super) fn sessions_due(&self, now: Time) -> impl Iterator<Item = Due<Ix<Session>>> {
        let due = self.session_ends.iter().take_while(move |((at, _), _)| *at <= now);
        due.map(|(&(until, _), &of)| Due { of, granted: self.sessions[of].row.renewed_at, until })
    }

    /// Running jobs whose timeout and the grace after it are over at `now`.
    pub(super) fn timeouts_due(&self, now: Time) -> impl Iterator<Item = Due<Ix<Job>>> {
        let due = self.timeouts.iter().take_while(move |((at, _), _)| *at <= now);
        due.map(|(&(until, _), &of)| {
            let since = self.jobs[of].run().map_or(until, |run| run.since);
            Due { of, granted: since, until }
        })
    }

    /// Jobs claimed ahead of time whose claim is over at `now`.
    pub(super) fn claims_due(&self, now: Time) -> impl Iterator<Item = Due<Ix<Job>>> {
        let due = self.claims.iter().take_while(move |((at, _), _)| *at <= now);
        due.map(|(&(until, _), &of)| {
            let since = self.jobs[of].claimed().map_or(until, |claimed| claimed.since);
            Due { of, granted: since, until }
        })
    }

    /// Programs whose lease is over at `now`.
    pub(super) fn programs_due(&self, now: Time) -> impl Iterator<Item = Due<Ix<Program>>> {
        let due = self.program_ends.iter().take_while(move |((at, _), _)| *at <= now);
        due.map(|(&(until, _), &of)| Due { of, granted: self.programs[of].renewed_at, until })
    }

    /// How long until the process has watched the first of the leases that it spares at `now` for its whole length.
    pub(super) fn first_watched_out_ms(&self, now: Time, watch: &dyn Watch) -> Option<u64> {
        let sessions = self.sessions_due(now).map(|due| due.left_ms(watch));
        let timeouts = self.timeouts_due(now).map(|due| due.left_ms(watch));
        let claims = self.claims_due(now).map(|due| due.left_ms(watch));
        let programs = self.programs_due(now).map(|due| due.left_ms(watch));
        sessions.chain(timeouts).chain(claims).chain(programs).filter(|left_ms| *left_ms > 0).min()
    }
}
