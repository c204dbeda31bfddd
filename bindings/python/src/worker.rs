//! A worker whose handlers are in Python.

use crate::bridge::{Bridge, Item, Outcome, PythonHandler};
use crate::connection::{Connection, store_of};
use crate::context::Context;
use crate::pending::Pending;
use crate::runtime::Origin;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use qo::core::{ClaimSettings, Configuration, Json, Name, TaskOptions};
use qo::{Error, ErrorKind, Failure, Result, ShutdownHandle, WorkerOptions};
use serde::Deserialize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What Python says about a worker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    tasks: Vec<Handled>,
    app: Option<String>,
    name: Option<String>,
    #[serde(default)]
    queues: Vec<String>,
    max_concurrent_tasks: Option<u32>,
    lease_ms: Option<u64>,
    cancel_grace_ms: Option<u64>,
    poll_interval_ms: Option<u64>,
    claim_batch_size: Option<u32>,
    max_claim_batch: Option<u32>,
    max_claim_per_worker: Option<u32>,
    prefetch_buffer: Option<u32>,
    claim_lease_ms: Option<u64>,
    configuration: Option<Configuration>,
}

/// A task, and which bridge its jobs go to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Handled {
    options: TaskOptions,
    /// Whether its handler runs in a thread.
    is_sync: bool,
}

/// A worker. It runs on threads of its own, which never wait for the interpreter.
#[pyclass(frozen, module = "qo._qo")]
pub struct Worker {
    connection: Connection,
    described: String,
    /// For handlers on an event loop, and for handlers on threads.
    bridges: [Arc<Bridge>; 2],
    shutdown: Arc<Mutex<Option<ShutdownHandle>>>,
    origin: Origin,
}

impl Worker {
    fn bridge(&self, is_sync: bool) -> &Arc<Bridge> {
        &self.bridges[usize::from(is_sync)]
    }
}

/// An item for Python: its number, the task's number, payload and context; or number, -1 and why it must stop.
fn shown(py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
    match item {
        Item::Start(start) => {
            let context = Bound::new(py, Context(start.context))?;
            let shown = (start.number, start.task, start.payload.as_str(), context);
            Ok(shown.into_pyobject(py)?.into_any().unbind())
        }
        Item::Stop(number, reason) => {
            Ok((number, -1, reason, py.None()).into_pyobject(py)?.into_any().unbind())
        }
    }
}

/// What a handler returned: a word, a text, and seconds.
type Told = (u64, String, String, Option<f64>);

fn outcome(word: &str, text: String, seconds: Option<f64>) -> Outcome {
    let delay = seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    match word {
        "succeed" => Json::parse("output", &text).map_err(|error| Failure::fail(error.message())),
        "fail" => Err(Failure::Fail { error: text }),
        "snooze" => Err(Failure::Snooze { delay: delay.unwrap_or_default() }),
        "cancelled" => Err(Failure::Cancelled),
        _ => Err(Failure::Retry { error: text, delay }),
    }
}

#[pymethods]
impl Worker {
    /// A worker of a namespace, described by JSON. Nothing is checked or opened yet.
    #[new]
    fn new(connection: &Connection, described: String) -> PyResult<Self> {
        connection.check()?;
        let bridge = || Bridge::new().map(Arc::new).map_err(|error| PyOSError::new_err(error.to_string()));
        Ok(Self {
            connection: connection.clone(),
            described,
            bridges: [bridge()?, bridge()?],
            shutdown: Arc::default(),
            origin: Origin::here(),
        })
    }

    /// Works until it is told to stop. The answer comes when the last handler has ended.
    fn run(&self) -> PyResult<Pending> {
        self.origin.check()?;
        let connection = self.connection.clone();
        let (described, bridges) = (self.described.clone(), self.bridges.clone());
        let shutdown = Arc::clone(&self.shutdown);
        Pending::spawn(async move {
            let ran = run(&connection, &described, &bridges, &shutdown).await;
            bridges.iter().for_each(|bridge| bridge.close());
            ran.map(|()| "null".into())
        })
    }

    /// Readable while the inbox of handlers on an event loop has something.
    fn descriptor(&self) -> i32 {
        self.bridge(false).descriptor()
    }

    /// Everything in the inbox of handlers on an event loop.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let items = self.bridge(false).take();
        let items = items.into_iter().map(|item| shown(py, item)).collect::<PyResult<Vec<_>>>()?;
        PyList::new(py, items)
    }

    /// The next item for a handler on a thread; None once the worker has ended. Waits without the interpreter.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let bridge = self.bridge(true);
        loop {
            match py.detach(|| bridge.wait(Duration::from_millis(500))) {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(item)) => return shown(py, item).map(Some),
            }
        }
    }

    /// Handlers have ended, each with its number, a word, a text and seconds.
    fn done(&self, py: Python<'_>, is_sync: bool, all: Vec<Told>) {
        let bridge = self.bridge(is_sync);
        py.detach(|| {
            for (number, word, text, seconds) in all {
                bridge.done(number, outcome(&word, text, seconds));
            }
        });
    }

    /// How many handlers run.
    fn running(&self) -> usize {
        self.bridges.iter().map(|bridge| bridge.running()).sum()
    }

    /// Takes no more jobs, and ends when those that run have ended.
    fn drain(&self) {
        if let Some(handle) = &*self.shutdown.lock().unwrap_or_else(PoisonError::into_inner) {
            handle.drain();
        }
    }

    /// Gives the jobs that run back, and ends.
    fn release(&self) {
        if let Some(handle) = &*self.shutdown.lock().unwrap_or_else(PoisonError::into_inner) {
            handle.release();
        }
    }
}

async fn run(
    connection: &Connection,
    described: &str,
    bridges: &[Arc<Bridge>; 2],
    shutdown: &Mutex<Option<ShutdownHandle>>,
) -> Result<()> {
    let described: Described = serde_json::from_str(described)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("worker: {error}")))?;
    let name = |field: &str, name: Option<String>| name.map(|name| Name::parse(field, &name)).transpose();
    let usual = WorkerOptions::default();
    let ms = |ms: Option<u64>, usual: Duration| ms.map_or(usual, Duration::from_millis);
    let options = WorkerOptions {
        name: name("name", described.name)?,
        queues: described.queues.iter().map(|queue| Name::parse("queues", queue)).collect::<Result<_>>()?,
        max_concurrent_tasks: described.max_concurrent_tasks,
        lease: ms(described.lease_ms, usual.lease),
        claim: ClaimSettings {
            claim_batch_size: described.claim_batch_size.unwrap_or(usual.claim.claim_batch_size),
            max_claim_batch: described.max_claim_batch,
            max_claim_per_worker: described.max_claim_per_worker.unwrap_or_default(),
            prefetch_buffer: described.prefetch_buffer.unwrap_or_default(),
            claim_lease_ms: described.claim_lease_ms,
        },
        poll_interval: described.poll_interval_ms.map(Duration::from_millis),
        cancel_grace: ms(described.cancel_grace_ms, usual.cancel_grace),
        app: name("app", described.app)?,
        configuration: described.configuration,
        ..usual
    };
    let mut builder = qo::Worker::builder(store_of(connection).await?).options(options);
    for (task, handled) in described.tasks.into_iter().enumerate() {
        let bridge = Arc::clone(&bridges[usize::from(handled.is_sync)]);
        let name = handled.options.task.to_string();
        builder = builder.handler(&name, handled.options.into(), PythonHandler { bridge, task });
    }
    let worker = builder.build()?;
    *shutdown.lock().unwrap_or_else(PoisonError::into_inner) = Some(worker.shutdown_handle());
    worker.run().await
}
