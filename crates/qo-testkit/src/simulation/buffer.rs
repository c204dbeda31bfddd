//! Soft mode: a simulated worker that claims jobs ahead of time and starts them when a permit is free.

use super::handler::Run;
use super::stage::Stage;
use super::worker::Worker;
use qo_core::{
    ClaimedJob, Exchange, ExchangeReply, FenceToken, Json, Outcome, Prefetch, Settle, Start, Started,
};
use std::collections::BTreeMap;

/// How a worker claims ahead of time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Soft {
    pub prefetch_buffer: u32,
    pub claim_lease_ms: u64,
}

/// Jobs that a session has claimed ahead of time, as far as its worker knows.
#[derive(Default)]
pub(super) struct Buffer {
    pub jobs: BTreeMap<FenceToken, ClaimedJob>,
    /// Claims of sessions that the worker lost: it tries to start them, and must be refused.
    pub stale: Vec<Start>,
}

impl Buffer {
    /// What a worker would have started.
    pub fn starts(&self) -> impl Iterator<Item = Start> + '_ {
        self.jobs.iter().map(|(&token, job)| Start { job: job.id, token })
    }

    /// Settles of claimed jobs: some are given back early, and some have an outcome that the store must refuse.
    pub fn settles(&self, stage: &mut Stage) -> Vec<Settle> {
        let mut settles = Vec::new();
        for start in self.starts() {
            let outcome = match stage.random.below(200) {
                0..6 => Outcome::Release,
                6 => Outcome::Succeed { output: Json::null() },
                _ => continue,
            };
            settles.push(Settle { job: start.job, token: start.token, outcome });
        }
        settles
    }
}

impl Worker {
    /// The claimed jobs that a soft worker starts now: as many as it has permits for, the oldest first.
    pub fn any_starts(&self, stage: &mut Stage, buffer: &Buffer, free: u32) -> Vec<Start> {
        // Some workers are slow to start their claimed jobs; the claim may be over then.
        let slow = !stage.healed && stage.random.percent(25);
        let most = if slow { stage.random.below(free as usize + 1) } else { free as usize };
        let mut starts: Vec<Start> = buffer.starts().take(most).collect();
        starts.extend(&buffer.stale);
        if let Some(start) = buffer.starts().last().filter(|_| stage.random.percent(3)) {
            starts.push(Start { token: FenceToken(start.token.0 - 1), ..start });
        }
        starts
    }

    /// How many jobs it wants to hold ahead of time.
    pub fn prefetch(&self, draining: bool) -> Option<Prefetch> {
        let soft = self.soft.filter(|_| !draining)?;
        Some(Prefetch { buffer: soft.prefetch_buffer, lease_ms: soft.claim_lease_ms })
    }

    /// Starts, drops and buffers jobs by the answer to an exchange.
    pub fn buffered(&mut self, stage: &mut Stage, exchange: &Exchange, reply: &ExchangeReply) {
        let Some(session) = &mut self.session else { return };
        let buffer = &mut session.buffer;
        buffer.stale.clear();
        let mut runs = Vec::new();
        for (start, result) in exchange.starts.iter().zip(&reply.started) {
            let job = buffer.jobs.remove(&start.token);
            if let (Some(job), Ok(Started { run: Some(granted), .. })) = (job, result) {
                runs.push(Run::started(&job, *granted));
            }
        }
        exchange.settles.iter().for_each(|settle| drop(buffer.jobs.remove(&settle.token)));
        if exchange.draining {
            buffer.jobs.clear();
        }
        for stop in &reply.stop {
            // A worker may miss that a claim is over; its start is fenced.
            if stage.random.percent(80) {
                buffer.jobs.remove(&stop.token);
            }
        }
        let claimed =
            reply.prefetched.iter().map(|prefetched| (prefetched.job.token, prefetched.job.clone()));
        buffer.jobs.extend(claimed);
        runs.iter().for_each(|run| self.start(stage, run));
    }
}
