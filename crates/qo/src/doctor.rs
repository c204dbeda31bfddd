//! The doctor, by URL: is the store whole, and if not, how does it get going again?

use crate::connect::{Directory, Place};
use qo_core::{Error, ErrorKind, Result};
use qo_object::SlotObjects;
use qo_object::doctor as directory;
pub use qo_object::doctor::Repair as DirectoryRepair;
pub use qo_object::doctor::{Damage, Health as DirectoryHealth, MayWrite, Namespace};
pub use qo_object::slots::{ExpiredSlot, ExpiredSlots, SlotObject};
pub use qo_object::{Hold, Identity};
#[cfg(feature = "postgres")]
use qo_postgres::doctor as postgres;
#[cfg(feature = "postgres")]
pub use qo_postgres::doctor::{Drift, Health as PostgresHealth};

/// What was found, by kind of store.
#[derive(Debug)]
pub enum Health {
    /// Of a directory or a bucket.
    Directory(DirectoryHealth),
    /// Of a PostgreSQL schema.
    #[cfg(feature = "postgres")]
    Postgres(PostgresHealth),
}

/// What a repair did, by kind of store.
#[derive(Debug)]
pub enum Repair {
    /// To a directory or a bucket.
    Directory(DirectoryRepair),
    /// To a PostgreSQL schema: groups that were counted anew.
    #[cfg(feature = "postgres")]
    Postgres(Vec<Drift>),
}

/// Looks at everything that is stored and changes nothing. None for a store that keeps nothing, or is behind a server.
pub async fn examine(url: &str) -> Result<Option<Health>> {
    Ok(match Place::parse(url)? {
        Place::Directory(Directory { path, .. }) => Some(Health::Directory(directory::examine(path).await?)),
        Place::Bucket(bucket) => Some(Health::Directory(directory::examine_bucket(&bucket).await?)),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Some(Health::Postgres(postgres::examine(&url).await?)),
        #[cfg(feature = "http")]
        Place::Served(_) => None,
        Place::Memory => None,
    })
}

/// Whether the credentials may write to a bucket, and delete what they wrote. `Invalid` if they may not write. None for any other
/// store.
pub async fn may_write(url: &str) -> Result<Option<MayWrite>> {
    match Place::parse(url)? {
        Place::Bucket(bucket) => directory::may_write_to_bucket(&bucket).await.map(Some),
        _ => Ok(None),
    }
}

/// Gets a damaged store going again and reports what that cost. `Conflict` if there is nothing to repair. Stop all
/// workers of a directory or a bucket first; those of a PostgreSQL schema only wait.
pub async fn repair(url: &str) -> Result<Repair> {
    match Place::parse(url)? {
        Place::Directory(Directory { path, .. }) => Ok(Repair::Directory(directory::repair(path).await?)),
        Place::Bucket(bucket) => Ok(Repair::Directory(directory::repair_bucket(&bucket).await?)),
        #[cfg(feature = "postgres")]
        Place::Postgres(url) => Ok(Repair::Postgres(postgres::repair(&url).await?)),
        #[cfg(feature = "http")]
        Place::Served(servers) => Err(crate::migrate::behind(&servers)),
        Place::Memory => Err(Error::new(ErrorKind::Conflict, "there is nothing to repair in memory:")),
    }
}

/// Which namespace is at a URL, and whether a repair holds it. It reads no state and makes nothing. None if there is no
/// namespace, or if the store is neither a directory nor a bucket.
pub async fn namespace(url: &str) -> Result<Option<Namespace>> {
    match Place::parse(url)? {
        Place::Directory(Directory { path, .. }) => directory::namespace(path).await,
        Place::Bucket(bucket) => directory::namespace_of_bucket(&bucket).await,
        _ => Ok(None),
    }
}

/// Ends the hold that a repair puts on a namespace after it lost records, and restores the operator's limit of
/// `cluster`. Returns what had been lost; none if the namespace is not on hold.
pub async fn release(url: &str) -> Result<Option<Hold>> {
    match Place::parse(url)? {
        Place::Directory(Directory { path, .. }) => directory::release(path).await,
        Place::Bucket(bucket) => directory::release_bucket(&bucket).await,
        _ => Ok(None),
    }
}

/// Slots that are objects in a bucket and whose lease is over. It changes nothing. None for a store that has no such
/// slots.
pub async fn expired_slots(url: &str) -> Result<Option<ExpiredSlots>> {
    match Place::parse(url)? {
        Place::Bucket(bucket) => Ok(Some(SlotObjects::in_bucket(&bucket)?.expired().await?)),
        _ => Ok(None),
    }
}

/// The server that a store is on, for people: `HOST:PORT`. None for a store without one.
pub fn server(url: &str) -> Option<String> {
    match Place::parse(url) {
        #[cfg(feature = "postgres")]
        Ok(Place::Postgres(url)) => Some(postgres::server(&url)),
        Ok(_) | Err(_) => None,
    }
}
