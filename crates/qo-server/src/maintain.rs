//! Sweeping: what is over ends, schedules fire, old jobs are forgotten, also while no worker is connected.
//!
//! Several servers and workers of one store may sweep at once: a sweep is one atomic step, and one that finds nothing
//! writes nothing.

use qo_core::{Store, caps};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// How much seldomer it sweeps where each call of the store costs something, as in a bucket.
const WHERE_CALLS_COST: u32 = 10;
/// Longest pause while the store does not answer.
const LONGEST: Duration = Duration::from_secs(30);

/// Sweeps until it is dropped.
pub(crate) async fn maintain(store: Arc<dyn Store>, every: Duration) {
    let usual = if store.renewals_cost() { every * WHERE_CALLS_COST } else { every };
    let mut pause = usual;
    loop {
        sleep(pause).await;
        pause = match store.sweep().await {
            // It forgets a bounded number at a time, so there are more.
            Ok(swept) if swept.forgotten >= caps::FORGOTTEN as u64 => Duration::ZERO,
            Ok(_) => usual,
            Err(error) => {
                tracing::warn!("the store cannot be swept: {error}");
                (pause * 2).clamp(usual, LONGEST.max(usual))
            }
        };
    }
}
