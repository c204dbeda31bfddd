//! A schema of an older release is upgraded and keeps what it has.

use crate::fixtures::{RUNTIME, Schemas, connect};
use qo_core::{
    Change, Claim, Configuration, ErrorKind, Exchange, GroupRef, JobFilter, JobId, JobState, LimitSource,
    Name, NewSession, Pushed, Schedule, SessionId, Store, TaskOptions, default_app,
};
use qo_postgres::{Options, PostgresStore, Url, migrate};
use tokio_postgres::Client;
use uuid::Uuid;

/// The tables of version 1, and what its workers left in them. The upgrade replaces its functions; two stand for all.
fn version_1(schema: &str) -> String {
    format!(
        "DROP SCHEMA IF EXISTS {schema} CASCADE;
         CREATE SCHEMA {schema};
         SET search_path = {schema};
         CREATE TABLE version (version integer NOT NULL, oldest_client integer NOT NULL);
         INSERT INTO version VALUES (1, 1);
         {}
         CREATE FUNCTION api_register(_tasks jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
         CREATE FUNCTION api_configure(_configuration jsonb, _next jsonb) RETURNS void LANGUAGE sql AS 'SELECT';
         INSERT INTO limits VALUES ('api', NULL, 3), ('mail', 9, NULL), ('user/*', 5, 1);
         INSERT INTO code_limit (task, grp, slots) VALUES ('resize', 'images', 4);
         INSERT INTO task VALUES ('resize', 'images',
             '{{\"task\": \"resize\", \"group\": \"images\", \"limit\": 4, \"timeout_ms\": null, \"retry\": null}}');
         INSERT INTO gate VALUES ('api', 3, NULL), ('mail', 9, NULL), ('user/*', 5, NULL), ('images', 4, NULL);
         INSERT INTO queue VALUES ('stripe', 1, false), ('held', NULL, true);
         INSERT INTO schedule VALUES ('nightly', '{{\"cron\": \"0 3 * * *\", \"timezone\": \"UTC\", \"task\": \"report\",
             \"payload\": \"null\", \"queue\": \"default\", \"priority\": 0, \"max_attempts\": 3, \"timeout_ms\": null,
             \"missed\": \"latest\", \"overlap\": false}}', false, NULL, NULL, NULL);
         UPDATE retention SET retain_ms = 5000 WHERE state = 'failed';",
        migrate::step_sql(1)
    )
}

/// Jobs of version 1. Those with an id above 100 break a rule of jobs; its doors let them in. Jobs 8 and 108 run, and
/// each holds a slot of `api`, whose limit is 3.
fn jobs_of_version_1(schema: &str) -> String {
    let plain = "'t', 'default', 't', 1, NULL, 0, '[]', NULL, NULL, NULL";
    let jobs = [
        (1, plain),
        (8, "'t', 'default', 'api', 1, NULL, 0, '[]', NULL, NULL, NULL"),
        (21, "'t', 'default', 't', 1, NULL, 0, '[]', NULL, 'halts', 2"),
        (22, "'t', 'default', 't', 1, NULL, 0, '[]', NULL, 'goes', 2"),
        (101, "'t', 'default', 'bad grp', 1, NULL, 0, '[]', NULL, NULL, NULL"),
        (102, "'t', 'default', 'api', -5, NULL, 0, '[]', NULL, NULL, NULL"),
        (103, "'t', 'default', 't', 1, '7', 0, '[]', NULL, NULL, NULL"),
        (104, "'t', 'default', 't', 1, '{\"gpu\": -1}', 0, '[]', NULL, NULL, NULL"),
        (105, "'t', 'default', 't', 1, NULL, 0, '{}', NULL, NULL, NULL"),
        (106, "'t', 'default', 't', 1, NULL, -1, '[]', NULL, NULL, NULL"),
        (107, "'t', 'default', 't', 1, NULL, 0, '[]', -1, NULL, NULL"),
        (108, "'a b', 'default', 'api', 1, NULL, 0, '[]', NULL, NULL, NULL"),
        (109, "'t', 'a b', 't', 1, NULL, 0, '[]', NULL, NULL, NULL"),
        (110, "'t', 'default', 'a/b', 1, NULL, 0, '[]', NULL, NULL, NULL"),
        (121, "'t', 'default', 't', 2000000, NULL, 0, '[]', NULL, 'halts', 1"),
        (122, "'t', 'default', 't', 0, NULL, 0, '[]', NULL, 'goes', 1"),
    ];
    let columns = "task, queue, grp, cost, limits, attempts_used, attempts, timeout_ms, workflow, step";
    let mut sql = format!("SET search_path = {schema};");
    for (id, values) in jobs {
        sql += &format!(
            "INSERT INTO job (seq, id, {columns}, priority, submitted_at, run_at, max_attempts, payload)
                 VALUES ({id}, '{}', {values}, 0, 1, 1, 3, 'null');",
            Uuid::from_u128(id)
        );
    }
    sql + "INSERT INTO line (seq, queue, task, lane, priority, run_at, big, parked_on)
               SELECT j.seq, j.queue, j.task, j.task || ' ' || j.grp || ' ' || j.cost, 0, 1, j.cost > 1,
                   CASE WHEN j.step = 2 THEN '~' || j.workflow END FROM job j WHERE j.seq NOT IN (8, 108);
           INSERT INTO extra VALUES ('gpu', 104, -1);
           INSERT INTO workflow VALUES ('halts', 'halt', false, 2), ('goes', 'continue', false, 2);
           INSERT INTO session (session, worker, queues, tasks, lease_ms, permits, opened_at, lease_until, free_permits)
               VALUES ('00000000-0000-0000-0000-000000000001', 'w', '{}', '{t}', 60000, 9, 1, 99999999999999, 9);
           INSERT INTO hold (seq, state, session, worker, token, since)
               VALUES (8, 'running', '00000000-0000-0000-0000-000000000001', 'w', nextval('fence_token'), 1),
                      (108, 'running', '00000000-0000-0000-0000-000000000001', 'w', nextval('fence_token'), 1);
           INSERT INTO slots (ref, used, most) VALUES ('api', 2, 3);
           INSERT INTO done (seq, id, task, queue, grp, cost, priority, submitted_at, run_at, max_attempts, payload, state,
                   finished_at)
               VALUES (31, '00000000-0000-0000-0000-000000000031', 't', 'default', 't', 1, 0, 1, 1, 3, 'null', 'failed', 99999999999999),
                      (131, '00000000-0000-0000-0000-000000000131', 't', 'default', 'bad grp', 1, 0, 1, 1, 3, 'null', 'failed', 99999999999999);
           SELECT setval('acceptance', 1000);"
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn group(text: &str) -> GroupRef {
    text.parse().expect("a group")
}

async fn raised(server: &'static str, schema: &str) -> PostgresStore {
    let server = Schemas::on(server).server();
    let client = connect(&server).await;
    client.batch_execute(&version_1(schema)).await.expect("version 1 is made");
    client.batch_execute(&jobs_of_version_1(schema)).await.expect("its jobs are there");
    let mark = if server.contains('?') { '&' } else { '?' };
    let url = Url::parse(&format!("{server}{mark}schema={schema}")).expect("a url");
    let refused = PostgresStore::open(&url, Options::default()).await.err().expect("it is too old");
    assert!(refused.to_string().contains("migrate"), "{refused}");
    let done = migrate::up(&url).await.expect("it is raised");
    assert!(done.iter().any(|step| step.starts_with("2: apps")), "{done:?}");
    assert_eq!(migrate::up(&url).await, Ok(vec![]));
    let options = Options { notify: false, ..Options::default() };
    PostgresStore::open(&url, options).await.expect("it opens")
}

#[test]
fn limits_and_schedules_of_version_1_belong_to_the_default_app() {
    RUNTIME.block_on(async {
        for (server, schema) in
            [("QO_TEST_POSTGRES_15", "migration_15"), ("QO_TEST_POSTGRES_18", "migration_18")]
        {
            let store = raised(server, schema).await;
            let status = async |text| store.group(group(text)).await.expect("it has a limit").status;
            let api = status("api").await;
            assert_eq!((api.limit, api.source), (Some(3), Some(LimitSource::Config)));
            assert_eq!((api.sources.config, api.sources.config_app), (Some(3), Some(default_app())));
            assert_eq!(status("user/*").await.limit, Some(5), "the operator's limit");
            assert_eq!(status("images").await.source, Some(LimitSource::Code));
            let schedules = store.schedules().await.expect("schedules");
            assert_eq!((&*schedules[0].schedule, schedules[0].enabled), ("nightly", false));

            let said = store.configurations().await.expect("configurations");
            let mut expected = Configuration {
                limits: [(group("api"), 3), (group("user/*"), 1)].into(),
                queue_priorities: [(name("stripe"), 1)].into(),
                schedules: [(name("nightly"), Schedule::new("0 3 * * *", name("report")))].into(),
                ..Configuration::default()
            };
            expected.retention.failed_ms = Some(5_000);
            assert_eq!(said, [expected.clone()]);

            // The same worker again, now of this release.
            let task = TaskOptions {
                group: Some(name("images")),
                max_concurrent: Some(4),
                ..TaskOptions::new(name("resize"))
            };
            assert_eq!(store.configure(expected.clone()).await, Ok(Pushed::default()));
            assert_eq!(store.register(vec![task]).await, Ok(Pushed::default()));
            // Another service comes up.
            let shop =
                Configuration { limits: [(group("pdf"), 2)].into(), ..Configuration::of(name("shop")) };
            store.configure(shop.clone()).await.expect("pushed");
            assert_eq!(store.configurations().await, Ok(vec![expected, shop]));
            assert_eq!((status("api").await.limit, status("pdf").await.limit), (Some(3), Some(2)));
            assert_eq!(store.drift().await.as_deref(), Ok("[]"));
            let server = Schemas::on(server).server();
            let drop = format!("DROP SCHEMA {schema} CASCADE");
            connect(&server).await.batch_execute(&drop).await.expect("it goes");
        }
    });
}

/// Makes a schema of this release one of version 1 again, which had no `api_pushes`. Its functions do not work then.
fn back_to_version_1(schema: &str) -> String {
    format!(
        "SET search_path = {schema};
         UPDATE version SET version = 1, oldest_client = 1;
         DROP FUNCTION api_pushes();
         DROP TABLE app, app_setting, registration, push, token, audit_entry, total, grants, refusal, summed;
         ALTER TABLE job DROP CONSTRAINT job_names, DROP CONSTRAINT job_cost, DROP CONSTRAINT job_limits,
            DROP CONSTRAINT job_attempts, DROP CONSTRAINT job_timeout;
         DROP INDEX line_big_date;
         ALTER TABLE schedule DROP COLUMN put_off_until;
         ALTER TABLE limits DROP COLUMN config_app;
         ALTER TABLE code_limit DROP CONSTRAINT code_limit_pkey, DROP COLUMN app;
         ALTER TABLE code_limit ADD PRIMARY KEY (task);
         ALTER TABLE owned_job RENAME CONSTRAINT owned_job_pkey TO hold_pkey;
         ALTER TABLE owned_job RENAME CONSTRAINT owned_job_state_check TO hold_state_check;
         ALTER INDEX owned_job_session RENAME TO hold_session;
         ALTER INDEX owned_job_until RENAME TO hold_until;
         ALTER TABLE owned_job RENAME TO hold;
         ALTER TABLE effective_limit RENAME CONSTRAINT effective_limit_pkey TO gate_pkey;
         ALTER INDEX effective_limit_large RENAME TO gate_large;
         ALTER INDEX effective_limit_keys RENAME TO gate_keys;
         ALTER INDEX effective_limit_zero RENAME TO gate_closed;
         ALTER TABLE effective_limit RENAME TO gate;
         ALTER TABLE extra_limit RENAME CONSTRAINT extra_limit_pkey TO extra_pkey;
         ALTER INDEX extra_limit_job RENAME TO extra_job;
         ALTER TABLE extra_limit RENAME TO extra;
         ALTER TABLE submit_lock RENAME CONSTRAINT submit_lock_pkey TO admission_pkey;
         ALTER TABLE submit_lock RENAME TO admission;
         ALTER TABLE submit_limit ALTER COLUMN slots SET NOT NULL;
         ALTER TABLE session DROP COLUMN memory_percent, DROP COLUMN owner, DROP COLUMN reply_dues;
         ALTER TABLE job DROP COLUMN traceparent;
         ALTER TABLE done DROP COLUMN traceparent;
         ALTER TABLE line RENAME COLUMN class TO lane;
         ALTER TABLE line RENAME COLUMN extra_keys TO twin;
         ALTER INDEX line_class RENAME TO line_lane;"
    )
}

#[test]
fn jobs_of_version_1_that_break_a_rule_fail_and_all_others_run() {
    RUNTIME.block_on(async {
        for (server, schema) in
            [("QO_TEST_POSTGRES_15", "migration_bad_15"), ("QO_TEST_POSTGRES_18", "migration_bad_18")]
        {
            let store = raised(server, schema).await;
            assert_eq!(store.drift().await.as_deref(), Ok("[]"));
            let all = store.jobs(JobFilter::default(), None, 100).await.expect("jobs").jobs;
            for job in &all {
                let is_bad = job.id.0.as_u128() > 100 || job.id.0.as_u128() == 0x31;
                let has_ended = job.state == JobState::Failed;
                assert_eq!(has_ended, is_bad, "{job:?}");
            }
            assert_eq!(all.len(), 18);
            let detail = store.job(JobId(Uuid::from_u128(108))).await.expect("it is shown");
            let attempt = detail.attempts.last().expect("an attempt that says why");
            assert!(attempt.error.as_ref().is_some_and(|error| error.as_str().contains("breaks a rule")));
            assert_eq!(store.group(group("api")).await.expect("it has a limit").status.used, 1);

            // Every exchange works: what is over ends, other jobs are claimed, and no bad job comes back.
            let session = SessionId(Uuid::from_u128(2));
            let tasks = vec![name("t")];
            let new = NewSession {
                id: session,
                worker: name("new"),
                queues: vec![],
                tasks,
                lease_ms: 60_000,
                permits: 9,
                owner: None,
            };
            store.open_session(new).await.expect("it opens");
            store.close_session(SessionId(Uuid::from_u128(1))).await.expect("it ends");
            store.sweep().await.expect("a sweep");
            let claim = Claim { max: 9, ..Claim::default() };
            let exchange = Exchange { claim, free_permits: 9, ..Exchange::renew(session, 1) };
            let claimed = store.exchange(exchange).await.expect("an exchange").claimed;
            let mut ids: Vec<u128> = claimed.iter().map(|job| job.id.0.as_u128()).collect();
            ids.sort_unstable();
            assert_eq!(ids, [1, 8, 22], "step 2 of `halts` waits: its first step has failed");

            let changed = store.change_matching(Change::Retry, JobFilter::default(), None, 100).await;
            assert_eq!(changed.expect("a page").jobs, 3, "31, and two that only remembered nonsense");
            let refused = store.retry(vec![JobId(Uuid::from_u128(0x131))]).await.expect("an answer");
            assert!(
                refused[0].as_ref().is_err_and(|error| error.kind() == ErrorKind::Conflict),
                "{refused:?}"
            );
            assert_eq!(store.drift().await.as_deref(), Ok("[]"));
            let drop = format!("DROP SCHEMA {schema} CASCADE");
            connect(&Schemas::on(server).server()).await.batch_execute(&drop).await.expect("it goes");
        }
    });
}

/// Whether a role may do something, as the server sees it.
async fn may(client: &Client, asked: &str) -> bool {
    client.query_one(&format!("SELECT {asked}"), &[]).await.expect("an answer").get(0)
}

#[test]
fn an_upgrade_gives_no_role_a_right_that_it_was_not_given() {
    RUNTIME.block_on(async {
        let schema = "migration_rights";
        let schemas = Schemas::on("QO_TEST_POSTGRES_18");
        let client = connect(&schemas.server()).await;
        let url = schemas.schema(schema).await;
        let back = format!(
            "DO $$ DECLARE _role text; BEGIN
                 FOREACH _role IN ARRAY ARRAY['qo_rights_web', 'qo_rights_work', 'qo_rights_look'] LOOP
                     EXECUTE 'DROP ROLE IF EXISTS ' || _role;
                     EXECUTE 'CREATE ROLE ' || _role || ' LOGIN';
                 END LOOP;
             END $$;
             GRANT USAGE ON SCHEMA {schema} TO qo_rights_web;
             GRANT EXECUTE ON FUNCTION {schema}.api_submit(jsonb), {schema}.api_version(), {schema}.api_now() TO qo_rights_web;
             SELECT {schema}.allow('qo_rights_work', 'work'), {schema}.allow('qo_rights_look', 'look');
             REVOKE EXECUTE ON FUNCTION {schema}.api_set_limit(text, integer) FROM qo_rights_work;
             {}",
            back_to_version_1(schema)
        );
        client.batch_execute(&back).await.expect("it is as it was");
        migrate::up(&url).await.expect("it is raised");
        for (role, function, expected) in [
            ("web", "api_submit(jsonb)", true),
            ("web", "api_now()", true),
            ("web", "api_set_limit(text, integer)", false),
            ("web", "api_cancel(uuid[])", false),
            ("web", "api_exchange(jsonb, jsonb)", false),
            ("web", "api_configure(jsonb, jsonb)", false),
            ("web", "api_pushes()", false),
            ("work", "api_exchange(jsonb, jsonb)", true),
            // Made again, and new.
            ("work", "api_configure(jsonb, jsonb)", true),
            ("work", "api_pushes()", true),
            // Revoked by the owner.
            ("work", "api_set_limit(text, integer)", false),
            ("look", "api_pushes()", false),
        ] {
            let asked = format!("has_function_privilege('qo_rights_{role}', '{schema}.{function}', 'EXECUTE')");
            assert_eq!(may(&client, &asked).await, expected, "{role}: {function}");
        }
        for (role, expected) in [("web", false), ("work", false), ("look", true)] {
            for table in ["job", "app", "app_setting", "registration", "push"] {
                let asked = format!("has_table_privilege('qo_rights_{role}', '{schema}.{table}', 'SELECT')");
                assert_eq!(may(&client, &asked).await, expected, "{role}: {table}");
            }
        }
        let end = format!(
            "DROP SCHEMA {schema} CASCADE; DROP ROLE qo_rights_web; DROP ROLE qo_rights_work; DROP ROLE qo_rights_look"
        );
        client.batch_execute(&end).await.expect("they go");
    });
}

#[test]
fn an_upgrade_that_waits_for_a_transaction_keeps_no_call_waiting() {
    RUNTIME.block_on(async {
        let schema = "migration_held";
        let schemas = Schemas::on("QO_TEST_POSTGRES_18");
        let (client, caller) = (connect(&schemas.server()).await, connect(&schemas.server()).await);
        let url = schemas.schema(schema).await;
        client.batch_execute(&back_to_version_1(schema)).await.expect("it is as it was");
        // A caller stores a job in its own transaction and leaves that open.
        let store = |id: u128| {
            let id = Uuid::from_u128(id);
            format!(
                "INSERT INTO {schema}.job (seq, id, task, queue, grp, cost, priority, submitted_at, run_at, max_attempts, payload)
                 VALUES (nextval('{schema}.acceptance'), '{id}', 't', 'default', 't', 1, 0, 1, 1, 3, 'null')"
            )
        };
        caller.batch_execute(&format!("BEGIN; {}", store(1))).await.expect("it is stored");
        let (told, mut hears) = tokio::sync::mpsc::unbounded_channel::<String>();
        let raised = tokio::spawn(async move {
            migrate::up_telling(&url, |said| told.send(said.to_owned()).expect("it is heard")).await
        });
        let said = hears.recv().await.expect("it says why it waits");
        assert!(said.contains("open transaction") && said.contains("nothing has changed"), "{said}");
        // Nothing has changed, and another writer does not have to wait.
        let version: i32 = client.query_one("SELECT version FROM version", &[]).await.expect("it").get(0);
        assert_eq!(version, 1);
        client.batch_execute(&store(2)).await.expect("it is stored");
        caller.batch_execute("COMMIT").await.expect("it ends");
        let steps = raised.await.expect("it ends").expect("it is raised");
        assert_eq!(steps.len(), 7, "{steps:?}");
        let jobs: i64 = client.query_one("SELECT count(*) FROM job", &[]).await.expect("jobs").get(0);
        assert_eq!(jobs, 2);
        client.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.expect("it goes");
    });
}

#[test]
fn a_role_that_may_work_may_work_after_an_upgrade() {
    RUNTIME.block_on(async {
        let (schema, role) = ("migration_role", "qo_migration_worker");
        let server = Schemas::on("QO_TEST_POSTGRES_18").server();
        let client = connect(&server).await;
        let url = Schemas::on("QO_TEST_POSTGRES_18").schema(schema).await;
        let back = format!(
            "DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN;
             SELECT {schema}.allow('{role}', 'work');
             {}",
            back_to_version_1(schema)
        );
        client.batch_execute(&back).await.expect("it is as it was");
        migrate::up(&url).await.expect("it is raised");
        let worker = server.replace("postgres@", &format!("{role}@"));
        let mark = if worker.contains('?') { '&' } else { '?' };
        let url = Url::parse(&format!("{worker}{mark}schema={schema}")).expect("a url");
        let options = Options { notify: false, ..Options::default() };
        let store = PostgresStore::open(&url, options).await.expect("it opens");
        store.configure(Configuration::default()).await.expect("it may push");
        store.register(vec![TaskOptions::new(name("t"))]).await.expect("it may register");
        assert_eq!(store.pushes().await.expect("it may look").len(), 1);
        let end = format!("DROP SCHEMA {schema} CASCADE; DROP ROLE {role}");
        client.batch_execute(&end).await.expect("they go");
    });
}
