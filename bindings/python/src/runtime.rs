//! The threads of this process.
//!
//! They start with the first call, not with the import, so that a web server may load the program and fork afterwards. A
//! process that was forked later has none of these threads: it must connect itself.
//!
//! Invariant: the locks of this module are taken by threads that hold the interpreter's lock, so no fork happens while
//! one is held, and a forked process finds them free.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError, mpsc};
use tokio::runtime::{Handle, Runtime};

/// An event loop's `call_soon_threadsafe`, and what to call there.
pub struct Tell {
    /// The loop's.
    pub call_soon: Py<PyAny>,
    /// What it calls.
    pub told: Py<PyAny>,
}

/// Tells event loops that something has happened. Only its thread waits for the interpreter: the runtime's threads drive
/// the connections that leases are renewed by.
pub type Teller = mpsc::Sender<Tell>;

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
    // A parent's threads are not here after a fork: what is left of them is forgotten, not dropped.
    std::mem::forget(threads.take());
    Ok(told(threads.insert(Threads { process, runtime, teller })))
}

fn tell(tells: &mpsc::Receiver<Tell>) {
    while let Ok(first) = tells.recv() {
        let all: Vec<Tell> = std::iter::once(first).chain(tells.try_iter()).collect();
        let told = Python::try_attach(|py| {
            for Tell { call_soon, told } in all {
                // A loop that is closed has nothing waiting any more.
                let _ = call_soon.call1(py, (told,));
            }
        });
        if told.is_none() {
            // The interpreter is at its end.
            return;
        }
    }
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
