//! Handlers in child processes, one job at a time in each (`--processes=N`).
//!
//! 1. A driver for each child starts it under a guard and waits until it is ready.
//! 2. A job goes to the driver that has been idle for the shortest time, or waits for the next one. The driver sends it to
//!    its child, and the lease's end when that is renewed.
//! 3. When the child answers, the driver settles the attempt and takes the next job.
//! 4. When the child dies, its attempt ends at once, and the error says how it died. The driver starts another child.
//! 5. A child that does not stop when its job must is killed when the worker gives the job up.
//! 6. A child without a job has no deadline: the lease of its last job may be lost, and the next job has another one. A
//!    child that gets its next job at once keeps its deadline meanwhile, which saves two messages to the guard.
//!
//! Invariant: an attempt has its [mark](qo::Context::unfinished) until the child has answered, or neither it nor a
//! process that it started is left. The guard kills the child when the worker dies or the lease of its job is over.

mod child;
mod driver;
mod lobby;
mod socket;

use crate::bridge::Outcome;
use child::Child;
use driver::Driver;
use futures::future::BoxFuture;
use lobby::{Awaited, Job, Lobby};
use qo::core::Json;
use qo::{Context, Error, ErrorKind, Failure, Handler};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::oneshot;

/// How children are kept.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Described {
    /// How many.
    pub children: u32,
    /// What starts one.
    pub command: Vec<String>,
    /// The executable of the guard.
    pub guard: PathBuf,
    /// A child ends after this many jobs. Defaults to never.
    pub recycle_jobs: Option<u32>,
    /// A child ends when it holds more memory than this after a job. Defaults to never.
    pub recycle_mib: Option<u32>,
}

/// The children of a worker.
pub struct Children {
    lobby: Arc<Lobby>,
    drivers: Vec<tokio::task::JoinHandle<()>>,
}

impl Children {
    /// Starts the children, and returns when the first one is ready. An error if it does not start.
    pub async fn start(described: Described, tasks: Vec<String>) -> qo::Result<Self> {
        let (described, tasks, lobby) = (Arc::new(described), Arc::new(tasks), Arc::<Lobby>::default());
        let first = Child::start(&described, &tasks).await.map_err(|why| {
            Error::new(ErrorKind::Invalid, format!("a child process does not start: {why}"))
        })?;
        let mut first = Some(first);
        let drivers = (0..described.children)
            .map(|_| {
                let (described, tasks) = (Arc::clone(&described), Arc::clone(&tasks));
                let driver = Driver { described, tasks, lobby: Arc::clone(&lobby) };
                tokio::spawn(driver.keep(first.take()))
            })
            .collect();
        Ok(Self { lobby, drivers })
    }

    /// A handler of a task.
    pub fn handler(&self, task: usize) -> ChildHandler {
        ChildHandler { lobby: Arc::clone(&self.lobby), task }
    }

    /// Ends the children when their jobs have ended, and waits until they are gone.
    pub async fn end(self) {
        self.lobby.close();
        futures::future::join_all(self.drivers).await;
    }
}

/// A task whose jobs run in child processes.
pub struct ChildHandler {
    lobby: Arc<Lobby>,
    task: usize,
}

impl Handler for ChildHandler {
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Outcome> {
        let (tell, told) = oneshot::channel();
        let (number, unfinished) = (self.lobby.number(), context.unfinished_under_guard());
        let awaited = Awaited { lobby: Arc::clone(&self.lobby), number };
        self.lobby.enter(Job { number, task: self.task, payload, context, tell, unfinished });
        Box::pin(async move {
            let _awaited = awaited;
            told.await.unwrap_or_else(|_| Err(Failure::retry("the child processes have ended")))
        })
    }
}
