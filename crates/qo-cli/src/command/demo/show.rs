//! The show: limits are set, workers started, jobs submitted; then a limit is lowered, a worker killed, the limit raised.

use super::evidence::{Change, Declared, Evidence, Expected};
use super::fleet::Fleet;
use super::frame::Frame;
use super::picture::Picture;
use super::plan::{LEASE_MS, Names, TASK, Task, WORKERS};
use super::stage::Stage;
use crate::host::Host;
use crate::machine::monotonic_ns;
use crate::output::Style;
use crate::trouble::Done;
use qo::core::{
    self, ErrorKind, FenceToken, GroupRef, JobFilter, LeaseId, Name, SlotRequest, TaskOptions, caps,
};
use qo::{Client, Error, Result, Store};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};
use uuid::Uuid;

/// How often the view is drawn.
const TICK: Duration = Duration::from_millis(100);
/// When the demo gives up.
const PATIENCE_SECONDS: f64 = 90.0;
/// How long workers may take to start.
const START_SECONDS: f64 = 20.0;
/// How long the lowered limit is shown before the next act.
const LOWERED_SECONDS: f64 = 1.5;
/// How long the show waits for a worker that is worth killing.
const HUNT_SECONDS: f64 = 3.0;

/// The next act.
enum Act {
    /// A limit is lowered, once a fifth of the jobs is done.
    Lower,
    /// The running jobs of the group finish; then a worker is killed, once it holds jobs of all kinds.
    Kill { since: f64, drained: bool },
    /// The killed worker's slots come back; then the limit is raised.
    Raise { worker: String, killed: f64 },
    /// The rest is done under the raised limit.
    Finish { reached: bool },
}

/// Where the show takes place.
pub struct Setting {
    /// The process of the demo, whose command line starts its workers.
    pub host: Host,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The URL of the same store, for other processes.
    pub url: String,
    /// The names of the run.
    pub names: Names,
    /// Whether the demo may limit `cluster`: the store is its own.
    pub with_cluster: bool,
    /// The folder that the jobs write to.
    pub records: PathBuf,
}

/// The show. Its workers do not outlive it.
pub struct Show<'a> {
    store: Arc<dyn Store>,
    names: Names,
    fleet: Fleet,
    stage: Stage<'a>,
    evidence: Evidence,
    act: Act,
}

impl<'a> Show<'a> {
    /// Sets the limits and starts the workers.
    pub async fn open(setting: &Setting, stage: Stage<'a>) -> Done<Self> {
        let Setting { host, store, url, names, with_cluster, records } = setting;
        let (store, names) = (Arc::clone(store), names.clone());
        let mut limits = Vec::new();
        for (group, limit) in names.operator_limits(*with_cluster)? {
            store.set_limit(group.clone(), limit).await?;
            limits.push(Declared { group, limit, changes: Vec::new() });
        }
        limits.push(Declared { group: names.changed_group()?, limit: TASK[0], changes: Vec::new() });
        limits.sort_by(|one, other| one.group.cmp(&other.group));
        let evidence = Evidence {
            prefix: names.prefix().to_owned(),
            began_ns: monotonic_ns(),
            lease_ms: LEASE_MS,
            jobs: Vec::new(),
            limits,
            kill: None,
            finished: false,
        };
        let fleet = Fleet::start(WORKERS, host, url, &names, records)?;
        Ok(Self { store, names, fleet, stage, evidence, act: Act::Lower })
    }

    fn seconds(&self) -> f64 {
        monotonic_ns().saturating_sub(self.evidence.began_ns) as f64 / 1e9
    }

    /// Submits the jobs and plays the show to the end.
    pub async fn play(&mut self) -> Done {
        self.wait_for_workers().await?;
        let jobs = self.names.jobs()?;
        self.evidence.began_ns = monotonic_ns();
        let client = Client::new(Arc::clone(&self.store));
        for (job, submitted) in jobs.iter().zip(client.submit_many(jobs.clone()).await?) {
            submitted?;
            self.evidence.jobs.push(Expected::from(job));
        }
        let what = format!("{} jobs submitted; workers: {}", jobs.len(), self.fleet.members().len());
        self.stage.say(self.seconds(), &what, Style::Plain)?;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while self.seconds() < PATIENCE_SECONDS {
            ticks.tick().await;
            self.fleet.check()?;
            let picture = Picture::take(&self.store, &self.names, jobs.len()).await?;
            self.show(&picture)?;
            if picture.done == jobs.len() {
                self.evidence.finished = true;
                return Ok(());
            }
            self.next_act(&picture).await?;
        }
        Ok(())
    }

    /// Lets the workers end. Then the evidence is complete.
    pub async fn close(self) -> Evidence {
        self.fleet.end().await;
        self.evidence
    }

    fn show(&mut self, picture: &Picture) -> Done {
        let (names, fleet, seconds) = (&self.names, &self.fleet, self.seconds());
        self.stage.show(&Frame { picture, names, fleet, seconds })
    }

    async fn wait_for_workers(&mut self) -> Result<()> {
        let mut ticks = interval(Duration::from_millis(20));
        let expected: Vec<Name> =
            (1..=WORKERS).map(|number| self.names.worker(number)).collect::<Result<_>>()?;
        while self.seconds() < START_SECONDS {
            ticks.tick().await;
            self.fleet.check()?;
            let workers = self.store.workers().await?;
            if expected.iter().all(|name| workers.iter().any(|worker| worker.worker == *name)) {
                return Ok(());
            }
        }
        let what = format!("the workers have not started within {START_SECONDS} s");
        Err(Error::new(ErrorKind::Unavailable, what))
    }

    async fn next_act(&mut self, picture: &Picture) -> Done {
        let seconds = self.seconds();
        let calls = u32::try_from(picture.of_task(Task::CallApi)).unwrap_or(u32::MAX);
        match &mut self.act {
            Act::Lower if picture.done * 5 >= picture.all => {
                self.change_limit(TASK[1]).await?;
                let what = format!(
                    "limit of call-api lowered from {} to {}: what runs may finish, nothing new starts",
                    TASK[0], TASK[1]
                );
                self.stage.say(seconds, &what, Style::Warn)?;
                self.act = Act::Kill { since: seconds, drained: false };
            }
            Act::Kill { since, drained } => {
                let waited = seconds - *since;
                if !*drained && calls <= TASK[1] {
                    *drained = true;
                    let what = format!("call-api has drained to {calls} after {waited:.1} s");
                    self.stage.say(seconds, &what, Style::Plain)?;
                } else if *drained && waited >= LOWERED_SECONDS && picture.done * 20 >= picture.all * 9 {
                    let choosy = waited < LOWERED_SECONDS + HUNT_SECONDS;
                    if let Some(worker) = self.victim(picture, choosy) {
                        self.kill(picture, worker)?;
                    }
                }
            }
            Act::Raise { worker, killed } if picture.of_worker(worker) == 0 => {
                let back = seconds - *killed;
                let what =
                    format!("{worker}'s lease has ended: its slots are back, {back:.1} s after the kill");
                self.stage.say(seconds, &what, Style::Good)?;
                self.change_limit(TASK[2]).await?;
                let what = format!("limit of call-api raised from {} to {}", TASK[1], TASK[2]);
                self.stage.say(self.seconds(), &what, Style::Warn)?;
                self.act = Act::Finish { reached: false };
            }
            Act::Finish { reached } if !*reached && calls == TASK[2] => {
                *reached = true;
                self.stage.say(seconds, &format!("call-api: {calls} at once"), Style::Plain)?;
            }
            Act::Lower | Act::Raise { .. } | Act::Finish { .. } => {}
        }
        Ok(())
    }

    /// The worker that holds the most jobs, if it is worth killing: it holds jobs of several limits, and a step of a
    /// workflow.
    fn victim(&self, picture: &Picture, choosy: bool) -> Option<String> {
        let worth = |worker: &str| {
            let has = |is_one: &dyn Fn(&super::picture::RunningJob) -> bool| {
                picture.count(|job| job.worker == worker && is_one(job)) > 0
            };
            has(&|job| job.is_step) && has(&|job| job.in_limited_queue) && has(&|job| job.key.is_some())
        };
        let names = self.fleet.members().iter().map(|member| member.name.clone());
        let worthy = names.filter(|name| picture.of_worker(name) > 0 && (!choosy || worth(name)));
        worthy.max_by_key(|name| picture.of_worker(name))
    }

    fn kill(&mut self, picture: &Picture, worker: String) -> Done {
        self.evidence.kill = Some(self.fleet.kill(&worker)?);
        let killed = self.seconds();
        let held = picture.of_worker(&worker);
        let lease = LEASE_MS / 1_000;
        let what = format!(
            "kill -9 {worker} while it runs {held} jobs: no other job may have their slots until its lease of {lease} s ends"
        );
        self.stage.say(killed, &what, Style::Bad)?;
        self.act = Act::Raise { worker, killed };
        Ok(())
    }

    /// Changes the limit, and records which claims came before and after.
    async fn change_limit(&mut self, limit: u32) -> Result<()> {
        let group = self.names.changed_group()?;
        let before = self.mark().await?;
        self.store.set_limit(group.clone(), limit).await?;
        let after = self.mark().await?;
        let declared = self.evidence.limits.iter_mut().find(|declared| declared.group == group);
        if let Some(declared) = declared {
            declared.changes.push(Change { limit, before, after });
        }
        Ok(())
    }

    /// The store's counter of fence tokens: every later claim has a larger token, every earlier claim a smaller one.
    async fn mark(&self) -> Result<FenceToken> {
        let (group, holder) = (self.names.marks()?, self.names.worker(0)?);
        let request = SlotRequest::new(LeaseId(Uuid::new_v4()), group, holder, LEASE_MS);
        let lease = self.store.acquire_slots(request.clone()).await?;
        let lease =
            lease.ok_or_else(|| Error::new(ErrorKind::Internal, "a group without a limit is full"))?;
        self.store.return_slots(request.id, lease.token).await?;
        Ok(lease.token)
    }
}

/// Leaves a shared store as it was: no limit of the demo, and no job of it that has not ended.
pub async fn clean_up(store: &Arc<dyn Store>, names: &Names, with_cluster: bool) -> Result<()> {
    for queue in names.queues()? {
        let filter = JobFilter { queue: Some(queue), ..JobFilter::default() };
        let mut after = None;
        loop {
            let changed =
                store.change_matching(core::Change::Cancel, filter.clone(), after, caps::PAGE).await?;
            after = changed.next;
            if after.is_none() {
                break;
            }
        }
    }
    // The workers have ended: close their sessions now, so that nothing waits for their leases.
    for worker in store.workers().await?.iter().filter(|worker| names.word(&worker.worker).is_some()) {
        store.close_session(worker.session).await?;
    }
    let limited = names.operator_limits(with_cluster)?.into_iter().map(|(group, _)| group);
    for group in limited.chain([names.changed_group()?]) {
        match store.unset_limit(group).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let tasks: Vec<TaskOptions> =
        Task::ALL.into_iter().map(|task| names.task(task).map(TaskOptions::new)).collect::<Result<_>>()?;
    store.register(tasks).await.map(drop)
}

/// Whether a namespace is unused: it has no live job, no worker and no limit of `cluster`.
pub async fn is_unused(store: &Arc<dyn Store>) -> Result<bool> {
    let queues = store.queues().await?;
    let is_idle = queues
        .iter()
        .all(|queue| queue.running + queue.claimed + queue.due + queue.scheduled + queue.waiting == 0);
    let cap = match store.group(GroupRef::Cluster).await {
        Ok(detail) => detail.status.limit,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    Ok(is_idle && cap.is_none() && store.workers().await?.is_empty())
}
