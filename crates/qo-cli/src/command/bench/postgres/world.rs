//! A namespace as a scenario needs it: its limits, the jobs ahead in line, and the jobs that are run.

use super::race::{self, Took};
use super::server::{Schema, Server};
use crate::command::bench::noop::submit;
use qo::core::{Configuration, GroupRef, JobId, Key, LeaseId, Name, NewJob, Retention, SlotRequest, caps};
use qo::{Result, Store};
use std::sync::Arc;
use tokio::task::JoinSet;
use uuid::Uuid;

/// How many tasks the jobs have.
const TASKS: u64 = 100;
/// A limit that nothing here reaches.
const AMPLE: u32 = 100_000;
/// The limit in the scenario with many workers.
pub const HIGH: u32 = 500;
/// Keys of jobs under nested limits, and of jobs whose keys have a limit of 1 each.
const FEW_KEYS: u64 = 1_000;
const MANY_KEYS: u64 = 100_000;
/// Groups that are full.
const FULL: [&str; 2] = ["full-1", "full-2"];
/// Programs that wait for them.
const WAITERS: usize = 30;
/// Jobs that stand ahead and cannot run.
const AHEAD: u64 = 100_000;
/// Pending jobs in the deep and in the shallow line; this many are run before the line is filled up again.
const DEEP: u64 = 1_000_000;
const SHALLOW: u64 = 10_000;
const REFILL: u64 = 5_000;
/// Jobs that are submitted with one call.
const CALL: usize = 5_000;
/// Exchanges of each claimer before the time runs: the server makes its plans with the first ones.
const WARM_UP: u64 = 3;

/// What a namespace contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// No limits, nothing ahead.
    Baseline,
    /// Every task has a limit that does not bind.
    Enabled,
    /// One of the tasks has a limit.
    Mixed,
    /// All jobs share one limit of 500.
    High,
    /// All jobs share one limit, which is as high as the number in flight.
    Binding,
    /// Every job is under a limit of cluster, queue, task and key.
    Nested,
    /// Every key has a limit of 1.
    Keys,
    /// Jobs of two full groups stand ahead.
    Stuck,
    /// Jobs of a task that no worker handles stand ahead.
    Foreign,
    /// Programs wait for slots of two full groups, each as often as its client lets it.
    Waiters,
    /// Few jobs are pending all the time.
    Shallow,
    /// Very many jobs are pending all the time.
    Deep,
}

/// The workers, and whether finished jobs are kept.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Workers that claim at once.
    pub workers: u32,
    /// Jobs that one of them claims with one exchange.
    pub batch: u32,
    /// Whether finished jobs are kept, for the default retention.
    pub is_kept: bool,
    /// Whether it is a quick round.
    pub quick: bool,
}

impl Load {
    fn in_flight(&self) -> u32 {
        self.workers * self.batch
    }

    /// Fewer jobs in a quick round.
    fn sized(&self, jobs: u64) -> u64 {
        if self.quick { jobs / 500 } else { jobs }
    }
}

impl Kind {
    /// The kind that it is compared with.
    pub fn other(self) -> Self {
        if self == Self::Deep { Self::Shallow } else { Self::Baseline }
    }

    fn limits(self, load: &Load) -> Vec<(String, u32)> {
        let tasks = (0..TASKS).map(task);
        match self {
            Self::Enabled => tasks.map(|task| (task, AMPLE)).collect(),
            Self::Mixed => vec![(task(0), AMPLE)],
            Self::High => vec![("shared".into(), HIGH)],
            Self::Binding => vec![("shared".into(), load.in_flight())],
            Self::Nested => tasks
                .flat_map(|task| [(format!("{task}/*"), AMPLE), (task, AMPLE)])
                .chain([("cluster".into(), AMPLE), ("queue:default".into(), AMPLE)])
                .collect(),
            Self::Keys => vec![("shared/*".into(), 1)],
            Self::Stuck | Self::Waiters => FULL.iter().map(|group| ((*group).to_owned(), 1)).collect(),
            Self::Baseline | Self::Foreign | Self::Shallow | Self::Deep => Vec::new(),
        }
    }

    fn job(self, index: u64) -> Result<NewJob> {
        let mut job = NewJob::new(JobId(Uuid::now_v7()), Name::parse("task", &task(index % TASKS))?);
        match self {
            Self::High | Self::Binding | Self::Keys => job.group = Some(Name::parse("group", "shared")?),
            _ => {}
        }
        let key = match self {
            Self::Nested => Some(index % FEW_KEYS),
            // Mixed, so that sometimes two jobs of one key stand close together.
            Self::Keys => Some(mixed(index) % MANY_KEYS),
            _ => None,
        };
        job.key = key.map(|key| Key::parse("key", &format!("user-{key}"))).transpose()?;
        Ok(job)
    }

    /// A job that stands ahead and cannot run.
    fn job_ahead(self, index: u64) -> Result<NewJob> {
        let mut job = NewJob::new(JobId(Uuid::now_v7()), Name::parse("task", &task(index % TASKS))?);
        if self == Self::Stuck {
            job.group = Some(Name::parse("group", FULL[usize::from(index % 2 == 1)])?);
        } else {
            job.task = Name::parse("task", "foreign")?;
        }
        Ok(job)
    }

    fn ahead(self) -> u64 {
        if matches!(self, Self::Stuck | Self::Foreign) { AHEAD } else { 0 }
    }

    /// Jobs that may run and are pending before and after a leg.
    fn standing(self) -> u64 {
        match self {
            Self::Deep => DEEP,
            Self::Shallow => SHALLOW,
            _ => 0,
        }
    }
}

fn task(index: u64) -> String {
    format!("task{index}")
}

/// A pseudorandom number, the same in every run (splitmix64).
fn mixed(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A namespace, filled, and the stores of its claimers.
pub struct World {
    schema: Schema,
    kind: Kind,
    load: Load,
    /// One for each claimer, as if each were a process.
    stores: Vec<Arc<dyn Store>>,
    submitted: u64,
    /// Programs that wait for slots. They end with the world.
    waiters: JoinSet<()>,
}

impl World {
    /// Makes it.
    pub async fn make(server: &Server, kind: Kind, load: Load) -> Result<Self> {
        let schema = server.fresh().await?;
        let mut stores = Vec::new();
        for _ in 0..load.workers {
            stores.push(qo::connect(&schema.url).await?);
        }
        let mut world = Self { schema, kind, load, stores, submitted: 0, waiters: JoinSet::new() };
        let store = Arc::clone(world.store());
        retain(&store, load.is_kept).await?;
        for (group, limit) in kind.limits(&load) {
            store.set_limit(GroupRef::parse("group", &group)?, limit).await?;
        }
        if matches!(kind, Kind::Stuck | Kind::Waiters) {
            fill(&store).await?;
        }
        if kind == Kind::Waiters {
            world.wait_for_slots().await?;
        }
        submit_all(&store, load.sized(kind.ahead()), |index| kind.job_ahead(index)).await?;
        world.enqueue(load.sized(kind.standing())).await?;
        Ok(world)
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.stores[0]
    }

    async fn enqueue(&mut self, jobs: u64) -> Result<()> {
        let (kind, from) = (self.kind, self.submitted);
        submit_all(self.store(), jobs, |index| kind.job(from + index)).await?;
        self.submitted += jobs;
        Ok(())
    }

    /// Runs this many jobs, and returns what that took. Submitting them is not timed.
    pub async fn leg(&mut self, server: &Server, jobs: u64) -> Result<Took> {
        let warm_up = u64::from(self.load.in_flight()) * WARM_UP;
        let at_once = if self.kind.standing() > 0 { self.load.sized(REFILL).max(1) } else { jobs };
        self.enqueue(warm_up + at_once.min(jobs)).await?;
        server.settle(&self.schema.name).await?;
        self.race(warm_up).await?;
        let mut took = Took::default();
        let mut left = jobs;
        while left > 0 {
            let some = at_once.min(left);
            if left < jobs {
                self.enqueue(some).await?;
            }
            took.add(self.race(some).await?);
            left -= some;
        }
        Ok(took)
    }

    /// Programs that wait, each with connections of its own, as a process has.
    async fn wait_for_slots(&mut self) -> Result<()> {
        for waiter in 0..WAITERS {
            let client = qo::Client::new(qo::connect(&self.schema.url).await?);
            self.waiters.spawn(async move {
                // It never gets one: the world ends first.
                drop(client.acquire(FULL[waiter % FULL.len()]).await);
            });
        }
        Ok(())
    }

    async fn race(&self, jobs: u64) -> Result<Took> {
        let tasks = (0..TASKS).map(|index| Name::parse("task", &task(index))).collect::<Result<Vec<_>>>()?;
        race::race(&self.stores, &tasks, self.load.batch, jobs).await
    }

    /// Ends the stores' connections; the schema stays.
    pub fn disconnect(&mut self) {
        self.stores.clear();
    }

    /// What its schema is called.
    pub fn schema(&self) -> &str {
        &self.schema.name
    }

    /// Drops the schema.
    pub async fn end(mut self, server: &Server) -> Result<()> {
        self.waiters.shutdown().await;
        drop(self.stores);
        server.drop(&self.schema.name).await
    }
}

/// How long finished jobs are kept: as the defaults say, or not at all.
pub async fn retain(store: &Arc<dyn Store>, is_kept: bool) -> Result<()> {
    if is_kept {
        return Ok(());
    }
    let retention = Retention { succeeded_ms: 0, ..Retention::default() };
    store.configure(Configuration { retention: retention.into(), ..Configuration::default() }).await.map(drop)
}

async fn submit_all(store: &Arc<dyn Store>, count: u64, make: impl Fn(u64) -> Result<NewJob>) -> Result<()> {
    let mut call = Vec::new();
    for index in 0..count {
        call.push(make(index)?);
        if call.len() == CALL || index + 1 == count {
            submit(store, vec![std::mem::take(&mut call)]).await?;
        }
    }
    Ok(())
}

/// Fills two groups whose limit is one slot.
async fn fill(store: &Arc<dyn Store>) -> Result<()> {
    for name in FULL {
        let full = GroupRef::Group(Name::parse("group", name)?);
        let id = LeaseId(Uuid::new_v4());
        let holder = Name::parse("holder", "holder")?;
        store.acquire_slots(SlotRequest::new(id, full, holder, caps::LEASE_MAX_MS)).await?;
    }
    Ok(())
}
