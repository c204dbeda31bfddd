//! What a handler may say: done, try again, give up, later.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Client, Context, Failure, Worker};
use std::time::Duration;

async fn fetch(url: String, context: Context) -> Result<u64, Failure> {
    match (url.as_str(), context.attempt()) {
        ("busy", 1) => Err(Failure::retry_after("503", Duration::from_millis(20))),
        ("gone", _) => Err(Failure::fail("404: it will not come back")),
        ("broken", _) => panic!("a panic is caught, and is a try that failed"),
        _ => Ok(url.len() as u64),
    }
}

#[tokio::main]
async fn main() -> qo::Result<()> {
    let store = qo::connect("file:.qo").await?;
    let worker = Worker::builder(store.clone()).task("fetch", fetch).build()?;
    let stop = worker.shutdown_handle();
    let working = tokio::spawn(worker.run());

    let client = Client::new(store);
    for url in ["fine", "busy", "gone", "broken"] {
        let job = client.submit("fetch", url).max_attempts(if url == "broken" { 1 } else { 3 }).await?;
        let ended = client.wait(job).await?;
        println!("{url}: {:?} after {} attempts", ended.view.state, ended.view.attempts_used);
    }
    stop.drain();
    working.await.expect("the worker ended")
}
