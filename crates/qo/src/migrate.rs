//! The version of a store, by URL, and raising it to that of this release.

use crate::connect::{Directory, Place, Purpose, open};
use qo_core::Result;
#[cfg(feature = "postgres")]
use qo_core::{Error, ErrorKind};
use serde::Serialize;

/// The version of a store and the one that this release works with: the format of a directory, the version of a schema.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Level {
    /// What the store has; none if it is new.
    pub store: Option<u64>,
    /// What this release works with.
    pub release: u64,
    /// The oldest client version that the store lets in. None where only the same version may come in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oldest_client: Option<u64>,
    /// What [`up`] would do, step by step, each with its effect on workers and clients that are running. None where
    /// raising has no steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<Vec<String>>,
}

/// Looks, and changes nothing.
pub async fn status(url: &str) -> Result<Level> {
    let (store, release) = match Place::parse(url)? {
        Place::Directory(Directory { path, .. }) => qo_object::doctor::format_levels(path).await?,
        Place::Bucket(bucket) => qo_object::doctor::format_levels_of_bucket(&bucket).await?,
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => return schema(&url).await,
        #[cfg(feature = "http")]
        Place::Served(servers) => return Err(behind(&servers)),
        Place::Memory => (Some(1), 1),
    };
    Ok(Level { store, release, oldest_client: None, pending: None })
}

/// The format of a store behind a server is the business of those who run the server.
#[cfg(feature = "http")]
pub(crate) fn behind(servers: &qo_wire::Addresses) -> Error {
    Error::invalid("store", servers, "is a server: name the store that it serves, with that store's own URL")
}

/// Makes the store, or raises it to this release, and returns what it did, step by step. Doing it again does nothing;
/// several processes may do it at once.
pub async fn up(url: &str) -> Result<Vec<String>> {
    up_telling(url, |said| tracing::warn!("{said}")).await
}

/// The same, and tells why it waits: on PostgreSQL an open transaction may hold the tables.
pub async fn up_telling(url: &str, tell: impl FnMut(&str) + Send) -> Result<Vec<String>> {
    #[cfg(feature = "postgres")]
    if let Place::Postgres(url) = Place::parse(url)? {
        return qo_postgres::migrate::up_telling(&url, tell).await;
    }
    #[cfg(not(feature = "postgres"))]
    drop(tell);
    // Opening gives a new directory its format. There is only one format so far, so there is nothing to raise.
    let opened = open(url, Purpose::Work).await?;
    opened.store.finish().await;
    Ok(if opened.has_made { vec!["made a new namespace".into()] } else { Vec::new() })
}

#[cfg(feature = "postgres")]
async fn schema(url: &qo_postgres::Url) -> Result<Level> {
    use qo_postgres::migrate::{VERSION, pending, status};
    let found = status(url).await?;
    let number = |version: i32| {
        u64::try_from(version)
            .map_err(|_| Error::new(ErrorKind::Data, format!("version {version} of a schema")))
    };
    Ok(Level {
        store: found.map(|(version, _)| number(version)).transpose()?,
        release: number(VERSION)?,
        oldest_client: found.map(|(_, oldest)| number(oldest)).transpose()?,
        pending: Some(pending(found.map(|(version, _)| version))),
    })
}
