//! The doctor, by URL: is everything there that a store needs, and if not, how does it get going again?

use crate::connect::Place;
use qo_core::{Error, ErrorKind, Result};
pub use qo_object::doctor::{Damage, Health, Repair};

/// Looks at everything that is stored and changes nothing. None for a store that keeps nothing.
pub async fn examine(url: &str) -> Result<Option<Health>> {
    match Place::parse(url)? {
        Place::Directory(directory) => Ok(Some(qo_object::doctor::examine(directory).await?)),
        Place::Memory => Ok(None),
    }
}

/// Gets a damaged store going again and says what that cost. `Conflict` if there is nothing to repair. Stop all workers
/// first.
pub async fn repair(url: &str) -> Result<Repair> {
    match Place::parse(url)? {
        Place::Directory(directory) => qo_object::doctor::repair(directory).await,
        Place::Memory => Err(Error::new(ErrorKind::Conflict, "there is nothing to repair in memory:")),
    }
}

/// The format of a store and the one that this release works with. A store that nobody has written to has none.
pub async fn format_levels(url: &str) -> Result<(Option<u64>, u64)> {
    match Place::parse(url)? {
        Place::Directory(directory) => qo_object::doctor::format_levels(directory).await,
        Place::Memory => Ok((Some(1), 1)),
    }
}
