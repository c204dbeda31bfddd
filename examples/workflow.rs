//! Steps that run one after another, across the fleet, retries included.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Client, Context, Failure, Worker};

async fn step(name: String, context: Context) -> Result<String, Failure> {
    if name == "charge" && context.attempt() == 1 {
        // The steps behind it wait until this one has succeeded.
        return Err(Failure::retry_after("the bank is busy", std::time::Duration::from_millis(50)));
    }
    println!("{name}, attempt {}", context.attempt());
    Ok(name)
}

#[tokio::main]
async fn main() -> qo::Result<()> {
    let store = qo::connect("file:.qo").await?;
    let worker = Worker::builder(store.clone()).task("step", step).build()?;
    let stop = worker.shutdown_handle();
    let working = tokio::spawn(worker.run());

    let client = Client::new(store);
    let mut last = None;
    for name in ["reserve", "charge", "ship"] {
        last = Some(client.submit("step", name).workflow("order-4711").await?);
    }
    if let Some(last) = last {
        client.wait(last).await?;
    }
    stop.drain();
    working.await.expect("the worker ended")
}
