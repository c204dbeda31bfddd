//! Examines a namespace: its server, its schema, and whether the counts of slots equal what jobs and programs hold.

use crate::call::refused;
use crate::migrate::{self, connect};
use crate::store::read;
use crate::{Options, PostgresStore, Url};
use qo_core::{Error, ErrorKind, Result};
use serde::Deserialize;
use tokio_postgres::config::Host;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

/// The port of a server whose URL names none.
const DEFAULT_PORT: u16 = 5432;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// The version of the server, in its own words.
    pub server: String,
    /// The schema.
    pub schema: String,
    /// The version of the schema.
    pub version: i32,
    /// Groups whose count of slots differs from what their holders have. Empty if all is well.
    pub drift: Vec<Drift>,
    /// Configurations and schedules that this release cannot read or fire, each with the reason.
    pub unreadable: Vec<String>,
}

/// A group whose count of slots differs from what its holders have.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Drift {
    /// The group.
    pub group: String,
    /// Slots that jobs and programs hold.
    pub held: i64,
    /// Slots that are counted as taken.
    pub counted: i64,
}

/// Looks at the server and the schema, counts every slot that is held, and changes nothing. `NotFound` if there is no
/// schema.
pub async fn examine(url: &Url) -> Result<Health> {
    let client = connect(url).await?;
    let rows = client.query_typed("SELECT current_setting('server_version')", &[]).await;
    let server = first(&rows.map_err(refused)?)?;
    drop(client);
    let version = version(url).await?;
    let store = PostgresStore::open(url, Options::default()).await?;
    let drift = read(&store.drift().await?)?;
    let unreadable = store.unreadable_settings().await?;
    Ok(Health { server, schema: url.schema().into(), version, drift, unreadable })
}

async fn version(url: &Url) -> Result<i32> {
    let found = migrate::status(url).await?.map(|(version, _)| version);
    found.ok_or_else(|| {
        let message = format!("there is no qo in schema {}: `qo migrate up` makes it", url.schema());
        Error::new(ErrorKind::NotFound, message)
    })
}

/// Counts the groups again whose count is wrong, under the namespace lock, and returns which they were. `Conflict` if
/// there were none. The role must own the schema.
pub async fn repair(url: &Url) -> Result<Vec<Drift>> {
    version(url).await?;
    let client = connect(url).await?;
    let begin = format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; SET LOCAL search_path = {}, pg_temp; SELECT lock_namespace()",
        url.schema()
    );
    client.batch_execute(&begin).await.map_err(refused)?;
    let drift = drift_of(&client).await?;
    if drift.is_empty() {
        return Err(Error::new(ErrorKind::Conflict, "there is nothing to repair: every count is right"));
    }
    for Drift { group, .. } in &drift {
        let counted = client.query_typed("SELECT recount($1)", &[(group, Type::TEXT)]).await;
        counted.map_err(refused)?;
    }
    client.batch_execute("COMMIT").await.map_err(refused)?;
    Ok(drift)
}

async fn drift_of(client: &Client) -> Result<Vec<Drift>> {
    let rows = client.query_typed("SELECT api_drift()::text", &[]).await;
    read(&first(&rows.map_err(refused)?)?)
}

fn first(rows: &[Row]) -> Result<String> {
    let text = rows.first().and_then(|row| row.try_get(0).ok());
    text.ok_or_else(|| Error::new(ErrorKind::Internal, "no answer"))
}

/// The server of a namespace, for people: `HOST:PORT`, or the directory of a socket. Several are separated by commas.
pub fn server(url: &Url) -> String {
    let (hosts, ports) = (url.config.get_hosts(), url.config.get_ports());
    let port = |at: usize| ports.get(at).or_else(|| ports.first()).copied().unwrap_or(DEFAULT_PORT);
    let server = |(at, host): (usize, &Host)| match host {
        Host::Tcp(host) => format!("{host}:{}", port(at)),
        Host::Unix(directory) => format!("{} port {}", directory.display(), port(at)),
    };
    hosts.iter().enumerate().map(server).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_without_user_and_password() {
        let server = |url| server(&Url::parse(url).expect("a url"));
        assert_eq!(server("postgres://ann:secret@db/shop"), "db:5432");
        assert_eq!(server("postgres://ann:secret@one:1,two:2/shop"), "one:1, two:2");
        assert_eq!(server("postgres:///shop?host=/run/postgresql"), "/run/postgresql port 5432");
    }
}
