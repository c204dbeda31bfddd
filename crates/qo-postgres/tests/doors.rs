//! The doors of a schema, as roles that have a right to them and nothing else: whatever they are sent, what qo-core refuses is
//! refused in words, nothing of it is stored, and every view can be read.

mod fixtures;

use fixtures::{RUNTIME, Schemas, connect};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use qo_core::{ErrorKind, JobFilter, JobId, Json, NewJob, Store};
use qo_postgres::{Options, PostgresStore, Url};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::Client;
use tokio_postgres::types::Type;
use uuid::Uuid;

const SERVERS: [&str; 2] = ["QO_TEST_POSTGRES_15", "QO_TEST_POSTGRES_18"];
const PARTS: [&str; 3] = ["submit", "work", "look"];

/// A schema, and a connection for each part that a role may have in it.
struct House {
    server: String,
    schema: String,
    url: Url,
    owner: Client,
    roles: Vec<(&'static str, Client)>,
}

impl House {
    async fn new(server: &'static str, name: &str) -> Self {
        let schemas = Schemas::on(server);
        let schema = format!("{name}_{}", std::process::id());
        let url = schemas.schema(&schema).await;
        let server = schemas.server();
        let owner = connect(&server).await;
        let mut roles = Vec::new();
        for part in PARTS {
            let role = format!("{schema}_{part}");
            let make = format!("CREATE ROLE {role} LOGIN; SELECT {schema}.allow('{role}', '{part}')");
            owner.batch_execute(&make).await.expect("a role");
            roles.push((part, connect(&server.replace("postgres@", &format!("{role}@"))).await));
        }
        Self { server, schema, url, owner, roles }
    }

    fn role(&self, part: &str) -> &Client {
        &self.roles.iter().find(|(name, _)| *name == part).expect("a part").1
    }

    /// Calls a door with one JSON argument; the error if it refuses.
    async fn call(&self, part: &str, function: &str, argument: &Value) -> Result<(), String> {
        let query = format!("SELECT * FROM {}.{function}($1::text::jsonb)", self.schema);
        let called = self.role(part).query_typed(&query, &[(&argument.to_string(), Type::TEXT)]).await;
        called.map(drop).map_err(|error| told(&error))
    }

    /// The same, with an expression for its arguments.
    async fn say(&self, part: &str, expression: &str) -> Result<(), String> {
        let query = format!("SELECT {}", expression.replace("qo.", &format!("{}.", self.schema)));
        self.role(part).batch_execute(&query).await.map_err(|error| told(&error))
    }

    /// How many rows there are, in all tables that a door may write to.
    async fn rows(&self) -> i64 {
        let tables = "job done line extra hold limits code_limit submit_limit task queue workflow schedule session program";
        let counts: Vec<String> = tables
            .split(' ')
            .map(|table| format!("(SELECT count(*) FROM {}.{table})", self.schema))
            .collect();
        let row = self.owner.query_one(&format!("SELECT {}", counts.join(" + ")), &[]).await;
        row.expect("a count").get(0)
    }

    /// Every view can be read, and no job is marked.
    async fn views(&self) {
        let options = Options { connections: 1, notify: false, ..Options::default() };
        let store = PostgresStore::open(&self.url, options).await.expect("it opens");
        let jobs = store.jobs(JobFilter::default(), None, 1_000).await.expect("jobs").jobs;
        for job in jobs {
            assert_eq!(job.unreadable, None);
            store.job(job.id).await.expect("a job").payload.check("payload").expect("its payload");
            store.explain(job.id).await.expect("why it waits");
        }
        store.groups(None, 1_000).await.expect("groups");
        store.queues().await.expect("queues");
        store.workers().await.expect("workers");
        store.workflows(None, 1_000).await.expect("workflows");
        store.schedules().await.expect("schedules");
        assert_eq!(store.drift().await.as_deref(), Ok("[]"));
    }

    async fn end(self) {
        self.owner.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.schema)).await.expect("it goes");
        for part in PARTS {
            let role = format!("{}_{part}", self.schema);
            let end = format!("DROP OWNED BY {role}; DROP ROLE {role}");
            self.owner.batch_execute(&end).await.expect("it goes");
        }
        assert!(!self.server.is_empty());
    }
}

/// A refusal in words: a person can tell from it what to change.
fn told(error: &tokio_postgres::Error) -> String {
    let db = error.as_db_error().unwrap_or_else(|| panic!("no refusal, but {error}"));
    format!("{} {}", db.code().code(), db.message())
}

/// Values for each field of a job: good ones, and such as some door could let in.
fn values(field: &str) -> Vec<Value> {
    let long = |bytes: usize| Value::String("n".repeat(bytes));
    let any = vec![json!({}), json!([]), json!(true), json!(1.5), json!(-1)];
    let numbers =
        |more: &[i64]| more.iter().map(|number| json!(number)).chain(any.clone()).collect::<Vec<_>>();
    let nested = |deep: usize| json!(format!("{}{}", "[".repeat(deep), "]".repeat(deep)));
    let huge: Value = serde_json::from_str("18446744073709551616").expect("a number");
    let names = vec![
        json!("a"),
        json!("A.b-c_9"),
        json!(""),
        json!("bad name!"),
        json!("cluster"),
        json!("ä"),
        json!("a\n"),
        json!("-a"),
        json!("a/b"),
        json!("queue:x"),
        long(128),
        long(129),
        json!(5),
    ];
    let keys = vec![
        json!("k"),
        json!("a/b:c"),
        json!("ключ"),
        json!("*"),
        json!("**"),
        json!(""),
        json!("a\u{1}"),
        json!("\u{85}"),
        json!("\u{7f}"),
        long(256),
        long(257),
        json!(5),
    ];
    match field {
        "task" | "queue" | "group" | "workflow" => [names, any].concat(),
        "key" | "idempotency_key" => [keys, any].concat(),
        "priority" => numbers(&[0, 7, i64::from(i32::MIN), i64::from(i32::MAX), i64::from(i32::MAX) + 1]),
        "cost" => numbers(&[0, 1, 1_000_000, 1_000_001, 4_294_967_296, -5]),
        "limit" => numbers(&[0, 1, 1_000_000, 1_000_001]),
        "max_attempts" => numbers(&[0, 1, 1_000, 1_001]),
        "timeout_ms" => numbers(&[0, 1, 315_360_000_000, 315_360_000_001, i64::MAX]),
        "run_at" | "good_until" => [
            numbers(&[0, 1, 253_402_300_799_999, 253_402_300_800_000, i64::MAX]),
            vec![huge, json!("2026-01-01")],
        ]
        .concat(),
        "on_limit" => [vec![json!("wait"), json!("drop"), json!("")], any].concat(),
        "on_failure" => [vec![json!("halt"), json!("stop")], any].concat(),
        "retry" => vec![
            json!({}),
            json!({"base_ms": 5}),
            json!({"base_ms": -1}),
            json!({"base_ms": 5, "max_ms": 4}),
            json!({"factor_percent": 99}),
            json!({"factor_percent": 10_001}),
            json!({"jitter_percent": 101}),
            json!({"base_ms": "x"}),
            json!({"base_ms": 1.5}),
            json!({"base_ms": null}),
            json!(5),
            json!("x"),
            json!({"base_ms": 100_000}),
            json!({"max_ms": 315_360_000_001_i64}),
        ],
        "limits" => vec![
            json!({}),
            json!({"gpu": 1}),
            json!({"gpu/k": 2}),
            json!({"gpu": 0}),
            json!({"gpu": -1}),
            json!({"gpu": "1"}),
            json!({"gpu": 1.5}),
            json!({"gpu": null}),
            json!({"cluster": 1}),
            json!({"queue:x": 1}),
            json!({"gpu/*": 1}),
            json!({"a b": 1}),
            json!({"": 1}),
            json!({"gpu/": 1}),
            json!({"gpu": 1_000_001}),
            json!([]),
            json!(5),
            Value::Object((0..13).map(|n| (format!("g{n}"), json!(1))).collect()),
        ],
        "payload" => vec![
            json!("null"),
            json!("{\"a\": [1, 2]}"),
            json!("1e400"),
            json!("-1e400"),
            json!("1e308"),
            json!("1.8e308"),
            json!("1e-400"),
            json!("0e999"),
            json!("1".repeat(308)),
            json!("1".repeat(400)),
            json!("[1e309]"),
            json!("\"1e400\""),
            json!("\"\\\\\\\\ud800\""),
            json!("\"\\ud800\""),
            json!("\"\\ude00\\ud83d\""),
            json!("\"\\ud83d\\ude00\""),
            json!("\"\\u0000\""),
            json!("{"),
            json!(""),
            json!("nan"),
            json!("{\"a\":1}}"),
            json!("[1,]"),
            json!("01"),
            json!("\"\t\""),
            nested(127),
            nested(128),
            nested(200),
            nested(50_000),
            json!(format!("[{}]", vec!["[]"; 500].join(","))),
            json!(format!("\"{}\"", "[".repeat(500))),
            json!(format!("\"{}\"", "x".repeat(1 << 20))),
            json!(format!("\"{}\"", "x".repeat((1 << 20) - 2))),
            json!({}),
            json!(5),
        ],
        _ => unreachable!("{field}"),
    }
}

const FIELDS: [&str; 18] = [
    "task",
    "queue",
    "group",
    "workflow",
    "key",
    "idempotency_key",
    "priority",
    "cost",
    "limit",
    "max_attempts",
    "timeout_ms",
    "run_at",
    "good_until",
    "on_limit",
    "on_failure",
    "retry",
    "limits",
    "payload",
];

/// What qo-core makes of a job.
fn refused_by_core(job: &Value) -> Option<String> {
    match serde_json::from_value::<NewJob>(job.clone()) {
        Ok(job) => job.check().err().map(|error| error.to_string()),
        Err(error) => Some(error.to_string()),
    }
}

fn job(fields: &[(&'static str, Value)]) -> Value {
    static MADE: AtomicU64 = AtomicU64::new(1);
    let mut job = Map::from_iter([("task".to_owned(), json!("t"))]);
    job.extend(fields.iter().map(|(field, value)| ((*field).to_owned(), value.clone())));
    let id = JobId(Uuid::from_u128(MADE.fetch_add(1, Ordering::Relaxed).into()));
    job.insert("id".into(), json!(id));
    Value::Object(job)
}

/// Sends a job through a door; the door must do as qo-core does, and what it refuses must leave no trace.
async fn same(house: &House, fields: &[(&'static str, Value)]) {
    let sent = job(fields);
    let core = refused_by_core(&sent);
    let before = house.rows().await;
    let refused =
        house.call("work", "api_submit", &json!([{"id": Uuid::now_v7(), "task": "fine"}, sent])).await.err();
    let shown: String = sent.to_string().chars().take(300).collect();
    match (&core, &refused) {
        (None, None) => {}
        (Some(_), Some(error)) => {
            assert!(error.starts_with("QOINV jobs[1]") && error.len() < 1_000, "{error}");
            assert_eq!(house.rows().await, before, "{error}, and yet something is stored: {shown}");
        }
        _ => panic!("{shown}\nqo-core: {core:?}\nSQL: {refused:?}"),
    }
}

#[test]
fn a_door_refuses_exactly_the_jobs_that_the_rule_book_refuses() {
    RUNTIME.block_on(async {
        for server in SERVERS {
            let house = House::new(server, "doors_alone").await;
            for field in FIELDS {
                for value in values(field) {
                    same(&house, &[(field, value)]).await;
                }
            }
            house.views().await;
            house.end().await;
        }
    });
}

#[test]
fn a_door_refuses_as_the_rule_book_does_whatever_comes_together() {
    let field = prop::sample::select(&FIELDS[..]);
    let field = field.prop_flat_map(|field| (Just(field), prop::sample::select(values(field))));
    let jobs = prop::collection::vec(field, 1..4);
    let house = RUNTIME.block_on(House::new("QO_TEST_POSTGRES_18", "doors_many"));
    // A job may also break a rule that needs the state, or meet an earlier one.
    let needs_state = ["workflow", "idempotency_key", "limit", "limits", "cost", "on_limit"];
    let mut runner = TestRunner::new(Config { cases: 150, ..Config::default() });
    let run = runner.run(&jobs, |fields| {
        prop_assume!(fields.iter().filter(|(field, _)| needs_state.contains(field)).count() < 2);
        RUNTIME.block_on(same(&house, &fields));
        Ok(())
    });
    run.expect("they agree");
    RUNTIME.block_on(async {
        house.views().await;
        house.end().await;
    });
}

#[test]
fn sql_submit_refuses_what_the_rule_book_refuses_as_the_submit_role() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_sql").await;
        for field in FIELDS.iter().filter(|field| **field != "payload") {
            for value in values(field) {
                let sent = job(&[(field, value)]);
                let refused = house.call("submit", "submit_many", &json!([sent])).await.err();
                assert_eq!(refused.is_some(), refused_by_core(&sent).is_some(), "{sent}: {refused:?}");
            }
        }
        for value in values("payload") {
            // SQL brings JSON itself; what is none does not come so far.
            let text = value.as_str().unwrap_or_default();
            let query = format!("SELECT {}.submit('t', $1::text::jsonb)", house.schema);
            let called = house.role("submit").query_typed(&query, &[(&text, Type::TEXT)]).await;
            let is_zero = text.contains("\\u0000");
            assert_eq!(
                called.is_err(),
                is_zero || Json::parse("payload", text).and_then(|json| json.check("payload")).is_err(),
                "{text:.80}"
            );
        }
        for bad in [
            "null",
            "5",
            "{}",
            "[null]",
            "[5]",
            "[[]]",
            "[\"x\"]",
            "[{}]",
            "[{\"task\": null}]",
            "[{\"task\": \"t\", \"wat\": 1}]",
        ] {
            let bad: Value = serde_json::from_str(bad).expect("JSON");
            let error = house.call("submit", "submit_many", &bad).await.expect_err("it is refused");
            assert!(error.starts_with("QOINV jobs"), "{bad}: {error}");
        }
        house.views().await;
        house.end().await;
    });
}

#[test]
fn garbage_through_any_other_door_is_refused_and_breaks_no_view() {
    let id = "'00000000-0000-7000-8000-000000000001'";
    let session = |field: &str, value: &str| {
        let mut new: Value =
            json!({"id": &id[1..37], "worker": "w", "tasks": ["t"], "lease_ms": 30_000, "permits": 1});
        new[field] = serde_json::from_str(value).expect("JSON");
        format!("qo.api_open_session('{new}')")
    };
    let exchange = |field: &str, value: &str| {
        let mut new: Value = json!({"session": &id[1..37], "number": 1, "claim": {"max": 1}, "free_permits": 1, "draining": false});
        new[field] = serde_json::from_str(value).expect("JSON");
        format!("qo.api_exchange('{new}', NULL)")
    };
    let slots = |field: &str, value: &str| {
        let mut new: Value = json!({"id": &id[1..37], "group": "g", "holder": "h", "lease_ms": 30_000});
        new[field] = serde_json::from_str(value).expect("JSON");
        format!("qo.api_acquire_slots('{new}')")
    };
    let calls = [
        session("worker", "\"bad name!\""), session("tasks", "[]"), session("tasks", "[\"a b\"]"), session("tasks", "5"),
        session("queues", "[5]"), session("lease_ms", "-1"), session("permits", "0"), session("id", "\"x\""), session("id", "null"),
        "qo.api_open_session(NULL)".into(), "qo.api_open_session('[]')".into(),
        exchange("claim", "{\"max\": -1}"), exchange("claim", "{\"max\": 1e9}"), exchange("claim", "7"), exchange("number", "0"),
        exchange("free_permits", "-1"), exchange("settles", "[5]"), exchange("settles", "7"), exchange("settles", "[{\"job\": \"x\", \"token\": 1}]"),
        exchange("starts", "[{}]"), exchange("progress", "[{\"job\": \"00000000-0000-7000-8000-000000000001\", \"token\": 1, \"percent\": 101}]"),
        exchange("claim", "{\"prefetch\": {\"hold\": 0, \"lease_ms\": 1}}"), "qo.api_exchange(NULL, NULL)".into(), "qo.api_fetch('5', NULL)".into(),
        slots("group", "\"queue:x\""), slots("group", "\"a b\""), slots("holder", "\"\""), slots("slots", "-5"), slots("limit", "-1"),
        slots("lease_ms", "1"), "qo.api_acquire_slots('null')".into(), format!("qo.api_extend_slots({id}, 1, -5)"),
        "qo.api_register('[{\"task\": \"a b\"}]')".into(), "qo.api_register('[{\"task\": \"t\", \"limit\": -1}]')".into(),
        "qo.api_register('[{\"task\": \"t\", \"retry\": 7}]')".into(), "qo.api_register('[null]')".into(), "qo.api_register('7')".into(),
        "qo.api_configure('{\"limits\": {\"a b\": 1}}', '{}')".into(), "qo.api_configure('{\"limits\": {\"a\": -1}}', '{}')".into(),
        "qo.api_configure('{\"queue_priorities\": {\"a b\": 1}}', '{}')".into(), "qo.api_configure('{\"queue_priorities\": {\"a\": 0}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a b\": {\"cron\": \"* * * * *\", \"task\": \"t\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": {\"cron\": \"* * * * *\", \"task\": \"a b\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": {\"cron\": \"* * * * *\", \"task\": \"t\", \"payload\": \"1e400\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": 7}}', '{}')".into(), "qo.api_configure('[]', '{}')".into(),
        "qo.api_configure('{\"retention\": {\"failed_ms\": -1}}', '{}')".into(), "qo.api_configure('{\"limits\": 7}', '{}')".into(),
        "qo.api_set_limit('bad!!', 1)".into(), "qo.api_set_limit('a', -1)".into(), "qo.api_set_limit('a', 1000001)".into(),
        "qo.api_set_limit(NULL, 1)".into(), "qo.api_set_limit('a', NULL)".into(), "qo.api_pause_queue('a b', true)".into(),
        "qo.api_pause_queue(NULL, true)".into(), "qo.api_pause_queue('a', NULL)".into(), "qo.api_steer_workflow('w', 'wat', 1)".into(),
        "qo.api_change_matching('wat', '{}', NULL, 1)".into(), "qo.api_change_matching('cancel', '{}', NULL, -1)".into(),
    ];
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_other").await;
        let before = house.rows().await;
        for call in &calls {
            let error = house.say("work", call).await.expect_err(call);
            assert!(error.starts_with("QOINV") && error.contains(": "), "{call}: {error}");
            assert_eq!(house.rows().await, before, "{call}");
            for part in ["submit", "look"] {
                let error = house.say(part, call).await.expect_err(call);
                assert!(error.starts_with("42501"), "{part}: {call}: {error}");
            }
        }
        // What another release would write is not for a role that only looks.
        for table in ["job", "limits", "session"] {
            let error = house.say("look", &format!("1; DELETE FROM qo.{table}")).await.expect_err(table);
            assert!(error.starts_with("42501"), "{error}");
        }
        house.views().await;
        house.end().await;
    });
}

#[test]
fn a_client_cannot_switch_a_trial_on_and_get_a_token_of_zero() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_trial").await;
        let options = Options { connections: 1, notify: false, ..Options::default() };
        let store = PostgresStore::open(&house.url, options).await.expect("it opens");
        house.say("submit", "qo.submit('t')").await.expect("it is stored");
        let id = Uuid::from_u128(7);
        let open = json!({"id": id, "worker": "w", "tasks": ["t"], "lease_ms": 30_000, "permits": 1});
        house.say("work", &format!("qo.api_open_session('{open}')")).await.expect("it opens");
        let exchange =
            json!({"session": id, "number": 1, "claim": {"max": 1}, "free_permits": 1, "draining": false});
        house.role("work").batch_execute("SET qo.trial = 'on'").await.expect("a setting of its own");
        house.say("work", &format!("qo.api_work('{id}', '{{\"max\": 1}}', NULL)")).await.expect("a look");
        house.say("work", &format!("qo.api_exchange('{exchange}', NULL)")).await.expect("a claim");
        let job = &store.jobs(JobFilter::default(), None, 10).await.expect("jobs").jobs[0];
        assert!(job.running.as_ref().is_some_and(|run| run.token.0 > 0), "{job:?}");
        drop(store);
        house.end().await;
    });
}

#[test]
fn a_role_without_a_right_is_told_so_and_not_that_the_server_is_away() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_rights").await;
        let mark = if house.server.contains('?') { '&' } else { '?' };
        let server = house.server.replace("postgres@", &format!("{}_submit@", house.schema));
        let url = Url::parse(&format!("{server}{mark}schema={}", house.schema)).expect("a url");
        let error = PostgresStore::open(&url, Options::default()).await.err().expect("it has no right");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("allow('ROLE', 'work')"), "{error}");
        let work =
            Url::parse(&format!("{}{mark}schema={}", server.replace("_submit@", "_work@"), house.schema))
                .expect("a url");
        let store = PostgresStore::open(&work, Options { notify: false, ..Options::default() })
            .await
            .expect("it opens");
        let take = format!("REVOKE EXECUTE ON FUNCTION {0}.api_queues() FROM {0}_work", house.schema);
        house.owner.batch_execute(&take).await.expect("it is taken away");
        assert_eq!(store.queues().await.map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        drop(store);
        house.end().await;
    });
}
