//! A store, and the calls that clients make.

use crate::fault;
use crate::fault::Place as Panics;
use crate::pending::Pending;
use crate::runtime::Origin;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use qo::core::{
    Claim, Clock, Configuration, FenceToken, GroupRef, JobFilter, JobId, MemoryStore, Name, NewJob,
};
use qo::core::{NewSession, SessionId};
use qo::{
    Acquire, Client, ConcurrencyManager, Error, ErrorKind, HeldSlot, JobState, Page, Result, SlotGuard,
    Store, Time,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// Opens the namespace at a URL when it is first used.
#[pyfunction]
pub fn connect(url: String) -> Connection {
    Connection::new(Place::Url(url))
}

/// A namespace in memory whose clock stands still until it is moved.
#[pyfunction]
pub fn memory(now_ms: i64) -> Connection {
    let clock = Arc::new(HandClock(AtomicI64::new(now_ms)));
    Connection::new(Place::Memory { store: Arc::new(MemoryStore::with_clock(clock.clone())), clock })
}

/// A clock that a test moves.
#[derive(Debug)]
struct HandClock(AtomicI64);

impl Clock for HandClock {
    fn now(&self) -> Time {
        Time::from_millis(self.0.load(Ordering::SeqCst))
    }
}

/// Where the namespace is.
enum Place {
    Url(String),
    Memory { store: Arc<MemoryStore>, clock: Arc<HandClock> },
}

struct Lazy {
    place: Place,
    open: tokio::sync::Mutex<Option<Client>>,
    /// The process that opened it.
    made: Mutex<Option<Origin>>,
    /// Slots that this process holds, by number.
    slots: Mutex<Slots>,
}

/// Slots that programs hold, by the numbers that they chose.
#[derive(Default)]
struct Slots {
    held: HashMap<u64, SlotGuard>,
    /// Requests that were given up: if slots are granted all the same, they are given back.
    given_up: HashSet<u64>,
}

/// A namespace. Making it opens nothing and starts no thread.
#[pyclass(frozen, module = "qo._qo")]
#[derive(Clone)]
pub struct Connection(Arc<Lazy>);

impl Connection {
    fn new(place: Place) -> Self {
        let (open, made) = (tokio::sync::Mutex::new(None), Mutex::new(None));
        Self(Arc::new(Lazy { place, open, made, slots: Mutex::default() }))
    }

    /// Raises if it was opened by a process that this one was forked from.
    pub fn check(&self) -> PyResult<()> {
        let mut made = self.0.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.get_or_insert_with(Origin::here).check()
    }

    /// The client, opened by the first call.
    pub async fn client(&self) -> Result<Client> {
        let mut open = self.0.open.lock().await;
        match &*open {
            Some(client) => Ok(client.clone()),
            None => {
                let client = match &self.0.place {
                    Place::Url(url) => Client::connect(url).await?,
                    Place::Memory { store, .. } => Client::new(Arc::clone(store) as Arc<dyn Store>),
                };
                Ok(open.insert(client).clone())
            }
        }
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.0.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks slots that are held.
    fn slot<T>(&self, number: u64, ask: impl FnOnce(&SlotGuard) -> T) -> Result<T> {
        let gone = || Error::new(ErrorKind::Fenced, "the slots were given back");
        self.slots().held.get(&number).map(ask).ok_or_else(gone)
    }
}

#[pymethods]
impl Connection {
    /// Makes a call: its name and its arguments as JSON. The answer is JSON, too.
    fn call(&self, name: String, arguments: String) -> PyResult<Pending> {
        self.check()?;
        fault::here(Panics::Argument);
        let this = self.clone();
        Pending::spawn(async move {
            fault::here(Panics::Call);
            this.answer(&name, &arguments).await
        })
    }

    /// Makes the namespace, or raises it to the version of this release.
    fn migrate(&self) -> PyResult<Pending> {
        self.check()?;
        let Place::Url(url) = &self.0.place else {
            return Pending::spawn(async { Ok("null".into()) });
        };
        let url = url.clone();
        Pending::spawn(async move { write(&qo::migrate::up(&url).await?) })
    }

    /// Moves the clock of a namespace in memory.
    fn advance(&self, ms: u64) -> PyResult<()> {
        match &self.0.place {
            Place::Memory { clock, .. } => {
                // It stops at the end of time.
                let move_on = |now: i64| Some(now.saturating_add_unsigned(ms));
                let _ = clock.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, move_on);
                Ok(())
            }
            Place::Url(_) => {
                Err(PyRuntimeError::new_err("only a namespace of qo.testing has a clock that moves"))
            }
        }
    }

    /// Forgets the client. Calls that are under way end by themselves. Slots that it holds are given back.
    fn close(&self) -> PyResult<Pending> {
        self.check()?;
        let this = self.clone();
        Pending::spawn(async move {
            this.slots().held.clear();
            let client = this.0.open.lock().await.take();
            if let Some(client) = client {
                client.store().finish().await;
            }
            Ok("null".into())
        })
    }

    fn __repr__(&self) -> String {
        match &self.0.place {
            Place::Url(url) => format!("<Connection to {}>", qo::settings::without_password(url)),
            Place::Memory { .. } => "<Connection to memory:>".into(),
        }
    }
}

/// Slots that a program asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    /// The number that the caller gives it, and gives it back by.
    number: u64,
    group: String,
    #[serde(default = "one")]
    slots: u32,
    limit: Option<u32>,
    holder: Option<String>,
    lease_ms: Option<u64>,
    /// Whether to wait until they are free.
    wait: bool,
}

fn one() -> u32 {
    1
}

/// Slots that a program holds.
#[derive(Debug, Serialize)]
struct Held {
    token: FenceToken,
}

/// A worker that might run.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Served {
    tasks: Vec<Name>,
    #[serde(default)]
    queues: Vec<Name>,
}

fn read<T: DeserializeOwned>(arguments: &str) -> Result<T> {
    serde_json::from_str(arguments)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("arguments: {error}")))
}

/// An answer as JSON.
pub fn write(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string(answer).map_err(|error| Error::new(ErrorKind::Internal, format!("answer: {error}")))
}

fn page<C>((after, limit): (Option<C>, usize)) -> Page<C> {
    Page { after, limit }
}

/// What `ConcurrencyManager.try_acquire` asks for.
#[derive(Deserialize)]
struct Try {
    group: String,
    limit: u32,
    task_id: Uuid,
    worker_id: String,
    lease_ms: u64,
}

impl Connection {
    async fn answer(&self, name: &str, arguments: &str) -> Result<String> {
        let client = &self.client().await?;
        match name {
            "submit" => write(&client.submit_many(read::<Vec<NewJob>>(arguments)?).await?),
            "now" => write(&client.store().now().await?),
            "wait" => write(&client.wait(read(arguments)?).await?),
            "job" => write(&client.job(read(arguments)?).await?),
            "jobs" => {
                let (filter, after, limit): (JobFilter, Option<_>, usize) = read(arguments)?;
                write(&client.jobs(&filter, page((after, limit))).await?)
            }
            "explain" => {
                let explanation = client.explain(read(arguments)?).await?;
                let told = match explanation.reasons.is_empty() {
                    true => Vec::new(),
                    false => {
                        let now = client.store().now().await?;
                        qo_cli::explained(&explanation, now, "qo worker MODULE:OBJECT")
                    }
                };
                write(&(explanation, told))
            }
            "log" => write(&client.log(FenceToken(read(arguments)?)).await?),
            "cancel" => write(&client.cancel(read::<JobId>(arguments)?).await?),
            "retry" => write(&client.retry(read::<JobId>(arguments)?).await?),
            "cancel_matching" => write(&client.cancel_matching(&read(arguments)?).await?),
            "retry_matching" => write(&client.retry_matching(&read(arguments)?).await?),
            "group" => write(&client.group(&read::<String>(arguments)?).await?),
            "groups" => write(&client.groups(page(read::<(Option<GroupRef>, usize)>(arguments)?)).await?),
            "set_limit" => {
                let (group, limit): (String, u32) = read(arguments)?;
                write(&client.set_limit(&group, limit).await?)
            }
            "unset_limit" => write(&client.unset_limit(&read::<String>(arguments)?).await?),
            "release_slot" => {
                let (group, token): (String, u64) = read(arguments)?;
                write(&client.release_slot(&group, FenceToken(token)).await?)
            }
            "acquire" => self.acquire(client, read(arguments)?).await,
            "release_slots" => self.release_slots(read(arguments)?).await,
            "lost" => {
                let lost = self.slot(read(arguments)?, SlotGuard::lost)?;
                Err(lost.await)
            }
            "try_acquire" => {
                let asked: Try = read(arguments)?;
                let acquire = Acquire {
                    group: &asked.group,
                    limit: asked.limit,
                    task_id: asked.task_id,
                    worker_id: &asked.worker_id,
                    lease_duration: Duration::from_millis(asked.lease_ms),
                };
                write(&client.concurrency().try_acquire(&acquire).await?)
            }
            "return_slot" => write(&client.concurrency().release(&read(arguments)?).await?),
            "extend_slot" => {
                let (slot, lease_ms): (HeldSlot, u64) = read(arguments)?;
                let lease = Duration::from_millis(lease_ms);
                write(&client.concurrency().extend_lease(&slot, lease).await?)
            }
            "cleanup_expired" => write(&client.concurrency().cleanup_expired().await?),
            "held" => write(&self.slot(read(arguments)?, SlotGuard::is_held).unwrap_or(false)),
            "queues" => write(&client.queues().await?),
            "pause" => write(&client.pause(&read::<String>(arguments)?).await?),
            "resume" => write(&client.resume(&read::<String>(arguments)?).await?),
            "workers" => write(&client.workers().await?),
            "configure" => write(&client.store().configure(read::<Configuration>(arguments)?).await?),
            "is_idle" => write(&is_idle(client, read(arguments)?).await?),
            name => scheduled(client, name, arguments).await,
        }
    }

    async fn acquire(&self, client: &Client, asked: Asked) -> Result<String> {
        let mut acquire = client.acquire(&asked.group).slots(asked.slots);
        if let Some(limit) = asked.limit {
            acquire = acquire.limit(limit);
        }
        if let Some(holder) = &asked.holder {
            acquire = acquire.holder(holder);
        }
        if let Some(lease_ms) = asked.lease_ms {
            acquire = acquire.lease(Duration::from_millis(lease_ms));
        }
        let guard = if asked.wait { Some(acquire.await?) } else { acquire.now().await? };
        let Some(guard) = guard else { return write(&None::<Held>) };
        let held = Held { token: guard.token() };
        {
            let mut slots = self.slots();
            if slots.given_up.remove(&asked.number) {
                // Dropping the guard gives them back.
                return Err(Error::new(ErrorKind::Fenced, "the slots were given back"));
            }
            slots.held.insert(asked.number, guard);
        }
        write(&Some(held))
    }

    async fn release_slots(&self, number: u64) -> Result<String> {
        let slot = {
            let mut slots = self.slots();
            let slot = slots.held.remove(&number);
            if slot.is_none() {
                slots.given_up.insert(number);
            }
            slot
        };
        if let Some(slot) = slot {
            slot.release().await?;
        }
        Ok("null".into())
    }
}

async fn scheduled(client: &Client, name: &str, arguments: &str) -> Result<String> {
    match name {
        "schedules" => write(&client.schedules().await?),
        "trigger_schedule" => write(&client.trigger_schedule(&read::<String>(arguments)?).await?),
        "enable_schedule" => write(&client.enable_schedule(&read::<String>(arguments)?).await?),
        "disable_schedule" => write(&client.disable_schedule(&read::<String>(arguments)?).await?),
        "workflow" => write(&client.workflow(&read::<String>(arguments)?).await?),
        "workflows" => write(&client.workflows(page(read::<(Option<Name>, usize)>(arguments)?)).await?),
        "retry_step" => {
            let (workflow, step): (String, u32) = read(arguments)?;
            write(&client.retry_step(&workflow, step).await?)
        }
        "skip_step" => {
            let (workflow, step): (String, u32) = read(arguments)?;
            write(&client.skip_step(&workflow, step).await?)
        }
        "cancel_workflow" => write(&client.cancel_workflow(&read::<String>(arguments)?).await?),
        name => Err(Error::invalid("call", name, "there is no such call")),
    }
}

/// Whether nothing runs, and a worker of these tasks would get nothing now. For tests: it looks with a session of its
/// own.
async fn is_idle(client: &Client, served: Served) -> Result<bool> {
    let store = client.store();
    store.sweep().await?;
    let running = JobFilter { states: vec![JobState::Running, JobState::Claimed], ..JobFilter::default() };
    if !client.jobs(&running, Page::default().limit(1)).await?.jobs.is_empty() {
        return Ok(false);
    }
    let id = SessionId(Uuid::new_v4());
    let worker = Name::parse("name", "is_idle")?;
    let session = NewSession {
        id,
        worker,
        queues: served.queues,
        tasks: served.tasks,
        lease_ms: 60_000,
        permits: 1,
        owner: None,
    };
    store.open_session(session).await?;
    let work = store.work(id, Claim { max: 1, max_claim_batch: None, prefetch: None }).await;
    store.close_session(id).await?;
    Ok(!work?.now)
}

/// The store that a connection leads to, for a worker.
pub async fn store_of(connection: &Connection) -> Result<Arc<dyn Store>> {
    Ok(Arc::clone(connection.client().await?.store()))
}
