//! An attempt, as its handler sees it.

use crate::child::Socket;
use crate::frame::{FromChild, Run};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

/// An attempt whose worker is the parent process.
pub struct Remote {
    /// What the worker said of it.
    pub run: Run,
    /// The end of its lease.
    pub lease_until_ms: AtomicI64,
    reason: OnceLock<String>,
    socket: Arc<Socket>,
}

impl Remote {
    /// An attempt that the worker has sent.
    pub fn new(run: Run, socket: Arc<Socket>) -> Self {
        let lease_until_ms = AtomicI64::new(run.lease_until_ms);
        Self { run, lease_until_ms, reason: OnceLock::new(), socket }
    }

    /// Tells it to stop. The first reason counts.
    pub fn stop(&self, reason: &str) {
        self.reason.get_or_init(|| reason.to_owned());
    }

    fn say(&self, message: &FromChild) {
        // If the worker is gone, so is this process soon.
        let _ = self.socket.say(message);
    }
}

/// Whose attempt it is.
pub enum Of {
    /// Of a worker in this process.
    Here(qo::Context),
    /// Of a worker that is the parent process.
    There(Arc<Remote>),
}

/// An attempt.
#[pyclass(frozen, module = "qo._qo", name = "Context")]
pub struct Context(pub Of);

#[pymethods]
impl Context {
    /// The job's id.
    #[getter]
    fn job(&self) -> String {
        match &self.0 {
            Of::Here(context) => context.job().to_string(),
            Of::There(remote) => remote.run.job.clone(),
        }
    }

    /// The task's name.
    #[getter]
    fn task(&self) -> &str {
        match &self.0 {
            Of::Here(context) => context.task(),
            Of::There(remote) => &remote.run.name,
        }
    }

    /// The queue.
    #[getter]
    fn queue(&self) -> &str {
        match &self.0 {
            Of::Here(context) => context.queue(),
            Of::There(remote) => &remote.run.queue,
        }
    }

    /// The group.
    #[getter]
    fn group(&self) -> &str {
        match &self.0 {
            Of::Here(context) => context.group(),
            Of::There(remote) => &remote.run.group,
        }
    }

    /// The key, or None.
    #[getter]
    fn key(&self) -> Option<&str> {
        match &self.0 {
            Of::Here(context) => context.key().map(|key| &**key),
            Of::There(remote) => remote.run.key.as_deref(),
        }
    }

    /// The trace that the job belongs to, or None.
    #[getter]
    fn traceparent(&self) -> Option<String> {
        match &self.0 {
            Of::Here(context) => context.traceparent().map(String::from),
            Of::There(remote) => remote.run.traceparent.clone(),
        }
    }

    /// 1 for the first try.
    #[getter]
    fn attempt(&self) -> u32 {
        match &self.0 {
            Of::Here(context) => context.attempt(),
            Of::There(remote) => remote.run.attempt,
        }
    }

    /// The try after which the job fails for good.
    #[getter]
    fn max_attempts(&self) -> u32 {
        match &self.0 {
            Of::Here(context) => context.max_attempts(),
            Of::There(remote) => remote.run.max_attempts,
        }
    }

    /// Grows with every claim of the job.
    #[getter]
    fn fence_token(&self) -> u64 {
        match &self.0 {
            Of::Here(context) => context.fence_token().0,
            Of::There(remote) => remote.run.token,
        }
    }

    /// The end of the lease in store time, as milliseconds since 1970.
    fn lease_until_ms(&self) -> i64 {
        match &self.0 {
            Of::Here(context) => context.extend_lease().as_millis(),
            Of::There(remote) => {
                remote.socket.look();
                remote.lease_until_ms.load(Ordering::SeqCst)
            }
        }
    }

    /// Why the handler must stop; None if it need not.
    fn cancel_reason(&self) -> Option<String> {
        match &self.0 {
            Of::Here(context) => context.cancel_reason().map(|reason| reason.to_string()),
            Of::There(remote) => {
                remote.socket.look();
                remote.reason.get().cloned()
            }
        }
    }

    /// How far it is, from 0.0 to 1.0.
    fn progress(&self, py: Python<'_>, fraction: f64, note: &str) {
        match &self.0 {
            Of::Here(context) => context.progress(fraction, note),
            Of::There(remote) => py.detach(|| remote.say(&FromChild::Progress(fraction, note.to_owned()))),
        }
    }

    /// Adds text to the attempt's log.
    fn log(&self, py: Python<'_>, text: &str) {
        match &self.0 {
            Of::Here(context) => context.log(text),
            Of::There(remote) => py.detach(|| remote.say(&FromChild::Log(text.to_owned()))),
        }
    }
}
