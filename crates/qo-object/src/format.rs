//! Format levels: a namespace has one, and a release says which it can work with.
//!
//! The level is an object `format/N` that is created once; raising it creates the next. A release refuses a namespace whose
//! level it does not know before it has written anything there.

use crate::log::{Created, Log, numbered};
use crate::record::{Encoder, LEVEL};
use qo_core::{Error, ErrorKind, Result};
use serde::Serialize;

#[derive(Serialize)]
struct Level {
    level: u64,
}

/// The level of a namespace; none if nobody has written to it.
pub(crate) async fn level(log: &Log) -> Result<Option<u64>> {
    Ok(log.numbers("format").await?.pop())
}

/// Checks that this release can work with the namespace; a new one gets this release's level.
pub(crate) async fn check(log: &Log) -> Result<()> {
    let ours = u64::from(LEVEL);
    match level(log).await? {
        Some(level) if level == ours => Ok(()),
        Some(level) => {
            let advice = if level > ours { "use a newer release of qo" } else { "run qo migrate up" };
            let what = format!(
                "store: it has format {level}, this release of qo works with format {ours}: {advice}"
            );
            Err(Error::new(ErrorKind::Data, what))
        }
        None => {
            let mut encoder = Encoder::new();
            encoder.line(&Level { level: ours })?;
            match log.create(&numbered("format", ours), encoder.finish()).await {
                Created::Refused(error) => Err(error),
                // If it cannot be written, the first record cannot be either, and that one will say so.
                Created::Done | Created::Exists | Created::Unknown(_) => Ok(()),
            }
        }
    }
}
