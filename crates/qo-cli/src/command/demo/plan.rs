//! What the demo does: its tasks, its limits and its jobs.
//!
//! Every limit has more work waiting than it lets through, nearly until the end: a limit that is never reached proves
//! nothing.

use qo::core::{GroupRef, JobId, Json, Key, Name, NewJob};
use qo::{Error, Result};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How long a worker's session lives after each exchange.
pub const LEASE_MS: u64 = 2_000;
/// Worker processes.
pub const WORKERS: usize = 3;
/// Jobs that each of them can run at once: two of them can fill the cluster cap.
pub const PERMITS: u32 = 10;
/// Jobs of any kind that run at once.
pub const CLUSTER: u32 = 16;
/// Jobs of the queue that run at once.
pub const QUEUE: u32 = 3;
/// Jobs of the task that run at once: at first, after it was lowered, after it was raised.
pub const TASK: [u32; 3] = [6, 2, 8];
/// Jobs with the same key that run at once.
pub const KEY: u32 = 1;

/// The keys that jobs have.
pub const USERS: [&str; 5] = ["ann", "bob", "eve", "joe", "kim"];
const STEPS: [&str; 6] = ["pick", "pack", "pay", "ship", "mail", "thank"];
const WORKFLOWS: usize = 5;

/// The tasks of the demo. A task's jobs differ in the limits that they are under; all of them are under the cluster cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Under the limit of the task, which is changed while it runs.
    CallApi,
    /// In a queue that has a limit.
    Charge,
    /// One at a time for each user.
    SyncUser,
    /// The steps of workflows.
    Order,
    /// Under no limit of its own.
    Resize,
}

impl Task {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::CallApi, Self::Charge, Self::SyncUser, Self::Order, Self::Resize];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::CallApi => "call-api",
            Self::Charge => "charge",
            Self::SyncUser => "sync-user",
            Self::Order => "order",
            Self::Resize => "resize",
        }
    }

    /// How many jobs of it there are, and how long each takes, more or less.
    fn amount(self) -> (usize, u64) {
        match self {
            Self::CallApi => (105, 520),
            Self::Charge => (42, 650),
            Self::SyncUser => (USERS.len() * 10, 750),
            Self::Order => (WORKFLOWS * STEPS.len(), 1_000),
            Self::Resize => (70, 350),
        }
    }
}

/// The payload of a job of the demo.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payload {
    /// How long it takes.
    pub ms: u64,
    /// The workflow that it is a step of.
    pub workflow: Option<Name>,
    /// Its number in the workflow, 1 for the first.
    pub step: Option<u32>,
    /// What it is about.
    pub note: String,
}

/// The names of one run. In a store that other programs use too, they begin with a prefix of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// In a store that no other program uses.
    pub fn plain() -> Self {
        Self { prefix: String::new() }
    }

    /// In a store that other programs may use.
    pub fn of_run() -> Self {
        let id = Uuid::new_v4().simple().to_string();
        Self { prefix: format!("demo-{}.", &id[..6]) }
    }

    /// The names with this prefix.
    pub fn with(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    /// What every name begins with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A name without the prefix of the run; none if it has another prefix.
    pub fn word<'a>(&self, name: &'a str) -> Option<&'a str> {
        name.strip_prefix(&self.prefix)
    }

    fn name(&self, word: &str) -> Result<Name> {
        Name::parse("name", &format!("{}{word}", self.prefix))
    }

    /// The name of a task.
    pub fn task(&self, task: Task) -> Result<Name> {
        self.name(task.word())
    }

    /// The name of a worker.
    pub fn worker(&self, number: usize) -> Result<Name> {
        self.name(&format!("worker-{number}"))
    }

    /// The queue that has a limit.
    pub fn limited_queue(&self) -> Result<Name> {
        self.name("stripe")
    }

    /// The queue that has none.
    pub fn other_queue(&self) -> Result<Name> {
        match self.prefix.is_empty() {
            true => Name::parse("queue", "default"),
            false => self.name("default"),
        }
    }

    /// The queues of the demo.
    pub fn queues(&self) -> Result<[Name; 2]> {
        Ok([self.other_queue()?, self.limited_queue()?])
    }

    /// A group that only the demo itself takes slots of, to read the store's counter of fence tokens.
    pub fn marks(&self) -> Result<GroupRef> {
        Ok(GroupRef::Group(self.name("marks")?))
    }

    /// The group of the task whose limit is changed.
    pub fn changed_group(&self) -> Result<GroupRef> {
        Ok(GroupRef::Group(self.task(Task::CallApi)?))
    }

    /// The limits that an operator sets: for each key, for the queue, and for `cluster` if the store is the demo's own.
    /// The code of the task registers its limit.
    pub fn operator_limits(&self, with_cluster: bool) -> Result<Vec<(GroupRef, u32)>> {
        let mut limits = vec![
            (GroupRef::EveryKey(self.task(Task::SyncUser)?), KEY),
            (GroupRef::Queue(self.limited_queue()?), QUEUE),
        ];
        if with_cluster {
            limits.push((GroupRef::Cluster, CLUSTER));
        }
        Ok(limits)
    }

    /// The groups whose limits are shown.
    pub fn shown_groups(&self) -> Result<[GroupRef; 4]> {
        Ok([
            GroupRef::Cluster,
            GroupRef::Queue(self.limited_queue()?),
            self.changed_group()?,
            GroupRef::EveryKey(self.task(Task::SyncUser)?),
        ])
    }

    /// All jobs, in the order in which they are submitted: the tasks alternate, each as often as it takes to last until
    /// the end.
    pub fn jobs(&self) -> Result<Vec<NewJob>> {
        let mut jobs = Vec::new();
        for task in Task::ALL {
            let (count, ms) = task.amount();
            for index in 0..count {
                let place = (index * 2 + 1) as f64 / (count * 2) as f64;
                jobs.push((place, self.job(task, index, ms)?));
            }
        }
        jobs.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        Ok(jobs.into_iter().map(|(_, job)| job).collect())
    }

    fn job(&self, task: Task, index: usize, ms: u64) -> Result<NewJob> {
        let mut job = NewJob::new(JobId(Uuid::now_v7()), self.task(task)?);
        // Of different lengths, so that slots become free one by one.
        let ms = ms * (80 + (index as u64 * 37) % 41) / 100;
        let mut payload =
            Payload { ms, workflow: None, step: None, note: format!("{} {index}", task.word()) };
        job.queue = self.other_queue()?;
        match task {
            Task::CallApi => {}
            // It takes the slots that no other task can use.
            Task::Resize => job.priority = 1,
            Task::Charge => job.queue = self.limited_queue()?,
            Task::SyncUser => job.key = Some(Key::parse("key", USERS[index % USERS.len()])?),
            Task::Order => {
                let workflow = self.name(&format!("order-{}", index % WORKFLOWS + 1))?;
                let step = index / WORKFLOWS;
                payload.note = STEPS[step % STEPS.len()].to_owned();
                payload.workflow = Some(workflow.clone());
                payload.step = u32::try_from(step + 1).ok();
                job.workflow = Some(workflow);
            }
        }
        let text = serde_json::to_string(&payload).map_err(|error| Error::invalid("payload", ms, error))?;
        job.payload = Json::parse("payload", &text)?;
        Ok(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_plan_is_about_three_hundred_valid_jobs_and_five_workflows() {
        let names = Names::of_run();
        let jobs = names.jobs().expect("a plan");
        assert!((290..=330).contains(&jobs.len()), "{}", jobs.len());
        for job in &jobs {
            job.check().expect("valid");
            assert!(names.word(&job.task).is_some() && names.word(&job.queue).is_some());
        }
        let workflows: BTreeSet<_> = jobs.iter().filter_map(|job| job.workflow.clone()).collect();
        assert_eq!(workflows.len(), 5);
    }

    #[test]
    fn the_steps_of_a_workflow_are_submitted_in_order() {
        let jobs = Names::plain().jobs().expect("a plan");
        let mut last = std::collections::BTreeMap::new();
        for job in jobs.iter().filter(|job| job.workflow.is_some()) {
            let payload: Payload = serde_json::from_str(job.payload.as_str()).expect("a payload");
            let before = last.insert(payload.workflow.clone(), payload.step);
            assert_eq!(before.flatten().unwrap_or(0) + 1, payload.step.expect("a step"));
        }
    }
}
