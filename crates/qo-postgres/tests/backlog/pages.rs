//! Pages, not rows: a scan that reads on to the end of an index finds no rows on its way, but reads its pages.

use super::{BATCH, Worker, backlog, empty_world, fill, limit, open_session};
use crate::fixtures::{RUNTIME, connect};
use qo_core::SessionId;
use tokio_postgres::Client;
use uuid::Uuid;

/// A line so short that all of it is a few pages.
const SHORT: u64 = 4_000;
/// What more levels of an index, and page splits, may cost.
const SLACK: f64 = 1.2;
/// Exchanges of each worker before pages are counted: the first ones make plans and settle nothing.
const WARM_UP: usize = 3;
const ROUNDS: usize = 5;
/// Batches that the other worker owns.
const HELD: usize = 3;

/// Makes an exchange; returns how many pages the server read for it.
async fn exchange(worker: &mut Worker, client: &Client) -> u64 {
    let explained = worker.call(client, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)").await;
    let told: serde_json::Value = explained[0].get(0);
    let pages = |kind: &str| told[0]["Plan"][format!("Shared {kind} Blocks")].as_u64().expect("a number");
    let held = "SELECT j.id, h.token FROM owned_job h JOIN job j USING (seq) WHERE h.session = $1";
    let held = client.query(held, &[&worker.session.0]).await.expect("it is answered");
    (worker.jobs, worker.tokens) =
        held.iter().map(|row| (row.get::<_, Uuid>(0), row.get::<_, i64>(1))).unzip();
    assert_eq!(worker.jobs.len(), BATCH as usize);
    pages("Hit") + pages("Read")
}

/// The most pages that an exchange reads: beside another one that has locked the first jobs in line, and while it
/// moves the fronts.
async fn most_pages(schema: &str, jobs: u64, limited: usize) -> u64 {
    let (server, store, _) = empty_world(schema).await;
    let (client, other) = (connect(&server).await, connect(&server).await);
    for client in [&client, &other] {
        client.batch_execute(&format!("SET search_path = {schema}")).await.expect("it is set");
    }
    let era = "CREATE OR REPLACE FUNCTION era_ms() RETURNS bigint LANGUAGE sql IMMUTABLE AS $$ SELECT -1::bigint $$";
    client.batch_execute(era).await.expect("it is set");
    fill(&client, jobs).await;
    limit(&store, limited).await;
    // No job stays at the head of the line, so the front moves.
    let [mut worker, mut another] = [8, 9].map(|id| Worker::new(SessionId(Uuid::from_u128(id))));
    for worker in [&worker, &another] {
        open_session(&store, worker.session.0.as_u128(), &["full", "foreign"]).await;
    }
    for _ in 0..WARM_UP {
        exchange(&mut worker, &client).await;
        exchange(&mut another, &other).await;
    }
    let mut most = 0;
    for _ in 0..ROUNDS {
        other.batch_execute("BEGIN").await.expect("it begins");
        // More than a claim looks at before it takes any.
        for _ in 0..HELD {
            another.exchange(&other).await;
        }
        most = most.max(exchange(&mut worker, &client).await);
        other.batch_execute("COMMIT").await.expect("it commits");
        // The other exchange moves the fronts, so this one does not.
        most = most.max(exchange(&mut worker, &client).await);
    }
    most
}

#[test]
fn an_exchange_reads_no_more_pages_for_a_backlog() {
    RUNTIME.block_on(async {
        for limited in [0, 10] {
            let short = most_pages("short", SHORT, limited).await;
            let long = most_pages("long", backlog(), limited).await;
            let most = (short as f64 * SLACK) as u64;
            assert!(
                long <= most,
                "with {limited} groups limited: {long} pages, where few are in line {short}"
            );
        }
    });
}
