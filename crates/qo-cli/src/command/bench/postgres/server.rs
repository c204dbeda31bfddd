//! The server that is measured, and schemas that are dropped again.

use super::super::figure::median;
use qo::settings::without_password;
use qo::{Error, ErrorKind, Result};
use serde::Serialize;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, NoTls};

/// Small commits that are timed.
const COMMITS: usize = 50;

/// A server, and the schemas that were made on it.
pub struct Server {
    config: Config,
    /// The URL without its schema.
    url: String,
    made: Arc<Mutex<Vec<String>>>,
    number: Arc<AtomicU32>,
}

/// What a server says of itself, and how fast its disk is.
#[derive(Debug, Clone, Serialize)]
pub struct Facts {
    /// Its version.
    pub version: String,
    /// Its setting `fsync`: whether it waits for the disk.
    pub fsync: String,
    /// Its setting `synchronous_commit`: whether a commit waits for the disk.
    pub synchronous_commit: String,
    /// Its setting `shared_buffers`.
    pub shared_buffers: String,
    /// How long a small commit takes; the median of some.
    pub commit_ms: f64,
}

impl Server {
    /// Checks that the server can be reached.
    pub async fn find(url: &str) -> Result<Self> {
        let (place, query) = url.split_once('?').unwrap_or((url, ""));
        // The benchmark chooses the schemas. `notify` is for stores: a connection does not know it.
        let kept: Vec<&str> =
            query.split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("schema=")).collect();
        let of_server: Vec<&str> = kept.iter().copied().filter(|pair| !pair.starts_with("notify=")).collect();
        let config: Config = format!("{place}?{}", of_server.join("&")).parse().map_err(|_| {
            let rule = "must be a PostgreSQL connection string, as in postgres://user@host/database";
            Error::invalid("store", without_password(url), rule)
        })?;
        let url = format!("{place}?{}", kept.join("&"));
        let server = Self { config, url, made: Arc::default(), number: Arc::default() };
        server.connect().await?;
        Ok(server)
    }

    /// The same server, with `track_functions` for the connections of its stores.
    pub fn timing(&self) -> Self {
        let url = format!("{}&options=-c%20track_functions%3Dpl", self.url);
        Self {
            config: self.config.clone(),
            url,
            made: Arc::clone(&self.made),
            number: Arc::clone(&self.number),
        }
    }

    /// A connection of its own.
    pub async fn connect(&self) -> Result<Client> {
        let (client, connection) = self.config.connect(NoTls).await.map_err(|error| failed(&error))?;
        // The connection ends with the client, which gets its errors.
        tokio::spawn(connection);
        Ok(client)
    }

    /// The name of a fresh schema, without qo in it.
    pub fn name(&self) -> String {
        let name = format!("qo_bench_{}_{}", std::process::id(), self.number.fetch_add(1, Ordering::Relaxed));
        self.made.lock().unwrap_or_else(PoisonError::into_inner).push(name.clone());
        name
    }

    /// A fresh namespace.
    pub async fn fresh(&self) -> Result<Schema> {
        let name = self.name();
        let url = format!("{}&schema={name}", self.url);
        qo::migrate::up(&url).await?;
        Ok(Schema { name, url })
    }

    /// Drops a schema.
    pub async fn drop(&self, schema: &str) -> Result<()> {
        self.drop_with(&self.connect().await?, schema).await
    }

    async fn drop_with(&self, client: &Client, schema: &str) -> Result<()> {
        run(client, &format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await?;
        self.made.lock().unwrap_or_else(PoisonError::into_inner).retain(|made| made != schema);
        Ok(())
    }

    /// Drops all that were made and are still there.
    pub async fn clear(&self) -> Result<()> {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if made.is_empty() {
            return Ok(());
        }
        let client = self.connect().await?;
        for schema in made {
            self.drop_with(&client, &schema).await?;
        }
        Ok(())
    }

    /// Makes the server vacuum and checkpoint now, so that it does not while a leg is timed.
    pub async fn settle(&self, schema: &str) -> Result<()> {
        let client = self.connect().await?;
        let tables =
            "SELECT relname::text FROM pg_class WHERE relnamespace = $1::text::regnamespace AND relkind = 'r'
                      AND pg_relation_size(oid) > 0";
        for table in client.query(tables, &[&schema]).await.map_err(|error| failed(&error))? {
            let table: &str = table.get(0);
            run(&client, &format!("VACUUM (ANALYZE) {schema}.{table}")).await?;
        }
        match client.batch_execute("CHECKPOINT").await {
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => Ok(()),
            done => done.map_err(|error| failed(&error)),
        }
    }

    /// What it says of itself.
    pub async fn facts(&self) -> Result<Facts> {
        let client = self.connect().await?;
        let settings = "SELECT current_setting('server_version'), current_setting('fsync'),
                        current_setting('synchronous_commit'), current_setting('shared_buffers')";
        let row = client.query_one(settings, &[]).await.map_err(|error| failed(&error))?;
        let (version, fsync, synchronous_commit, shared_buffers) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let commit_ms = self.commit_ms(&client).await?;
        Ok(Facts { version, fsync, synchronous_commit, shared_buffers, commit_ms })
    }

    async fn commit_ms(&self, client: &Client) -> Result<f64> {
        let schema = self.name();
        run(client, &format!("CREATE SCHEMA {schema}; CREATE TABLE {schema}.kept (n integer)")).await?;
        let mut times = Vec::new();
        for _ in 0..COMMITS {
            let began = Instant::now();
            run(client, &format!("INSERT INTO {schema}.kept VALUES (1)")).await?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        self.drop_with(client, &schema).await?;
        Ok(median(&times))
    }
}

/// A namespace of a round.
#[derive(Debug, Clone)]
pub struct Schema {
    /// What the schema is called.
    pub name: String,
    /// The URL of the store in it.
    pub url: String,
}

/// Runs statements.
pub async fn run(client: &Client, sql: &str) -> Result<()> {
    client.batch_execute(sql).await.map_err(|error| failed(&error))
}

/// An error of the server, as text.
pub fn failed(error: &tokio_postgres::Error) -> Error {
    let why = error.as_db_error().map_or_else(
        || std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string),
        |db| format!("{} ({})", db.message(), db.code().code()),
    );
    Error::new(ErrorKind::Unavailable, format!("PostgreSQL: {why}"))
}
