//! A second submit while the first is not done: wait, be refused, or be dropped. And the same order twice is one job.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Client, ErrorKind, OnLimit, Submitted};

#[tokio::main]
async fn main() -> qo::Result<()> {
    let client = Client::connect("file:.qo").await?;
    client.submit("sync", &()).key("user-1").limit(1).await?;

    let refused = client.submit("sync", &()).key("user-1").limit(1).on_limit(OnLimit::Reject).await;
    assert_eq!(refused.expect_err("one is in line").kind(), ErrorKind::LimitReached);

    let skipped = client.submit("sync", &()).key("user-1").limit(1).on_limit(OnLimit::Skip).outcome().await?;
    assert_eq!(skipped, Submitted::Skipped);

    let first = client.submit("charge", &100).idempotency_key("order-4711").await?;
    let again = client.submit("charge", &100).idempotency_key("order-4711").await?;
    assert_eq!(first, again);
    println!("one sync in line, one charge");
    Ok(())
}
