//! Claims in the ledger: jobs that are claimed ahead of time, started or given back.

use super::{ClaimEnd, Counted, Fact, Grant, Ledger, StartVerdict, Tell};
use qo_core::{FenceToken, JobState, PrefetchedJob, Result, SessionId, Start, Started, Time};

/// A claim on a job that has not started. It holds no slot.
#[derive(Debug, Clone, Copy)]
pub struct Claimed {
    /// Its token.
    pub token: FenceToken,
    /// The session that has claimed the job.
    pub session: SessionId,
    /// Since when.
    pub since: Time,
    /// When it is over unless the job starts before.
    pub until: Time,
}

impl Ledger {
    /// How many jobs a session has claimed ahead of time.
    pub fn claimed_by(&self, session: SessionId) -> u32 {
        let claims = self.claims.values().filter_map(|&job| self.jobs[job].claimed);
        claims.filter(|claimed| claimed.session == session).count() as u32
    }

    /// Whether a claim of a session is over.
    pub fn has_overdue_claims(&self, session: SessionId) -> bool {
        let mut claims = self.claims.values().filter_map(|&job| self.jobs[job].claimed);
        claims.any(|claimed| claimed.session == session && claimed.until <= self.now)
    }

    /// Whether a job needs two or more slots of a group that has a limit: it is not claimed ahead of time.
    pub fn is_big(&self, index: usize) -> bool {
        let mut needs = self.jobs[index].needs.iter();
        needs.any(|&(group, need)| need >= 2 && self.groups.limit(group).is_some())
    }

    /// Why a claimed job cannot start now, if it cannot.
    pub fn cannot_start(&self, index: usize) -> Option<&'static str> {
        let job = &self.jobs[index];
        if self.paused.contains(&job.new.queue) {
            return Some("its queue is paused");
        }
        if !self.is_next(index) {
            return Some("it is not next in its workflow");
        }
        if !self.has_room(index) {
            return Some("a group lacks room");
        }
        self.is_reserved(index).then_some("a big job ahead holds it back")
    }

    pub(super) fn start(
        &mut self,
        session: SessionId,
        start: &Start,
        result: &Result<Started>,
        tell: &mut Tell<'_>,
    ) {
        let index = self.find(start.job);
        let claims = |job: &usize| {
            self.jobs[*job].claimed.is_some_and(|by| by.token == start.token && by.session == session)
        };
        let claimed = index.filter(claims);
        let verdict = match claimed {
            None => StartVerdict::Stale,
            Some(job) if self.jobs[job].is_spoiled(self.now) => StartVerdict::Expires,
            Some(job) => self.cannot_start(job).map_or(StartVerdict::Runs, StartVerdict::GivenBack),
        };
        tell(self, &Fact::Started(session, start, result, verdict));
        match (claimed, result) {
            // The ledger follows the store: a job that the store says runs, runs.
            (_, Ok(Started { run: Some(run), .. })) => {
                let grant = Grant { session, id: start.job, token: run.token, job: index, claimed: None };
                tell(self, &Fact::Granted(&grant));
                if let Some(job) = index {
                    self.grant(job, session, run.token, run.timeout_ms);
                }
            }
            (Some(job), Ok(_)) => self.give_back(job, ClaimEnd::CouldNotStart, tell),
            _ => {}
        }
    }

    pub(super) fn prefetch(&mut self, session: SessionId, prefetched: &PrefetchedJob, tell: &mut Tell<'_>) {
        let index = self.find(prefetched.job.id);
        tell(self, &Fact::Prefetched(session, prefetched, index));
        let Some(index) = index else { return };
        self.take_over(index);
        let (token, until) = (prefetched.job.token, prefetched.claim_until);
        let job = &mut self.jobs[index];
        job.claimed = Some(Claimed { token, session, since: self.now, until });
        job.state = JobState::Claimed;
        job.newest = job.newest.max(Some(token));
        self.groups.claim(&job.needs);
        self.claims.insert(token, index);
    }

    /// Ends a claim before its job started.
    pub(super) fn give_back(&mut self, index: usize, how: ClaimEnd, tell: &mut Tell<'_>) {
        let job = &self.jobs[index];
        let Some(claimed) = job.claimed else { return };
        let then = match how {
            ClaimEnd::Cancelled => JobState::Cancelled,
            _ if job.is_spoiled(self.now) => JobState::Expired,
            _ => JobState::Pending,
        };
        tell(self, &Fact::ClaimEnded { job: index, token: claimed.token, how, then });
        self.end_claim(index);
        self.go_to(index, then);
    }

    /// All claims of a session, by token.
    pub(super) fn give_all_back(&mut self, session: SessionId, how: ClaimEnd, tell: &mut Tell<'_>) -> u64 {
        let of_session =
            |job: &usize| self.jobs[*job].claimed.is_some_and(|claimed| claimed.session == session);
        let claims: Vec<usize> = self.claims.values().copied().filter(of_session).collect();
        claims.iter().for_each(|&job| self.give_back(job, how, tell));
        claims.len() as u64
    }

    pub(super) fn end_claim(&mut self, index: usize) {
        if let Some(claimed) = self.jobs[index].claimed.take() {
            self.claims.remove(&claimed.token);
            self.groups.unclaim(&self.jobs[index].needs);
        }
    }

    /// Whether every group of the job has room for it, counting what runs.
    pub fn has_room(&self, index: usize) -> bool {
        self.had_room(index, Counted::NOW)
    }
}
