//! The answer to a call.

use crate::runtime::{self, Ask, Origin, Tell, Teller};
use futures::FutureExt;
use pyo3::exceptions::PyTimeoutError;
use pyo3::prelude::*;
use qo::{Error, ErrorKind};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a call answered: JSON, or an error as JSON.
type Answer = Result<String, String>;

#[derive(Default)]
struct State {
    answer: Option<Answer>,
    /// The event loop that waits for it.
    tell: Option<Tell>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    answered: Condvar,
}

/// A call that was made. Dropping it does not undo the call.
#[pyclass(frozen, module = "qo._qo")]
pub struct Pending {
    shared: Arc<Shared>,
    task: tokio::task::AbortHandle,
    origin: Origin,
}

impl Pending {
    /// Makes a call.
    pub fn spawn(call: impl Future<Output = Result<String, Error>> + Send + 'static) -> PyResult<Self> {
        let shared = Arc::new(Shared::default());
        let telling = Arc::clone(&shared);
        let (runtime, teller) = runtime::threads()?;
        let task = runtime.spawn(async move {
            // A panic is an answer, too.
            let answer = AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| {
                let why = panic.downcast_ref::<&str>().copied().map(str::to_owned);
                let why = why.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                Err(Error::new(ErrorKind::Internal, format!("the call panicked: {why}")))
            });
            telling.tell(answer.map_err(|error| as_json(&error)), &teller);
        });
        Ok(Self { shared, task: task.abort_handle(), origin: Origin::here() })
    }
}

/// An error as Python reads it.
pub fn as_json(error: &Error) -> String {
    serde_json::to_string(error)
        .unwrap_or_else(|_| format!("{{\"kind\":\"internal\",\"message\":{:?}}}", error.message()))
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, answer: Answer, teller: &Teller) {
        let tell = {
            let mut state = self.state();
            state.answer = Some(answer);
            state.tell.take()
        };
        self.answered.notify_all();
        if let Some(tell) = tell {
            // Without its thread the process is at its end.
            let _ = teller.send(Ask::Tell(tell));
        }
    }
}

#[pymethods]
impl Pending {
    /// Waits for the answer: whether it is one, and its JSON. Raises TimeoutError if it does not come in time.
    #[pyo3(signature = (seconds=None))]
    fn wait(&self, py: Python<'_>, seconds: Option<f64>) -> PyResult<(bool, String)> {
        self.origin.check()?;
        let until = seconds.map(|seconds| Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
        loop {
            // In pieces, so that Ctrl-C is heard.
            let answer = py.detach(|| {
                let piece = Instant::now() + Duration::from_millis(100);
                let end = until.map_or(piece, |until| until.min(piece));
                let mut state = self.shared.state();
                while state.answer.is_none() {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    let waited = self.shared.answered.wait_timeout(state, left);
                    state = waited.map(|(state, _)| state).unwrap_or_else(|poisoned| poisoned.into_inner().0);
                }
                state.answer.clone()
            });
            if let Some(answer) = answer {
                return Ok(told(answer));
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return Err(PyTimeoutError::new_err("no answer in time"));
            }
            py.check_signals()?;
        }
    }

    /// Calls `told` in an event loop when the answer is there: by `call_soon`, the loop's `call_soon_threadsafe`.
    fn when_done(&self, py: Python<'_>, call_soon: Py<PyAny>, told: Py<PyAny>) -> PyResult<()> {
        self.origin.check()?;
        let is_answered = {
            let mut state = self.shared.state();
            let is_answered = state.answer.is_some();
            if !is_answered {
                state.tell = Some(Tell { call_soon: call_soon.clone_ref(py), told: told.clone_ref(py) });
            }
            is_answered
        };
        if is_answered {
            call_soon.call1(py, (told,))?;
        }
        Ok(())
    }

    /// The answer, if it is there.
    fn answer(&self) -> Option<(bool, String)> {
        self.shared.state().answer.clone().map(told)
    }

    /// Gives up waiting. A call that the store has begun may still happen.
    fn abort(&self) {
        self.task.abort();
    }
}

fn told(answer: Answer) -> (bool, String) {
    match answer {
        Ok(text) => (true, text),
        Err(text) => (false, text),
    }
}
