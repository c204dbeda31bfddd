//! The client: submits jobs, waits for them, and does what operators do.
//!
//! | module | what it holds |
//! |---|---|
//! | this one | submit, wait |
//! | `jobs` | look at jobs, cancel, retry, explain |
//! | `groups` | groups and limits, queues, workers |
//! | `workflows` | workflows and schedules |
//! | `slots` | slots for work that is not a job |

mod groups;
mod jobs;
mod page;
mod slots;
mod workflows;

pub use page::Page;
pub use slots::{AcquireSlots, SlotGuard, pause_between_tries};

use crate::submit::Submit;
use crate::task::Accepts;
use crate::trace::SubmitSpan;
use qo_core::{Error, ErrorKind, JobDetail, JobId, JobState, NewJob, Result, Store, StoreSlots};
use qo_core::{Submitted, caps};
use qo_object::Jitter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longest pause between two looks at a job, for a caller that waits for it while the store changes all the time.
const LOOK_GAP: Duration = Duration::from_millis(50);

/// A caller's end of a namespace. Cheap to clone.
///
/// ```
/// # async fn example() -> qo::Result<()> {
/// let client = qo::Client::connect("memory:").await?;
/// let job = client.submit("resize", &"cat.png").key("user-7").await?;
/// let size: u64 = client.wait_for(job).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    deadline: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Client {
    /// A client of the namespace at a URL. See [`connect`](crate::connect()).
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(crate::connect(url).await?))
    }

    /// A client of a store that is open already.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store, deadline: Duration::from_secs(30) }
    }

    /// How long the client repeats a call while the store cannot be reached or the outcome of the call is unknown.
    /// Every repetition carries the same ids, so the call happens once. Defaults to 30 s.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// The store behind the client. Workers use the same `Store` trait, which takes batches.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Slots for programs that are not jobs: a [`ConcurrencyManager`](qo_core::ConcurrencyManager).
    pub fn concurrency(&self) -> StoreSlots {
        StoreSlots::new(Arc::clone(&self.store))
    }

    /// A job of a task, to be submitted: set its options, then `.await` it. See [`Submit`]. The task is a name, or a
    /// [`Task`](crate::Task) that says what its payload is.
    pub fn submit<In: Serialize + ?Sized>(&self, task: impl Accepts<In>, payload: &In) -> Submit {
        Submit::new(self.clone(), task.task_name(), payload)
    }

    /// Submits jobs and returns the outcome of each.
    ///
    /// More jobs than a store takes in one call (10,000 jobs, 8 MiB) go in several calls. Each call is atomic, all of
    /// them together are not. An `Invalid` job is named by its index. The store refuses its call, and the calls after
    /// it are not made.
    pub async fn submit_many(&self, jobs: Vec<NewJob>) -> Result<Vec<Result<Submitted>>> {
        for (index, job) in jobs.iter().enumerate() {
            job.check().map_err(|error| error.at_item("jobs", index))?;
        }
        let mut all = Vec::with_capacity(jobs.len());
        let mut rest = jobs.into_iter().peekable();
        while rest.peek().is_some() {
            let mut bytes = 0;
            let mut call = Vec::new();
            while let Some(job) = rest.next_if(|job| {
                let fits = bytes + job.payload.as_str().len() <= caps::SUBMIT_BYTES;
                call.is_empty() || (fits && call.len() < caps::SUBMIT_JOBS)
            }) {
                bytes += job.payload.as_str().len();
                call.push(job);
            }
            let first = all.len();
            let span = SubmitSpan::begin(&mut call);
            let submitted = self.again(|| self.store.submit(call.clone())).await;
            span.end(submitted.as_deref());
            // The error names a job by its index in the call: the caller knows it by its index among all jobs.
            all.extend(submitted.map_err(|error| match error.item("jobs") {
                Some(index) => error.without_item("jobs").at_item("jobs", first + index),
                None => error,
            })?);
        }
        Ok(all)
    }

    /// Waits until a job has ended. `NotFound` if there is none or it was forgotten.
    ///
    /// It looks whenever the store reports a change, and polls where the store cannot report one. To limit the wait,
    /// put it into `tokio::time::timeout`.
    pub async fn wait(&self, job: JobId) -> Result<JobDetail> {
        let poll = match self.store.tells_changes() {
            true => Duration::from_secs(1),
            false => Duration::from_millis(100),
        };
        let started = Instant::now();
        let mut seen = None;
        loop {
            // Read the change counter before the job, so that no change is missed.
            let at = match seen {
                Some(seen) => Some(seen),
                None => self.store.changed(None).await.ok(),
            };
            let looked = Instant::now();
            let detail = self.again(|| self.store.job(job)).await?;
            if detail.view.state.is_terminal() {
                return Ok(detail);
            }
            let change = async {
                match at {
                    Some(at) => match self.store.changed(Some(at)).await {
                        Ok(now) => Some(now),
                        Err(_) => pending().await,
                    },
                    None => pending().await,
                }
            };
            seen = tokio::time::timeout(poll, change).await.unwrap_or(at);
            // A busy store changes all the time: the longer the wait has been, the longer the pause before the next
            // look.
            tokio::time::sleep_until(looked + (started.elapsed() / 20).min(LOOK_GAP)).await;
        }
    }

    /// Waits until a job has succeeded and returns its output. `Conflict`, with its last error, if it ended otherwise;
    /// `Data` if its output is not an `Output`.
    pub async fn wait_for<Output: DeserializeOwned>(&self, job: JobId) -> Result<Output> {
        let detail = self.wait(job).await?;
        if detail.view.state != JobState::Succeeded {
            let error = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_ref());
            let why = error.map(|error| format!(": {error}")).unwrap_or_default();
            let state = format!("{:?}", detail.view.state).to_lowercase();
            return Err(Error::new(ErrorKind::Conflict, format!("job {job} {state}{why}")));
        }
        let output = detail.output.unwrap_or_else(qo_core::Json::null);
        serde_json::from_str(output.as_str())
            .map_err(|error| Error::new(ErrorKind::Data, format!("output of job {job}: {error}")))
    }

    /// The outcome of a call about one thing.
    pub(crate) async fn of_one<T, F>(&self, call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<Vec<Result<T>>>>,
    {
        let outcomes = self.again(call).await?;
        let missing = || Err(Error::new(ErrorKind::Internal, "the store returned no outcome"));
        outcomes.into_iter().next().unwrap_or_else(missing)
    }

    /// Repeats a call while the store cannot be reached or the outcome is unknown.
    pub(crate) async fn again<T, F>(&self, mut call: impl FnMut() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let started = Instant::now();
        let mut jitter = None;
        for tries in 1.. {
            let error = match call().await {
                Err(error) if error.is_transient() => error,
                result => return result,
            };
            let jitter = jitter.get_or_insert_with(Jitter::new);
            let pause = jitter.backoff(tries, Duration::from_millis(50), Duration::from_secs(2));
            if started.elapsed() + pause > self.deadline {
                return Err(error);
            }
            tokio::time::sleep(pause).await;
        }
        unreachable!("it is tried until it is done or the time is up")
    }
}
