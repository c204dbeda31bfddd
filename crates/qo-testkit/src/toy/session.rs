//! Sessions and their exchange.

use super::state::{Job, Session, Toy};
use super::{Flaw, conflict, fenced};
use qo_core::Claim;
use qo_core::{
    Error, ErrorKind, Exchange, ExchangeReply, JobProgress, JobState, NewSession, OpenedSession, Progress,
    Result, SessionId, Started,
};
use std::collections::BTreeMap;

impl Toy {
    pub fn open_session(&mut self, new: NewSession) -> Result<OpenedSession> {
        new.check()?;
        if self.ended_sessions.contains_key(&new.id) && self.flaw != Flaw::ReopenRevives {
            return Err(fenced(new.id));
        }
        if let Some(session) = self.session(new.id) {
            if session.new.owner != new.owner && self.flaw != Flaw::SessionIsAnyones {
                return Err(conflict("another token opened this session"));
            }
            return Ok(OpenedSession { now: session.opened_at, lease_until: session.lease_until });
        }
        let lease_until = self.now.plus_ms(new.lease_ms);
        self.token_at_last_open = self.last_token;
        self.sessions.push(Session {
            opened_at: self.now,
            lease_until,
            free_permits: new.permits,
            memory_percent: None,
            draining: false,
            number: 0,
            reply: None,
            stops: BTreeMap::new(),
            pauses_seen: self.paused.clone(),
            new,
        });
        Ok(OpenedSession { now: self.now, lease_until })
    }

    pub fn exchange(&mut self, exchange: &Exchange) -> Result<ExchangeReply> {
        exchange.check()?;
        let now = self.now;
        let session = self.session(exchange.session).ok_or_else(|| fenced(exchange.session))?;
        if self.flaw == Flaw::LateRenewalRefused && session.lease_until <= now {
            return Err(fenced(exchange.session));
        }
        if exchange.number < session.number {
            return Err(Error::new(
                ErrorKind::Conflict,
                format!("{} was answered long ago", exchange.number),
            ));
        }
        if exchange.number > session.number + 1 {
            return Err(Error::invalid(
                "number",
                exchange.number,
                format_args!("comes after {}", session.number),
            ));
        }
        if let Some(reply) = session.reply.clone().filter(|reply| reply.number == exchange.number) {
            match self.flaw {
                Flaw::RepeatClaimsAnew => {}
                Flaw::RepeatIsEmpty => {
                    let (settled, started, claimed, prefetched) = (vec![], vec![], vec![], vec![]);
                    let stop = vec![];
                    return Ok(ExchangeReply { settled, started, claimed, prefetched, stop, ..reply });
                }
                _ => return Ok(reply),
            }
        }
        self.exchange_now(exchange)
    }

    fn exchange_now(&mut self, exchange: &Exchange) -> Result<ExchangeReply> {
        let early_claims = match self.flaw {
            Flaw::ClaimBeforeSettle => self.claim(exchange.session, &exchange.claim),
            _ => Default::default(),
        };
        let settles = exchange.settles.iter();
        let settled: Vec<Result<JobState>> =
            settles.map(|settle| self.settle(exchange.session, settle)).collect();
        let starts = exchange.starts.iter();
        let started: Vec<Result<Started>> =
            starts.map(|start| self.start_claimed(exchange.session, start)).collect();
        self.report(exchange);
        let lease_until = self.renew(exchange);
        let overdue = |at: usize| self.jobs[at].ahead.as_ref().is_some_and(|ahead| ahead.until <= self.now);
        let held_too_long = self.claimed_by(exchange.session).into_iter().any(overdue);
        self.end_what_is_over();
        self.fire_schedules();
        let prefetch = exchange.claim.prefetch.filter(|_| !held_too_long);
        let (claimed, prefetched) = match self.flaw {
            Flaw::ClaimBeforeSettle => early_claims,
            _ => self.claim(exchange.session, &Claim { prefetch, ..exchange.claim }),
        };
        let (now, pauses) = (self.now, self.paused.clone());
        // It was just renewed: only `FastClock` still ends it, if it was renewed for less than its lease.
        let session = self.session_mut(exchange.session).ok_or_else(|| fenced(exchange.session))?;
        let stop = std::mem::take(&mut session.stops).into_values().collect();
        let reply = ExchangeReply {
            number: exchange.number,
            settled,
            started,
            claimed,
            prefetched,
            stop,
            now,
            lease_until,
        };
        let runs = |started: &&Result<Started>| started.as_ref().is_ok_and(|started| started.run.is_some());
        let started = reply.claimed.len() + reply.started.iter().filter(runs).count();
        session.free_permits = session.free_permits.saturating_sub(started as u32);
        session.number = exchange.number;
        session.reply = Some(reply.clone());
        session.pauses_seen = pauses;
        Ok(reply)
    }

    /// Stores the progress of jobs that the reporting session owns.
    fn report(&mut self, exchange: &Exchange) {
        let by_job = self.flaw == Flaw::ProgressByJob;
        for job in &mut self.jobs {
            let Some(holding) = &mut job.holding else { continue };
            let owner = |report: &&Progress| {
                report.job == job.new.id
                    && (by_job || (report.token, exchange.session) == (holding.token, holding.session))
            };
            let Some(Progress { percent, note, .. }) = exchange.progress.iter().rfind(owner) else {
                continue;
            };
            let known = holding.progress.as_ref();
            if known.is_none_or(|known| (known.percent, &known.note) != (*percent, note)) {
                holding.progress = Some(JobProgress { percent: *percent, note: note.clone(), at: self.now });
            }
        }
    }

    /// Renews the session and takes the worker's report; a draining session gives back what it has not started.
    fn renew(&mut self, exchange: &Exchange) -> qo_core::Time {
        let now = self.now;
        let runs =
            |job: &Job| job.holding.as_ref().is_some_and(|holding| holding.session == exchange.session);
        let is_idle = !self.jobs.iter().any(runs) && self.claimed_by(exchange.session).is_empty();
        let idle_ms = exchange.idle_ms.filter(|_| is_idle);
        let session = self.session_mut(exchange.session).expect("the exchange found it");
        session.lease_until = now.plus_ms(idle_ms.unwrap_or(session.new.lease_ms));
        session.free_permits = exchange.free_permits;
        session.memory_percent = exchange.memory_percent;
        session.draining = exchange.draining;
        let lease_until = session.lease_until;
        if exchange.draining && self.flaw != Flaw::DrainKeepsClaims {
            for at in self.claimed_by(exchange.session) {
                self.give_back(at);
            }
        }
        lease_until
    }

    pub fn close_session(&mut self, session: SessionId) {
        if self.session(session).is_some() {
            self.end_session(session);
        }
    }
}
