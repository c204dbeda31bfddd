//! `qo bench --store s3://…`: what qo reaches in a bucket, and what it costs there.
//!
//! | module | what it holds |
//! |---|---|
//! | [`site`] | the bucket, and prefixes that are deleted again |
//! | [`bill`] | requests, for a job, a minute or a million jobs |
//! | [`load`], [`processes`], [`idle`], [`pickup`], [`open`], [`slots`] | the scenarios |

mod bill;
pub mod idle;
pub mod load;
pub mod open;
pub mod pickup;
pub mod processes;
mod site;
pub mod slots;

pub use bill::{Bill, JobBars};
pub use load::submit_at;
pub use site::{Facts, Site};

use super::noop;
use qo::WorkerOptions;
use qo::core::ClaimSettings;

/// Jobs that a worker runs at once.
pub const PERMITS: u32 = 500;
/// Jobs that it claims with one exchange, and jobs of one submit.
pub const BATCH: u32 = 200;

/// How the workers work.
pub fn options() -> WorkerOptions {
    let claim = ClaimSettings { claim_batch_size: BATCH, ..ClaimSettings::default() };
    WorkerOptions { max_concurrent_tasks: Some(PERMITS), claim, ..noop::options() }
}
