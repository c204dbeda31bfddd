//! A worker that goes through all of it.

use crate::fixtures::RUNTIME;
use crate::proxy::Proxy;
use crate::server::Server;
use crate::stage::{again, job, namespace, open, options, server, soon};
use futures::future::join_all;
use qo::{Client, Context, Failure, Worker};
use qo_core::{JobId, JobState, Store};
use qo_postgres::Options;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::timeout;

/// How long each fault lasts: less than the lease.
const TROUBLE: Duration = Duration::from_secs(2);

/// How often the worker connects to a server that refuses: it tries again, and backs off.
async fn tries(proxy: &Proxy, trouble: impl Future<Output = ()>) {
    let before = proxy.accepted();
    trouble.await;
    let tries = proxy.accepted() - before;
    assert!((2..=25).contains(&tries), "{tries} tries in {TROUBLE:?}");
}

#[test]
fn a_worker_survives_refusals_hangs_crashes_and_a_failover() {
    RUNTIME.block_on(async {
        let mut server = Server::new().await;
        let url = namespace(&server.url(), "worker").await;
        let standby = server.standby().await;
        let proxy = Proxy::to(&url).await;
        let store = Arc::new(open(&proxy.url(&url), Options { notify: true, ..options(3) }).await);
        let runs = Arc::new(Mutex::new(BTreeMap::<JobId, u32>::new()));
        let counted = Arc::clone(&runs);
        let run = move |(): (), context: Context| {
            *counted.lock().expect("no panic").entry(context.job()).or_default() += 1;
            async { Ok::<_, Failure>(()) }
        };
        let worker = Worker::builder(Arc::clone(&store) as Arc<dyn Store>);
        let worker = worker.lease(Duration::from_secs(6)).task("t", run).build().expect("a worker");
        let stop = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        let direct = Arc::new(open(&url, options(2)).await);
        let client = Client::new(Arc::clone(&direct) as Arc<dyn Store>);
        let submit = async |id| {
            again(|| direct.submit(vec![job(id, "t")])).await;
            job(id, "t").id
        };
        soon(client.wait(submit(1).await)).await.expect("it ends");

        proxy.refuse();
        let second = submit(2).await;
        tries(&proxy, async {
            timeout(TROUBLE, client.wait(second)).await.expect_err("it is shut out");
        })
        .await;
        proxy.open();
        soon(client.wait(second)).await.expect("it ends");

        proxy.hang();
        let third = submit(3).await;
        timeout(TROUBLE, client.wait(third)).await.expect_err("nothing is heard");
        proxy.open();
        soon(client.wait(third)).await.expect("it ends");

        server.stop(Signal::QUIT);
        tries(&proxy, async { drop(timeout(TROUBLE, client.wait(third)).await) }).await;
        server.start().await;
        soon(client.wait(submit(4).await)).await.expect("it ends");

        server.stop(Signal::QUIT);
        standby.promote().await;
        proxy.switch(&standby.url());
        // From here on all connections go the same way.
        again(|| store.submit(vec![job(5, "t")])).await;
        let client = Client::new(Arc::clone(&store) as Arc<dyn Store>);
        for id in 1..=5 {
            let detail = soon(client.wait(job(id, "t").id)).await.expect("it ends");
            assert_eq!(detail.view.state, JobState::Succeeded);
        }
        assert_eq!(*runs.lock().expect("no panic"), (1..=5).map(|id| (job(id, "t").id, 1)).collect());
        stop.drain();
        soon(working).await.expect("it ends").expect("it ends well");
        // The worker's thread has ended, and with it the connections that it had opened.
        assert_eq!(again(|| store.drift()).await, "[]");
    });
}

#[test]
fn a_handler_that_blocks_the_event_loop_costs_the_worker_no_lease() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let url = namespace(&server(), "worker_blocked").await;
        let store = Arc::new(open(&url, options(4)).await) as Arc<dyn Store>;
        for answer in join_all((0..4).map(|_| store.jobs(Default::default(), None, 10))).await {
            answer.expect("it answers");
        }
        let block = |(): (), _: Context| async {
            // No message ever comes: this blocks the thread for nine seconds.
            let (_kept, nothing) = std::sync::mpsc::channel::<()>();
            nothing.recv_timeout(Duration::from_secs(9)).expect_err("nothing comes");
            Ok::<_, Failure>(())
        };
        let worker = Worker::builder(Arc::clone(&store)).lease(Duration::from_secs(6)).task("t", block);
        let worker = worker.build().expect("a worker");
        let stop = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        store.submit(vec![job(1, "t")]).await.expect("a call");
        let detail = soon(Client::new(Arc::clone(&store)).wait(job(1, "t").id)).await.expect("it ends");
        assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Succeeded, 1), "{detail:?}");
        stop.drain();
        soon(working).await.expect("it ends").expect("it ends well");
    });
}
