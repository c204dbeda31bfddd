//! How a worker is built.

use crate::context::Context;
use crate::failure::IntoFailure;
use crate::handler::{Blocking, Handler, TaskConfig, Typed};
use crate::log::AttemptLogs;
use crate::metrics::Metrics;
use crate::program::Program;
use crate::task::{Accepts, Returns};
use crate::worker::attempt::Attempts;
use crate::worker::lease::{OnStuck, Watch};
use crate::worker::options::{WorkerOptions, default_name};
use crate::worker::{Shared, Worker};
use qo_core::{Error, FenceToken, Name, Result, Store, TaskOptions, caps};
use qo_object::Jitter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The exit code of a process whose handler did not stop after its lease was lost.
pub const EXIT_STUCK: i32 = 70;

/// A worker in the making. [`build`](Self::build) reports every mistake in it.
#[must_use]
pub struct WorkerBuilder {
    store: Arc<dyn Store>,
    options: WorkerOptions,
    tasks: Vec<TaskOptions>,
    handlers: BTreeMap<Name, Arc<dyn Handler>>,
    /// How many of the handlers are programs.
    programs: usize,
    mistakes: Vec<Error>,
    guard: Option<PathBuf>,
    /// Keeps what handlers and programs log.
    logs: Arc<AttemptLogs>,
    own_threads: bool,
    seed: Option<u64>,
    on_stuck: OnStuck,
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.handlers.keys().collect::<Vec<_>>();
        f.debug_struct("WorkerBuilder")
            .field("options", &self.options)
            .field("tasks", &tasks)
            .finish_non_exhaustive()
    }
}

impl WorkerBuilder {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            logs: AttemptLogs::new(Arc::clone(&store)),
            store,
            options: WorkerOptions::default(),
            tasks: Vec::new(),
            handlers: BTreeMap::new(),
            programs: 0,
            mistakes: Vec::new(),
            guard: None,
            own_threads: true,
            seed: None,
            on_stuck: OnStuck::Exit(EXIT_STUCK),
        }
    }

    /// A task and the function that runs it, `async fn(Payload, Context) -> Result<Output, E>`, with every option at its
    /// default.
    ///
    /// The payload is whatever type deserializes from it; a payload that does not deserialize fails for good. The error
    /// may be any type that implements `Display`, which means another try, or a [`Failure`](crate::Failure), which says
    /// what to do.
    pub fn task<T, F, P, Fut, O, E>(self, task: T, handler: F) -> Self
    where
        T: Accepts<P> + Returns<O>,
        F: Fn(P, Context) -> Fut + Send + Sync + 'static,
        P: DeserializeOwned + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + 'static,
        E: IntoFailure + 'static,
    {
        self.task_with(task, TaskConfig::new(), handler)
    }

    /// A task with options, and the function that runs it.
    pub fn task_with<T, F, P, Fut, O, E>(self, task: T, config: TaskConfig, handler: F) -> Self
    where
        T: Accepts<P> + Returns<O>,
        F: Fn(P, Context) -> Fut + Send + Sync + 'static,
        P: DeserializeOwned + 'static,
        Fut: Future<Output = Result<O, E>> + Send + 'static,
        O: Serialize + 'static,
        E: IntoFailure + 'static,
    {
        self.handler(task.task_name(), config, Typed::new(handler))
    }

    /// A task whose function blocks its thread. It runs on the runtime's blocking threads and cannot be dropped: it should
    /// look at [`Context::is_cancelled`] now and then.
    pub fn blocking_task<T, F, P, O, E>(self, task: T, config: TaskConfig, handler: F) -> Self
    where
        T: Accepts<P> + Returns<O>,
        F: Fn(P, Context) -> Result<O, E> + Send + Sync + 'static,
        P: DeserializeOwned + Send + 'static,
        O: Serialize + 'static,
        E: IntoFailure + 'static,
    {
        self.handler(task.task_name(), config, Blocking::new(handler))
    }

    /// A task that is any program: the payload on its stdin, its stdout the output. See [`program`](crate::program). A
    /// program that does not exist is a mistake; for `sh -c LINE` only the shell is looked for.
    pub fn program<S: Into<String>>(
        mut self,
        name: &str,
        config: TaskConfig,
        command: impl IntoIterator<Item = S>,
    ) -> Self {
        let command = command.into_iter().map(Into::into).collect();
        match Program::new(Arc::clone(&self.logs), command, self.guard.as_deref()) {
            Ok(program) => {
                self.programs += 1;
                self.handler(name, config, program)
            }
            Err(error) => {
                self.mistakes.push(error.at(format_args!("tasks[{name}]")));
                self
            }
        }
    }

    /// A task with a handler of any kind.
    pub fn handler(mut self, name: &str, config: TaskConfig, handler: impl Handler) -> Self {
        match config.options(name) {
            Ok(options) if self.handlers.contains_key(&options.task) => {
                self.mistakes.push(Error::invalid("task", name, "is given twice"));
            }
            Ok(options) => {
                self.handlers.insert(options.task.clone(), Arc::new(handler));
                self.tasks.push(options);
            }
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// All settings at once. Defaults to [`WorkerOptions::default`].
    pub fn options(mut self, options: WorkerOptions) -> Self {
        self.options = options;
        self
    }

    /// What the worker is called. Defaults to the host's name and the process id.
    pub fn name(mut self, name: &str) -> Self {
        match Name::parse("name", name) {
            Ok(name) => self.options.name = Some(name),
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// The service whose code and configuration it pushes. What other apps pushed stays. Defaults to `default`.
    pub fn app(mut self, app: &str) -> Self {
        match Name::parse("app", app) {
            Ok(app) => self.options.app = Some(app),
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// A queue that it serves. May be called several times. Defaults to all queues.
    pub fn queue(mut self, queue: &str) -> Self {
        match Name::parse("queue", queue) {
            Ok(queue) => self.options.queues.push(queue),
            Err(error) => self.mistakes.push(error),
        }
        self
    }

    /// Jobs that it runs at once. Defaults to 100; to the number of CPUs if every task is a program.
    pub fn max_concurrent_tasks(mut self, permits: u32) -> Self {
        self.options.max_concurrent_tasks = Some(permits);
        self
    }

    /// How long its session lives after each exchange. Defaults to 30 s.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long a handler may take to stop after it was told to. Defaults to 10 s.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.options.cancel_grace = grace;
        self
    }

    /// The executable that guards program tasks: `qo`, or one of your own that calls
    /// [`guard::main`](crate::guard::main) when its first argument is `guard`. Must be set before
    /// [`program`](Self::program). Defaults to the current executable if it is `qo`, else `qo` on the `PATH`.
    pub fn guard(mut self, executable: impl Into<PathBuf>) -> Self {
        self.guard = Some(executable.into());
        self
    }

    /// Whether the exchange loop and the lease watch have threads of their own, so that a handler that blocks the event
    /// loop stops neither. Without threads of their own they are tasks of the runtime that [`Worker::run`] is called
    /// on, as a simulation with its own clock needs. Defaults to `true`.
    pub fn own_threads(mut self, own_threads: bool) -> Self {
        self.own_threads = own_threads;
        self
    }

    /// Seeds the worker's ids and jitter, for simulations. Defaults to a random seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// What to do when a handler that blocks a thread still runs although its lease is lost: another worker may run the
    /// same job soon. The lease watch calls it on its own thread. Defaults to ending the process with exit code 70; a
    /// process that does not end within 100 ms, because other code holds its exit up, is killed (SIGKILL).
    pub fn on_stuck(mut self, act: impl Fn(FenceToken) + Send + Sync + 'static) -> Self {
        self.on_stuck = OnStuck::Call(Arc::new(act));
        self
    }

    /// The worker, or every mistake.
    pub fn build(self) -> Result<Worker> {
        let Self {
            store,
            options,
            tasks,
            handlers,
            programs,
            mut mistakes,
            logs,
            own_threads,
            seed,
            on_stuck,
            ..
        } = self;
        mistakes.extend(options.check().err());
        if mistakes.is_empty() && (tasks.is_empty() || tasks.len() > caps::SERVED) {
            let rule = format_args!("a worker needs 1 to {} tasks", caps::SERVED);
            mistakes.push(Error::invalid("tasks", tasks.len(), rule));
        }
        Error::all(mistakes)?;
        let app = options.app();
        let tasks = tasks.into_iter().map(|task| TaskOptions { app: app.clone(), ..task }).collect();
        let phase = watch::Sender::default();
        let attempts = Arc::new(Attempts::new(phase.subscribe()));
        let grace = options.cancel_grace;
        let permits = options.permits(programs == handlers.len());
        let shared = Shared {
            store,
            name: options.name.clone().unwrap_or_else(default_name),
            tasks,
            permits,
            handlers,
            watch: Watch::new(Arc::clone(&attempts), grace, on_stuck),
            attempts,
            logs,
            metrics: Arc::new(Metrics::new(permits)),
            phase,
            options,
            own_threads,
        };
        let jitter = seed.map_or_else(Jitter::new, Jitter::seeded);
        Ok(Worker { shared: Arc::new(shared), jitter })
    }
}
