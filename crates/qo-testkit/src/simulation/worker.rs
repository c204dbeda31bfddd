//! A simulated worker: the contract's rules for workers, and no others.
//!
//! One numbered exchange is under way at a time; after `Unknown` the same one is sent again. The lease is
//! trusted from the moment the exchange was *first* sent, on the worker's own monotonic clock, whose rate
//! is a little wrong. A worker that is fenced stops everything and opens a new session.

use super::buffer::{Buffer, Soft};
use super::handler::{Handler, Run};
use super::profile::{LONGEST_LEASE_MS, Trust};
use super::scenery::{self, QUEUES, TASKS};
use super::stage::{Alarm, Event, Stage};
use crate::history::{Actor, What};
use qo_core::{
    Answer, Claim, Command, Error, ErrorKind, Exchange, ExchangeReply, FenceToken, Name, NewSession,
};
use qo_core::{Result, SessionId, Settle, Start};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) struct Worker {
    pub index: usize,
    pub name: Name,
    pub tasks: Vec<Name>,
    pub queues: Vec<Name>,
    pub permits: u32,
    pub lease_ms: u64,
    pub poll_ms: u64,
    /// How wrong the rate of its monotonic clock is, in millionths: G1′ allows less than 1 %.
    pub rate_ppm: i64,
    /// How wrong its wall clock is: by any amount (G9).
    pub skew_ms: i64,
    /// One more with every crash.
    pub life: u64,
    pub up: bool,
    pub paused_until_ms: u64,
    pub session: Option<Session>,
    /// What it could not settle under sessions that it lost.
    pub stale: Vec<Settle>,
    /// What it had claimed under sessions that it lost.
    pub stale_starts: Vec<Start>,
    /// Whether it claims ahead of time.
    pub soft: Option<Soft>,
    next_tick_ms: u64,
}

pub(super) struct Session {
    pub id: SessionId,
    pub number: u64,
    pub under_way: Option<UnderWay>,
    /// On the worker's monotonic clock.
    pub trust_until_ms: u64,
    pub handlers: BTreeMap<FenceToken, Handler>,
    pub finished: Vec<Settle>,
    pub buffer: Buffer,
    pub draining: bool,
    opened: bool,
}

/// The one call that is under way.
pub(super) struct UnderWay {
    command: Arc<Command>,
    /// From when on a lease that it renews is trusted, on the worker's monotonic clock.
    trust_from_ms: u64,
    /// It may have happened: it must be repeated as it is.
    uncertain: bool,
    waiting: bool,
}

impl Worker {
    /// A worker of the fleet, by dice.
    pub fn any(index: usize, stage: &mut Stage) -> Self {
        let random = &mut stage.random;
        let queues = if random.percent(50) { Vec::new() } else { scenery::some_names(random, &QUEUES) };
        let mut worker = Self::serving(index, scenery::some_names(random, &TASKS), queues);
        worker.permits = random.within(1..=8) as u32;
        worker.lease_ms = random.within(3_000..=LONGEST_LEASE_MS);
        worker.poll_ms = random.within(200..=stage.profile.poll_ms).min(worker.lease_ms / 3);
        worker.rate_ppm = random.within(0..=18_000) as i64 - 9_000;
        worker.skew_ms = random.within(0..=2_000_000_000) as i64 - 1_000_000_000;
        worker.soft = random.percent(55).then(|| Soft {
            prefetch_buffer: random.within(1..=5) as u32,
            claim_lease_ms: random.within(400..=20_000),
        });
        worker
    }

    /// A worker that serves everything.
    pub fn of_everything(index: usize) -> Self {
        Self::serving(index, scenery::names(&TASKS), Vec::new())
    }

    fn serving(index: usize, tasks: Vec<Name>, queues: Vec<Name>) -> Self {
        Self {
            index,
            name: scenery::name(&format!("host-{}", index / 2)),
            tasks,
            queues,
            permits: 8,
            lease_ms: 6_000,
            poll_ms: 500,
            rate_ppm: 0,
            skew_ms: 0,
            life: 0,
            up: true,
            paused_until_ms: 0,
            session: None,
            stale: Vec::new(),
            stale_starts: Vec::new(),
            soft: None,
            next_tick_ms: u64::MAX,
        }
    }

    pub fn actor(&self) -> Actor {
        Actor::Worker(self.index)
    }

    /// How much earlier than the store it stops trusting its lease.
    pub fn margin_ms(&self) -> u64 {
        (self.lease_ms / 10).max(1_000)
    }

    /// Its monotonic clock.
    fn mono_ms(&self, now_ms: u64) -> u64 {
        now_ms * (1_000_000 + self.rate_ppm) as u64 / 1_000_000
    }

    /// When its monotonic clock will show that much.
    fn when_mono(&self, mono_ms: u64) -> u64 {
        (mono_ms * 1_000_000).div_ceil((1_000_000 + self.rate_ppm) as u64)
    }

    pub fn alarm_in(&self, stage: &mut Stage, ms: u64, alarm: Alarm) {
        stage.plan_in(ms, Event::Alarm(self.index, self.life, alarm));
    }

    /// Makes sure that it sends an exchange within so many milliseconds.
    pub fn tick_in(&mut self, stage: &mut Stage, ms: u64) {
        let at_ms = stage.now_ms + ms;
        if at_ms < self.next_tick_ms {
            self.next_tick_ms = at_ms;
            self.alarm_in(stage, ms, Alarm::Tick);
        }
    }

    /// A new process has no timers.
    pub fn forget_ticks(&mut self) {
        self.next_tick_ms = u64::MAX;
    }

    pub fn alarm(&mut self, stage: &mut Stage, alarm: Alarm) {
        match alarm {
            Alarm::Restart => {
                self.up = true;
                self.tick_in(stage, 0);
            }
            Alarm::Tick if stage.now_ms >= self.next_tick_ms => self.tick(stage),
            Alarm::Tick => {}
            Alarm::Done(token) => self.handler_done(stage, token),
            Alarm::Timeout(token) => self.handler_timed_out(stage, token),
            Alarm::Trust(session) => self.check_trust(stage, session),
        }
    }

    fn tick(&mut self, stage: &mut Stage) {
        self.next_tick_ms = u64::MAX;
        if !self.up {
            return;
        }
        if self.session.is_none() {
            self.begin_session(stage);
        }
        let session = self.session.as_ref().expect("it was just begun");
        let command = match &session.under_way {
            Some(under_way) if under_way.waiting => return,
            Some(under_way) => under_way.command.clone(),
            None if !session.opened => Arc::new(Command::OpenSession(self.new_session(session.id))),
            None if session.draining && session.handlers.is_empty() && session.finished.is_empty() => {
                Arc::new(Command::CloseSession(session.id))
            }
            None => Arc::new(Command::Exchange(self.exchange(stage, session))),
        };
        self.send(stage, command);
    }

    fn begin_session(&mut self, stage: &mut Stage) {
        let wall_ms = u64::try_from(stage.wall(self.skew_ms).as_millis()).unwrap_or(0);
        let id = SessionId(stage.random.uuid(wall_ms));
        // Often it tries to settle jobs of its last session: it must be refused.
        let stale = std::mem::take(&mut self.stale);
        let stale_starts = std::mem::take(&mut self.stale_starts);
        let (finished, starts) =
            if stage.random.percent(60) { (stale, stale_starts) } else { Default::default() };
        self.session = Some(Session {
            id,
            number: 1,
            under_way: None,
            trust_until_ms: 0,
            handlers: BTreeMap::new(),
            finished,
            buffer: Buffer { jobs: BTreeMap::new(), stale: starts },
            draining: false,
            opened: false,
        });
        stage.write(self.actor(), What::Session(id));
    }

    fn new_session(&self, id: SessionId) -> NewSession {
        let (worker, queues, tasks) = (self.name.clone(), self.queues.clone(), self.tasks.clone());
        NewSession { id, worker, queues, tasks, lease_ms: self.lease_ms, permits: self.permits, owner: None }
    }

    fn exchange(&self, stage: &mut Stage, session: &Session) -> Exchange {
        let free = self.permits.saturating_sub(session.handlers.len() as u32);
        let starts = self.any_starts(stage, &session.buffer, free);
        let left = free.saturating_sub(starts.len() as u32);
        let max = if session.draining { 0 } else { left.min(stage.random.within(1..=8) as u32) };
        let max_claim_batch = stage.random.percent(15).then(|| stage.random.within(1..=3) as u32);
        let mut settles = session.finished.clone();
        settles.extend(session.buffer.settles(stage));
        if let Some((token, handler)) = session.handlers.first_key_value()
            && stage.random.percent(2)
        {
            // A forged settle: the right job, another token.
            settles.push(Settle {
                token: FenceToken(token.0.saturating_sub(1)),
                ..handler.settle_released(*token)
            });
        }
        let progress = session.progress(stage);
        Exchange {
            session: session.id,
            number: session.number,
            settles,
            starts,
            progress,
            claim: Claim { max, max_claim_batch, prefetch: self.prefetch(session.draining) },
            free_permits: free,
            draining: session.draining,
            memory_percent: None,
            idle_ms: None,
        }
    }

    fn send(&mut self, stage: &mut Stage, command: Arc<Command>) {
        let now_ms = self.mono_ms(stage.now_ms);
        let session = self.session.as_mut().expect("a session sends");
        let under_way = session.under_way.get_or_insert_with(|| UnderWay {
            command: command.clone(),
            trust_from_ms: now_ms,
            uncertain: false,
            waiting: true,
        });
        under_way.waiting = true;
        if stage.profile.trust == Trust::LastSent {
            under_way.trust_from_ms = now_ms;
        }
        stage.send(Actor::Worker(self.index), self.life, command);
    }

    /// An answer arrives.
    pub fn hear(&mut self, stage: &mut Stage, command: &Arc<Command>, reply: &Result<Answer>) {
        let expected = self.session.as_ref().and_then(|session| session.under_way.as_ref());
        if !expected.is_some_and(|under_way| Arc::ptr_eq(&under_way.command, command)) {
            return;
        }
        match reply.as_ref().map_err(Error::kind) {
            Ok(Answer::Exchanged(reply)) => self.exchanged(stage, command, reply),
            Ok(Answer::Opened(_)) => {
                let session = self.session.as_mut().expect("it waits for this answer");
                (session.opened, session.under_way) = (true, None);
                self.tick_in(stage, 0);
            }
            Ok(_) => {
                self.session = None;
                let rest_ms = stage.random.within(0..=2_000);
                self.tick_in(stage, rest_ms);
            }
            Err(kind @ (ErrorKind::Unknown | ErrorKind::Unavailable)) => self.try_again(stage, kind),
            Err(_) => self.lose_session(stage),
        }
    }

    fn try_again(&mut self, stage: &mut Stage, kind: ErrorKind) {
        let session = self.session.as_mut().expect("it waits for this answer");
        if let Some(under_way) = &mut session.under_way {
            under_way.waiting = false;
            under_way.uncertain |= kind == ErrorKind::Unknown;
            if !under_way.uncertain {
                // Nothing happened and nothing will: the number is still free for another exchange.
                session.under_way = None;
            }
        }
        let backoff_ms = stage.random.within(20..=500);
        self.tick_in(stage, backoff_ms);
    }

    fn lose_session(&mut self, stage: &mut Stage) {
        self.stop_all(stage);
        if let Some(session) = self.session.take() {
            self.stale_starts = session.buffer.starts().collect();
            self.stale = session.finished;
        }
        self.tick_in(stage, 0);
    }

    fn exchanged(&mut self, stage: &mut Stage, command: &Command, reply: &ExchangeReply) {
        let Command::Exchange(exchange) = command else { return };
        let (now_ms, lease_ms, margin_ms) = (self.mono_ms(stage.now_ms), self.lease_ms, self.margin_ms());
        let session = self.session.as_mut().expect("it waits for this answer");
        let from_ms = match session.under_way.take() {
            Some(under_way) if stage.profile.trust != Trust::Heard => under_way.trust_from_ms,
            _ => now_ms,
        };
        session.number += 1;
        session.trust_until_ms = from_ms + lease_ms - margin_ms;
        session.finished.retain(|settle| !exchange.settles.contains(settle));
        let (id, trust_until_ms) = (session.id, session.trust_until_ms);
        let trust_ends_ms = self.when_mono(trust_until_ms);
        stage.plan(trust_ends_ms, Event::Alarm(self.index, self.life, Alarm::Trust(id)));
        reply.stop.iter().for_each(|stop| self.told_to_stop(stage, stop));
        self.buffered(stage, exchange, reply);
        reply.claimed.iter().for_each(|claimed| self.start(stage, &Run::claimed(claimed)));
        let hungry = exchange.claim.max > 0 && reply.claimed.len() as u32 == exchange.claim.max;
        let settles = self.session.as_ref().is_some_and(|session| !session.finished.is_empty());
        let startable = self.session.as_ref().is_some_and(|session| {
            !session.buffer.jobs.is_empty() && (session.handlers.len() as u32) < self.permits
        });
        let rest_ms = match (hungry || settles, startable) {
            (true, _) => 5,
            (false, true) => self.poll_ms / 4,
            (false, false) => self.poll_ms,
        };
        self.tick_in(stage, rest_ms);
    }

    /// Whether its lease, as far as it knows, has not ended.
    pub fn trusts(&self, stage: &Stage) -> bool {
        self.session.as_ref().is_some_and(|session| self.mono_ms(stage.now_ms) < session.trust_until_ms)
    }

    fn check_trust(&mut self, stage: &mut Stage, id: SessionId) {
        if self.session.as_ref().is_some_and(|session| session.id == id) && !self.trusts(stage) {
            self.stop_all(stage);
        }
    }
}
