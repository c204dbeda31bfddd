//! `qo bench --store postgres://…`: what qo reaches on a server, in schemas of its own.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | the server, and schemas that are dropped again |
//! | [`world`] | a namespace as a scenario wants it: limits, and jobs in line |
//! | [`race`] | claimers that exchange as fast as they can, without a worker around them |
//! | [`ratio`], [`binding`], [`bare`], [`worker`], [`pickup`], [`handover`], [`recovery`], [`bookkeeping`] | the scenarios |

pub mod bare;
pub mod binding;
pub mod bookkeeping;
pub mod handover;
pub mod pickup;
mod race;
pub mod ratio;
pub mod recovery;
mod server;
pub mod worker;
mod world;

pub use server::Facts;
pub use world::Kind;

use qo::Result;
use server::Server;

/// Workers that claim at once, usually and in a fleet that is large for its limit.
const WORKERS: u32 = 2;
const MANY_WORKERS: u32 = 8;
/// Jobs that one of them claims with one exchange, and a smaller batch for a second figure.
const BATCH: u32 = 500;
const SMALL_BATCH: u32 = 50;
const QUICK_BATCH: u32 = 20;

/// The ground of a measurement: a server, and the workers on it.
pub struct Fleet {
    /// The server.
    pub server: Server,
    workers: Option<u32>,
    batch: Option<u32>,
    quick: bool,
}

impl Fleet {
    /// Looks whether the server is there.
    pub async fn find(url: &str, workers: Option<u32>, batch: Option<u32>, quick: bool) -> Result<Self> {
        Ok(Self { server: Server::find(url).await?, workers, batch, quick })
    }

    /// Workers that claim at once, by default.
    pub fn workers(&self) -> u32 {
        self.workers.unwrap_or(WORKERS)
    }

    /// The same for a scenario with many workers.
    fn many_workers(&self) -> u32 {
        self.workers.unwrap_or(MANY_WORKERS)
    }

    /// Jobs that one of them claims with one exchange.
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(if self.quick { QUICK_BATCH } else { BATCH })
    }

    /// The smaller batch for a second figure, unless the command line sets the batch.
    fn small_batch(&self) -> Option<u32> {
        (self.batch.is_none() && !self.quick).then_some(SMALL_BATCH)
    }
}
