//! A program that is not a job takes a slot of the same group, and shares its limit with the jobs.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Acquire, ConcurrencyManager};
use std::time::Duration;
use uuid::Uuid;

#[tokio::main]
async fn main() -> qo::Result<()> {
    let manager = qo::Client::connect("file:.qo").await?.concurrency();
    let deploy = Acquire {
        group: "database",
        limit: 1,
        task_id: Uuid::new_v4(),
        worker_id: "deploy",
        lease_duration: Duration::from_secs(60),
    };
    let backup = Acquire { task_id: Uuid::new_v4(), worker_id: "backup", ..deploy };

    let slot = manager.try_acquire(&deploy).await?.expect("it is free");
    let refused = manager.try_acquire(&backup).await?;
    println!("deploy holds the slot; backup got {refused:?}");

    manager.release(&slot).await?;
    let slot = manager.try_acquire(&backup).await?.expect("it is free again");
    println!("backup holds it now, until {}", slot.expires_at);
    manager.release(&slot).await
}
