//! A backlog costs claimers nothing: an exchange reads as many rows with 100,000 jobs in line as it has to, and none of them
//! by reading a whole table.

mod fixtures;

use fixtures::{RUNTIME, Schemas, connect};
use qo_core::{GroupRef, Name, NewSession, SessionId, Store};
use qo_postgres::{Options, PostgresStore, Url};
use tokio_postgres::Client;
use uuid::Uuid;

const BATCH: i64 = 50;
/// Rows that an exchange may read for each job that it settles or claims: the job, its place, its counts, a few indexes.
const ROWS_PER_JOB: i64 = 60;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// Jobs in line: 100,000 of ten tasks that the worker serves, behind 50,000 of one that it does not serve and 50,000 of a
/// full group.
async fn fill(client: &Client) {
    client
        .batch_execute(
            "INSERT INTO job (seq, id, task, queue, grp, cost, priority, submitted_at, run_at, max_attempts, payload)
             SELECT nextval('acceptance'), gen_random_uuid(), t.task, 'default', t.task, 1, t.priority, 0, 0, 3, 'null'
             FROM generate_series(1, 200000) i, LATERAL (SELECT
                 CASE WHEN i <= 50000 THEN 'foreign' WHEN i <= 100000 THEN 'full' ELSE 'task' || i % 10 END AS task,
                 CASE WHEN i <= 100000 THEN -1 ELSE 0 END AS priority) t;
             INSERT INTO line (seq, queue, task, lane, priority, run_at, big)
             SELECT seq, queue, task, task || ' ' || grp || ' 1', priority, run_at, false FROM job",
        )
        .await
        .expect("they are stored");
}

/// Rows that one exchange reads: by whole tables, and by index.
async fn read_by_an_exchange(client: &Client, session: SessionId, number: u64) -> (i64, i64, usize) {
    client.batch_execute("BEGIN").await.expect("it begins");
    let exchange = format!(
        "SELECT * FROM api_exchange_shared('{session}', {number}, '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', '{{}}', {BATCH}, NULL, 1000, false)"
    );
    let rows = client.query(&exchange, &[]).await.expect("it is answered");
    let counts = "SELECT coalesce(sum(seq_tup_read) FILTER (WHERE relname IN ('job', 'line', 'hold', 'done')), 0)::bigint,
                         coalesce(sum(idx_tup_fetch), 0)::bigint
                  FROM pg_stat_xact_user_tables WHERE schemaname = current_schema()";
    let counts = client.query_one(counts, &[]).await.expect("counts");
    client.batch_execute("COMMIT").await.expect("it commits");
    (counts.get(0), counts.get(1), rows.len().saturating_sub(1))
}

async fn world(schema: &str) -> (Client, PostgresStore, SessionId) {
    let schemas = Schemas::on("QO_TEST_POSTGRES");
    let url: Url = schemas.schema(schema).await;
    let client = connect(&schemas.server()).await;
    client.batch_execute(&format!("SET search_path = {schema}")).await.expect("it is set");
    fill(&client).await;
    let options = Options { connections: 2, notify: false, ..Options::default() };
    let store = PostgresStore::open(&url, options).await.expect("it opens");
    let session = SessionId(Uuid::from_u128(7));
    let tasks = (0..10).map(|n| name(&format!("task{n}"))).chain([name("full")]).collect();
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 1_000,
    };
    store.open_session(new).await.expect("it opens");
    store.set_limit(GroupRef::Group(name("full")), 0).await.expect("it is set");
    (client, store, session)
}

#[test]
fn an_exchange_reads_no_more_for_a_backlog() {
    RUNTIME.block_on(async {
        let (client, store, session) = world("backlog").await;
        let mut number = 0;
        for limited in [0, 1, 10] {
            for task in 0..limited {
                let group = GroupRef::Group(name(&format!("task{task}")));
                store.set_limit(group, 1_000).await.expect("it is set");
            }
            // The first one of a connection also reads what its plans need.
            for _ in 0..2 {
                number += 1;
                let (whole, by_index, claimed) = read_by_an_exchange(&client, session, number).await;
                assert_eq!(claimed as i64, BATCH, "with {limited} groups limited");
                assert_eq!(whole, 0, "with {limited} groups limited it read whole tables");
                assert!(
                    by_index <= BATCH * ROWS_PER_JOB,
                    "with {limited} groups limited it read {by_index} rows"
                );
            }
        }
    });
}
