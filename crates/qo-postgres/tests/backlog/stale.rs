//! Statistics may be stale. A table that was analyzed only while it was empty is believed empty, however many rows it
//! gets. The planner then prices a scan of a whole index like the lookup of one row, and a join may compare every job
//! with every other.

use super::plan::Plans;
use super::{empty_world, rows_read};
use crate::fixtures::{RUNTIME, connect};
use std::collections::BTreeMap;
use tokio_postgres::Client;

/// Jobs of each kind. A node that compares every job with every other meets their square.
const JOBS: i64 = 200;
/// The kinds of jobs that [`fill`] makes.
const KINDS: i64 = 7;
/// How often a node of a plan may meet each job.
const PASSES: i64 = 8;
/// A call with stale statistics may read this many times the rows that it reads with good ones: with those the server
/// remembers a few rows that it would look up again.
const SLACK: f64 = 1.5;

/// Views, and commands that count while every exchange waits for them. Each is rolled back. Job 900 waits for a full
/// group, job 1300 for an earlier step. Session 15 is alive.
const CALLS: [&str; 28] = [
    "api_group('mail')",
    "api_group('mail/*')",
    "api_group('mail/k8')",
    "api_group('disk')",
    "api_group('queue:q7')",
    "api_group('cluster')",
    "api_groups(NULL, 1000)",
    "api_queues()",
    "api_workers()",
    "api_over()",
    "api_jobs('{}', NULL, 1000)",
    r#"api_jobs('{"states": ["running"]}', NULL, 1000)"#,
    r#"api_jobs('{"states": ["pending"]}', 900, 1000)"#,
    "api_explain(nth(900))",
    "api_explain(nth(1300))",
    "api_workflow('w7')",
    "api_workflows(NULL, 1000)",
    "api_drift()",
    "api_set_limit('mail', 20)",
    "api_set_limit('mail/*', 3)",
    r#"api_change_matching('cancel', '{"workflow": "w7"}', NULL, 1000)"#,
    "api_release_slot('mail', 2)",
    "api_close_session(nth(15))",
    "api_fail_unreadable(nth(15), ARRAY[nth(4), nth(14), nth(24)], '{4, 14, 24}', '{e, e, e}')",
    "api_sweep(NULL)",
    r#"api_exchange(jsonb_build_object('session', nth(15), 'number', 1, 'free_permits', 9, 'settles', (
            SELECT jsonb_agg(jsonb_build_object('job', nth(i), 'token', i, 'outcome', '{"fail": {"error": "e"}}'::jsonb))
            FROM generate_series(4, 200, 10) i),
        'claim', '{"max": 5, "prefetch": {"buffer": 5, "lease_ms": 5000}}'::jsonb), NULL)"#,
    r#"api_acquire_slots(jsonb_build_object('id', nth(7777), 'group', 'disk', 'holder', 'p', 'lease_ms', 1000, 'limit', 3000))"#,
    r#"api_submit(jsonb_build_array(jsonb_build_object('id', nth(7777), 'task', 'disk', 'on_limit', 'reject')))"#,
];

/// `JOBS` jobs of each kind: they run; their session is over; their timeout is over; they are claimed; they wait for a
/// full group; they have expired in line; they are steps.
async fn fill(client: &Client) {
    let fill = format!(
        "INSERT INTO session (session, worker, queues, tasks, lease_ms, permits, opened_at, lease_until, free_permits)
         SELECT nth(i), 'w' || i, '{{}}', '{{mail}}', 1000, 9, 0, CASE WHEN i <= 10 THEN 1 ELSE 99999999999999 END, 9
         FROM generate_series(1, 20) i;
         INSERT INTO job (seq, id, task, queue, grp, key, cost, limits, priority, submitted_at, run_at, good_until, max_attempts,
             workflow, step, payload)
         SELECT i, nth(i), 'mail', 'q' || i % 20, 'mail', CASE WHEN i % 2 = 0 THEN 'k' || i % 50 END, 1,
                CASE WHEN i % 5 = 0 THEN '{{\"disk\": 1, \"api/a\": 1}}'::jsonb END, 0, 0, 0, CASE WHEN k.kind = 5 THEN 1 END, 3,
                CASE WHEN k.kind = 6 THEN 'w' || i % 50 END, CASE WHEN k.kind = 6 THEN i END, 'null'
         FROM generate_series(1, {JOBS} * {KINDS}) i, LATERAL (SELECT (i - 1) / {JOBS} AS kind) k;
         INSERT INTO extra_limit SELECT e.key, j.seq, 1 FROM job j, LATERAL jsonb_each_text(j.limits) e;
         INSERT INTO owned_job (seq, state, session, worker, token, since, until)
         SELECT j.seq, (CASE WHEN k.kind = 3 THEN 'claimed' ELSE 'running' END)::job_state,
                nth(j.seq % 10 + CASE WHEN k.kind = 1 THEN 1 ELSE 11 END), 'w', j.seq, 0,
                CASE k.kind WHEN 2 THEN 1 WHEN 3 THEN 99999999999999 END
         FROM job j, LATERAL (SELECT (j.seq - 1) / {JOBS} AS kind) k WHERE k.kind <= 3;
         INSERT INTO line (seq, queue, task, class, extra_keys, priority, run_at, big)
         SELECT j.seq, j.queue, j.task, c.class, c.extra_keys, 0, 0, c.big
         FROM job j, LATERAL class_of(j.task, j.grp, j.cost, j.limits) c WHERE j.seq > 4 * {JOBS};
         INSERT INTO workflow SELECT 'w' || i, 'halt', false, 20 FROM generate_series(0, 49) i;
         INSERT INTO program SELECT nth(i), 'gpu', 1, 'p', 1000000 + i, 0, 99999999999999 FROM generate_series(1, {JOBS}) i;
         SELECT recount(g.ref) FROM effective_limit g"
    );
    client.batch_execute(&fill).await.expect("they are stored");
}

/// A connection that receives its plans.
async fn connected(server: &str) -> Plans {
    let plans = Plans::connect(server).await;
    plans.client.batch_execute("SET search_path = stale").await.expect("it is set");
    plans
}

/// The rows that each call reads, and the nodes of plans that meet too many.
async fn rows_by_call(plans: &Plans, faults: &mut BTreeMap<String, String>) -> BTreeMap<&'static str, i64> {
    let mut rows = BTreeMap::new();
    for call in CALLS {
        plans.client.batch_execute("BEGIN").await.expect("it begins");
        let before = rows_read(&plans.client).await;
        plans.take();
        let answer = plans.client.batch_execute(&format!("SELECT {call}")).await;
        let heard = plans.take();
        answer.unwrap_or_else(|error| panic!("{call}: {error:?}"));
        let after = rows_read(&plans.client).await;
        plans.client.batch_execute("ROLLBACK").await.expect("it is taken back");
        rows.insert(call, after.0 + after.1 - before.0 - before.1);
        for plan in heard {
            for crowd in plan.crowds((JOBS * KINDS * PASSES) as f64) {
                faults.insert(plan.statement.clone(), format!("{call}: {crowd}"));
            }
        }
    }
    rows
}

#[test]
fn a_call_reads_no_more_rows_when_statistics_are_stale() {
    RUNTIME.block_on(async {
        let (server, _, _) = empty_world("stale").await;
        let owner = connect(&server).await;
        let nth = "SET search_path = stale;
            CREATE FUNCTION nth(bigint) RETURNS uuid LANGUAGE sql IMMUTABLE AS $$ SELECT lpad($1::text, 32, '0')::uuid $$;
            DELETE FROM session";
        owner.batch_execute(nth).await.expect("it is made");
        let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname = 'stale'";
        let tables = owner.query(tables, &[]).await.expect("their names");
        let tables: Vec<String> = tables.iter().map(|row| row.get(0)).collect();
        for table in &tables {
            let quiet = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
            owner.batch_execute(&quiet).await.expect("it is set");
        }
        let limits = "SELECT api_set_limit('mail', 10), api_set_limit('mail/k0', 1), api_set_limit('disk', 5)";
        owner.batch_execute(limits).await.expect("they are set");
        // The tables are analyzed after all rows were deleted, and before their space was freed.
        fill(&owner).await;
        for table in ["session", "job", "extra_limit", "owned_job", "line", "workflow", "program", "slots"] {
            owner.batch_execute(&format!("DELETE FROM {table}; ANALYZE {table}")).await.expect("it is empty");
        }
        // This connection keeps plans that it made while the tables were empty.
        let kept = connected(&server).await;
        for call in CALLS {
            // Some refuse, for want of jobs.
            kept.client.batch_execute(&format!("BEGIN; SELECT {call}")).await.ok();
            kept.client.batch_execute("ROLLBACK").await.expect("it is taken back");
        }
        fill(&owner).await;
        let mut faults = BTreeMap::new();
        let stale = [
            ("plans of an empty table", rows_by_call(&kept, &mut faults).await),
            ("stale statistics", rows_by_call(&connected(&server).await, &mut faults).await),
        ];
        owner.batch_execute("ANALYZE").await.expect("all tables are analyzed");
        let good = rows_by_call(&connected(&server).await, &mut faults).await;
        for (with, rows) in &stale {
            for (call, rows) in rows.iter().filter(|(call, rows)| **rows as f64 > good[*call] as f64 * SLACK) {
                faults.insert((*call).into(), format!("{rows} rows with {with}, {} otherwise", good[call]));
            }
        }
        assert!(faults.is_empty(), "{faults:#?}");
    });
}
