//! Starts a job that was claimed ahead of time, or gives it back.

use super::Decider;
use super::reserve::Counting;
use crate::state::row::{Job, Session};
use crate::state::{State, table::Ix};
use crate::{Error, Event, JobState, Result, Start, Started};

impl Decider<'_> {
    /// Starts a claimed job if it may run now. Otherwise puts it back in line.
    pub(super) fn start_claimed(&mut self, session: Ix<Session>, start: Start) -> Result<Started> {
        let claimed = self.state.find_job(start.job).filter(|&ix| {
            let claim = self.state.jobs[ix].claimed();
            claim.is_some_and(|claim| (claim.token, claim.session) == (start.token, session))
        });
        let Some(ix) = claimed else {
            return Err(Error::fenced(format!("token {} has no claim on job {}", start.token, start.job)));
        };
        // An expired job ends as expired, whether or not there is room.
        let expired = self.state.jobs[ix].good_until().is_some_and(|at| at <= self.state.now);
        if expired || !self.state.can_start(ix) {
            return Ok(Started { then: self.give_back(ix, false), run: None });
        }
        let session = self.state.sessions[session].row.new.id;
        let (granted, _) = self.start(session, ix);
        Ok(Started { then: JobState::Running, run: Some(granted) })
    }

    /// Ends the claim of a job that has not started. No attempt is used. Returns the state of the job.
    pub(super) fn give_back(&mut self, ix: Ix<Job>, tell_owner: bool) -> JobState {
        let job = &self.state.jobs[ix];
        let Some(claim) = job.claimed() else { return job.state() };
        let expired = job.good_until().is_some_and(|good_until| good_until <= self.state.now);
        let then = if expired { JobState::Expired } else { JobState::Pending };
        let ended = Event::ClaimEnded { job: job.id, token: claim.token, then, tell_owner };
        self.finish(ix, ended);
        then
    }
}

impl State {
    /// Whether a claimed job may run now: the conditions of a claim, for a job that is in no lane.
    fn can_start(&self, ix: Ix<Job>) -> bool {
        let job = &self.jobs[ix];
        let queue = self.queue(self.class(job.lane));
        let place = (queue.priority(), job.rank());
        let is_next = job.membership().is_none_or(|at| self.workflows[at.workflow].next == Some(ix));
        let needs = self.needs(job.lane);
        !queue.paused
            && is_next
            && needs.iter().all(|&(group, need)| self.groups[group].has_room(need))
            && needs.iter().all(|&(group, need)| !self.is_kept(group, need, place, Counting::Running))
    }
}
