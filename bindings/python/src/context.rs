//! An attempt, as its handler sees it.

use pyo3::prelude::*;

/// An attempt.
#[pyclass(frozen, module = "qo._qo", name = "Context")]
pub struct Context(pub qo::Context);

#[pymethods]
impl Context {
    /// The job's id.
    #[getter]
    fn job(&self) -> String {
        self.0.job().to_string()
    }

    /// The task's name.
    #[getter]
    fn task(&self) -> &str {
        self.0.task()
    }

    /// The queue.
    #[getter]
    fn queue(&self) -> &str {
        self.0.queue()
    }

    /// The group.
    #[getter]
    fn group(&self) -> &str {
        self.0.group()
    }

    /// The key, or None.
    #[getter]
    fn key(&self) -> Option<&str> {
        self.0.key().map(|key| &**key)
    }

    /// 1 for the first try.
    #[getter]
    fn attempt(&self) -> u32 {
        self.0.attempt()
    }

    /// The try after which the job fails for good.
    #[getter]
    fn max_attempts(&self) -> u32 {
        self.0.max_attempts()
    }

    /// Grows with every claim of the job.
    #[getter]
    fn fence_token(&self) -> u64 {
        self.0.fence_token().0
    }

    /// The end of the lease in store time, as milliseconds since 1970.
    fn lease_until_ms(&self) -> i64 {
        self.0.extend_lease().as_millis()
    }

    /// Why the handler must stop; None if it need not.
    fn cancel_reason(&self) -> Option<String> {
        self.0.cancel_reason().map(|reason| reason.to_string())
    }

    /// How far it is, from 0.0 to 1.0.
    fn progress(&self, fraction: f64, note: &str) {
        self.0.progress(fraction, note);
    }
}
