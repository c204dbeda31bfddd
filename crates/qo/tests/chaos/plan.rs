//! The jobs of a run, of every kind, mixed by dice.

use qo::Client;
use qo::core::{JobId, JobState, Json, Key, Name, NewJob, Submitted};
use qo_testkit::random::Random;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::interval;

/// The limits, all in force from the beginning.
pub const LIMITS: [(&str, u32); 4] = [("alone", 1), ("seven", 7), ("long", 3), ("keyed/*", 1)];
/// Every task; each is its own group.
pub const TASKS: [&str; 8] = ["alone", "seven", "long", "keyed", "free", "flaky", "doomed", "step"];
/// How many jobs of each task that is no step.
const JOBS: [(&str, usize); 7] = [
    ("alone", 200),
    ("seven", 700),
    ("long", 6),
    ("keyed", 1_000),
    ("free", 1_800),
    ("flaky", 240),
    ("doomed", 20),
];
const KEYS: u64 = 20;
const WORKFLOWS: usize = 2;
const STEPS: usize = 20;
/// More tries than the test has time to kill.
const TRIES: u32 = 500;
/// Jobs of one call.
const CALL: usize = 200;

/// The payload of a job.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Payload {
    /// How long it runs.
    pub ms: u64,
    /// The first attempt that succeeds; with none it fails for good.
    pub good_from: Option<u32>,
}

/// A job and how it must end.
#[derive(Debug, Clone)]
pub struct Planned {
    pub new: NewJob,
    /// How it must end.
    pub ends: JobState,
    /// Its place in its workflow.
    pub step: Option<usize>,
}

impl Planned {
    /// What the judge has to know about it.
    pub fn judged(&self) -> qo_judge::Job {
        let group = self.new.task.to_string();
        let of_its_key = self.new.key.iter().map(|key| (format!("{group}/{key}"), 1));
        let step = self.new.workflow.as_ref().zip(self.step);
        qo_judge::Job {
            needs: [(group.clone(), 1)].into_iter().chain(of_its_key).collect(),
            step: step.map(|(workflow, step)| (workflow.to_string(), step as u64)),
            says: Some(group),
            ..qo_judge::Job::default()
        }
    }
}

/// Every job of a run.
pub struct Plan {
    pub jobs: BTreeMap<JobId, Planned>,
    order: Vec<JobId>,
}

impl Plan {
    pub fn new(seed: u64) -> Self {
        let mut dice = Random::new(seed);
        let mut lines: Vec<Vec<Planned>> = JOBS
            .iter()
            .map(|(task, count)| (0..*count).map(|_| planned(&mut dice, task)).collect())
            .collect();
        lines.extend((0..WORKFLOWS).map(|workflow| steps(&mut dice, workflow)));
        // Shuffled, but every line keeps its order: that of a workflow's steps matters.
        lines.iter_mut().for_each(|line| line.reverse());
        let (mut jobs, mut order) = (BTreeMap::new(), Vec::new());
        loop {
            let left: usize = lines.iter().map(Vec::len).sum();
            if left == 0 {
                return Self { jobs, order };
            }
            let mut at = dice.below(left);
            let line = lines.iter_mut().find(|line| {
                let here = at < line.len();
                at = at.saturating_sub(line.len());
                here
            });
            let job = line.and_then(Vec::pop).expect("it is in one of them");
            order.push(job.new.id);
            jobs.insert(job.new.id, job);
        }
    }

    pub fn submit<'a>(&'a self, client: &'a Client) -> Submitting<'a> {
        Submitting { plan: self, client, next: 0 }
    }
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn planned(dice: &mut Random, task: &str) -> Planned {
    let ms = match task {
        "alone" => dice.within(5..=50),
        "seven" => dice.within(10..=140),
        // Longer than a worker is ever stopped, so that its handler still runs when the worker goes on with an expired
        // lease: the worker must drop it.
        "long" => dice.within(3_300..=3_800),
        "keyed" => dice.within(10..=100),
        _ => dice.within(1..=200),
    };
    let good_from = match task {
        "doomed" => None,
        "flaky" => Some(dice.within(2..=4) as u32),
        _ => Some(1),
    };
    let payload = serde_json::to_string(&Payload { ms, good_from }).expect("JSON");
    let key = (task == "keyed").then(|| format!("k{}", dice.within(1..=KEYS)));
    let new = NewJob {
        payload: Json::parse("payload", &payload).expect("JSON"),
        key: key.map(|key| Key::parse("key", &key).expect("a key")),
        max_attempts: TRIES,
        ..NewJob::new(JobId(dice.uuid(1_800_000_000_000)), name(task))
    };
    let ends = if good_from.is_some() { JobState::Succeeded } else { JobState::Failed };
    Planned { new, ends, step: None }
}

fn steps(dice: &mut Random, workflow: usize) -> Vec<Planned> {
    let step = |at| {
        let mut step = planned(dice, "step");
        step.new.workflow = Some(name(&format!("flow{workflow}")));
        step.step = Some(at);
        step
    };
    (0..STEPS).map(step).collect()
}

/// The jobs on their way to the store, in the plan's order.
pub struct Submitting<'a> {
    plan: &'a Plan,
    client: &'a Client,
    next: usize,
}

impl Submitting<'_> {
    pub async fn first_half(&mut self) {
        while self.next < self.plan.order.len() / 2 {
            self.call().await;
        }
    }

    /// Submits the other half, spread over this time, whatever happens to the server.
    pub async fn rest_in_pieces(mut self, time: Duration) {
        let calls = (self.plan.order.len() - self.next).div_ceil(CALL) as u32;
        let mut every = interval(time / calls.max(1));
        while self.next < self.plan.order.len() {
            every.tick().await;
            self.call().await;
        }
    }

    async fn call(&mut self) {
        let until = (self.next + CALL).min(self.plan.order.len());
        let ids = &self.plan.order[self.next..until];
        let jobs = ids.iter().map(|id| self.plan.jobs[id].new.clone()).collect();
        let answers = self.client.submit_many(jobs).await.expect("accepted");
        for (id, answer) in ids.iter().zip(&answers) {
            // Existing: the call happened, and its answer was lost.
            assert!(
                matches!(answer, Ok(Submitted::Accepted(job) | Submitted::Existing(job)) if job == id),
                "{id}: {answer:?}"
            );
        }
        self.next = until;
    }
}
