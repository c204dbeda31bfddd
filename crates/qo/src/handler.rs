//! Handlers: what runs a task's jobs.

use crate::context::Context;
use crate::failure::{Failure, IntoFailure};
use crate::retry::RetryPolicy;
use futures::future::BoxFuture;
use qo_core::{Error, Json, Name, Result, TaskOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Runs the jobs of a task. Functions `async fn(Payload, Context) -> Result<Output, E>` need not implement it: see
/// [`WorkerBuilder::task`](crate::WorkerBuilder::task).
pub trait Handler: Send + Sync + 'static {
    /// Runs one attempt. Dropping the future must stop it.
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Result<Json, Failure>>;
}

/// How a task is declared.
///
/// ```
/// # use std::time::Duration;
/// let config = qo::TaskConfig::new().max_concurrent(4).timeout(Duration::from_secs(60));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskConfig {
    group: Option<String>,
    max_concurrent: Option<u32>,
    timeout: Option<Duration>,
    retry: Option<RetryPolicy>,
}

impl TaskConfig {
    /// Everything at its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// The group of its jobs. Defaults to the task's name.
    #[must_use]
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// How many jobs of the group run at once, in the whole fleet. Defaults to no limit.
    #[must_use]
    pub fn max_concurrent(mut self, limit: u32) -> Self {
        self.max_concurrent = Some(limit);
        self
    }

    /// How long an attempt may run. Defaults to no limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Backoff between attempts. Defaults to 1 s, twice as long each time, at most 60 s, ± 25 %.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// What is registered with the store.
    pub(crate) fn options(&self, task: &str) -> Result<TaskOptions> {
        let task = Name::parse("task", task)?;
        let group = self.group.as_ref().map(|group| Name::parse("group", group)).transpose();
        let options = TaskOptions {
            group: group.map_err(|error| error.at(format_args!("tasks[{task}]")))?,
            max_concurrent: self.max_concurrent,
            timeout_ms: self.timeout.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
            retry: self.retry.map(Into::into),
            ..TaskOptions::new(task)
        };
        options.check().map_err(|error| error.at(format_args!("tasks[{}]", options.task)))?;
        Ok(options)
    }
}

impl From<TaskOptions> for TaskConfig {
    fn from(options: TaskOptions) -> Self {
        Self {
            group: options.group.map(String::from),
            max_concurrent: options.max_concurrent,
            timeout: options.timeout_ms.map(Duration::from_millis),
            retry: options.retry.map(Into::into),
        }
    }
}

/// A function as a handler.
pub(crate) struct Typed<F, P> {
    function: F,
    payload: PhantomData<fn() -> P>,
}

impl<F, P> Typed<F, P> {
    pub fn new(function: F) -> Self {
        Self { function, payload: PhantomData }
    }
}

impl<F, P, Fut, O, E> Handler for Typed<F, P>
where
    F: Fn(P, Context) -> Fut + Send + Sync + 'static,
    P: DeserializeOwned + 'static,
    Fut: Future<Output = Result<O, E>> + Send + 'static,
    O: Serialize + 'static,
    E: IntoFailure + 'static,
{
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Result<Json, Failure>> {
        let task = context.task().clone();
        let payload = match read(&payload, &task) {
            Ok(payload) => payload,
            Err(failure) => return Box::pin(async { Err(failure) }),
        };
        let future = (self.function)(payload, context);
        Box::pin(async move { write(&future.await.map_err(E::into_failure)?, &task) })
    }
}

/// A function that blocks its thread, as a handler.
pub(crate) struct Blocking<F, P> {
    function: Arc<F>,
    payload: PhantomData<fn() -> P>,
}

impl<F, P> Blocking<F, P> {
    pub fn new(function: F) -> Self {
        Self { function: Arc::new(function), payload: PhantomData }
    }
}

impl<F, P, O, E> Handler for Blocking<F, P>
where
    F: Fn(P, Context) -> Result<O, E> + Send + Sync + 'static,
    P: DeserializeOwned + Send + 'static,
    O: Serialize + 'static,
    E: IntoFailure + 'static,
{
    fn call(&self, payload: Json, context: Context) -> BoxFuture<'static, Result<Json, Failure>> {
        let function = Arc::clone(&self.function);
        let task = context.task().clone();
        let unfinished = context.unfinished();
        let run = move || {
            let _unfinished = unfinished;
            let payload = read(&payload, &task)?;
            write(&function(payload, context).map_err(E::into_failure)?, &task)
        };
        Box::pin(async move {
            match tokio::task::spawn_blocking(run).await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(error) => Err(Failure::retry(error)),
                },
            }
        })
    }
}

fn read<P: DeserializeOwned>(payload: &Json, task: &Name) -> Result<P, Failure> {
    serde_json::from_str(payload.as_str())
        .map_err(|error| Failure::fail(format_args!("payload: task {task} cannot read it: {error}")))
}

fn write<O: Serialize>(output: &O, task: &Name) -> Result<Json, Failure> {
    let text = serde_json::to_string(output)
        .map_err(|error| Failure::fail(format_args!("output: task {task} returned no JSON: {error}")))?;
    Json::parse("output", &text).map_err(|error: Error| Failure::fail(error.message()))
}
