//! The threads of this process.
//!
//! They start with the first call, not with the import, so that a web server may load the program and fork afterwards. A
//! process that was forked later has none of these threads: it must connect itself.
//!
//! The thread that tells event loops ends before the interpreter does: a thread that comes back to an interpreter at its
//! end is killed by it, and the process with it. [`end_before_exit`] is for every such thread.
//!
//! Invariant: the locks of this module are taken by threads that hold the interpreter's lock, so no fork happens while
//! one is held, and a forked process finds them free.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::Duration;
use tokio::runtime::{Handle, Runtime};

/// An event loop's `call_soon_threadsafe`, and what to call there.
pub struct Tell {
    /// The loop's.
    pub call_soon: Py<PyAny>,
    /// What it calls.
    pub told: Py<PyAny>,
}

/// What the thread that waits for the interpreter is asked for.
pub enum Ask {
    /// Tell an event loop something.
    Tell(Tell),
    /// End, and say so.
    End(mpsc::SyncSender<()>),
}

/// Tells event loops that something has happened. Only its thread waits for the interpreter: the runtime's threads drive
/// the connections that leases are renewed by.
pub type Teller = mpsc::Sender<Ask>;

struct Threads {
    process: u32,
    runtime: &'static Runtime,
    teller: Teller,
}

static THREADS: Mutex<Option<Threads>> = Mutex::new(None);

/// The runtime of this process, which starts with the first call, and the way to tell event loops.
pub fn threads() -> PyResult<(Handle, Teller)> {
    let process = std::process::id();
    let mut threads = THREADS.lock().unwrap_or_else(PoisonError::into_inner);
    let told = |threads: &Threads| (threads.runtime.handle().clone(), threads.teller.clone());
    if let Some(threads) = threads.as_ref().filter(|threads| threads.process == process) {
        return Ok(told(threads));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("qo")
        .enable_all()
        .build()
        .map_err(|error| PyRuntimeError::new_err(format!("no threads: {error}")))?;
    // It lives as long as the process: a runtime that is dropped at exit would wait for calls that never end.
    let runtime: &'static Runtime = Box::leak(Box::new(runtime));
    let (teller, tells) = mpsc::channel();
    std::thread::Builder::new()
        .name("qo-tell".into())
        .spawn(move || tell(&tells))
        .map_err(|error| PyRuntimeError::new_err(format!("no thread: {error}")))?;
    let ending = teller.clone();
    end_before_exit(process, move |done| ending.send(Ask::End(done)).is_ok())?;
    // A parent's threads are not here after a fork: what is left of them is forgotten, not dropped.
    std::mem::forget(threads.take());
    Ok(told(threads.insert(Threads { process, runtime, teller })))
}

fn tell(asks: &mpsc::Receiver<Ask>) {
    while let Ok(first) = asks.recv() {
        let mut end = None;
        let tells: Vec<Tell> = std::iter::once(first)
            .chain(asks.try_iter())
            .filter_map(|ask| match ask {
                Ask::Tell(tell) => Some(tell),
                Ask::End(done) => {
                    end = Some(done);
                    None
                }
            })
            .collect();
        let told = Python::try_attach(|py| {
            for Tell { call_soon, told } in tells {
                // A loop that is closed has nothing waiting any more.
                let _ = call_soon.call1(py, (told,));
            }
        });
        if let Some(end) = end {
            // The interpreter waits for this.
            let _ = end.send(());
            return;
        }
        if told.is_none() {
            // The interpreter is at its end.
            return;
        }
    }
}

/// How long the end of the interpreter waits for a thread.
const PATIENCE: Duration = Duration::from_secs(5);

/// Has a thread that takes the interpreter's lock end before the interpreter does. `ask` passes a channel to it, on which
/// it says that it has ended; it returns whether the thread was there to be asked.
pub fn end_before_exit(
    process: u32,
    ask: impl Fn(mpsc::SyncSender<()>) -> bool + Send + Sync + 'static,
) -> PyResult<()> {
    Python::attach(|py| {
        let end = PyCFunction::new_closure(py, None, None, move |arguments, _| {
            // A process that was forked has no such thread.
            if std::process::id() == process {
                arguments.py().detach(|| {
                    let (done, ended) = mpsc::sync_channel(1);
                    if ask(done) {
                        // A thread that does not end in time is left to its fate.
                        let _ = ended.recv_timeout(PATIENCE);
                    }
                });
            }
        })?;
        py.import("atexit")?.call_method1("register", (end,)).map(drop)
    })
}

/// The process that something was made in.
#[derive(Debug, Clone, Copy)]
pub struct Origin(u32);

impl Origin {
    /// This process.
    pub fn here() -> Self {
        Self(std::process::id())
    }

    /// An error if this process was forked after that.
    pub fn check(self) -> PyResult<()> {
        if self.0 == std::process::id() {
            return Ok(());
        }
        let why = format!(
            "this process was forked from process {} after that had connected: connections do not survive a fork; \
             call connect() in this process",
            self.0
        );
        Err(PyRuntimeError::new_err(why))
    }
}
