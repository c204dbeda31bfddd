//! A backlog costs claims nothing: with 100,000 jobs in line an exchange reads only the rows that it needs, and no
//! whole table.

#[path = "../fixtures/mod.rs"]
mod fixtures;
mod pages;
mod plan;
mod stale;

use fixtures::{RUNTIME, Schemas, connect};
use plan::{Plan, Plans};
use qo_core::{GroupRef, JobId, Name, NewJob, NewSession, SessionId, Store};
use qo_postgres::{Options, PostgresStore, Url};
use std::collections::BTreeMap;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

const BATCH: i32 = 50;
/// Rows that an exchange may read for each job that it settles or claims: the job, its place, its counts, a few indexes.
const ROWS_PER_JOB: i32 = 100;
/// Jobs in line. `QO_BACKLOG` asks for another number.
const BACKLOG: u64 = 200_000;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// Jobs in line: half of them of ten tasks that the worker serves, behind a quarter of one that it does not serve and a
/// quarter of a group that will be full.
async fn fill(client: &Client, backlog: u64) {
    let (quarter, half) = (backlog / 4, backlog / 2);
    let jobs = format!(
        "INSERT INTO job (seq, id, task, queue, grp, cost, priority, submitted_at, run_at, max_attempts, payload)
         SELECT nextval('acceptance'), gen_random_uuid(), t.task, 'default', t.task, 1, t.priority, 0, 0, 3, 'null'
         FROM generate_series(1, {backlog}) i, LATERAL (SELECT
             CASE WHEN i <= {quarter} THEN 'foreign' WHEN i <= {half} THEN 'full' ELSE 'task' || i % 10 END AS task,
             CASE WHEN i <= {half} THEN -1 ELSE 0 END AS priority) t;
         INSERT INTO line (seq, queue, task, class, priority, run_at, big)
         SELECT seq, queue, task, task || ' ' || grp || ' 1', priority, run_at, false FROM job"
    );
    client.batch_execute(&jobs).await.expect("they are stored");
}

/// How many jobs stand in line.
fn backlog() -> u64 {
    std::env::var("QO_BACKLOG").map_or(BACKLOG, |text| text.parse().expect("a number"))
}

/// A session that exchanges over a connection of its own. It settles what it claims with the next exchange.
struct Worker {
    session: SessionId,
    number: i64,
    jobs: Vec<Uuid>,
    tokens: Vec<i64>,
}

impl Worker {
    fn new(session: SessionId) -> Self {
        Self { session, number: 0, jobs: Vec::new(), tokens: Vec::new() }
    }

    /// Returns how many it claimed.
    async fn exchange(&mut self, client: &Client) -> usize {
        let rows = self.call(client, "").await;
        let claimed = rows.iter().filter(|row| row.get::<_, i32>(0) == 2);
        (self.jobs, self.tokens) = claimed.map(|row| (row.get::<_, Uuid>(2), row.get::<_, i64>(3))).unzip();
        self.jobs.len()
    }

    /// Makes the next exchange; `explained` is what stands before the statement.
    async fn call(&mut self, client: &Client, explained: &str) -> Vec<Row> {
        self.number += 1;
        let outcomes = vec!["succeeded"; self.jobs.len()];
        let nothing: Vec<Option<&str>> = vec![None; self.jobs.len()];
        let outputs = vec![Some("null"); self.jobs.len()];
        let delays: Vec<Option<i64>> = vec![None; self.jobs.len()];
        let exchange = format!(
            "{explained} SELECT * FROM api_exchange_shared($1, $2, $3, $4, $5, $6, $7, $8, $9, NULL, 1000, false, NULL)"
        );
        client
            .query(
                &exchange,
                &[
                    &self.session.0,
                    &self.number,
                    &self.jobs,
                    &self.tokens,
                    &outcomes,
                    &nothing,
                    &outputs,
                    &delays,
                    &BATCH,
                ],
            )
            .await
            .expect("it is answered")
    }
}

async fn world(schema: &str) -> (String, PostgresStore, SessionId) {
    let (server, store, session) = empty_world(schema).await;
    let client = connect(&server).await;
    client.batch_execute(&format!("SET search_path = {schema}")).await.expect("it is set");
    fill(&client, backlog()).await;
    (server, store, session)
}

/// The same without jobs.
async fn empty_world(schema: &str) -> (String, PostgresStore, SessionId) {
    let schemas = Schemas::on("QO_TEST_POSTGRES");
    let url: Url = schemas.schema(schema).await;
    let options = Options { connections: 2, notify: false, ..Options::default() };
    let store = PostgresStore::open(&url, options).await.expect("it opens");
    let session = open_session(&store, 7, &["full"]).await;
    (schemas.server(), store, session)
}

/// Opens a session that serves the ten tasks and these.
async fn open_session(store: &PostgresStore, id: u128, others: &[&str]) -> SessionId {
    let session = SessionId(Uuid::from_u128(id));
    let tasks =
        (0..10).map(|n| name(&format!("task{n}"))).chain(others.iter().map(|task| name(task))).collect();
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 600_000,
        permits: 1_000,
        owner: None,
    };
    store.open_session(new).await.expect("it opens");
    session
}

/// Sets limits of the first tasks that do not bind, and closes the group `full`. With none of them the namespace has
/// no limit at all, and that group's jobs are like others.
async fn limit(store: &PostgresStore, tasks: usize) {
    if tasks > 0 {
        store.set_limit(GroupRef::Group(name("full")), 0).await.expect("it is set");
    }
    for task in 0..tasks {
        let group = GroupRef::Group(name(&format!("task{task}")));
        store.set_limit(group, 1_000).await.expect("it is set");
    }
}

/// Rows that a transaction has read so far: of the large tables as a whole, and by index. Rows of `early` are not
/// counted: moving the fronts clears it once.
async fn rows_read(client: &Client) -> (i64, i64) {
    let counts =
        "SELECT coalesce(sum(seq_tup_read) FILTER (WHERE relname IN ('job', 'line', 'owned_job', 'done')), 0)::bigint,
                coalesce(sum(idx_tup_fetch), 0)::bigint
         FROM pg_stat_xact_user_tables WHERE schemaname = current_schema() AND relname <> 'early'";
    let counts = client.query_one(counts, &[]).await.expect("counts");
    (counts.get(0), counts.get(1))
}

/// A worker's connection lives for weeks, and so do its plans: those that were made on a quiet night serve a busy
/// day.
#[test]
fn plans_made_while_the_line_is_empty_stay_good() {
    RUNTIME.block_on(async {
        let (server, store, session) = empty_world("quiet").await;
        limit(&store, 10).await;
        store.set_limit(GroupRef::EveryKey(name("task1")), 5).await.expect("it is set");
        let (client, other) = (connect(&server).await, connect(&server).await);
        for client in [&client, &other] {
            client.batch_execute("SET search_path = quiet").await.expect("it is set");
        }
        for table in ["job", "line", "owned_job", "done", "effective_limit", "slots", "front", "early"] {
            let quiet = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
            other.batch_execute(&quiet).await.expect("it is set");
            other.batch_execute(&format!("VACUUM ANALYZE {table}")).await.expect("it is vacuumed");
        }
        let few = (0..3).map(|n| NewJob::new(JobId(Uuid::from_u128(n)), name(&format!("task{n}")))).collect();
        store.submit(few).await.expect("a call");
        let mut worker = Worker::new(session);
        let look = "SELECT api_work_shared($1, $2)::text";
        for night in [true, true, true, false, false, false] {
            if !night && worker.number == 3 {
                fill(&other, backlog()).await;
            }
            client.batch_execute("BEGIN").await.expect("it begins");
            let claimed = worker.exchange(&client).await;
            client.query(look, &[&worker.session.0, &BATCH]).await.expect("it is answered");
            let (whole, by_index) = rows_read(&client).await;
            client.batch_execute("COMMIT").await.expect("it commits");
            assert_eq!(claimed, if night { 3 * usize::from(worker.number == 1) } else { BATCH as usize });
            assert_eq!(whole, 0, "it read whole tables");
            assert!(by_index <= i64::from(2 * BATCH * ROWS_PER_JOB), "it read {by_index} rows");
        }
    });
}

#[test]
fn an_exchange_reads_no_more_for_a_backlog() {
    RUNTIME.block_on(async {
        let (server, store, session) = world("backlog").await;
        let client = connect(&server).await;
        client.batch_execute("SET search_path = backlog").await.expect("it is set");
        let mut worker = Worker::new(session);
        for limited in [0, 1, 10] {
            limit(&store, limited).await;
            // The first exchange of a connection also reads what its plans need.
            for _ in 0..2 {
                client.batch_execute("BEGIN").await.expect("it begins");
                let claimed = worker.exchange(&client).await;
                let (whole, by_index) = rows_read(&client).await;
                client.batch_execute("COMMIT").await.expect("it commits");
                assert_eq!(claimed, BATCH as usize, "with {limited} groups limited");
                assert_eq!(whole, 0, "with {limited} groups limited it read whole tables");
                assert!(
                    by_index <= i64::from(2 * BATCH * ROWS_PER_JOB),
                    "with {limited} groups limited it read {by_index} rows"
                );
            }
        }
    });
}

/// Every exchange waits for a retry in bulk: it reads the jobs that wait for a date, not the whole backlog.
#[test]
fn a_retry_in_bulk_reads_no_more_for_a_backlog() {
    RUNTIME.block_on(async {
        let (server, _, _) = world("retries").await;
        let client = connect(&server).await;
        client.batch_execute("SET search_path = retries").await.expect("it is set");
        let waiting = r#"UPDATE job SET run_at = 99999999999999, attempts_used = 1, attempts = '[{"token": 1}]' WHERE seq <= 100;
            UPDATE line SET run_at = 99999999999999, parked_on = '@' WHERE seq <= 100"#;
        client.batch_execute(waiting).await.expect("they wait for their next attempt");
        client.batch_execute("BEGIN; RESET search_path; SET search_path = retries").await.expect("it begins");
        let (whole_before, before) = rows_read(&client).await;
        let retry = "SELECT api_change_matching('retry', '{}', NULL, 1000)->>'jobs'";
        let retried: String = client.query_one(retry, &[]).await.expect("it is answered").get(0);
        let (whole, by_index) = rows_read(&client).await;
        client.batch_execute("COMMIT").await.expect("it commits");
        assert_eq!((retried.as_str(), whole - whole_before), ("100", 0));
        assert!(by_index - before <= i64::from(100 * ROWS_PER_JOB), "it read {} rows", by_index - before);
    });
}

/// Jobs that have ended are looked up by their id and by their key, each by its index.
#[test]
fn a_keyed_submit_reads_no_more_for_finished_jobs() {
    RUNTIME.block_on(async {
        let (server, _, _) = empty_world("keyed").await;
        let client = connect(&server).await;
        client.batch_execute("SET search_path = keyed").await.expect("it is set");
        let ended = format!(
            "INSERT INTO done SELECT (jsonb_populate_record(NULL::done, jsonb_build_object('seq', nextval('acceptance'),
                 'id', gen_random_uuid(), 'task', 'mail', 'queue', 'default', 'grp', 'mail', 'cost', 1, 'priority', 0,
                 'submitted_at', 0, 'run_at', 0, 'max_attempts', 3, 'idempotency_key', 'key' || i, 'skipped', false,
                 'attempts_used', 1, 'attempts', '[]'::jsonb, 'payload', 'null', 'state', 'succeeded', 'finished_at', 0))).*
             FROM generate_series(1, {}) i",
            backlog() / 4
        );
        client.batch_execute(&ended).await.expect("they are stored");
        client.batch_execute("ANALYZE done").await.expect("they are counted");
        let submit = "SELECT api_submit(jsonb_build_array(jsonb_build_object('id', gen_random_uuid(), 'task', 'mail',
            'payload', 'null', 'idempotency_key', $1::text)))::text";
        // The plans of a connection become general ones after five calls.
        for call in 0..12 {
            client.batch_execute("BEGIN").await.expect("it begins");
            let (whole_before, before) = rows_read(&client).await;
            client.query(submit, &[&format!("new{call}")]).await.expect("it is answered");
            let (whole, by_index) = rows_read(&client).await;
            client.batch_execute("COMMIT").await.expect("it commits");
            assert_eq!(whole - whole_before, 0, "call {call} read whole tables");
            assert!(by_index - before <= i64::from(ROWS_PER_JOB), "call {call} read {} rows", by_index - before);
        }
    });
}

/// The plans of an exchange, a look and a submit, which are run here.
async fn hot_plans(plans: &Plans, worker: &mut Worker) -> Vec<Plan> {
    let client = &plans.client;
    plans.take();
    let mut all = Vec::new();
    // The first one settles nothing yet.
    for _ in 0..2 {
        assert_eq!(worker.exchange(client).await, BATCH as usize);
        all.extend(plans.take());
    }
    let look = "SELECT api_work_shared($1, $2)::text";
    client.query(look, &[&worker.session.0, &BATCH]).await.expect("it is answered");
    let id = |n| JobId(Uuid::from_u64_pair(worker.number as u64, n));
    let jobs: Vec<NewJob> =
        (0..BATCH as u64).map(|n| NewJob::new(id(n), name(&format!("task{}", n % 10)))).collect();
    let jobs = serde_json::to_value(jobs).expect("JSON");
    client.query("SELECT api_submit($1)::text", &[&jobs]).await.expect("it is answered");
    all.extend(plans.take());
    all
}

/// No plan of a hot statement reads a large table as a whole, sorts the backlog or meets many rows of it: without limits, with
/// one task limited and with all. Statistics make no difference. `QO_PLANS` names a folder that the plans are written to.
#[test]
fn no_plan_of_a_hot_statement_meets_the_backlog() {
    RUNTIME.block_on(async {
        let (server, store, session) = world("plans").await;
        let mut worker = Worker::new(session);
        let most_rows = f64::from(BATCH * ROWS_PER_JOB);
        let mut faults: BTreeMap<String, String> = BTreeMap::new();
        for (limited, what) in [(0, "no-limit"), (1, "one-task-limited"), (10, "all-limited")] {
            limit(&store, limited).await;
            for is_analyzed in [false, true] {
                if is_analyzed {
                    let tables =
                        "ANALYZE plans.job, plans.line, plans.owned_job, plans.done, plans.slots, plans.effective_limit";
                    connect(&server).await.batch_execute(tables).await.expect("they are analyzed");
                }
                let plans = Plans::connect(&server).await;
                plans.client.batch_execute("SET search_path = plans").await.expect("it is set");
                let heard = hot_plans(&plans, &mut worker).await;
                // Without `auto_explain` only the test that counts rows says anything.
                assert_eq!(plans.are_told(), !heard.is_empty());
                for plan in &heard {
                    for fault in plan.faults(most_rows) {
                        faults.insert(plan.statement.clone(), format!("{what}: {fault}"));
                    }
                }
                if let Some(folder) =
                    std::env::var_os("QO_PLANS").filter(|_| is_analyzed && !heard.is_empty())
                {
                    let folder = std::path::Path::new(&folder);
                    std::fs::create_dir_all(folder).expect("a folder");
                    std::fs::write(folder.join(format!("{what}.txt")), plan::page(&heard)).expect("a file");
                }
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    });
}
