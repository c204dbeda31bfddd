//! Worker processes of which one is killed again and again, on a directory and in a bucket. The judge reads the
//! records of the jobs themselves.

use crate::diary;
use crate::stage::{Process, Stage};
use qo::core::{JobFilter, JobState, NewJob, Submitted};
use qo_judge::{Case, Job, Limit, Reach, Verdict, now_ns};
use qo_testkit::Bucket;
use qo_testkit::bucket::{FaultRates, Kind};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{interval, timeout};

/// The size of a run: workers, jobs, limits and kills.
struct Chaos {
    workers: usize,
    /// Jobs that each of them runs at once, at most.
    permits: u32,
    lease_ms: u64,
    kills: usize,
    every: Duration,
    jobs: u64,
    /// How long each of them takes, at least.
    job_ms: u64,
    keys: u64,
    limit: usize,
}

const ON_A_DIRECTORY: Chaos = Chaos {
    workers: 4,
    permits: 100,
    lease_ms: 1_000,
    kills: 40,
    every: Duration::from_millis(300),
    jobs: 4_000,
    job_ms: 5,
    keys: 60,
    limit: 12,
};

/// Answers of a bucket carry whole seconds, so a lease there is some seconds long, and slots of dead workers come back
/// late. A round of all writers takes long. So do the jobs, so that the limits are reached.
const IN_A_BUCKET: Chaos = Chaos {
    workers: 8,
    permits: 3,
    lease_ms: 5_000,
    kills: 20,
    every: Duration::from_secs(1),
    jobs: 600,
    job_ms: 300,
    keys: 60,
    limit: 12,
};

/// How long everything may take after the last kill.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long a bucket takes to answer, half of it before the request takes effect and half after.
const LATENCY: Duration = Duration::from_millis(6);

pub async fn workers_killed_every_300_ms_exceed_no_limit_and_lose_no_job() {
    ON_A_DIRECTORY.rage(&Stage::new().await).await;
}

pub async fn workers_killed_every_second_in_a_bucket_exceed_and_lose_nothing() {
    let stage = Stage::in_bucket(Bucket::start(1)).await;
    let bucket = stage.bucket.as_ref().expect("it is in one");
    bucket.set_latency(LATENCY);
    let rates = FaultRates { error: 1, slow_down: 1, reset_before: 1, ..FaultRates::default() };
    bucket.set_faults(Kind::ALL, rates);
    bucket.set_faults(&[Kind::Put], FaultRates { conflict: 1, reset_after: 2, ..rates });
    IN_A_BUCKET.rage(&stage).await;
}

impl Chaos {
    async fn rage(&self, stage: &Stage) {
        let jobs = self.prepare(stage).await;
        let (kills, workers) = self.kill(stage).await;
        let done = timeout(PATIENCE, all_done(stage)).await.expect("nothing is stuck");
        assert_eq!(done, self.jobs, "{} jobs are lost", self.jobs - done);
        for worker in workers {
            worker.signal(Signal::TERM);
            assert_eq!(worker.end().await.0, Some(0), "it ends well");
        }
        self.judge(stage, jobs, kills).await;
    }

    /// Sets the limits and submits the jobs. Returns what the judge has to know about each.
    async fn prepare(&self, stage: &Stage) -> BTreeMap<String, Job> {
        let set = async |group: &str, limit| {
            stage.store.set_limit(group.parse().expect("a group"), limit).await.expect("set");
        };
        set("chaos", self.limit as u32).await;
        set("chaos/*", 1).await;
        let key = |number: u64| format!("k{}", number % self.keys);
        let job = |number: u64| -> NewJob {
            let key = key(number);
            stage.client.submit("chaos", &self.job_ms).key(&key).max_attempts(500).into_job().expect("a job")
        };
        let answers = stage.client.submit_many((0..self.jobs).map(job).collect()).await.expect("answered");
        let judged = |(number, answer)| match answer {
            Ok(Submitted::Accepted(id) | Submitted::Existing(id)) => {
                let key = key(number);
                let needs = vec![("chaos".to_owned(), 1), (format!("chaos/{key}"), 1)];
                (id.to_string(), Job { needs, says: Some(key), ..Job::default() })
            }
            refused => panic!("job {number}: {refused:?}"),
        };
        (0..).zip(answers).map(judged).collect()
    }

    /// Kills one after another, the oldest first. Returns a time for each at which it was surely dead, and the workers
    /// that go on.
    async fn kill(&self, stage: &Stage) -> (BTreeMap<String, u64>, Vec<Process>) {
        let start = || stage.worker_of(self.lease_ms, self.permits);
        let mut workers: Vec<Process> = (0..self.workers).map(|_| start()).collect();
        let mut killed = BTreeMap::new();
        let mut every = interval(self.every);
        every.tick().await;
        while killed.len() < self.kills {
            every.tick().await;
            let victim = workers.remove(0);
            let pid = victim.id();
            victim.signal(Signal::KILL);
            assert_eq!(victim.end().await.0, None, "it had ended by itself");
            // It is dead by now: everything that it did ended before.
            killed.insert(pid.to_string(), now_ns());
            workers.push(start());
        }
        (killed, workers)
    }

    async fn judge(&self, stage: &Stage, jobs: BTreeMap<String, Job>, kills: BTreeMap<String, u64>) {
        let limit = |group: &str, limit| Limit { group: group.to_owned(), limit, changes: Vec::new() };
        let case = Case {
            jobs,
            lease_ns: self.lease_ms * 1_000_000,
            limits: vec![limit("chaos", self.limit as u32), limit("chaos/*", 1)],
            kills,
            is_over: true,
            reach: Reach::Full,
            ..Case::default()
        };
        let verdict = Verdict::of(&case, &diary::read(&stage.path("")));
        assert!(verdict.holds(), "{verdict}");
        assert_eq!(verdict.limits[1].keys, Some(self.keys as usize), "{verdict}");
        assert!(verdict.recovery.held > 0, "no worker was killed while it ran a job: {verdict}");
        let group = stage.store.group("chaos".parse().expect("a group")).await.expect("it has a limit");
        assert_eq!(group.status.used, 0, "a slot has no holder");
    }
}

/// Waits until no job is left to be run, and says how many have succeeded.
async fn all_done(stage: &Stage) -> u64 {
    let mut every = interval(Duration::from_millis(50));
    loop {
        every.tick().await;
        let queues = stage.store.queues().await.expect("it answers");
        let left: u64 = queues.iter().map(|queue| queue.running + queue.due + queue.scheduled).sum();
        if left == 0 {
            break;
        }
    }
    let succeeded = JobFilter { states: vec![JobState::Succeeded], ..JobFilter::default() };
    let (mut after, mut jobs) = (None, 0);
    loop {
        let page = stage.store.jobs(succeeded.clone(), after, 1_000).await.expect("it answers");
        jobs += page.jobs.len() as u64;
        after = page.next;
        if after.is_none() {
            return jobs;
        }
    }
}
