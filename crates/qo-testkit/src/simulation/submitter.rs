//! A simulated client: it submits, and after `Unknown` submits the same jobs again.

use super::scenery;
use super::stage::{Event, Stage};
use crate::history::Actor;
use qo_core::{Answer, Command, Error, ErrorKind, JobId, NewJob, Result};
use std::sync::Arc;

/// Live jobs above which clients submit nothing, so that a world can come to rest.
const ENOUGH: usize = 120;

pub(super) struct Submitter {
    pub index: usize,
    /// The call that was not answered yet.
    pub outstanding: Option<Arc<Command>>,
    waiting: bool,
    /// How wrong its wall clock is: its dates and ids come from it.
    skew_ms: i64,
    last: Vec<NewJob>,
}

impl Submitter {
    pub fn any(index: usize, stage: &mut Stage) -> Self {
        let skew_ms = stage.random.within(0..=6_000) as i64 - 3_000;
        Self { index, outstanding: None, waiting: false, skew_ms, last: Vec::new() }
    }

    /// Its timer fires: the unanswered call again, or new jobs.
    pub fn act(&mut self, stage: &mut Stage, live_jobs: usize) {
        if self.waiting {
            return;
        }
        if self.outstanding.is_none() && !stage.healed && live_jobs < ENOUGH {
            self.last = self.batch(stage);
            self.outstanding = Some(Arc::new(Command::Submit(self.last.clone())));
        }
        match &self.outstanding {
            Some(command) => {
                self.waiting = true;
                stage.send(Actor::Submitter(self.index), 0, command.clone());
            }
            None if !stage.healed => self.act_in(stage, 1_000),
            None => {}
        }
    }

    fn batch(&self, stage: &mut Stage) -> Vec<NewJob> {
        if !self.last.is_empty() && stage.random.percent(5) {
            return self.last.clone(); // A program that forgot that it had been answered.
        }
        let size = if stage.random.percent(50) { 1 } else { stage.random.within(2..=8) };
        let wall = stage.wall(self.skew_ms);
        if stage.random.percent(30) {
            let workflow = scenery::any_workflow(&mut stage.random);
            return (0..size).map(|_| scenery::any_step(&mut stage.random, wall, &workflow)).collect();
        }
        (0..size).map(|_| scenery::any_job(&mut stage.random, wall)).collect()
    }

    /// An answer arrives. Returns the jobs that the client knows now.
    pub fn hear(&mut self, stage: &mut Stage, reply: &Result<Answer>) -> Vec<JobId> {
        self.waiting = false;
        let again =
            matches!(reply.as_ref().map_err(Error::kind), Err(ErrorKind::Unknown | ErrorKind::Unavailable));
        if again && stage.random.percent(90) {
            self.act_in(stage, 500);
            return Vec::new();
        }
        self.outstanding = None;
        self.act_in(stage, 2_500);
        if reply.is_ok() { self.last.iter().map(|job| job.id).collect() } else { Vec::new() }
    }

    pub fn act_in(&self, stage: &mut Stage, most_ms: u64) {
        let ms = stage.random.within(1..=most_ms);
        stage.plan_in(ms, Event::Submit(self.index));
    }
}
