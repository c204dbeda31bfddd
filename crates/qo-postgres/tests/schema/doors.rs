//! The doors of a schema, called by roles that have a right to them and to nothing else. Whatever they are sent: what
//! qo-core refuses is refused in words, nothing of it is stored, and every view can be read.

use crate::fixtures::{RUNTIME, Schemas, connect};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use qo_core::{
    Claim, Configuration, ErrorKind, Exchange, JobFilter, JobId, JobState, Json, Name, NewJob, NewSession,
    Outcome, Schedule, SessionId, Settle, Store, TickOutcome, caps,
};
use qo_postgres::{Options, PostgresStore, Url, doctor};
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
        let tables = "job done line extra_limit owned_job limits code_limit submit_limit task queue workflow schedule session program";
        let counts: Vec<String> = tables
            .split(' ')
            .map(|table| format!("(SELECT count(*) FROM {}.{table})", self.schema))
            .collect();
        let row = self.owner.query_one(&format!("SELECT {}", counts.join(" + ")), &[]).await;
        row.expect("a count").get(0)
    }

    /// Every view can be read, and no job is shown as unreadable.
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

/// Values for each field of a job: good ones, and bad ones that a door might let in.
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
        "traceparent" => [
            vec![
                json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
                json!("00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01"),
                json!("01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
                json!("00-00000000000000000000000000000000-00f067aa0ba902b7-01"),
                json!("00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01"),
                json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n"),
                json!("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-"),
                json!("00-4bf92f3577b34da6a3ce929d0e0e47360-0f067aa0ba902b7-01"),
                json!(""),
                Value::Null,
            ],
            any,
        ]
        .concat(),
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
            json!("1.7976931348623157e308"),
            json!("-1.7976931348623157000e308"),
            json!("1.7976931348623157999e308"),
            json!("1.7976931348623158e308"),
            json!("1.79769313486231581e308"),
            json!("1.7976931348623159e308"),
            json!("0.17976931348623158e309"),
            json!("17976931348623157e292"),
            json!("1797693134862315708145274237317043567980e269"),
            json!("9.99999999999999999999999e307"),
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

const FIELDS: [&str; 19] = [
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
    "traceparent",
    "retry",
    "limits",
    "payload",
];

/// Why qo-core refuses a job; none if it does not.
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

/// Sends a job through a door. The door must decide as qo-core does, and what it refuses must leave no trace.
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
fn a_door_refuses_combinations_as_the_rule_book_does() {
    let field = prop::sample::select(&FIELDS[..]);
    let field = field.prop_flat_map(|field| (Just(field), prop::sample::select(values(field))));
    let jobs = prop::collection::vec(field, 1..4);
    let house = RUNTIME.block_on(House::new("QO_TEST_POSTGRES_18", "doors_many"));
    // A job may also break a rule that needs the state, or equal an earlier one.
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
            // SQL sends JSON itself; a text that is no JSON does not reach the door.
            let text = value.as_str().unwrap_or_default();
            let query = format!("SELECT {}.submit('t', $1::text::jsonb)", house.schema);
            let called = house.role("submit").query_typed(&query, &[(&text, Type::TEXT)]).await;
            let is_zero = text.contains("\\u0000");
            // The server stores its own text of the value: a number with all its digits.
            let stored =
                house.owner.query_typed("SELECT $1::text::jsonb::text", &[(&text, Type::TEXT)]).await;
            let stored = stored.map_or_else(|_| text.to_owned(), |rows| rows[0].get(0));
            let text = &*stored;
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
    let schedule = |field: &str, value: &str| {
        let mut spec: Value = json!({"cron": "* * * * *", "timezone": "UTC", "task": "t"});
        spec[field] = serde_json::from_str(value).expect("JSON");
        let next = json!({"a": {"cron": spec["cron"], "timezone": spec["timezone"], "next": 1}});
        format!("qo.api_configure('{}', '{next}')", json!({"schedules": {"a": spec}}))
    };
    let shared = |outcomes: &str, error: &str, output: &str, delay: &str, rest: &str| {
        format!(
            "* FROM qo.api_exchange_shared({id}, 1, ARRAY[{id}]::uuid[], ARRAY[1]::bigint[], ARRAY[{outcomes}]::text[],
                 ARRAY[{error}]::text[], ARRAY[{output}]::text[], ARRAY[{delay}]::bigint[], {rest}, false, NULL)"
        )
    };
    let calls = [
        session("worker", "\"bad name!\""), session("tasks", "[]"), session("tasks", "[\"a b\"]"), session("tasks", "5"),
        session("queues", "[5]"), session("lease_ms", "-1"), session("permits", "0"), session("id", "\"x\""), session("id", "null"),
        "qo.api_open_session(NULL)".into(), "qo.api_open_session('[]')".into(),
        exchange("claim", "{\"max\": -1}"), exchange("claim", "{\"max\": 1e9}"), exchange("claim", "7"), exchange("number", "0"),
        exchange("free_permits", "-1"), exchange("settles", "[5]"), exchange("settles", "7"), exchange("settles", "[{\"job\": \"x\", \"token\": 1}]"),
        exchange("starts", "[{}]"), exchange("progress", "[{\"job\": \"00000000-0000-7000-8000-000000000001\", \"token\": 1, \"percent\": 101}]"),
        exchange("claim", "{\"prefetch\": {\"buffer\": 0, \"lease_ms\": 1}}"), "qo.api_exchange(NULL, NULL)".into(), "qo.api_fetch('5', NULL)".into(),
        slots("group", "\"queue:x\""), slots("group", "\"a b\""), slots("holder", "\"\""), slots("slots", "-5"), slots("limit", "-1"),
        slots("lease_ms", "1"), "qo.api_acquire_slots('null')".into(), format!("qo.api_extend_slots({id}, 1, -5)"),
        "qo.api_register('[{\"task\": \"a b\"}]')".into(), "qo.api_register('[{\"task\": \"t\", \"max_concurrent\": -1}]')".into(),
        "qo.api_register('[{\"task\": \"t\", \"retry\": 7}]')".into(), "qo.api_register('[null]')".into(), "qo.api_register('7')".into(),
        "qo.api_configure('{\"limits\": {\"a b\": 1}}', '{}')".into(), "qo.api_configure('{\"limits\": {\"a\": -1}}', '{}')".into(),
        "qo.api_configure('{\"queue_priorities\": {\"a b\": 1}}', '{}')".into(), "qo.api_configure('{\"queue_priorities\": {\"a\": 0}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a b\": {\"cron\": \"* * * * *\", \"task\": \"t\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": {\"cron\": \"* * * * *\", \"task\": \"a b\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": {\"cron\": \"* * * * *\", \"task\": \"t\", \"payload\": \"1e400\"}}}', '{}')".into(),
        "qo.api_configure('{\"schedules\": {\"a\": 7}}', '{}')".into(), "qo.api_configure('[]', '{}')".into(),
        "qo.api_configure('{\"retention\": {\"failed_ms\": -1}}', '{}')".into(), "qo.api_configure('{\"limits\": 7}', '{}')".into(),
        schedule("cron", "5"), schedule("cron", "\"\""), schedule("timezone", "null"), schedule("timezone", "7"), schedule("timezone", "\"\""),
        schedule("missed", "\"wat\""), schedule("missed", "null"), schedule("overlap", "\"yes\""), schedule("overlap", "null"),
        schedule("queue", "null"), schedule("payload", "null"), schedule("priority", "null"), schedule("wat", "1"),
        schedule("max_attempts", "0"), schedule("timeout_ms", "0"), schedule("task", "null"),
        "qo.api_configure('{\"schedules\": {\"a\": {\"cron\": \"* * * * *\", \"task\": \"t\"}}}', '{}')".into(),
        "qo.api_configure('{\"retention\": {\"failed_ms\": 315360000001}}', '{}')".into(),
        "qo.api_configure('{\"retention\": {\"wat\": 1}}', '{}')".into(), "qo.api_configure('{}', '7')".into(),
        shared("'wat'", "NULL", "NULL", "NULL", "1, NULL, 1"), shared("NULL", "NULL", "NULL", "NULL", "1, NULL, 1"),
        shared("'succeeded'", "NULL", "'{'", "NULL", "1, NULL, 1"), shared("'succeeded'", "NULL", "NULL", "NULL", "1, NULL, 1"),
        shared("'succeeded'", "NULL", "'1e400'", "NULL", "1, NULL, 1"), shared("'succeeded'", "NULL", "'null'", "5", "1, NULL, 1"),
        shared("'retried'", "'e'", "NULL", "NULL", "1, NULL, 1"), shared("'retried'", "'e'", "NULL", "-1", "1, NULL, 1"),
        shared("'snoozed'", "NULL", "NULL", "315360000001", "1, NULL, 1"), shared("'released'", "NULL", "NULL", "5", "1, NULL, 1"),
        shared("'released'", "NULL", "NULL", "NULL", "-1, NULL, 1"), shared("'released'", "NULL", "NULL", "NULL", "10001, NULL, 1"),
        shared("'released'", "NULL", "NULL", "NULL", "1, 0, 1"), shared("'released'", "NULL", "NULL", "NULL", "1, NULL, -1"),
        shared("'released'", "NULL", "NULL", "NULL", "NULL, NULL, 1"), shared("'released', 'released'", "NULL", "NULL", "NULL", "1, NULL, 1"),
        "qo.api_keep_log(1000000, '')".into(), "qo.api_keep_log(0, '')".into(), "qo.api_keep_log(NULL, '')".into(), "qo.api_keep_log(1, NULL)".into(),
        "qo.api_keep_log(1, convert_to(repeat('x', 65537), 'UTF8'))".into(),
        format!("qo.api_fail_unreadable({id}, ARRAY[{id}]::uuid[], '{{}}', '{{}}')"),
        format!("qo.api_fail_unreadable({id}, NULL, NULL, NULL)"),
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
        // A role that only looks may not call what another release would write with.
        for table in ["job", "limits", "session"] {
            let error = house.say("look", &format!("1; DELETE FROM qo.{table}")).await.expect_err(table);
            assert!(error.starts_with("42501"), "{error}");
        }
        house.views().await;
        house.end().await;
    });
}

#[test]
fn a_worker_can_neither_make_tokens_nor_write_the_audit_log() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_audit").await;
        let deed = json!({"by": "w", "what": "set limit", "on": "api"});
        let doors = [
            format!("qo.api_record('{deed}')"),
            "qo.api_tokens()".to_owned(),
            "qo.api_create_token('{}', 'w')".to_owned(),
            "qo.api_revoke_token('0000000000', 'w')".to_owned(),
        ];
        for part in PARTS {
            for door in &doors {
                let refused = house.say(part, door).await.expect_err("no right");
                assert!(refused.starts_with("42501 "), "{part} {door}: {refused}");
            }
        }
        house.say("work", "qo.api_audit(NULL, 10)").await.expect("it may read");
        let allow = format!("SELECT {0}.allow('{0}_work', 'admin')", house.schema);
        house.owner.batch_execute(&allow).await.expect("allowed");
        house.say("work", &doors[0]).await.expect("an administrator records");
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

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// A store as the role that works, and a session of it that serves the task `t`.
async fn at_work(house: &House) -> (PostgresStore, SessionId) {
    let mark = if house.server.contains('?') { '&' } else { '?' };
    let server = house.server.replace("postgres@", &format!("{}_work@", house.schema));
    let url = Url::parse(&format!("{server}{mark}schema={}", house.schema)).expect("a url");
    let options = Options { connections: 2, notify: false, ..Options::default() };
    let store = PostgresStore::open(&url, options).await.expect("it opens");
    let id = SessionId(Uuid::from_u128(7));
    let tasks = vec![name("t")];
    let new = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 100,
        owner: None,
    };
    store.open_session(new).await.expect("it opens");
    (store, id)
}

fn claim(session: SessionId, number: u64, max: u32) -> Exchange {
    let claim = Claim { max, ..Claim::default() };
    Exchange { claim, free_permits: 100, ..Exchange::renew(session, number) }
}

impl House {
    /// Does something as the owner, in the schema.
    async fn own(&self, sql: &str) {
        let sql = format!("SET search_path = {}; {sql}", self.schema);
        self.owner.batch_execute(&sql).await.expect("it is done");
    }

    /// Whether an exchange of the session would have to run alone now.
    async fn must_be_alone(&self) -> bool {
        let asked = format!("SELECT {}.must_be_alone({0}.store_time(), $1)", self.schema);
        self.own("").await;
        self.owner.query_one(&asked, &[&Uuid::from_u128(7)]).await.expect("an answer").get(0)
    }
}

#[test]
fn a_schedule_that_no_worker_can_read_stops_alone_and_is_named() {
    RUNTIME.block_on(async {
        for server in SERVERS {
            let house = House::new(server, "doors_schedules").await;
            let (store, session) = at_work(&house).await;
            let mut mail = Configuration::of(name("mail"));
            mail.schedules.insert(name("shared"), Schedule::new("0 3 * * *", name("t")));
            store.configure(mail.clone()).await.expect("it is pushed");
            // As another release has stored them: a policy, an expression and a zone that are unknown here.
            house
                .own(
                    r#"INSERT INTO app VALUES ('other', 0);
                    INSERT INTO app_setting SELECT 'other', 'schedule', s.name, s.spec::jsonb FROM (VALUES
                        ('policy', '{"cron": "0 3 * * *", "timezone": "UTC", "task": "t", "missed": "wat"}'),
                        ('cron', '{"cron": "wat", "timezone": "UTC", "task": "t"}'),
                        ('zone', '{"cron": "0 3 * * *", "timezone": "Mars/Olympus", "task": "t"}'),
                        ('shared', '{"cron": "wat", "timezone": "UTC", "task": "t", "missed": 5}')) s (name, spec);
                    INSERT INTO schedule (schedule, spec, next) SELECT name, value, 1 FROM app_setting
                        WHERE app = 'other' AND name <> 'shared'"#,
                )
                .await;
            assert!(house.must_be_alone().await, "they are due");
            house.say("submit", "qo.submit('t')").await.expect("it is stored");
            let reply = store.exchange(claim(session, 1, 1)).await.expect("an exchange");
            assert_eq!(reply.claimed.len(), 1);
            assert!(!house.must_be_alone().await, "they are not due any more");
            let schedules = store.schedules().await.expect("schedules");
            for stopped in schedules.iter().filter(|status| matches!(&*status.schedule, "cron" | "zone")) {
                assert_eq!(stopped.next, None);
                let last = stopped.last.as_ref().map(|last| &last.outcome);
                assert!(matches!(last, Some(TickOutcome::Refused(_))), "{stopped:?}");
            }

            // Every app can push, also one that leaves a schedule to the app whose schedule cannot be read.
            store.configure(Configuration::of(name("third"))).await.expect("it is pushed");
            mail.schedules.clear();
            store.configure(mail).await.expect("it is pushed");
            let apps = store.configurations().await.expect("configurations");
            assert_eq!(apps.len(), 1, "{apps:?}");
            assert_eq!(apps[0].schedules.len(), 2, "those that can be read");
            let health = doctor::examine(&house.url).await.expect("it is examined");
            for part in ["\"policy\"", "\"cron\"", "\"zone\"", "\"shared\"", "Mars/Olympus"] {
                assert!(health.unreadable.iter().any(|what| what.contains(part)), "{part}: {health:?}");
            }
            drop(store);
            house.end().await;
        }
    });
}

#[test]
fn an_old_schedule_without_a_zone_ends_no_call_in_a_loop() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_zone").await;
        let (store, _) = at_work(&house).await;
        house
            .own(r#"INSERT INTO schedule (schedule, spec) VALUES ('old', '{"cron": "0 3 * * *", "task": "t"}')"#)
            .await;
        let refused = store.enable_schedule(name("old"), false).await.expect_err("it has no zone");
        assert_eq!(refused.kind(), ErrorKind::Conflict, "{refused}");
        drop(store);
        house.end().await;
    });
}

#[test]
fn an_open_transaction_with_the_key_of_a_tick_freezes_no_exchange() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_tick").await;
        let (store, session) = at_work(&house).await;
        let mut shop = Configuration::of(name("shop"));
        shop.schedules.insert(name("nightly"), Schedule::new("0 3 * * *", name("t")));
        store.configure(shop).await.expect("it is pushed");
        // A tick is due, and a role that may only submit has its idempotency key in an open transaction.
        let tick = 1_700_017_200_000_i64;
        house.own(&format!("UPDATE schedule SET next = {tick}")).await;
        let spec = &store.schedules().await.expect("schedules")[0].spec;
        let latest = store.now().await.expect("a time");
        let latest = spec.last_until(qo_core::Time::from_millis(tick), latest).expect("it").expect("a tick");
        let key = spec.job(&name("nightly"), latest).expect("a job").idempotency_key.expect("a key");
        house.role("submit").batch_execute("BEGIN").await.expect("it begins");
        house
            .say("submit", &format!("qo.submit('x', idempotency_key => '{}')", &*key))
            .await
            .expect("stored");
        house.say("work", "qo.submit('t')").await.expect("it is stored");
        let reply = store.exchange(claim(session, 1, 5)).await.expect("an exchange");
        assert_eq!(reply.claimed.len(), 1, "what is there is claimed");
        assert!(!house.must_be_alone().await, "the tick is put off");
        house.role("submit").batch_execute("ROLLBACK").await.expect("it ends");
        house.own("UPDATE schedule SET put_off_until = 1").await;
        let reply = store.exchange(claim(session, 2, 5)).await.expect("an exchange");
        assert_eq!(reply.claimed.len(), 1, "the tick is made up for");
        let status = &store.schedules().await.expect("schedules")[0];
        assert!(matches!(status.last.as_ref().map(|last| &last.outcome), Some(TickOutcome::Accepted(_))));
        assert!(status.next.is_some_and(|next| next > latest));
        drop(store);
        house.end().await;
    });
}

#[test]
fn a_big_job_of_a_far_date_makes_no_exchange_run_alone() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_big").await;
        house.say("work", "qo.api_set_limit('other', 5)").await.expect("it is set");
        house.say("submit", "qo.submit('x', cost => 2, run_at => '2090-01-01')").await.expect("stored");
        assert!(!house.must_be_alone().await);
        house.say("submit", "qo.submit('x', cost => 2)").await.expect("stored");
        assert!(house.must_be_alone().await);
        house.end().await;
    });
}

#[test]
fn jobs_that_cannot_be_read_fail_in_one_call_and_hold_up_no_reply() {
    RUNTIME.block_on(async {
        for server in SERVERS {
            let house = House::new(server, "doors_unread").await;
            let (store, session) = at_work(&house).await;
            let submit = "count(*) FROM qo.submit_many((SELECT jsonb_agg('{\"task\": \"t\"}'::jsonb) FROM generate_series(1, 60)))";
            house.say("submit", submit).await.expect("they are stored");
            house.own("UPDATE job SET key = '*' WHERE seq > 10").await;
            // The call that reports them fails: the ten readable jobs are handed over all the same.
            let function = "api_fail_unreadable(uuid, uuid[], bigint[], text[])";
            let role = format!("{}_work", house.schema);
            house.own(&format!("REVOKE EXECUTE ON FUNCTION {function} FROM {role}")).await;
            let reply = store.exchange(claim(session, 1, 100)).await.expect("an exchange");
            assert_eq!(reply.claimed.len(), 10);
            house.own(&format!("GRANT EXECUTE ON FUNCTION {function} TO {role}")).await;
            // The next exchange reports them.
            store.exchange(claim(session, 2, 1)).await.expect("an exchange");
            let failed = JobFilter { states: vec![JobState::Failed], ..JobFilter::default() };
            let failed = store.jobs(failed, None, 100).await.expect("jobs").jobs;
            assert_eq!(failed.len(), 50);
            let detail = store.job(failed[0].id).await.expect("it is shown");
            let error = detail.attempts[0].error.as_ref().expect("an error").as_str().to_owned();
            assert!(error.contains("this job cannot be read: key"), "{error}");
            assert_eq!(store.drift().await.as_deref(), Ok("[]"));
            drop(store);
            house.end().await;
        }
    });
}

#[test]
fn sql_cuts_an_error_where_the_rule_book_does() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_15", "doors_cut").await;
        for (text, times) in
            [("x", 9_000), ("ä", 5_000), ("€", 3_000), ("𝄞", 2_500), ("x€", 2_100), ("x", caps::ERROR_BYTES)]
        {
            let whole = text.repeat(times);
            let cut = &whole[..whole.floor_char_boundary(caps::ERROR_BYTES)];
            let asked = format!("SELECT {}.left_bytes($1, {})", house.schema, caps::ERROR_BYTES);
            let row = house.owner.query_one(&asked, &[&whole]).await.expect("an answer");
            assert_eq!(row.get::<_, &str>(0), cut, "{text}");
        }
        house.end().await;
    });
}

#[test]
fn a_door_of_exchanges_cuts_errors_and_refuses_an_output_alone() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_settle").await;
        let (store, session) = at_work(&house).await;
        for _ in 0..3 {
            house.say("submit", "qo.submit('t')").await.expect("it is stored");
        }
        let held = store.exchange(claim(session, 1, 3)).await.expect("an exchange").claimed;
        let (id, first) = (Uuid::from_u128(7), &held[0]);
        let call = format!(
            "* FROM qo.api_exchange_shared('{id}', 2, ARRAY['{}']::uuid[], ARRAY[{}]::bigint[], ARRAY['failed'], ARRAY[repeat('x', 100000)],
                 ARRAY[NULL]::text[], ARRAY[NULL]::bigint[], 0, NULL, 1, false, NULL)",
            first.id, first.token.0
        );
        house.say("work", &call).await.expect("it is settled");
        let detail = store.job(first.id).await.expect("it is shown");
        assert_eq!(detail.attempts[0].error.as_ref().expect("an error").as_str().len(), caps::ERROR_BYTES);
        // Of two settles the one that breaks a rule of its own is refused alone.
        let settle = |at: usize, outcome: Value| json!({"job": held[at].id, "token": held[at].token, "outcome": outcome});
        let settles = [settle(1, json!({"succeed": {"output": "1e400"}})), settle(2, json!({"succeed": {"output": "7"}}))];
        let exchange = json!({"session": id, "number": 3, "claim": {"max": 0}, "free_permits": 1, "draining": false, "settles": settles});
        house.say("work", &format!("qo.api_exchange('{exchange}', NULL)")).await.expect("it is answered");
        let state = async |at: usize| store.job(held[at].id).await.expect("it is shown").view.state;
        assert_eq!((state(1).await, state(2).await), (JobState::Running, JobState::Succeeded));
        let outcome = Outcome::Succeed { output: Json::null() };
        let settle = Settle { job: held[1].id, token: held[1].token, outcome };
        let exchange = Exchange { settles: vec![settle], ..Exchange::renew(session, 4) };
        store.exchange(exchange).await.expect("an exchange").settled[0].as_ref().expect("it owns it");
        drop(store);
        house.end().await;
    });
}

#[test]
fn a_view_waits_for_no_exchange_whatever_is_over() {
    RUNTIME.block_on(async {
        for server in SERVERS {
            let house = House::new(server, "doors_views").await;
            let (store, session) = at_work(&house).await;
            for _ in 0..3 {
                house.say("submit", "qo.submit('t', max_attempts => 2)").await.expect("it is stored");
            }
            let held = store.exchange(claim(session, 1, 2)).await.expect("an exchange").claimed;
            house
                .own("UPDATE session SET lease_until = 1; UPDATE job SET attempts_used = 1 WHERE seq = 1")
                .await;
            // An exchange that runs alone stays in the middle of its transaction.
            house.own("BEGIN; SELECT lock_namespace()").await;
            assert_eq!(store.workers().await, Ok(vec![]));
            let queue = &store.queues().await.expect("queues")[0];
            assert_eq!((queue.running, queue.due), (0, 2), "one goes back, one would fail");
            let group = store.group("t".parse().expect("a group")).await.expect("a group");
            assert_eq!((group.status.used, group.status.live, group.holders.len()), (0, 2, 0));
            assert_eq!(store.groups(None, 10).await.expect("groups").groups.len(), 3);
            let would_fail = store.explain(held[0].id).await.expect("why it waits");
            assert_eq!((would_fail.state, would_fail.reasons.len()), (JobState::Running, 0));
            assert_eq!(store.explain(held[1].id).await.expect("why it waits").state, JobState::Pending);
            house.own("ROLLBACK").await;
            // And in a read-only transaction.
            for isolation in ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"] {
                let begin = format!("BEGIN ISOLATION LEVEL {isolation} READ ONLY");
                house.role("work").batch_execute(&begin).await.expect("it begins");
                for view in ["api_queues()", "api_workers()", "api_groups(NULL, 9)", "api_group('t')"] {
                    house.say("work", &format!("qo.{view}")).await.expect("it is shown");
                }
                house.say("work", &format!("qo.api_explain('{}')", held[1].id)).await.expect("it is shown");
                house.role("work").batch_execute("ROLLBACK").await.expect("it ends");
            }
            drop(store);
            house.end().await;
        }
    });
}

#[test]
fn the_log_of_a_forgotten_attempt_is_deleted() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_logs").await;
        let (store, session) = at_work(&house).await;
        for _ in 0..2 {
            house.say("submit", "qo.submit('t', max_attempts => 1000)").await.expect("it is stored");
        }
        // A hundred attempts each, with the tokens 1 to 100 and 101 to 200.
        let remembered = "SELECT setval('fence_token', 200);
            UPDATE job j SET attempts = (SELECT jsonb_agg(jsonb_build_object('token', (j.seq - 1) * 100 + i)) FROM generate_series(1, 100) i)";
        house.own(remembered).await;
        for token in [1, 2, 101, 102] {
            house.say("work", &format!("qo.api_keep_log({token}, 'said')")).await.expect("it is kept");
        }
        let held = store.exchange(claim(session, 1, 2)).await.expect("an exchange").claimed;
        let retry = |at: usize| Settle {
            job: held[at].id,
            token: held[at].token,
            outcome: Outcome::Retry { error: "again".into(), delay_ms: 60_000 },
        };
        // One beside others, one alone.
        let beside = Exchange { settles: vec![retry(0)], ..Exchange::renew(session, 2) };
        store.exchange(beside).await.expect("an exchange");
        let alone = Exchange { settles: vec![retry(1)], draining: true, ..Exchange::renew(session, 3) };
        store.exchange(alone).await.expect("an exchange");
        let logs = format!("SELECT array_agg(token ORDER BY token) FROM {}.attempt_log", house.schema);
        let logs: Vec<i64> = house.owner.query_one(&logs, &[]).await.expect("logs").get(0);
        assert_eq!(logs, [2, 102]);
        drop(store);
        house.end().await;
    });
}

#[test]
fn a_version_1_process_that_pushes_schedules_is_told_to_be_replaced() {
    RUNTIME.block_on(async {
        let house = House::new("QO_TEST_POSTGRES_18", "doors_old").await;
        // It sent the next tick alone, and took null for success.
        let spec = r#"{"cron": "0 3 * * *", "timezone": "UTC", "task": "t"}"#;
        let push = format!(r#"qo.api_configure('{{"schedules": {{"a": {spec}}}}}', '{{"a": 5}}')"#);
        let refused = house.say("work", &push).await.expect_err("it is refused");
        assert!(refused.starts_with("QOCFL") && refused.contains("older release"), "{refused}");
        house.end().await;
    });
}
