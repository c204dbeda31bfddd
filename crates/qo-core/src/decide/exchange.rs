//! Sessions and the exchange.
//!
//! The steps of an exchange, all in one command:
//! 1. Check the number. The last number again gets the recorded reply, and nothing happens.
//! 2. Settle attempts, then start claimed jobs, then record progress.
//! 3. Renew the session. A session without jobs may ask for a longer lease.
//! 4. If the worker drains, give its claimed jobs back.
//! 5. End everything that is over, then fire schedules.
//! 6. Claim: start jobs, then claim others ahead of time.
//! 7. Record the reply under the number.
//!
//! Invariants:
//! - One number has one answer: a reply is repeated word for word, so a lost reply loses no grant.
//! - Settles come before starts and claims, so the slots that they free are granted in the same step.
//! - The session renews (3) before anything is ended (5), so a late exchange saves its own session.

use super::{Decider, decide_watching};
use crate::state::{State, row::Session, table::Ix};
use crate::{
    Answer, AttemptOutcome, Claim, Command, Error, Event, Exchange, Exchanged, NewSession, OpenedSession,
    Result, SessionId, StoreTime, Time, Watch, Work,
};
use std::sync::Arc;

impl Decider<'_> {
    pub(super) fn open_session(&mut self, new: &NewSession) -> Result<Answer> {
        new.check()?;
        if self.state.ended_sessions.contains_key(&new.id) {
            return Err(Error::fenced(format!("session {} has ended", new.id)));
        }
        if !self.state.session_by_id.contains_key(&new.id) {
            self.tick();
            let lease_until = self.state.now.plus_ms(new.lease_ms);
            self.happen(Event::SessionOpened { session: Arc::new(new.clone()), lease_until });
        }
        let row = &self.state.sessions[self.live_session(new.id)?].row;
        if row.new.owner != new.owner {
            return Err(Error::conflict(format!("session {}: another token opened it", new.id)));
        }
        Ok(Answer::Opened(OpenedSession { now: row.opened_at, lease_until: row.lease_until }))
    }

    pub(super) fn exchange(&mut self, exchange: &Exchange) -> Result<Answer> {
        exchange.check()?;
        let session = self.live_session(exchange.session)?;
        let row = &self.state.sessions[session].row;
        if exchange.number == row.number
            && let Some(reply) = &row.reply
        {
            return Ok(Answer::Exchanged(Box::new((**reply).clone())));
        }
        check_number(exchange.number, row.number)?;

        self.tick();
        let settled = exchange.settles.iter().map(|settle| self.settle(session, settle)).collect();
        let started = exchange.starts.iter().map(|start| self.start_claimed(session, *start)).collect();
        self.take_progress(session, &exchange.progress);
        let Exchange { session: id, free_permits, draining, memory_percent, .. } = *exchange;
        let holder = &self.state.sessions[session];
        let is_idle = holder.running.is_empty() && holder.claimed.is_empty();
        let lease_ms = exchange.idle_ms.filter(|_| is_idle).unwrap_or(holder.row.new.lease_ms);
        let lease_until = self.state.now.plus_ms(lease_ms);
        self.happen(Event::Renewed { session: id, lease_until, free_permits, draining, memory_percent });
        if draining {
            for job in self.state.sessions[session].claimed.values().copied().collect::<Vec<_>>() {
                self.give_back(job, false);
            }
        }
        // A session that held a claim too long does not claim the job again in the same step, so that another worker
        // can have it first.
        let held_too_long = self.state.has_overdue_claims(session, self.watch);
        self.end_what_is_over(u64::MAX);
        self.fire_schedules();
        let prefetch = exchange.claim.prefetch.filter(|_| !held_too_long);
        let (claimed, prefetched) = self.claim(session, Claim { prefetch, ..exchange.claim });
        let stop = self.state.sessions[session].stops.values().copied().collect();
        self.happen(Event::Exchanged(Box::new(Exchanged {
            session: id,
            number: exchange.number,
            settled,
            started,
            claimed,
            prefetched,
            stop,
        })));
        let reply = self.state.sessions[session].row.reply.as_deref().cloned();
        Ok(Answer::Exchanged(Box::new(
            reply.unwrap_or_else(|| unreachable!("the exchange was just answered")),
        )))
    }

    pub(super) fn close_session(&mut self, id: SessionId) -> Result<Answer> {
        if let Some(&session) = self.state.session_by_id.get(&id) {
            self.tick();
            self.end_session(session, "session closed");
        }
        Ok(Answer::Done)
    }

    /// Ends a session and first the leases of its jobs. Returns how many of them ran and how many were only claimed.
    pub(super) fn end_session(&mut self, session: Ix<Session>, why: &str) -> (u64, u64) {
        let row = &self.state.sessions[session];
        let running: Vec<_> = row.running.values().copied().collect();
        let claimed: Vec<_> = row.claimed.values().copied().collect();
        for &job in &running {
            self.take_away(job, AttemptOutcome::LeaseEnded, why, false);
        }
        for &job in &claimed {
            self.give_back(job, false);
        }
        let id = self.state.sessions[session].row.new.id;
        self.happen(Event::SessionEnded(id));
        (running.len() as u64, claimed.len() as u64)
    }

    fn live_session(&self, id: SessionId) -> Result<Ix<Session>> {
        let session = self.state.session_by_id.get(&id).copied();
        session.ok_or_else(|| Error::fenced(format!("session {id} has ended or never was")))
    }
}

impl State {
    /// What an exchange of a session with this claim would find at `now`. Nothing changes. The caller fills in `seen`.
    pub fn work(&mut self, now: Time, session: SessionId, claim: Claim) -> Result<Work> {
        self.work_watching(now, session, claim, &StoreTime)
    }

    /// [`work`](Self::work) for a process that ends only leases that it has [watched](Watch) for their whole length.
    pub fn work_watching(
        &mut self,
        now: Time,
        session: SessionId,
        claim: Claim,
        watch: &dyn Watch,
    ) -> Result<Work> {
        let now = now.max(self.now);
        let ended = || Error::fenced(format!("session {session} has ended or never was"));
        let row = &self.sessions[*self.session_by_id.get(&session).ok_or_else(ended)?].row;
        let claim = Claim { max: claim.max.min(1), ..claim };
        let number = row.number + 1;
        let exchange = Exchange { claim, free_permits: row.free_permits, ..Exchange::renew(session, number) };
        let mut answer = Ok(Answer::Done);
        let try_it = |state: &mut Self| {
            let command = Command::Exchange(exchange);
            answer = decide_watching(state, now, &command, watch).map(|decision| decision.answer);
        };
        self.suppose(try_it, |_| ());
        let Answer::Exchanged(reply) = answer? else { unreachable!("an exchange is answered as one") };
        let brings = !(reply.claimed.is_empty() && reply.prefetched.is_empty() && reply.stop.is_empty());
        Ok(Work { now: brings, next: self.next_date(now, session, watch), at: now, seen: 0 })
    }

    /// Whether a store may skip an exchange at `now`: it only asks for jobs, and there are none.
    ///
    /// See [`Store::fetch`](crate::Store::fetch). It may not skip an exchange that was answered before, nor one that it
    /// must refuse.
    pub fn may_leave(&mut self, now: Time, exchange: &Exchange) -> bool {
        self.may_leave_watching(now, exchange, &StoreTime)
    }

    /// [`may_leave`](Self::may_leave) for a process that ends only leases that it has [watched](Watch) for their whole
    /// length.
    pub fn may_leave_watching(&mut self, now: Time, exchange: &Exchange, watch: &dyn Watch) -> bool {
        let row = self.session_by_id.get(&exchange.session).map(|&ix| &self.sessions[ix].row);
        let is_next = row.is_some_and(|row| row.number + 1 == exchange.number);
        is_next
            && exchange.only_asks()
            && exchange.check().is_ok()
            && self.work_watching(now, exchange.session, exchange.claim, watch).is_ok_and(|work| !work.now)
    }

    /// The next moment after `now` at which time alone changes something, except the end of this session.
    fn next_date(&self, now: Time, session: SessionId, watch: &dyn Watch) -> Option<Time> {
        let later = |at: &Time| *at > now;
        let ends = self.session_ends.keys().filter(|key| key.1 != session).map(|key| key.0);
        let dates = [
            self.scheduled.keys().map(|key| key.0).find(later),
            ends.into_iter().find(later),
            self.timeouts.keys().map(|key| key.0).find(later),
            self.claims.keys().map(|key| key.0).find(later),
            self.program_ends.keys().map(|key| key.0).find(later),
            // A step that expires makes the next step claimable. A big job that expires frees the slots kept for it.
            self.expiries.keys().map(|key| key.0).find(later),
            self.ticks.iter().map(|tick| tick.0).find(later),
            self.first_watched_out_ms(now, watch).map(|ms| now.plus_ms(ms)),
        ];
        dates.into_iter().flatten().min()
    }

    fn has_overdue_claims(&self, session: Ix<Session>, watch: &dyn Watch) -> bool {
        let mut claims = self.sessions[session].claimed.values().filter_map(|&job| self.jobs[job].claimed());
        claims.any(|claim| claim.until <= self.now && watch.left_ms(claim.since, claim.until) == 0)
    }
}

fn check_number(number: u64, last: u64) -> Result<()> {
    if number <= last {
        return Err(Error::conflict(format!("number: {number}: exchange {last} has been answered since")));
    }
    if number > last + 1 {
        let rule = format_args!("must be {}: exchanges are numbered one by one", last + 1);
        return Err(Error::invalid("number", number, rule));
    }
    Ok(())
}
