//! The other end of [`children`](crate::children): what a child process asks and says.
//!
//! No thread reads the socket while a job runs. A handler that asks whether it must stop, or how long its lease lasts,
//! reads what has come by then; for a coroutine, the event loop watches the socket.

use crate::context::{Context, Of, Remote};
use crate::frame::{self, FromChild, Inbox, ToChild};
use pyo3::exceptions::{PyOSError, PyRuntimeError};
use pyo3::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long to wait for a job before signals are looked at.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

#[derive(Default)]
struct State {
    inbox: Inbox,
    jobs: VecDeque<Arc<Remote>>,
    /// The one that runs, or ran last.
    current: Option<Arc<Remote>>,
    is_closed: bool,
}

/// The socket to the worker.
pub struct Socket {
    state: Mutex<State>,
    stream: UnixStream,
    write: Mutex<UnixStream>,
}

impl Socket {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what has come, without waiting.
    pub fn look(self: &Arc<Self>) {
        let mut state = self.state();
        while !state.is_closed {
            let read =
                recv(&self.stream, rustix::buffer::spare_capacity(state.inbox.room()), RecvFlags::DONTWAIT);
            match read {
                Ok((0, _)) => state.is_closed = true,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => state.is_closed = true,
            }
            self.understand(&mut state);
        }
    }

    fn understand(self: &Arc<Self>, state: &mut State) {
        loop {
            match state.inbox.next() {
                Ok(Some(ToChild::Run(run))) => {
                    let remote = Arc::new(Remote::new(*run, Arc::clone(self)));
                    state.current = Some(Arc::clone(&remote));
                    state.jobs.push_back(remote);
                }
                Ok(Some(ToChild::Stop(reason))) => {
                    state.current.iter().for_each(|current| current.stop(&reason));
                }
                Ok(Some(ToChild::Lease(until_ms))) => {
                    let current = state.current.iter();
                    current.for_each(|current| current.lease_until_ms.store(until_ms, Ordering::SeqCst));
                }
                Ok(None) => return,
                Err(_) => {
                    state.is_closed = true;
                    return;
                }
            }
        }
    }

    /// Says something to the worker.
    pub fn say(&self, message: &FromChild) -> io::Result<()> {
        let mut stream = self.write.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write_blocking(&mut *stream, message)
    }
}

/// A child process of a worker.
#[pyclass(frozen, module = "qo._qo")]
pub struct Child(Arc<Socket>);

#[pymethods]
impl Child {
    /// Takes over the socket that this process was started with, by its number.
    #[new]
    fn new(descriptor: i32) -> PyResult<Self> {
        let failed = |error: io::Error| PyOSError::new_err(format!("the worker's socket: {error}"));
        // SAFETY: the worker that started this process left the descriptor open for this one object.
        let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
        // Not for processes that the handlers start.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let stream = UnixStream::from(socket);
        let write = Mutex::new(stream.try_clone().map_err(failed)?);
        Ok(Self(Arc::new(Socket { state: Mutex::default(), stream, write })))
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
            self.0.look();
            let (job, is_closed) = {
                let mut state = self.0.state();
                (state.jobs.pop_front(), state.is_closed)
            };
            if let Some(job) = job {
                let (task, payload) = (job.run.task, job.run.payload.clone());
                return Ok(Some((task, payload, Context(Of::There(job)))));
            }
            if is_closed {
                return Ok(None);
            }
            py.detach(|| {
                let mut watched = [PollFd::from_borrowed_fd(self.0.stream.as_fd(), PollFlags::IN)];
                // An error, such as a signal, means another look.
                let _ = poll(&mut watched, Some(&PATIENCE));
            });
            py.check_signals()?;
        }
    }

    /// The job has ended: a word, a text and seconds.
    fn done(&self, word: String, text: String, seconds: Option<f64>) -> PyResult<()> {
        self.say(&FromChild::Done(word, text, seconds))
    }

    /// Readable when the worker has said something.
    fn descriptor(&self) -> i32 {
        self.0.stream.as_raw_fd()
    }

    /// Reads what the worker has said, without waiting.
    fn look(&self) {
        self.0.look();
    }
}

impl Child {
    fn say(&self, message: &FromChild) -> PyResult<()> {
        self.0.say(message).map_err(|error| PyRuntimeError::new_err(format!("the worker is gone: {error}")))
    }
}
