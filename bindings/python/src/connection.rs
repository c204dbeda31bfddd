//! A store, and the calls that clients make.

use crate::pending::Pending;
use crate::runtime::Origin;
use pyo3::prelude::*;
use qo::core::{Configuration, FenceToken, JobFilter, JobId, NewJob};
use qo::{Client, Error, ErrorKind, Page, Result, Store};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::{Arc, Mutex, PoisonError};

/// Opens the namespace at a URL when it is first used.
#[pyfunction]
pub fn connect(url: String) -> Connection {
    Connection(Arc::new(Lazy { url, open: tokio::sync::Mutex::new(None), made: Mutex::new(None) }))
}

struct Lazy {
    url: String,
    open: tokio::sync::Mutex<Option<Client>>,
    /// The process that opened it.
    made: Mutex<Option<Origin>>,
}

/// A namespace. Making it opens nothing and starts no thread.
#[pyclass(frozen, module = "qo._qo")]
#[derive(Clone)]
pub struct Connection(Arc<Lazy>);

impl Connection {
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
            None => Ok(open.insert(Client::connect(&self.0.url).await?).clone()),
        }
    }
}

#[pymethods]
impl Connection {
    /// Makes a call: its name and its arguments as JSON. The answer is JSON, too.
    fn call(&self, name: String, arguments: String) -> PyResult<Pending> {
        self.check()?;
        let this = self.clone();
        Pending::spawn(async move { answer(&this.client().await?, &name, &arguments).await })
    }

    /// Makes the namespace, or raises it to the version of this release.
    fn migrate(&self) -> PyResult<Pending> {
        self.check()?;
        let url = self.0.url.clone();
        Pending::spawn(async move { write(&qo::migrate::up(&url).await?) })
    }

    /// Forgets the client. Calls that are under way end by themselves.
    fn close(&self) -> PyResult<Pending> {
        self.check()?;
        let this = self.clone();
        Pending::spawn(async move {
            this.0.open.lock().await.take();
            Ok("null".into())
        })
    }

    fn __repr__(&self) -> String {
        format!("<Connection to {}>", qo::settings::without_password(&self.0.url))
    }
}

fn read<T: DeserializeOwned>(arguments: &str) -> Result<T> {
    serde_json::from_str(arguments)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("arguments: {error}")))
}

fn write(answer: &impl Serialize) -> Result<String> {
    serde_json::to_string(answer)
        .map_err(|error| Error::new(ErrorKind::Internal, format!("answer: {error}")))
}

/// What `{"Ok": …}` and `{"Err": …}` of many outcomes look like.
fn outcomes<T: Serialize>(all: &[Result<T>]) -> Result<String> {
    write(&all)
}

async fn answer(client: &Client, name: &str, arguments: &str) -> Result<String> {
    match name {
        "submit" => outcomes(&client.submit_many(read::<Vec<NewJob>>(arguments)?).await?),
        "now" => write(&client.store().now().await?),
        "wait" => write(&client.wait(read(arguments)?).await?),
        "job" => write(&client.job(read(arguments)?).await?),
        "jobs" => {
            let (filter, after, limit): (JobFilter, Option<_>, usize) = read(arguments)?;
            write(&client.jobs(&filter, Page { after, limit }).await?)
        }
        "explain" => write(&client.explain(read(arguments)?).await?),
        "log" => write(&client.log(FenceToken(read(arguments)?)).await?),
        "cancel" => write(&client.cancel(read::<JobId>(arguments)?).await?),
        "retry" => write(&client.retry(read::<JobId>(arguments)?).await?),
        "cancel_matching" => write(&client.cancel_matching(&read(arguments)?).await?),
        "retry_matching" => write(&client.retry_matching(&read(arguments)?).await?),
        "group" => write(&client.group(&read::<String>(arguments)?).await?),
        "set_limit" => {
            let (group, limit): (String, u32) = read(arguments)?;
            write(&client.set_limit(&group, limit).await?)
        }
        "unset_limit" => write(&client.unset_limit(&read::<String>(arguments)?).await?),
        "release_slot" => {
            let (group, token): (String, u64) = read(arguments)?;
            write(&client.release_slot(&group, FenceToken(token)).await?)
        }
        "queues" => write(&client.queues().await?),
        "pause" => write(&client.pause(&read::<String>(arguments)?).await?),
        "resume" => write(&client.resume(&read::<String>(arguments)?).await?),
        "workers" => write(&client.workers().await?),
        "configure" => write(&client.store().configure(read::<Configuration>(arguments)?).await?),
        "schedules" => write(&client.schedules().await?),
        "trigger_schedule" => write(&client.trigger_schedule(&read::<String>(arguments)?).await?),
        "workflow" => write(&client.workflow(&read::<String>(arguments)?).await?),
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

/// The store that a connection leads to, for a worker.
pub async fn store_of(connection: &Connection) -> Result<Arc<dyn Store>> {
    Ok(Arc::clone(connection.client().await?.store()))
}

