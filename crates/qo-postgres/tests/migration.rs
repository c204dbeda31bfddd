//! A schema that an older release made is raised, and keeps what it has.

mod fixtures;

use fixtures::{RUNTIME, Schemas, connect};
use qo_core::{
    Configuration, GroupRef, LimitSource, Name, Pushed, Schedule, Store, TaskOptions, default_app,
};
use qo_postgres::{Options, PostgresStore, Url, migrate};

/// The tables of version 1, and what its workers left in them. Its functions go with the upgrade; two stand for all.
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
        include_str!("../src/migrations/0001_tables.sql")
    )
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn group(text: &str) -> GroupRef {
    text.parse().expect("a group")
}

async fn raised(server: &'static str, schema: &str) -> PostgresStore {
    let server = Schemas::on(server).server();
    connect(&server).await.batch_execute(&version_1(schema)).await.expect("version 1 is made");
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
                limit: Some(4),
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
             REVOKE EXECUTE ON FUNCTION {schema}.api_pushes() FROM {role};
             UPDATE {schema}.version SET version = 1;
             DROP TABLE {schema}.app, {schema}.app_setting, {schema}.registration, {schema}.push;
             ALTER TABLE {schema}.job DROP CONSTRAINT job_names, DROP CONSTRAINT job_cost,
                DROP CONSTRAINT job_limits, DROP CONSTRAINT job_attempts, DROP CONSTRAINT job_timeout;
             ALTER TABLE {schema}.limits DROP COLUMN config_app;
             ALTER TABLE {schema}.code_limit DROP CONSTRAINT code_limit_pkey, DROP COLUMN app;
             ALTER TABLE {schema}.code_limit ADD PRIMARY KEY (task);"
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
