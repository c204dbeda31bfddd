//! The other end of [`children`](crate::children): what a child process asks and says.
//!
//! A thread reads the socket, so that a handler that holds the interpreter learns all the same that it must stop.

use crate::context::{Context, Of, Remote};
use crate::frame::{self, FromChild, Run, ToChild};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::collections::VecDeque;
use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

#[derive(Default)]
struct State {
    jobs: VecDeque<Arc<Remote>>,
    /// The one that runs, or ran last.
    current: Option<Arc<Remote>>,
    is_closed: bool,
}

struct Shared {
    state: Mutex<State>,
    filled: Condvar,
    /// Readable when the job must stop.
    stopped: OwnedFd,
    write: Arc<Mutex<UnixStream>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, stream: UnixStream) {
        let mut stream = BufReader::new(stream);
        while let Ok(Some(message)) = frame::read_blocking::<ToChild>(&mut stream) {
            let mut state = self.state();
            match message {
                ToChild::Run(run) => self.took(&mut state, *run),
                ToChild::Stop(reason) => {
                    if let Some(current) = &state.current {
                        current.stop(reason);
                    }
                    let _ = rustix::io::write(&self.stopped, &1_u64.to_ne_bytes());
                }
                ToChild::Lease(until_ms) => {
                    if let Some(current) = &state.current {
                        current.lease_until_ms.store(until_ms, Ordering::SeqCst);
                    }
                }
            }
            drop(state);
            self.filled.notify_all();
        }
        self.state().is_closed = true;
        self.filled.notify_all();
    }

    fn took(&self, state: &mut State, run: Run) {
        let remote = Arc::new(Remote::new(run, Arc::clone(&self.write)));
        state.current = Some(Arc::clone(&remote));
        state.jobs.push_back(remote);
    }
}

/// A child process of a worker.
#[pyclass(frozen, module = "qo._qo")]
pub struct Child(Arc<Shared>);

#[pymethods]
impl Child {
    /// Takes over the socket that this process was started with, by its number.
    #[new]
    fn new(descriptor: i32) -> PyResult<Self> {
        let failed = |error: std::io::Error| PyOSError::new_err(format!("the worker's socket: {error}"));
        // SAFETY: the worker that started this process left the descriptor open for this one object.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // Not for processes that the handlers start.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let stream = UnixStream::from(socket);
        let write = Arc::new(Mutex::new(stream.try_clone().map_err(failed)?));
        let stopped = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let stopped = stopped.map_err(|error| failed(error.into()))?;
        let shared = Arc::new(Shared { state: Mutex::default(), filled: Condvar::new(), stopped, write });
        let listening = Arc::clone(&shared);
        let listen = move || listening.listen(stream);
        std::thread::Builder::new().name("qo-child".into()).spawn(listen).map_err(failed)?;
        Ok(Self(shared))
    }

    /// Says that it can take jobs of these tasks.
    fn ready(&self, tasks: Vec<String>) -> PyResult<()> {
        self.say(&FromChild::Ready(tasks))
    }

    /// Says that it cannot, and why.
    fn failed(&self, why: String) -> PyResult<()> {
        self.say(&FromChild::Failed(why))
    }

    /// The next job: the task's number, the payload and the context. None when no more come. Waits without the
    /// interpreter.
    fn next(&self, py: Python<'_>) -> PyResult<Option<(usize, String, Context)>> {
        loop {
            let job = py.detach(|| {
                let mut state = self.0.state();
                if state.jobs.is_empty() && !state.is_closed {
                    let waited = self.0.filled.wait_timeout(state, Duration::from_millis(500));
                    state = waited.map(|(state, _)| state).unwrap_or_else(|poisoned| poisoned.into_inner().0);
                }
                match state.jobs.pop_front() {
                    Some(job) => Some(Some(job)),
                    None if state.is_closed => Some(None),
                    None => None,
                }
            });
            match job {
                Some(Some(job)) => {
                    let (task, payload) = (job.run.task, job.run.payload.clone());
                    return Ok(Some((task, payload, Context(Of::There(job)))));
                }
                Some(None) => return Ok(None),
                None => py.check_signals()?,
            }
        }
    }

    /// The job has ended: a word, a text and seconds.
    fn done(&self, py: Python<'_>, word: String, text: String, seconds: Option<f64>) -> PyResult<()> {
        py.detach(|| self.say(&FromChild::Done(word, text, seconds)))
    }

    /// Readable when the job must stop.
    fn stopped_descriptor(&self) -> i32 {
        self.0.stopped.as_raw_fd()
    }

    /// Forgets that the last job had to stop.
    fn reset(&self) {
        let _ = rustix::io::read(&self.0.stopped, &mut [0_u8; 8]);
    }
}

impl Child {
    fn say(&self, message: &FromChild) -> PyResult<()> {
        let mut stream = self.0.write.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write_blocking(&mut *stream, message)
            .map_err(|error| PyRuntimeError::new_err(format!("the worker is gone: {error}")))
    }
}
