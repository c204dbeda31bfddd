//! `qo bench --store postgres://…`: what qo reaches on a server, in schemas of its own.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | the server, and schemas that go away again |
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

/// Workers that claim at once, and those of a fleet that is large for its limit.
const WORKERS: u32 = 2;
const MANY_WORKERS: u32 = 8;
/// Jobs that one of them takes with one exchange, and what is shown beside.
const BATCH: u32 = 500;
const SMALL_BATCH: u32 = 50;
const QUICK_BATCH: u32 = 20;

/// What is measured on: a server, and those who work on it.
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

    /// Workers that claim at once, where nothing else is said.
    pub fn workers(&self) -> u32 {
        self.workers.unwrap_or(WORKERS)
    }

    /// The same for a scenario that is about many.
    fn many_workers(&self) -> u32 {
        self.workers.unwrap_or(MANY_WORKERS)
    }

    /// Jobs that one of them takes with one exchange.
    pub fn batch(&self) -> u32 {
        self.batch.unwrap_or(if self.quick { QUICK_BATCH } else { BATCH })
    }

    /// The batch that is shown beside, if nobody asked for one.
    fn small_batch(&self) -> Option<u32> {
        (self.batch.is_none() && !self.quick).then_some(SMALL_BATCH)
    }
}
