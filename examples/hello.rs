//! A task, a worker, a job, its result. Run it with `cargo run --example hello`.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Client, Context, Failure, TaskConfig, Worker};

async fn send_invoice(customer: String, context: Context) -> Result<String, Failure> {
    Ok(format!("sent to {customer}, attempt {}", context.attempt()))
}

#[tokio::main]
async fn main() -> qo::Result<()> {
    let store = qo::connect("file:.qo").await?;
    let at_most_ten = TaskConfig::new().max_concurrent(10); // in the whole fleet, not in this process
    let worker =
        Worker::builder(store.clone()).task_with("send_invoice", at_most_ten, send_invoice).build()?;
    let stop = worker.shutdown_handle();
    let working = tokio::spawn(worker.run());

    let client = Client::new(store);
    let job = client.submit("send_invoice", "ACME").key("customer-7").await?;
    let said: String = client.wait_for(job).await?;
    println!("{said}");

    stop.drain();
    working.await.expect("the worker ended")
}
