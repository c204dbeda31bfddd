//! A program that is not a job takes a slot of the same group, and shares its limit with the jobs.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;
use uuid::Uuid;

#[tokio::main]
async fn main() -> qo::Result<()> {
    let manager = qo::Client::connect("file:.qo").await?.concurrency();
    let (deploy, backup) = (Uuid::new_v4(), Uuid::new_v4());
    let minute = Duration::from_secs(60);

    let slot = manager.try_acquire("database", 1, deploy, "deploy", minute).await?.expect("it is free");
    let refused = manager.try_acquire("database", 1, backup, "backup", minute).await?;
    println!("deploy holds the slot; backup got {refused:?}");

    manager.release("database", slot.token, deploy).await?;
    let slot = manager.try_acquire("database", 1, backup, "backup", minute).await?.expect("it is free again");
    println!("backup holds it now, until {}", slot.lease_until);
    manager.release("database", slot.token, backup).await
}
