//! What the actors of a simulation share: the time, the agenda, the network, the dice and the journal.

use super::profile::Profile;
use crate::fixture::START;
use crate::history::journal::Journal;
use crate::history::{Actor, What};
use crate::random::Random;
use qo_core::{Answer, Command, FenceToken, Result, SessionId, Time};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A call on its way, there or back.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub from: Actor,
    /// The incarnation of the sender: a process that crashed gets no answers to calls of its former incarnation.
    pub life: u64,
    pub command: Arc<Command>,
}

/// Something that will happen.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A call reaches the store.
    Deliver(Letter),
    /// An answer reaches the caller.
    Answer(Letter, Arc<Result<Answer>>),
    /// A worker's timer fires, if it is still the same incarnation.
    Alarm(usize, u64, Alarm),
    /// Late calls land.
    Land,
    Submit(usize),
    Program(usize),
    Operate,
    Sweep,
    Trouble,
    /// All processes are paused for a while, the store too.
    Sleep,
    Audit,
}

/// A timer of a worker.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alarm {
    /// Time for an exchange.
    Tick,
    /// A handler ends.
    Done(FenceToken),
    /// A handler's timeout is over.
    Timeout(FenceToken),
    /// The lease can no longer be trusted, unless it was renewed.
    Trust(SessionId),
    /// The process starts again.
    Restart,
}

pub(super) struct Stage {
    pub profile: Profile,
    pub random: Random,
    pub journal: Arc<Journal>,
    /// Milliseconds since the start.
    pub now_ms: u64,
    /// Calls that were sent.
    pub sent: u64,
    pub healed: bool,
    agenda: BTreeMap<(u64, u64), Event>,
    planned: u64,
}

impl Stage {
    pub fn new(profile: Profile, random: Random, journal: Arc<Journal>) -> Self {
        Self {
            profile,
            random,
            journal,
            now_ms: 0,
            sent: 0,
            healed: false,
            agenda: BTreeMap::new(),
            planned: 0,
        }
    }

    /// Plans an event. Events of one millisecond happen in the order in which they were planned.
    pub fn plan(&mut self, at_ms: u64, event: Event) {
        self.planned += 1;
        self.agenda.insert((at_ms.max(self.now_ms), self.planned), event);
    }

    pub fn plan_in(&mut self, ms: u64, event: Event) {
        self.plan(self.now_ms + ms, event);
    }

    /// The next event and its time.
    pub fn next(&mut self) -> Option<(u64, Event)> {
        self.agenda.pop_first().map(|((at_ms, _), event)| (at_ms, event))
    }

    /// Drops the operator's calls that are under way.
    pub fn lose_operators_calls(&mut self) {
        let lost = |event: &Event| matches!(event, Event::Deliver(letter) if letter.from == Actor::Operator);
        self.agenda.retain(|_, event| !lost(event));
    }

    /// Sends a call on its way to the store.
    pub fn send(&mut self, from: Actor, life: u64, command: Arc<Command>) {
        self.sent += 1;
        self.write(from, What::Sent(command.clone()));
        let way_ms = self.way_ms();
        self.plan_in(way_ms, Event::Deliver(Letter { from, life, command }));
    }

    /// How long one way through the network takes, by dice.
    pub fn way_ms(&mut self) -> u64 {
        let ms = self.random.within(0..=self.profile.network_ms);
        if !self.healed && self.random.percent(2) { ms * 100 } else { ms }
    }

    pub fn write(&self, actor: Actor, what: What) {
        self.journal.write(actor, what);
    }

    /// What a wall clock shows that is wrong by so much.
    pub fn wall(&self, skew_ms: i64) -> Time {
        Time::from_millis(START.as_millis() + self.now_ms as i64 + skew_ms)
    }
}
