//! No connection left: in the store's own pool, or at the server.

use crate::fixtures::{RUNTIME, connect};
use crate::proxy::Proxy;
use crate::stage::{Stage, group, job, name, namespace, open, options, server, soon, until};
use qo::{Client, Context, Failure, Worker};
use qo_core::{ErrorKind, GroupRef, LeaseId, SlotRequest, Store};
use qo_postgres::Options;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

#[test]
fn a_store_whose_connections_are_busy_says_so_and_recovers() {
    RUNTIME.block_on(async {
        let patience = Duration::from_millis(300);
        let stage = Stage::new("crowded_pool", Options { patience, ..options(1) }).await;
        let holder = stage.holder().await;
        let busy = stage.store.set_limit(group("t"), 5);
        let others = async {
            let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'
                AND query LIKE '%crowded_pool.api_set_limit%')";
            let look = connect(&server()).await;
            until("the only connection is busy", async || {
                look.query_one(waits, &[]).await.expect("a look").get(0)
            })
            .await;
            let started = Instant::now();
            let error = soon(stage.store.now()).await.expect_err("there is no connection");
            let waited = started.elapsed();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(error.message().contains("1 connection"), "it says what is short: {error}");
            assert!((patience..patience * 5).contains(&waited), "{waited:?}");
            holder.batch_execute("COMMIT").await.expect("it ends");
        };
        let (set, ()) = soon(async { tokio::join!(busy, others) }).await;
        set.expect("the call that had the connection was not disturbed");
        soon(stage.store.now()).await.expect("it goes on");
    });
}

/// A role that may work in a namespace.
async fn role(schema: &str) -> tokio_postgres::Client {
    let client = connect(&server()).await;
    let make = format!(
        "DROP ROLE IF EXISTS {schema}; CREATE ROLE {schema} LOGIN; SELECT {schema}.allow('{schema}', 'work')"
    );
    client.batch_execute(&make).await.expect("it is made");
    client
}

#[test]
fn a_worker_goes_on_once_a_full_server_has_a_free_connection() {
    RUNTIME.block_on(async {
        let schema = "crowded_server";
        let url = namespace(&server(), schema).await;
        let operator = role(schema).await;
        let proxy = Proxy::to(&url).await;
        let theirs = proxy.url(&url).replace("postgres@", &format!("{schema}@"));
        let store = Arc::new(open(&theirs, options(3)).await);
        let limit = async |most: i32| {
            let set = format!("ALTER ROLE {schema} CONNECTION LIMIT {most}");
            operator.batch_execute(&set).await.expect("it is set");
        };
        limit(0).await;
        proxy.cut();
        let error = again_until_refused(&store).await;
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.message().contains("too many connections"), "the server's words: {error}");

        // A worker that starts now goes on by itself, and backs off between its attempts.
        let worker = Worker::builder(Arc::clone(&store) as Arc<dyn Store>).lease(Duration::from_secs(3));
        let worker = worker.task("t", |(): (), _: Context| async { Ok::<_, Failure>(7) });
        let worker = worker.build().expect("a worker");
        let stop = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        let direct = Arc::new(open(&url, options(2)).await) as Arc<dyn Store>;
        direct.submit(vec![job(1, "t")]).await.expect("a call");
        let before = proxy.accepted();
        let client = Client::new(Arc::clone(&direct));
        let early = timeout(Duration::from_secs(2), client.wait(job(1, "t").id)).await;
        early.expect_err("no worker can run it");
        let tries = proxy.accepted() - before;
        assert!((2..=20).contains(&tries), "{tries} tries in two seconds");
        limit(-1).await;
        assert_eq!(soon(client.wait_for::<i32>(job(1, "t").id)).await, Ok(7));
        stop.drain();
        soon(working).await.expect("it ends").expect("it ends well");
    });
}

/// It takes a moment until the store notices the cut.
async fn again_until_refused(store: &qo_postgres::PostgresStore) -> qo_core::Error {
    let mut error = None;
    until("it is refused", async || {
        error = store.now().await.err().filter(|error| error.kind() == ErrorKind::Unavailable);
        error.is_some()
    })
    .await;
    error.expect("there is one")
}

#[test]
fn a_program_that_gets_no_slot_waits_for_no_other_call() {
    RUNTIME.block_on(async {
        let stage = Stage::new("crowded_slots", options(2)).await;
        let gpu = group("gpu");
        stage.direct.set_limit(gpu.clone(), 1).await.expect("it is set");
        let request = |id: u128, group: &GroupRef| {
            SlotRequest::new(LeaseId(Uuid::from_u128(id)), group.clone(), name("p"), 60_000)
        };
        let held = stage.direct.acquire_slots(request(1, &gpu)).await.expect("it answers");
        assert!(held.is_some(), "one slot is free");

        let holder = stage.holder().await;
        let refused = soon(stage.direct.acquire_slots(request(2, &gpu))).await;
        assert_eq!(refused, Ok(None), "the group is full, whatever the lock's holder does");
        let brought = SlotRequest { limit: Some(1), ..request(3, &gpu) };
        assert_eq!(soon(stage.direct.acquire_slots(brought)).await, Ok(None));
        // A request that may succeed, and one that is repeated, wait for the lock.
        let (free, repeated) = (request(4, &group("free")), request(1, &gpu));
        let waiting =
            async { tokio::join!(stage.direct.acquire_slots(free), stage.direct.acquire_slots(repeated)) };
        tokio::pin!(waiting);
        tokio::select! {
            biased;
            answers = &mut waiting => panic!("{answers:?}"),
            refused = soon(stage.store.acquire_slots(request(5, &gpu))) => assert_eq!(refused, Ok(None)),
        }
        holder.batch_execute("ROLLBACK").await.expect("it lets go");
        let (free, repeated) = soon(waiting).await;
        assert!(free.expect("it answers").is_some());
        assert_eq!(repeated.expect("it answers"), held);
    });
}
