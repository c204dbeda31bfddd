//! The state of the demo in the store at one moment: the live view shows it, and the show waits for parts of it.

use super::plan::{Names, Task};
use qo::core::{GroupRef, JobFilter, JobState, Key, caps};
use qo::{Result, Store};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The demo at one moment.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Jobs that were submitted.
    pub all: usize,
    /// Jobs that have ended.
    pub done: usize,
    /// Jobs that run, the oldest claim first.
    pub running: Vec<RunningJob>,
    /// The limits of the groups that the demo limits.
    pub limits: BTreeMap<GroupRef, u32>,
    /// The queues of the demo, by the names that people see.
    pub queues: Vec<Queue>,
    /// Workflows: their name, steps that are over, all steps, and whether one runs.
    pub workflows: Vec<Workflow>,
}

/// A job that runs.
#[derive(Debug, Clone)]
pub struct RunningJob {
    /// The worker that owns it, by the name that people see.
    pub worker: String,
    /// Its task, by the name that people see.
    pub task: String,
    /// Its key.
    pub key: Option<Key>,
    /// Whether it is in the queue that has a limit.
    pub in_limited_queue: bool,
    /// Whether it is a step of a workflow.
    pub is_step: bool,
}

/// A queue.
#[derive(Debug, Clone)]
pub struct Queue {
    /// Its name, as people see it.
    pub name: String,
    /// Jobs in line.
    pub waiting: u64,
    /// Jobs that run.
    pub running: u64,
}

/// A workflow.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// Its name, as people see it.
    pub name: String,
    /// Steps that are over.
    pub over: u32,
    /// All steps.
    pub steps: u32,
    /// Whether a step runs.
    pub runs: bool,
}

impl Picture {
    /// Looks at the store. `all` jobs were submitted.
    pub async fn take(store: &Arc<dyn Store>, names: &Names, all: usize) -> Result<Self> {
        let mut picture = Self { all, ..Self::default() };
        let statuses = store.queues().await?;
        for queue in names.queues()? {
            let status = statuses.iter().find(|status| status.queue == queue);
            let (waiting, running) = status.map_or((0, 0), |status| {
                (status.due + status.scheduled + status.waiting + status.claimed, status.running)
            });
            let name = names.word(&queue).unwrap_or(&queue).to_owned();
            picture.queues.push(Queue { name, waiting, running });
        }
        let live: u64 = picture.queues.iter().map(|queue| queue.waiting + queue.running).sum();
        picture.done = all.saturating_sub(usize::try_from(live).unwrap_or(usize::MAX));
        picture.running = running(store, names).await?;
        for group in names.shown_groups()? {
            if let Ok(detail) = store.group(group.clone()).await
                && let Some(limit) = detail.status.limit
            {
                picture.limits.insert(group, limit);
            }
        }
        for status in store.workflows(None, caps::PAGE).await?.workflows {
            if let Some(name) = names.word(&status.workflow) {
                let runs = status.head.is_some_and(|head| head.state == JobState::Running);
                let over = status.head.map_or(status.steps, |head| head.step - 1);
                picture.workflows.push(Workflow { name: name.to_owned(), over, steps: status.steps, runs });
            }
        }
        Ok(picture)
    }

    /// Jobs that run and meet a condition.
    pub fn count(&self, is_one: impl Fn(&RunningJob) -> bool) -> usize {
        self.running.iter().filter(|job| is_one(job)).count()
    }

    /// Jobs of a task that run.
    pub fn of_task(&self, task: Task) -> usize {
        self.count(|job| job.task == task.word())
    }

    /// The jobs that a worker owns.
    pub fn of_worker(&self, worker: &str) -> usize {
        self.count(|job| job.worker == worker)
    }
}

async fn running(store: &Arc<dyn Store>, names: &Names) -> Result<Vec<RunningJob>> {
    let limited = names.limited_queue()?;
    let mut running = Vec::new();
    for queue in names.queues()? {
        let filter =
            JobFilter { states: vec![JobState::Running], queue: Some(queue), ..JobFilter::default() };
        for job in store.jobs(filter, None, caps::PAGE).await?.jobs {
            let (Some(owner), Some(task)) = (&job.running, names.word(&job.task)) else { continue };
            running.push((
                owner.token,
                RunningJob {
                    worker: names.word(&owner.worker).unwrap_or(&owner.worker).to_owned(),
                    task: task.to_owned(),
                    key: job.key.clone(),
                    in_limited_queue: job.queue == limited,
                    is_step: job.workflow.is_some(),
                },
            ));
        }
    }
    running.sort_by_key(|(token, _)| *token);
    Ok(running.into_iter().map(|(_, job)| job).collect())
}
