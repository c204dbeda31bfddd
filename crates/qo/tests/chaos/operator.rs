//! The operator, which changes limits while the faults go on.

use crate::again;
use crate::plan::LIMITS;
use qo::Store;
use std::time::Duration;
use tokio::time::interval;

/// The changes, repeated in this order. No limit is ever above that of the plan.
const CHANGES: [(&str, u32); 6] =
    [("seven", 3), ("alone", 0), ("seven", 7), ("alone", 1), ("seven", 0), ("seven", 7)];
const EVERY: Duration = Duration::from_millis(400);

/// Changes limits for this long, and repeats each change until it is acknowledged. The limits of the plan are in force
/// when it returns.
pub async fn operate(store: &dyn Store, time: Duration) {
    let mut every = interval(EVERY);
    let times = (time.as_millis() / EVERY.as_millis()) as usize;
    for change in CHANGES.iter().cycle().take(times) {
        every.tick().await;
        set(store, *change).await;
    }
    for limit in LIMITS {
        set(store, limit).await;
    }
}

async fn set(store: &dyn Store, (group, limit): (&str, u32)) {
    again(async || store.set_limit(group.parse().expect("a group"), limit).await).await;
}
