//! From records to runs: the interval in which each handler ran.

use crate::fleet::Fate;
use crate::record::{self, Event, Record};
use qo::core::{FenceToken, JobId};
use std::collections::BTreeMap;
use std::path::Path;

/// One run of a handler.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub worker: usize,
    pub job: JobId,
    pub token: FenceToken,
    pub from_us: u64,
    pub to_us: u64,
    /// It returned.
    pub done: bool,
    /// Its worker dropped it, because it could no longer trust its lease.
    pub dropped: bool,
}

/// All runs, in the order of their tokens.
#[derive(Debug, Default)]
pub struct Runs {
    pub all: Vec<Run>,
    /// Contradictions.
    pub strange: Vec<String>,
    /// For each stop of a worker, how many handlers completed a write afterwards that they were in the middle of.
    pub half_written: Vec<usize>,
}

/// Reads what all workers' jobs wrote.
pub fn read(folder: &Path, workers: &BTreeMap<usize, Fate>) -> Runs {
    let records: BTreeMap<usize, Vec<Record>> =
        workers.keys().map(|worker| (*worker, record::read(&record::path(folder, *worker)))).collect();
    let mut runs = Runs::default();
    let mut by_token = BTreeMap::new();
    for (worker, records) in &records {
        // A run that a killed worker left open ended with the worker. A run that any other worker left open never
        // ended.
        let end_us = workers[worker].killed_us.unwrap_or(u64::MAX);
        for record in records {
            let Record { event, at_us, token, job } = *record;
            let began = Run {
                worker: *worker,
                job,
                token,
                from_us: at_us,
                to_us: end_us,
                done: false,
                dropped: false,
            };
            match (event, by_token.get_mut(&token)) {
                (Event::Began, None) => {
                    by_token.insert(token, began);
                }
                (Event::Done | Event::Stopped, Some(run)) if (run.worker, run.job) == (*worker, job) => {
                    (run.to_us, run.done) = (at_us, event == Event::Done);
                    run.dropped = event == Event::Stopped;
                }
                (_, other) => runs.strange.push(format!("worker {worker}: {record:?}, but {other:?}")),
            }
        }
    }
    runs.all = by_token.into_values().collect();
    let begun = runs.all.clone();
    for (worker, fate) in workers {
        for stop in &fate.stops {
            runs.end_at_stop(*worker, *stop, &begun);
        }
    }
    runs
}

impl Runs {
    /// A worker was stopped for longer than its lease, so its runs count as ended when it stopped. After it goes on it
    /// may drop its handlers, which they record, and nothing more. A thread that was stopped in the middle of a
    /// handler's step finishes that step; no runtime can prevent that.
    fn end_at_stop(&mut self, worker: usize, (stopped_us, went_on_us): (u64, u64), begun: &[Run]) {
        // Every claim after it went on has a higher token than everything that began before.
        let before = begun.iter().filter(|run| run.from_us < went_on_us).map(|run| run.token).max();
        let is_old = |run: &Run| run.worker == worker && Some(run.token) <= before;
        let mut half_written = 0;
        for run in self.all.iter_mut().filter(|run| is_old(run) && run.to_us > stopped_us) {
            half_written += usize::from(run.done || run.from_us > stopped_us);
            run.from_us = run.from_us.min(stopped_us);
            run.to_us = stopped_us;
        }
        self.half_written.push(half_written);
    }
}
