//! Claimers that exchange as fast as they can, without a worker around them: each exchange settles the jobs of the one
//! before, and claims as many again.

use qo::core::{Claim, ClaimedJob, Exchange, Json, Name, NewSession, Outcome, SessionId, Settle};
use qo::{Error, ErrorKind, Result, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use uuid::Uuid;

/// How long a session lives: longer than anything here takes.
const LEASE_MS: u64 = 600_000;
/// How long a claim may bring nothing although jobs are left.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often an exchange is repeated after an error that passes.
const RETRIES: u32 = 20;

/// What some legs took.
#[derive(Debug, Clone, Default)]
pub struct Took {
    /// Jobs that were claimed and settled.
    pub jobs: u64,
    /// From the first claim to the last settle.
    pub seconds: f64,
    /// Jobs of each claimer.
    pub by_worker: Vec<u64>,
    /// How long each exchange took.
    pub exchanges_ms: Vec<f64>,
}

impl Took {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { jobs: 0, seconds: 0.0, by_worker: Vec::new(), exchanges_ms: Vec::new() }
    }

    /// Adds another leg.
    pub fn add(&mut self, other: Self) {
        self.jobs += other.jobs;
        self.seconds += other.seconds;
        self.by_worker.resize(self.by_worker.len().max(other.by_worker.len()), 0);
        self.by_worker.iter_mut().zip(&other.by_worker).for_each(|(all, jobs)| *all += jobs);
        self.exchanges_ms.extend(other.exchanges_ms);
    }

    /// Jobs a second.
    pub fn rate(&self) -> f64 {
        self.jobs as f64 / self.seconds
    }

    /// Jobs a second of the worker that had the fewest.
    pub fn slowest_worker(&self) -> f64 {
        self.by_worker.iter().copied().min().unwrap_or(0) as f64 / self.seconds
    }
}

/// What one claimer did.
struct Run {
    settled: u64,
    exchanges_ms: Vec<f64>,
    ended: Instant,
}

/// Claims and settles this many jobs of these tasks, with one claimer for each store.
pub async fn race(stores: &[Arc<dyn Store>], tasks: &[Name], batch: u32, jobs: u64) -> Result<Took> {
    let left = Arc::new(AtomicU64::new(jobs));
    let ready = Arc::new(Barrier::new(stores.len() + 1));
    // The claimers end when this set is dropped, also after Ctrl-C.
    let mut claimers = JoinSet::new();
    for (index, store) in stores.iter().enumerate() {
        let session = SessionId(Uuid::new_v4());
        let worker = Name::parse("worker", &format!("claimer-{index}"))?;
        let (queues, tasks) = (Vec::new(), tasks.to_vec());
        let new = NewSession {
            id: session,
            worker,
            queues,
            tasks,
            lease_ms: LEASE_MS,
            permits: batch,
            owner: None,
        };
        store.open_session(new).await?;
        let claimer =
            Claimer { store: Arc::clone(store), session, batch, left: Arc::clone(&left), number: 0 };
        let ready = Arc::clone(&ready);
        claimers.spawn(async move {
            ready.wait().await;
            claimer.run().await
        });
    }
    ready.wait().await;
    let began = Instant::now();
    let mut took = Took::default();
    let mut ended = began;
    while let Some(run) = claimers.join_next().await {
        let gone = |error| Error::new(ErrorKind::Internal, format!("a claimer is gone: {error}"));
        let run = run.map_err(gone)??;
        took.jobs += run.settled;
        took.by_worker.push(run.settled);
        took.exchanges_ms.extend(run.exchanges_ms);
        ended = ended.max(run.ended);
    }
    took.seconds = ended.duration_since(began).as_secs_f64();
    Ok(took)
}

struct Claimer {
    store: Arc<dyn Store>,
    session: SessionId,
    batch: u32,
    /// Jobs that no claimer has asked for yet.
    left: Arc<AtomicU64>,
    number: u64,
}

impl Claimer {
    async fn run(mut self) -> Result<Run> {
        let mut run = Run { settled: 0, exchanges_ms: Vec::new(), ended: Instant::now() };
        let mut settles: Vec<Settle> = Vec::new();
        let mut brought = Instant::now();
        loop {
            let wanted = self.ask();
            if wanted == 0 && settles.is_empty() {
                if self.left.load(Ordering::Relaxed) == 0 {
                    break;
                }
                continue;
            }
            let settling = settles.len() as u64;
            let began = Instant::now();
            let claimed = self.exchange(std::mem::take(&mut settles), wanted).await?;
            run.ended = Instant::now();
            run.exchanges_ms.push(run.ended.duration_since(began).as_secs_f64() * 1e3);
            run.settled += settling;
            // Another claimer may ask for the jobs that this one did not get.
            let missing = u64::from(wanted).saturating_sub(claimed.len() as u64);
            self.left.fetch_add(missing, Ordering::Relaxed);
            if claimed.is_empty() && brought.elapsed() > PATIENCE {
                let what = format!("{missing} jobs should be there, and none came for {PATIENCE:?}");
                return Err(Error::new(ErrorKind::Internal, what));
            }
            if !claimed.is_empty() {
                brought = run.ended;
            }
            settles = claimed.into_iter().map(succeeded).collect();
        }
        self.store.close_session(self.session).await?;
        Ok(run)
    }

    /// As many as it can take of the jobs that no claimer has asked for.
    fn ask(&self) -> u32 {
        let mut wanted = 0;
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            wanted = left.min(u64::from(self.batch));
            Some(left - wanted)
        });
        u32::try_from(wanted).unwrap_or(self.batch)
    }

    async fn exchange(&mut self, settles: Vec<Settle>, max: u32) -> Result<Vec<ClaimedJob>> {
        self.number += 1;
        let exchange = Exchange {
            session: self.session,
            number: self.number,
            settles,
            starts: Vec::new(),
            progress: Vec::new(),
            claim: Claim { max, max_claim_batch: None, prefetch: None },
            free_permits: self.batch,
            draining: false,
            memory_percent: None,
            idle_ms: None,
        };
        let mut lost = 0;
        let reply = loop {
            match self.store.exchange(exchange.clone()).await {
                // Nothing has happened, and a worker would try again, too. The time counts.
                Err(error) if error.kind() == ErrorKind::Unavailable && lost < RETRIES => {
                    tracing::warn!(%error, "an exchange is made again");
                    lost += 1;
                }
                reply => break reply?,
            }
        };
        for settled in reply.settled {
            settled?;
        }
        Ok(reply.claimed)
    }
}

fn succeeded(job: ClaimedJob) -> Settle {
    Settle { job: job.id, token: job.token, outcome: Outcome::Succeed { output: Json::null() } }
}
