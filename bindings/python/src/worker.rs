//! A worker whose handlers are in Python.

use crate::bridge::{Bridge, Item, OnStuck, Outcome, PythonHandler};
use crate::children::{self, Children};
use crate::connection::{Connection, store_of};
use crate::context::{Context, Of};
use crate::fault::{self, Place};
use crate::pending::Pending;
use crate::runtime::Origin;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use qo::core::{ClaimSettings, Configuration, Json, Name, TaskOptions};
use qo::{Error, ErrorKind, Failure, Result, ShutdownHandle, TaskConfig, WorkerOptions};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What Python says about a worker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    tasks: Vec<Handled>,
    #[serde(default)]
    programs: Vec<Program>,
    /// The executable that guards programs.
    guard: Option<PathBuf>,
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
    memory_threshold_percent: Option<u32>,
    latency_threshold_ms: Option<u64>,
    metrics_addr: Option<SocketAddr>,
    #[serde(default)]
    metrics_insecure: bool,
    configuration: Option<Configuration>,
    /// If it is given, all tasks run in child processes.
    processes: Option<children::Described>,
    /// Whether a handler that does not stop is told, and does not end the process.
    #[serde(default)]
    tell_stuck: bool,
}

/// A task, and which bridge its jobs go to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Handled {
    options: TaskOptions,
    /// Whether its handler runs in a thread.
    is_sync: bool,
}

/// A task that is a program.
#[derive(Debug, Serialize, Deserialize)]
pub struct Program {
    /// The task.
    pub options: TaskOptions,
    /// What runs its jobs.
    pub command: Vec<String>,
}

fn parsed(described: &str) -> Result<Described> {
    serde_json::from_str(described)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("worker: {error}")))
}

/// A worker. It runs on threads of its own, which never wait for the interpreter.
#[pyclass(frozen, module = "qo._qo")]
pub struct Worker {
    connection: Connection,
    described: Mutex<Option<Described>>,
    /// For handlers on an event loop, and for handlers on threads.
    bridges: [Arc<Bridge>; 2],
    stopping: Arc<Stopping>,
    origin: Origin,
}

/// How the worker is told to stop, also before it has started.
#[derive(Default)]
struct Stopping {
    handle: Mutex<Option<ShutdownHandle>>,
    /// What was asked for before there was a handle.
    asked: Mutex<Option<Ask>>,
}

/// The bridges of a worker that runs. They close with it.
struct Closing([Arc<Bridge>; 2]);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.iter().for_each(|bridge| bridge.close());
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ask {
    Drain,
    Release,
}

impl Stopping {
    fn ask(&self, ask: Ask) {
        // The lock of the handle is held, so that the worker cannot start in between.
        let handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        match &*handle {
            Some(handle) if ask == Ask::Drain => handle.drain(),
            Some(handle) => handle.release(),
            None => *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(ask),
        }
    }

    fn started(&self, started: ShutdownHandle) {
        let mut handle = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        match *self.asked.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(Ask::Drain) => started.drain(),
            Some(Ask::Release) => started.release(),
            None => {}
        }
        *handle = Some(started);
    }
}

impl Worker {
    fn bridge(&self, is_sync: bool) -> &Arc<Bridge> {
        &self.bridges[usize::from(is_sync)]
    }
}

/// What a task's number says when an item is none of a job: it must stop, or it does not.
const STOP: i64 = -1;
const STUCK: i64 = -2;

/// An item for Python: its number, the task's number, payload and context; or number, [`STOP`] and why it must stop; or
/// number and [`STUCK`].
fn shown(py: Python<'_>, item: Item) -> PyResult<Py<PyAny>> {
    match item {
        Item::Start(start) => {
            let context = Bound::new(py, Context(Of::Here(start.context)))?;
            let shown = (start.number, start.task, start.payload.as_str(), context);
            Ok(shown.into_pyobject(py)?.into_any().unbind())
        }
        Item::Stop(number, reason) => {
            Ok((number, STOP, reason, py.None()).into_pyobject(py)?.into_any().unbind())
        }
        Item::Stuck(number) => Ok((number, STUCK, "", py.None()).into_pyobject(py)?.into_any().unbind()),
    }
}

/// What a handler returned: a word, a text, and seconds.
type Told = (u64, String, String, Option<f64>);

/// What the words of a handler mean.
pub fn outcome(word: &str, text: String, seconds: Option<f64>) -> Outcome {
    let delay = seconds.map(|seconds| Duration::from_secs_f64(seconds.clamp(0.0, 1e9)));
    match word {
        // Python wrote it, so it is JSON; the worker checks its size and settles a mistake as a failure.
        "succeed" => Ok(Json::as_stored(&text)),
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
    fn new(connection: &Connection, described: &str) -> PyResult<Self> {
        connection.check()?;
        let described =
            parsed(described).map_err(|error| pyo3::exceptions::PyValueError::new_err(error.to_string()))?;
        let on_stuck = if described.tell_stuck { OnStuck::Tell } else { OnStuck::Exit };
        let bridge =
            || Bridge::new(on_stuck).map(Arc::new).map_err(|error| PyOSError::new_err(error.to_string()));
        Ok(Self {
            connection: connection.clone(),
            described: Mutex::new(Some(described)),
            bridges: [bridge()?, bridge()?],
            stopping: Arc::default(),
            origin: Origin::here(),
        })
    }

    /// Works until it is told to stop. The answer comes when the last handler has ended.
    fn run(&self) -> PyResult<Pending> {
        self.origin.check()?;
        let described = self.described.lock().unwrap_or_else(PoisonError::into_inner).take();
        let described = described
            .ok_or_else(|| pyo3::exceptions::PyRuntimeError::new_err("the worker was started before"))?;
        let (connection, bridges) = (self.connection.clone(), self.bridges.clone());
        let stopping = Arc::clone(&self.stopping);
        Pending::spawn(async move {
            // Also after a panic: threads that wait for jobs must end.
            let closing = Closing(bridges);
            run(&connection, described, &closing.0, &stopping).await?;
            Ok("null".into())
        })
    }

    /// Readable while the inbox of handlers on an event loop has something.
    fn descriptor(&self) -> i32 {
        self.bridge(false).descriptor()
    }

    /// Everything in the inbox of handlers on an event loop.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let bridge = self.bridge(false);
        let items = bridge.take();
        let handing = bridge.hand(&items);
        fault::here(Place::Take);
        let items = items.into_iter().map(|item| shown(py, item)).collect::<PyResult<Vec<_>>>()?;
        let items = PyList::new(py, items)?;
        handing.done();
        Ok(items)
    }

    /// The next item for a handler on a thread; None once the worker has ended. Waits without the interpreter.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        let bridge = self.bridge(true);
        let show = |item| {
            let items = [item];
            let handing = bridge.hand(&items);
            fault::here(Place::Next);
            let [item] = items;
            let item = shown(py, item)?;
            handing.done();
            Ok(Some(item))
        };
        if let Some(item) = bridge.try_next() {
            return show(item);
        }
        loop {
            match py.detach(|| bridge.wait(Duration::from_millis(500))) {
                None => return Ok(None),
                Some(None) => {}
                Some(Some(item)) => return show(item),
            }
        }
    }

    /// Handlers have ended, each with its number, a word, a text and seconds.
    fn done(&self, is_sync: bool, all: Vec<Told>) {
        fault::here(Place::Done);
        let ended =
            all.into_iter().map(|(number, word, text, seconds)| (number, outcome(&word, text, seconds)));
        self.bridge(is_sync).done(ended);
    }

    /// How many handlers run.
    fn running(&self) -> usize {
        self.bridges.iter().map(|bridge| bridge.running()).sum()
    }

    /// Takes no more jobs, and ends when those that run have ended.
    fn drain(&self) {
        self.stopping.ask(Ask::Drain);
    }

    /// Gives the jobs that run back, and ends.
    fn release(&self) {
        self.stopping.ask(Ask::Release);
    }
}

fn options(described: &mut Described) -> Result<WorkerOptions> {
    let name = |field: &str, name: Option<String>| name.map(|name| Name::parse(field, &name)).transpose();
    let usual = WorkerOptions::default();
    let ms = |ms: Option<u64>, usual: Duration| ms.map_or(usual, Duration::from_millis);
    let children = described.processes.as_ref().map(|processes| processes.children);
    Ok(WorkerOptions {
        name: name("name", described.name.take())?,
        queues: described.queues.iter().map(|queue| Name::parse("queues", queue)).collect::<Result<_>>()?,
        max_concurrent_tasks: children.or(described.max_concurrent_tasks),
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
        memory_threshold_percent: described
            .memory_threshold_percent
            .unwrap_or(usual.memory_threshold_percent),
        latency_threshold: described.latency_threshold_ms.map(Duration::from_millis),
        metrics_addr: described.metrics_addr,
        metrics_insecure: described.metrics_insecure,
        app: name("app", described.app.take())?,
        configuration: described.configuration.take(),
    })
}

async fn run(
    connection: &Connection,
    mut described: Described,
    bridges: &[Arc<Bridge>; 2],
    stopping: &Stopping,
) -> Result<()> {
    let options = options(&mut described)?;
    options.check()?;
    let store = store_of(connection).await?;
    let children = match described.processes.take() {
        Some(processes) => {
            let tasks = described.tasks.iter().map(|task| task.options.task.to_string()).collect();
            Some(Children::start(processes, tasks).await?)
        }
        None => None,
    };
    let mut builder = qo::Worker::builder(store).options(options);
    if let Some(guard) = described.guard {
        builder = builder.guard(guard);
    }
    if described.tell_stuck {
        // The bridge tells.
        builder = builder.on_stuck(|_| {});
    }
    for (task, handled) in described.tasks.into_iter().enumerate() {
        let name = handled.options.task.to_string();
        let config = TaskConfig::from(handled.options);
        builder = match &children {
            Some(children) => builder.handler(&name, config, children.handler(task)),
            None => {
                let bridge = Arc::clone(&bridges[usize::from(handled.is_sync)]);
                builder.handler(&name, config, PythonHandler { bridge, task })
            }
        };
    }
    for Program { options, command } in described.programs {
        let name = options.task.to_string();
        builder = builder.program(&name, TaskConfig::from(options), command);
    }
    let ran = match builder.build() {
        Ok(worker) => {
            stopping.started(worker.shutdown_handle());
            worker.run().await
        }
        Err(error) => Err(error),
    };
    // The shutdown handle keeps the handlers, and these the line to the children.
    stopping.handle.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(children) = children {
        children.end().await;
    }
    ran
}
