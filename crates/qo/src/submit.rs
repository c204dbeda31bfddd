//! A job on its way to the store, with all its options.

use crate::client::Client;
use crate::retry::RetryPolicy;
use crate::trace::SubmitSpan;
use futures::future::BoxFuture;
use qo_core::{Error, ErrorKind, GroupRef, JobId, Json, Key, Name, NewJob, OnFailure, OnLimit, Result};
use qo_core::{Submitted, Time, Traceparent, millis};
use serde::Serialize;
use std::fmt;
use std::future::IntoFuture;
use std::slice;
use std::time::Duration;
use uuid::Uuid;

/// A job that is about to be submitted. Awaiting it submits it and returns its id; [`outcome`](Self::outcome) says more.
///
/// The id is made here, once, so a repeated call submits the same job. A mistake in an option is reported when the job
/// is submitted.
#[must_use = "a job is submitted when this is awaited"]
pub struct Submit {
    client: Client,
    job: Result<NewJob>,
    delay: Option<Duration>,
}

impl fmt::Debug for Submit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Submit").field("job", &self.job).field("delay", &self.delay).finish_non_exhaustive()
    }
}

impl Submit {
    pub(crate) fn new(client: Client, task: &str, payload: &(impl Serialize + ?Sized)) -> Self {
        let job = Name::parse("task", task).and_then(|task| {
            let text = serde_json::to_string(payload)
                .map_err(|error| Error::invalid("payload", &task, format_args!("must be JSON: {error}")))?;
            let payload = Json::parse("payload", &text)?;
            Ok(NewJob { payload, ..NewJob::new(JobId(Uuid::now_v7()), task) })
        });
        Self { client, job, delay: None }
    }

    fn set(self, set: impl FnOnce(&mut NewJob)) -> Self {
        self.try_set(|job| {
            set(job);
            Ok(())
        })
    }

    fn try_set(mut self, set: impl FnOnce(&mut NewJob) -> Result<()>) -> Self {
        // The first mistake stays.
        if let Ok(job) = &mut self.job
            && let Err(error) = set(job)
        {
            self.job = Err(error);
        }
        self
    }

    /// An id of your own. Defaults to a new UUIDv7.
    pub fn id(self, id: JobId) -> Self {
        self.set(|job| job.id = id)
    }

    /// The line it stands in. Defaults to `default`.
    pub fn queue(self, queue: &str) -> Self {
        self.try_set(|job| Name::parse("queue", queue).map(|queue| job.queue = queue))
    }

    /// Lower runs first. Defaults to 0.
    pub fn priority(self, priority: i32) -> Self {
        self.set(|job| job.priority = priority)
    }

    /// Not before this much of store time has passed. Defaults to none.
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay = Some(delay);
        self
    }

    /// Not before this time. Defaults to now.
    pub fn run_at(mut self, time: Time) -> Self {
        self.delay = None;
        self.set(|job| job.run_at = Some(time))
    }

    /// If it has not started by then it expires. Defaults to never.
    pub fn good_until(self, time: Time) -> Self {
        self.set(|job| job.good_until = Some(time))
    }

    /// Tries until it fails for good. Defaults to 3.
    pub fn max_attempts(self, max_attempts: u32) -> Self {
        self.set(|job| job.max_attempts = max_attempts)
    }

    /// Backoff between tries. Defaults to the task's.
    pub fn retry(self, policy: RetryPolicy) -> Self {
        self.set(|job| job.retry = Some(policy.into()))
    }

    /// How long one attempt may run. Defaults to the task's.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.set(|job| job.timeout_ms = Some(millis(timeout)))
    }

    /// The group it shares slots in. Defaults to the task's.
    pub fn group(self, group: &str) -> Self {
        self.try_set(|job| Name::parse("group", group).map(|group| job.group = Some(group)))
    }

    /// Divides the group; empty is none. Defaults to none.
    pub fn key(self, key: &str) -> Self {
        self.try_set(|job| {
            job.key = if key.is_empty() { None } else { Some(Key::parse("key", key)?) };
            Ok(())
        })
    }

    /// Slots it takes in its group and key. Defaults to 1.
    pub fn cost(self, cost: u32) -> Self {
        self.set(|job| job.cost = cost)
    }

    /// Extra limits: groups, `NAME` or `NAME/KEY`, and the slots that the job takes of each. Defaults to none; further
    /// calls add to them.
    pub fn limits<G: AsRef<str>>(self, limits: impl IntoIterator<Item = (G, u32)>) -> Self {
        self.try_set(|job| {
            for (group, slots) in limits {
                job.limits.insert(GroupRef::parse("limits", group.as_ref())?, slots);
            }
            Ok(())
        })
    }

    /// A limit for its group (with a key: for that key) where no other source has set one. Defaults to none.
    pub fn limit(self, limit: u32) -> Self {
        self.set(|job| job.limit = Some(limit))
    }

    /// Clears the limit that earlier submits brought for its group (with a key: for that key). A limit of another source
    /// stays. `Invalid` together with [`limit`](Self::limit).
    pub fn clear_limit(self) -> Self {
        self.set(|job| job.clear_limit = true)
    }

    /// A second submission with the same key is the same job, in the whole namespace. Defaults to none.
    pub fn idempotency_key(self, key: &str) -> Self {
        self.try_set(|job| Key::parse("idempotency_key", key).map(|key| job.idempotency_key = Some(key)))
    }

    /// What to do when the live jobs of its group leave no room for it. Defaults to [`OnLimit::Wait`].
    pub fn on_limit(self, on_limit: OnLimit) -> Self {
        self.set(|job| job.on_limit = on_limit)
    }

    /// The workflow that it is the next step of. Defaults to none.
    pub fn workflow(self, workflow: &str) -> Self {
        self.try_set(|job| Name::parse("workflow", workflow).map(|name| job.workflow = Some(name)))
    }

    /// What its workflow does when a step does not succeed. Defaults to what the workflow does already, else `halt`.
    pub fn on_failure(self, on_failure: OnFailure) -> Self {
        self.set(|job| job.on_failure = Some(on_failure))
    }

    /// The trace that it belongs to, as the header `traceparent` of W3C Trace Context says it. Its handler gets it by
    /// [`Context::traceparent`](crate::Context::traceparent) in every attempt. Defaults to none.
    pub fn traceparent(self, traceparent: &str) -> Self {
        self.try_set(|job| {
            let parse = Traceparent::parse("traceparent", traceparent);
            parse.map(|traceparent| job.traceparent = Some(traceparent))
        })
    }

    /// The job as it will be submitted; for [`Client::submit_many`]. `Invalid` if it has a [delay](Self::delay): a
    /// delay begins when the job is submitted, by store time, and a job that is not submitted yet can only carry a
    /// date. Use [`run_at`](Self::run_at) instead.
    pub fn into_job(self) -> Result<NewJob> {
        let job = self.job?;
        match self.delay {
            None => Ok(job),
            Some(delay) => {
                let rule = "must be a date, run_at, in a job that is submitted with others";
                Err(Error::invalid("delay", format_args!("{delay:?}"), rule))
            }
        }
    }

    /// Submits it and returns the outcome: accepted, known already, or skipped.
    pub async fn outcome(self) -> Result<Submitted> {
        let Self { client, job, delay } = self;
        let mut job = job?;
        if let Some(delay) = delay {
            let now = client.again(|| client.store().now()).await?;
            job.run_at = Some(now.plus_ms(millis(delay)));
        }
        let span = SubmitSpan::begin(slice::from_mut(&mut job));
        let outcome = client.of_one(|| client.store().submit(vec![job.clone()])).await;
        span.end(Ok(slice::from_ref(&outcome)));
        // There is only one job: leave its index out of the error.
        outcome.map_err(|error| error.without_item("jobs"))
    }
}

impl IntoFuture for Submit {
    type Output = Result<JobId>;
    type IntoFuture = BoxFuture<'static, Result<JobId>>;

    /// Submits it and returns its id, or that of the job that it duplicates. `LimitReached` if `skip` dropped it.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            match self.outcome().await? {
                Submitted::Accepted(id) | Submitted::Existing(id) => Ok(id),
                Submitted::Skipped => {
                    Err(Error::new(ErrorKind::LimitReached, "skipped: its group has no room"))
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qo_core::MemoryStore;
    use std::sync::Arc;

    #[test]
    fn a_delay_is_refused_where_it_would_be_lost() {
        let client = Client::new(Arc::new(MemoryStore::new()));
        let delayed = client.submit("mail", &()).delay(Duration::from_secs(60));
        let error = delayed.into_job().expect_err("it has no date");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert_eq!(error.path().as_deref(), Some("delay"));
        assert!(error.rule().contains("run_at"), "{error}");
        let date = Time::from_millis(5);
        let dated = client.submit("mail", &()).delay(Duration::from_secs(60)).run_at(date);
        assert_eq!(dated.into_job().map(|job| job.run_at), Ok(Some(date)));
    }
}
