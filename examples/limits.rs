//! Three limits at once: of a task, of each customer, of everything. Each job notes how many ran beside it.
#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use qo::{Client, Context, Failure, TaskConfig, Worker};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

async fn call_api((): (), _: Context) -> Result<(), Failure> {
    MOST.fetch_max(NOW.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(20)).await;
    NOW.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::main]
async fn main() -> qo::Result<()> {
    let store = qo::connect("file:.qo").await?;
    store.set_limit("call_api/*".parse()?, 1).await?; // one at a time for each customer
    store.set_limit("cluster".parse()?, 20).await?; // and twenty jobs in all, whatever they are
    let config = TaskConfig::new().max_concurrent(4); // and four calls at once

    // Two workers, as if they were on two machines.
    let workers: Vec<_> = (0..2)
        .map(|_| Worker::builder(store.clone()).task_with("call_api", config.clone(), call_api).build())
        .collect::<qo::Result<_>>()?;
    let stops: Vec<_> = workers.iter().map(Worker::shutdown_handle).collect();
    let working: Vec<_> = workers.into_iter().map(|worker| tokio::spawn(worker.run())).collect();

    let client = Client::new(store);
    let mut jobs = Vec::new();
    for number in 0..40 {
        jobs.push(client.submit("call_api", &()).key(&format!("customer-{}", number % 7)).await?);
    }
    for job in jobs {
        client.wait(job).await?;
    }
    println!("40 calls, at most {} at once", MOST.load(Ordering::SeqCst));
    stops.iter().for_each(qo::ShutdownHandle::drain);
    for worker in working {
        worker.await.expect("a worker ended")?;
    }
    Ok(())
}
