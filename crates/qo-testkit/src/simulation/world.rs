//! The simulated world: it takes the next event from the agenda, moves the clock, and lets it happen.

use super::audit;
use super::operator::{self, Operator};
use super::profile::Profile;
use super::program::Program;
use super::scenery;
use super::stage::{Event, Letter, Stage};
use super::submitter::Submitter;
use super::worker::Worker;
use crate::faulty::FaultyStore;
use crate::fixture::{Fixture, START, TestClock};
use crate::generator::call;
use crate::history::journal::{Journal, RecordedStore};
use crate::history::{Actor, History, What};
use crate::random::Random;
use futures::executor::block_on;
use qo_core::{Answer, Command, JobId, Result, Store, Time};
use std::sync::Arc;

/// Time between two audits, in milliseconds.
const AUDIT_MS: u64 = 4_000;

pub(super) struct World {
    stage: Stage,
    workers: Vec<Worker>,
    submitters: Vec<Submitter>,
    programs: Vec<Program>,
    operator: Operator,
    /// The store that the actors call.
    store: FaultyStore,
    /// The same store without the bad network.
    bare: Arc<dyn Store>,
    clock: Arc<dyn TestClock>,
    live_jobs: usize,
    /// Programs that hold slots.
    holding: usize,
    healed_at_ms: u64,
}

impl World {
    pub fn new(seed: u64, profile: &Profile, fixture: Fixture) -> Self {
        let mut random = Random::new(seed);
        let journal = Arc::new(Journal::default());
        journal.set_now(START);
        let bare: Arc<dyn Store> = Arc::new(RecordedStore::new(fixture.store, journal.clone()));
        // Some worlds have a good network, some a very bad one.
        let weather = random.pick(&[0, 1, 1, 3]);
        let store = FaultyStore::new(bare.clone(), random.draw(), profile.faults.times(weather));
        let mut stage = Stage::new(profile.clone(), random, journal);
        let size = 1 + stage.random.below(profile.workers);
        let workers = (0..size).map(|index| Worker::any(index, &mut stage)).collect();
        let submitters = (0..profile.submitters).map(|index| Submitter::any(index, &mut stage)).collect();
        let programs = (0..profile.programs).map(Program::any).collect();
        let (operator, clock) = (Operator::default(), fixture.clock);
        let (live_jobs, holding, healed_at_ms) = (0, 0, 0);
        Self {
            stage,
            workers,
            submitters,
            programs,
            operator,
            store,
            bare,
            clock,
            live_jobs,
            holding,
            healed_at_ms,
        }
    }

    /// Runs through the faults, ends them, comes to rest (or does not), and returns its history.
    pub fn live(mut self) -> History {
        self.begin();
        while !self.at_rest() {
            let Some((at_ms, event)) = self.stage.next() else { break };
            self.move_clock(at_ms.max(self.stage.now_ms));
            self.happen(event);
            if !self.stage.healed && self.stage.sent >= self.stage.profile.operations {
                self.heal();
            }
        }
        let last = audit(&*self.bare, true);
        self.stage.write(Actor::Auditor, What::Audited(Box::new(last)));
        self.stage.journal.take()
    }

    fn begin(&mut self) {
        let configuration = scenery::any_configuration(&mut self.stage.random);
        let tasks = (0..3).map(|_| scenery::any_task(&mut self.stage.random)).collect();
        for command in [Command::Configure(configuration), Command::Register(tasks)] {
            self.do_now(command);
        }
        for worker in &mut self.workers {
            let ms = self.stage.random.within(0..=2_000);
            worker.tick_in(&mut self.stage, ms);
        }
        self.submitters.iter().for_each(|submitter| submitter.act_in(&mut self.stage, 1_000));
        self.programs.iter().for_each(|program| program.act_in(&mut self.stage, 3_000));
        for event in [Event::Operate, Event::Sweep, Event::Trouble, Event::Audit] {
            self.stage.plan_in(1_000, event);
        }
        if self.stage.random.percent(60) {
            let ms = self.stage.random.within(10_000..=100_000);
            self.stage.plan_in(ms, Event::Sleep);
        }
    }

    fn at_rest(&self) -> bool {
        let quiet = self.live_jobs == 0
            && self.holding == 0
            && self.submitters.iter().all(|submitter| submitter.outstanding.is_none());
        let rested_ms = self.stage.now_ms - self.healed_at_ms;
        self.stage.healed && (quiet || rested_ms > self.stage.profile.rest_ms)
    }

    fn now(&self) -> Time {
        START.plus_ms(self.stage.now_ms)
    }

    fn move_clock(&mut self, at_ms: u64) {
        block_on(self.clock.advance_ms(at_ms - self.stage.now_ms));
        self.stage.now_ms = at_ms;
        self.stage.journal.set_now(self.now());
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Deliver(letter) => self.deliver(letter),
            Event::Answer(letter, reply) => self.answer(letter, reply),
            Event::Alarm(index, life, alarm) => {
                let worker = &mut self.workers[index];
                if worker.life != life {
                } else if worker.paused_until_ms > self.stage.now_ms {
                    self.stage.plan(worker.paused_until_ms, Event::Alarm(index, life, alarm));
                } else {
                    worker.alarm(&mut self.stage, alarm);
                }
            }
            Event::Land => {
                self.stage.journal.set_actor(Actor::Network);
                block_on(self.store.land_due(self.now()));
            }
            Event::Submit(index) => self.submitters[index].act(&mut self.stage, self.live_jobs),
            Event::Program(index) => self.programs[index].act(&mut self.stage),
            Event::Operate => self.operate(),
            Event::Sweep => {
                self.stage.send(Actor::Sweeper, 0, Arc::new(Command::Sweep));
                self.stage.plan_in(self.stage.profile.sweep_ms, Event::Sweep);
            }
            Event::Trouble => self.trouble(),
            Event::Sleep => self.sleep(),
            Event::Audit => self.audit(),
        }
    }

    fn deliver(&mut self, letter: Letter) {
        self.stage.journal.set_actor(letter.from);
        let reply = Arc::new(block_on(call(&self.store, (*letter.command).clone())));
        if let Some(fault) = self.store.take_fault() {
            self.stage.write(letter.from, What::Fault(fault));
        }
        self.look_at_fenced(&letter.command, &reply);
        if let Some(at) = self.store.next_landing() {
            self.stage.plan(at.ms_since(START), Event::Land);
        }
        let way_ms = self.stage.way_ms();
        self.stage.plan_in(way_ms, Event::Answer(letter, reply));
    }

    /// Looks at jobs right after a settle or start of them was refused: nothing may have changed (G2).
    fn look_at_fenced(&mut self, command: &Command, reply: &Result<Answer>) {
        let (Command::Exchange(exchange), Ok(Answer::Exchanged(reply))) = (command, reply) else { return };
        let settles = exchange.settles.iter().zip(&reply.settled);
        let settles = settles.filter(|(_, result)| result.is_err()).map(|(settle, _)| settle.job);
        let starts = exchange.starts.iter().zip(&reply.started);
        let starts = starts.filter(|(_, result)| result.is_err()).map(|(start, _)| start.job);
        let jobs: Vec<JobId> = settles.chain(starts).collect();
        if !jobs.is_empty() {
            let seen = audit::single(&*self.bare, &jobs);
            self.stage.write(Actor::Auditor, What::Audited(Box::new(seen)));
        }
    }

    fn answer(&mut self, letter: Letter, reply: Arc<Result<Answer>>) {
        if let Actor::Worker(index) = letter.from {
            let worker = &self.workers[index];
            if worker.life != letter.life {
                return;
            }
            if worker.paused_until_ms > self.stage.now_ms {
                return self.stage.plan(worker.paused_until_ms, Event::Answer(letter, reply));
            }
        }
        if matches!(letter.from, Actor::Program(index) if self.programs[index].life != letter.life) {
            return;
        }
        self.stage.write(letter.from, What::Heard(letter.command.clone(), reply.clone()));
        match letter.from {
            Actor::Worker(index) => self.workers[index].hear(&mut self.stage, &letter.command, &reply),
            Actor::Submitter(index) => {
                let known = self.submitters[index].hear(&mut self.stage, &reply);
                self.operator.jobs.extend(known);
            }
            Actor::Program(index) => self.programs[index].hear(&mut self.stage, &letter.command, &reply),
            Actor::Operator => self.operator.hear(&mut self.stage, &letter.command, &reply),
            _ => {}
        }
    }

    fn operate(&mut self) {
        if self.stage.healed {
            return;
        }
        let command = self.operator.any_command(&mut self.stage, &*self.bare);
        self.stage.send(Actor::Operator, 0, Arc::new(command));
        let ms = self.stage.random.within(100..=2_000);
        self.stage.plan_in(ms, Event::Operate);
    }

    fn trouble(&mut self) {
        if self.stage.healed {
            return;
        }
        if !self.programs.is_empty() && self.stage.random.percent(20) {
            let index = self.stage.random.below(self.programs.len());
            self.programs[index].crash(&mut self.stage);
        }
        let index = self.stage.random.below(self.workers.len());
        let worker = &mut self.workers[index];
        if worker.up && worker.paused_until_ms <= self.stage.now_ms {
            match self.stage.random.below(10) {
                0..4 => worker.crash(&mut self.stage),
                4..8 => worker.pause(&mut self.stage),
                _ => worker.session.iter_mut().for_each(|session| session.draining = true),
            }
        }
        let ms = self.stage.random.within(1..=2 * self.stage.profile.trouble_ms);
        self.stage.plan_in(ms, Event::Trouble);
    }

    /// The whole fleet is paused, as on a machine that was suspended: every lease is over when it wakes up, and ticks
    /// were missed.
    fn sleep(&mut self) {
        if self.stage.healed {
            return;
        }
        let ms = self.stage.random.within(3_000..=250_000);
        for worker in self.workers.iter().filter(|worker| worker.up) {
            let beyond_margin = ms > worker.margin_ms();
            self.stage.write(worker.actor(), What::Paused { ms, beyond_margin });
        }
        self.move_clock(self.stage.now_ms + ms);
    }

    fn audit(&mut self) {
        if self.stage.healed {
            self.lift();
        }
        let audit = audit(&*self.bare, false);
        self.live_jobs = audit.jobs.len();
        let holders = audit.holders.iter().flat_map(|detail| &detail.holders);
        self.holding = holders.filter(|holder| holder.job().is_none()).count();
        self.stage.write(Actor::Auditor, What::Audited(Box::new(audit)));
        let ms = if self.stage.healed { AUDIT_MS / 4 } else { AUDIT_MS };
        self.stage.plan_in(ms, Event::Audit);
    }

    /// Ends the faults, lifts what holds jobs back, and adds a worker that serves everything.
    fn heal(&mut self) {
        self.stage.healed = true;
        self.healed_at_ms = self.stage.now_ms;
        self.store.heal();
        self.stage.lose_operators_calls();
        self.stage.journal.set_actor(Actor::Network);
        block_on(self.store.land_due(Time::from_millis(i64::MAX)));
        self.lift();
        self.workers.iter_mut().for_each(|worker| worker.heal(&mut self.stage));
        let mut worker = Worker::of_everything(self.workers.len());
        worker.tick_in(&mut self.stage, 0);
        self.workers.push(worker);
        self.live_jobs = usize::MAX; // Not known until the next audit.
        let bound_ms = self.stage.profile.bound_ms();
        self.stage.write(Actor::Auditor, What::Healed { bound_ms });
    }

    fn lift(&mut self) {
        for command in operator::lifting(&mut self.stage, &*self.bare) {
            self.do_now(command);
        }
    }

    /// Makes a call without the network.
    fn do_now(&mut self, command: Command) {
        self.stage.journal.set_actor(Actor::Operator);
        block_on(call(&*self.bare, command)).expect("the bare store takes good commands");
    }
}
