//! Where jobs meet drivers.

use crate::bridge::Outcome;
use qo::Context;
use qo::core::Json;
use qo::worker::Unfinished;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// A job on its way to a child.
pub struct Job {
    /// Its number among the jobs of the lobby.
    pub number: u64,
    pub task: usize,
    pub payload: Json,
    pub context: Context,
    pub tell: oneshot::Sender<Outcome>,
    pub unfinished: Unfinished,
}

/// Where jobs meet drivers.
#[derive(Default)]
pub struct Lobby {
    waiting: Mutex<Waiting>,
    /// Tells that no more jobs come.
    closed: Notify,
}

#[derive(Default)]
struct Waiting {
    /// The number of the last job.
    last: u64,
    /// Drivers that have a child.
    ready: usize,
    /// Drivers that wait for a job.
    drivers: Vec<oneshot::Sender<Job>>,
    /// Jobs that wait for a driver.
    jobs: VecDeque<Job>,
    /// No more jobs come.
    is_closed: bool,
}

/// What a driver finds.
enum Next {
    Job(Job),
    /// It must wait.
    Later(oneshot::Receiver<Job>),
    /// No more jobs come.
    Closed,
}

impl Lobby {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn number(&self) -> u64 {
        let mut waiting = self.waiting();
        waiting.last += 1;
        waiting.last
    }

    /// The worker has given a job up. If it still waits here, nothing of it has run.
    fn forget(&self, number: u64) {
        self.waiting().jobs.retain(|job| job.number != number);
    }

    /// Whether no driver has a child.
    pub fn is_deserted(&self) -> bool {
        self.waiting().ready == 0
    }

    /// Waits until no more jobs come.
    pub async fn until_closed(&self) {
        self.closed.notified().await;
    }

    pub fn is_closed(&self) -> bool {
        self.waiting().is_closed
    }

    pub fn enter(&self, mut job: Job) {
        let mut waiting = self.waiting();
        if waiting.is_closed {
            // Its teller is dropped, and says so.
            return;
        }
        while let Some(driver) = waiting.drivers.pop() {
            match driver.send(job) {
                Ok(()) => return,
                // This driver has left: its child has died.
                Err(back) => job = back,
            }
        }
        waiting.jobs.push_back(job);
    }

    fn next(&self) -> Next {
        let mut waiting = self.waiting();
        match waiting.jobs.pop_front() {
            Some(job) => Next::Job(job),
            None if waiting.is_closed => Next::Closed,
            None => {
                let (tell, told) = oneshot::channel();
                waiting.drivers.retain(|driver| !driver.is_closed());
                waiting.drivers.push(tell);
                Next::Later(told)
            }
        }
    }

    /// Waits for a job; none if no more come. A job that has come is not lost if this is dropped: see [`Drop`] of
    /// [`Called`].
    pub async fn call(&self) -> Option<Job> {
        match self.next() {
            Next::Job(job) => Some(job),
            Next::Closed => None,
            Next::Later(told) => Called { lobby: self, told: Some(told) }.answer().await,
        }
    }

    pub fn close(&self) {
        let mut waiting = self.waiting();
        waiting.is_closed = true;
        waiting.drivers.clear();
        waiting.jobs.clear();
        drop(waiting);
        self.closed.notify_waiters();
    }
}

/// A driver that has a child.
pub struct Ready<'a>(&'a Lobby);

impl<'a> Ready<'a> {
    pub fn new(lobby: &'a Lobby) -> Self {
        lobby.waiting().ready += 1;
        Self(lobby)
    }
}

impl Drop for Ready<'_> {
    fn drop(&mut self) {
        self.0.waiting().ready -= 1;
    }
}

/// A job that the worker waits for. If this is dropped, the worker has given it up, or it has ended.
pub struct Awaited {
    pub lobby: Arc<Lobby>,
    pub number: u64,
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.lobby.forget(self.number);
    }
}

/// A driver that waits. If it stops waiting at the moment at which it gets a job, the job goes to another one.
struct Called<'a> {
    lobby: &'a Lobby,
    told: Option<oneshot::Receiver<Job>>,
}

impl Called<'_> {
    async fn answer(mut self) -> Option<Job> {
        let job = self.told.as_mut()?.await.ok();
        self.told = None;
        job
    }
}

impl Drop for Called<'_> {
    fn drop(&mut self) {
        if let Some(mut told) = self.told.take() {
            told.close();
            if let Ok(job) = told.try_recv() {
                self.lobby.enter(job);
            }
        }
    }
}
