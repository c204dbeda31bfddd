//! Bad jobs at every door: command line, NDJSON, SQL functions, Rust.

use crate::fixture::{Here, until};
use serde_json::json;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio_postgres::NoTls;

/// Both servers: the oldest release of PostgreSQL that qo works with, and the newest.
const SERVERS: [&str; 2] = ["QO_TEST_POSTGRES_15", "QO_TEST_POSTGRES_18"];

fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} must be the URL of a server; `make test` starts one"))
}

/// Runs statements on a server, without qo; the error if it refuses.
fn try_sql(url: &str, statements: &str) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect("the server answers");
        tokio::spawn(connection);
        let said = client.batch_execute(statements).await;
        said.map_err(|error| error.as_db_error().map_or_else(|| error.to_string(), |db| db.message().into()))
    })
}

#[track_caller]
fn sql(url: &str, statements: &str) {
    try_sql(url, statements).unwrap_or_else(|error| panic!("{error}: {statements}"));
}

fn unique() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("doors_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// A namespace of its own on a server, with a directory whose configuration names it.
struct There {
    here: Here,
    server: String,
    schema: String,
}

impl There {
    fn on(variable: &str) -> Self {
        let (server, schema, here) = (server(variable), unique(), Here::new());
        here.write(".qo.toml", &format!("store = \"{server}?schema={schema}\"\n"));
        here.qo(&["migrate", "up"]).ok();
        Self { here, server, schema }
    }

    /// SQL where `qo.` is the schema, as its owner.
    fn sql(&self, statements: &str) {
        let statements = statements.replace("qo.", &format!("{}.", self.schema));
        // Triggers find their functions by the search path.
        sql(&self.server, &format!("SET search_path = {}; {statements}", self.schema));
    }

    fn refused(&self, statement: &str) -> String {
        let statement = statement.replace("qo.", &format!("{}.", self.schema));
        try_sql(&self.server, &statement).expect_err(&statement)
    }

    /// Writes a job past the doors that breaks rules, as the owner of the schema could.
    fn row(&self, id: u32, task: &str, key: &str, cost: i32, payload: &str) -> String {
        let id = format!("00000000-0000-7000-8000-{id:012}");
        self.sql(&format!(
            "ALTER TABLE qo.job DROP CONSTRAINT IF EXISTS job_names, DROP CONSTRAINT IF EXISTS job_cost;
             WITH new AS (
                INSERT INTO qo.job (seq, id, task, queue, grp, key, cost, priority, submitted_at, run_at, max_attempts, payload)
                VALUES (nextval('qo.acceptance'), '{id}', $a${task}$a$, 'default', 'mail', {key}, {cost}, 0, 0, 0, 3, $a${payload}$a$)
                RETURNING seq, queue, task, grp, cost, priority, run_at)
             INSERT INTO qo.line (seq, queue, task, class, priority, run_at, big)
             SELECT seq, queue, task, task || ' ' || grp || ' ' || cost, priority, run_at, false FROM new"
        ));
        id
    }

    fn state(&self, job: &str) -> String {
        let shown = self.here.qo(&["jobs", "show", job, "--json"]).json();
        shown["state"].as_str().expect("a state").to_owned()
    }
}

impl Drop for There {
    fn drop(&mut self) {
        sql(&self.server, &format!("DROP SCHEMA IF EXISTS {} CASCADE", self.schema));
    }
}

/// Every view of a namespace answers.
#[track_caller]
fn all_views_answer(here: &Here) {
    for view in [
        &["jobs", "list"][..],
        &["jobs", "list", "--json"],
        &["concurrency", "status"],
        &["concurrency", "status", "--json"],
        &["queues"],
        &["workers"],
        &["workflows"],
        &["schedules"],
        &["migrate", "status"],
    ] {
        here.qo(view).ok();
    }
    let doctor = here.qo(&["doctor", "--verify"]);
    assert!([0, 1].contains(&doctor.code) && doctor.out.contains("workers"), "{doctor:?}");
}

#[test]
fn qo_installs_works_and_repairs_as_a_role_that_owns_only_its_database() {
    for variable in SERVERS {
        let (admin, name) = (server(variable), unique());
        let (owner, maker, tenant) =
            (format!("{name}_owner"), format!("{name}_maker"), format!("{name}_tenant"));
        for role in [&owner, &maker, &tenant] {
            sql(&admin, &format!("CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE"));
        }
        sql(&admin, &format!("CREATE DATABASE {name} OWNER {owner}"));
        let (base, _) = admin.rsplit_once('/').expect("a database");
        let as_role = |role: &str| format!("{}/{name}", base.replace("postgres@", &format!("{role}@")));
        // Three roles: one owns the database, one may create schemas in it, one owns a schema and may create none.
        sql(&as_role(&owner), &format!("GRANT CREATE ON DATABASE {name} TO {maker}"));
        sql(&format!("{base}/{name}"), &format!("CREATE SCHEMA given AUTHORIZATION {tenant}"));
        for (role, schema) in [(&owner, "one"), (&maker, "two"), (&tenant, "given")] {
            let here = Here::new();
            here.write(".qo.toml", &format!("store = \"{}?schema={schema}\"\n", as_role(role)));
            here.qo(&["migrate", "up"]).ok().shows("up to date");
            here.qo(&["migrate", "status"]).ok().shows("up to date");
            here.qo(&["concurrency", "set", "shout", "--limit", "1"]).ok();
            let worker = here.worker(&["--task", "shout=tr a-z A-Z"]);
            assert_eq!(here.qo(&["submit", "shout", "\"hello\"", "--wait"]).line(), "HELLO");
            worker.signal("TERM");
            assert_eq!(worker.wait(), 0);
            here.qo(&["doctor", "--verify"]).ok();
            sql(&as_role(role), &format!("UPDATE {schema}.slots SET used = 1"));
            here.qo(&["doctor"]).code(1).shows("qo doctor --repair");
            here.qo(&["doctor", "--repair"]).ok().shows("counted anew");
        }
        sql(&admin, &format!("DROP DATABASE {name} (FORCE)"));
        sql(&admin, &format!("DROP ROLE {owner}, {maker}, {tenant}"));
    }
}

#[test]
fn a_refusal_for_good_says_so_and_is_not_called_unreachable() {
    let there = There::on("QO_TEST_POSTGRES");
    let role = unique();
    sql(&there.server, &format!("CREATE ROLE {role} LOGIN"));
    let url = format!("{}?schema={}", there.server.replace("postgres@", &format!("{role}@")), there.schema);
    let here = Here::new();
    for arguments in
        [&["submit", "mail"][..], &["jobs", "list"], &["worker", "--task", "mail=true"], &["doctor"]]
    {
        let ran = here.qo(&[arguments, &["--store", &url]].concat()).code(2).says("error: invalid:");
        ran.says("permission denied").says(".allow('ROLE', 'work')");
    }
    let nowhere = there.server.replace("/qo_test", "/qo_nowhere");
    let ran = here.qo(&["migrate", "up", "--store", &nowhere]).code(2);
    assert!(!ran.err.contains("reachable"), "{ran:?}");
    ran.says("does not exist").says("answers and refuses");

    let latin = unique();
    sql(
        &there.server,
        &format!("CREATE DATABASE {latin} ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"),
    );
    let url = there.server.replace("/qo_test", &format!("/{latin}"));
    let ran = here.qo(&["migrate", "up", "--store", &url]).code(2);
    sql(&there.server, &format!("DROP DATABASE {latin} (FORCE)"));
    ran.says("encoding: \"LATIN1\": must be UTF8");
    sql(&there.server, &format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn what_no_worker_could_read_is_refused_by_every_sql_door() {
    for variable in SERVERS {
        let there = There::on(variable);
        let nested = format!("{}{}", "[".repeat(200), "]".repeat(200));
        let id = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
        for (call, part) in [
            ("qo.submit('x', '1e400'::jsonb, max_attempts => 1000)".to_owned(), "number out of range"),
            (format!("qo.submit('x', '{nested}')"), "nested at most 127"),
            ("qo.submit('bad name!')".into(), "task: \"bad name!\": must match"),
            ("qo.submit('x', cost => -5)".into(), "cost: \"-5\": must be 1 to 1000000"),
            ("qo.submit('x', run_at => 'infinity')".into(), "run_at"),
            ("qo.submit_many('[null]')".into(), "jobs[0]: \"null\": must be an object"),
            ("qo.submit_many(NULL)".into(), "must be an array"),
            (
                "qo.submit_many('[{\"task\": \"x\"}, {\"task\": \"x\", \"cost\": -5}]')".into(),
                "jobs[1].cost: \"-5\"",
            ),
            (
                format!("qo.api_submit('[{{\"id\": \"{id}\", \"task\": \"x\", \"cost\": -5}}]')"),
                "jobs[0].cost",
            ),
            (format!("qo.api_submit('[{{\"id\": \"{id}\", \"task\": \"bad name!\"}}]')"), "jobs[0].task"),
            (
                format!("qo.api_submit('[{{\"id\": \"{id}\", \"task\": \"x\", \"payload\": \"1e400\"}}]')"),
                "out of range",
            ),
            (
                format!("qo.api_submit('[{{\"id\": \"{id}\", \"task\": \"x\", \"payload\": \"{{\"}}]')"),
                "must be JSON",
            ),
        ] {
            let error = there.refused(&format!("SELECT {call}"));
            assert!(error.contains(part), "{call}: {error}");
        }
        assert_eq!(there.here.jobs(), Vec::<serde_json::Value>::new());
        all_views_answer(&there.here);
    }
}

#[test]
fn one_unreadable_job_fails_alone_and_its_batch_and_worker_go_on() {
    for (variable, prefetch) in
        [("QO_TEST_POSTGRES_15", "0"), ("QO_TEST_POSTGRES_18", "0"), ("QO_TEST_POSTGRES_18", "5")]
    {
        let there = There::on(variable);
        let here = &there.here;
        if prefetch != "0" {
            let settings = format!(
                "\n[worker]\nprefetch_buffer = {prefetch}\nclaim_lease_ms = 5000\nmax_concurrent_tasks = 2\n"
            );
            here.write(
                ".qo.toml",
                &format!("store = \"{}?schema={}\"{settings}", there.server, there.schema),
            );
        }
        let before = here.qo(&["submit", "mail", "1"]).line();
        let bad_payload = there.row(1, "mail", "NULL", 1, "1e400");
        let deep = there.row(2, "mail", "NULL", 1, &format!("{}{}", "[".repeat(200), "]".repeat(200)));
        let bad_key = there.row(3, "mail", "E'a\\x01b'", 1, "null");
        let after = here.qo(&["submit", "mail", "2"]).line();
        let worker = here.worker(&["--task", "mail=cat >> ran; echo >> ran"]);
        for (job, part) in
            [(&bad_payload, "number out of range"), (&deep, "nested at most 127"), (&bad_key, "key: ")]
        {
            until("it has failed", || there.state(job) == "failed");
            let shown = here.qo(&["jobs", "show", job, "--json"]).json();
            assert_eq!(
                (&shown["attempts_used"], shown["attempts"].as_array().map(Vec::len)),
                (&json!(1), Some(1))
            );
            let error = shown["attempts"][0]["error"].as_str().expect("an error");
            assert!(error.contains(part), "{error}");
        }
        for job in [&before, &after] {
            until("it has succeeded", || there.state(job) == "succeeded");
        }
        let last = here.qo(&["submit", "mail", "3", "--wait"]);
        last.ok();
        worker.signal("TERM");
        assert_eq!(worker.wait(), 0, "the worker was not harmed");
        let ran = std::fs::read_to_string(here.path("ran")).expect("they ran");
        let mut ran: Vec<&str> = ran.split_whitespace().collect();
        ran.sort_unstable();
        assert_eq!(ran, ["1", "2", "3"], "no handler got what cannot be read");
        all_views_answer(here);
    }
}

#[test]
fn views_show_all_others_and_mark_what_cannot_be_read() {
    let there = There::on("QO_TEST_POSTGRES");
    let here = &there.here;
    let good = here.qo(&["submit", "mail"]).line();
    let named = there.row(1, "bad!name", "NULL", 1, "null");
    let priced = there.row(2, "mail", "NULL", -5, "null");
    there.row(3, "mail", "E'\\x01'", 1, "{");
    there.sql("ALTER TYPE qo.job_state ADD VALUE 'lost'");
    there.sql(
        "INSERT INTO qo.done (seq, id, task, queue, grp, cost, priority, submitted_at, run_at, max_attempts, payload, state, finished_at)
         VALUES (900, '00000000-0000-7000-8000-000000000900', 'mail', 'default', 'mail', 1, 0, 0, 0, 3, 'null', 'lost', 5)",
    );
    let listed = here.qo(&["jobs", "list", "--json"]).json();
    let marks: Vec<_> =
        listed.as_array().expect("an array").iter().map(|job| job["unreadable"].clone()).collect();
    assert_eq!(marks.iter().filter(|mark| mark.is_null()).count(), 1, "{marks:?}");
    for part in ["task: \\\"bad!name\\\"", "cost: -5", "key: ", "state: \\\"lost\\\""] {
        assert!(marks.iter().any(|mark| mark.to_string().contains(part)), "{part}: {marks:?}");
    }
    here.qo(&["jobs", "list"]).ok().shows(&good).shows("cannot be read: task: \"bad!name\"");
    here.qo(&["jobs", "show", &named]).ok().shows("cannot be read").shows("bad_name");
    here.qo(&["explain", &named]).ok().shows("bad_name");
    here.qo(&["explain", &priced]).ok();
    let doctor = here.qo(&["doctor"]).code(1);
    doctor.shows(&format!("job {named}")).shows("cannot be read").shows(&format!("qo jobs cancel {named}"));
    all_views_answer(here);
    here.qo(&["jobs", "cancel", &named, &priced]).ok();
}

#[test]
fn unbalanced_json_gets_a_hint_that_fits() {
    let here = Here::new();
    for (payload, hint) in [
        ("{\"a\":1", "opened and not closed"),
        ("[1, 2", "opened and not closed"),
        ("{\"a\":1}}", "closed too often"),
        ("{a: 1}", "keys and texts need double quotes"),
        ("hello", "a JSON string needs its own quotes"),
        ("\"hello", "last double quote is missing"),
        ("1e400", "must be a text"),
        ("", "the payload is empty"),
    ] {
        let ran = here.qo(&["submit", "t", payload]).code(2).says("payload: ").says(hint);
        assert!(hint.contains("own quotes") || !ran.err.contains("own quotes"), "{ran:?}");
    }
    assert!(!here.path(".qo").exists(), "nothing was made");
}

#[test]
fn a_submit_whose_good_until_has_passed_says_so() {
    let here = Here::new();
    let ran = here.qo(&["submit", "t", "--good-until", "2020-01-01T00:00:00Z"]).ok();
    ran.says("has passed: the job expires and never runs");
    let ran = here.qo(&["submit", "t", "--good-until", "2999-01-01T00:00:00Z"]).ok();
    assert!(!ran.err.contains("has passed"), "{ran:?}");
}

/// The checksum of a record, as `record.rs` describes it.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn a_whole_record_with_a_bad_job_stops_nothing_but_that_job() {
    for (was, is, error) in [
        ("\"payload\":\"\\\"bad\\\"\"", "\"payload\":\"{\\\"a\\\":\"", "must be JSON"),
        ("\"payload\":\"\\\"bad\\\"\"", "\"payload\":\"1e400\"", "number out of range"),
        ("\"key\":\"bad\"", "\"key\":\"b\\u0001d\"", "key: "),
        ("\"cost\":2", "\"cost\":-5", "cost: -5"),
    ] {
        let here = Here::new();
        let before = here.qo(&["submit", "mail", "1"]).line();
        let bad = here.qo(&["submit", "mail", "\"bad\"", "--key", "bad", "--cost", "2"]).line();
        let mut records: Vec<_> = std::fs::read_dir(here.path(".qo/log"))
            .expect("a log")
            .map(|entry| entry.expect("a record").path())
            .filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.contains(was)))
            .collect();
        let path = records.pop().expect("the record of the job");
        let text = std::fs::read_to_string(&path).expect("a record");
        let body = text.split_once('\n').expect("two lines").1.replace(was, is);
        let first = format!("qo 1 {:08x} {:020}\n", crc32(body.as_bytes()), body.len());
        std::fs::write(&path, first + &body).expect("written");
        let after = here.qo(&["submit", "mail", "2"]).line();
        let worker = here.worker(&["--task", "mail=cat >> ran; echo >> ran"]);
        let show = |job: &str| here.qo(&["jobs", "show", job, "--json"]).json();
        until("the bad one has failed", || show(&bad)["state"] == "failed");
        let said = show(&bad)["attempts"][0]["error"].to_string();
        assert!(said.contains(error), "{error} is not in {said}");
        for job in [&before, &after] {
            until("it has succeeded", || show(job)["state"] == "succeeded");
        }
        worker.signal("TERM");
        assert_eq!(worker.wait(), 0, "the worker was not harmed");
        assert_eq!(
            std::fs::read_to_string(here.path("ran")).expect("they ran").split_whitespace().count(),
            2
        );
        all_views_answer(&here);
    }
}

#[test]
fn what_sql_refuses_the_command_line_and_its_files_refuse_too() {
    let here = Here::new();
    let deep = format!("{}{}", "[".repeat(128), "]".repeat(128));
    for (field, value) in [
        ("task", "\"bad name!\""),
        ("task", "\"cluster\""),
        ("queue", "\"a b\""),
        ("group", "\"a/b\""),
        ("workflow", "\"\""),
        ("key", "\"a\\u0001\""),
        ("key", "\"*\""),
        ("idempotency_key", "5"),
        ("cost", "-5"),
        ("cost", "1000001"),
        ("limit", "1000001"),
        ("limits", "{\"gpu\": -1}"),
        ("limits", "{\"gpu/*\": 1}"),
        ("priority", "2147483648"),
        ("max_attempts", "0"),
        ("max_attempts", "1001"),
        ("timeout", "\"11y\""),
        ("payload", "1e400"),
        ("payload", &deep),
        ("payload", "\"\\ud800\""),
        ("on_limit", "\"drop\""),
        ("on_failure", "\"halt\""),
        ("good_until", "\"10000-01-01T00:00:00Z\""),
        ("wat", "1"),
    ] {
        let task = if field == "task" { "" } else { "\"task\": \"t\", " };
        let bad = format!("{{{task}\"{field}\": {value}}}");
        here.write("jobs.ndjson", &format!("{{\"task\": \"fine\"}}\n{bad}\n"));
        let ran = here.qo(&["submit", "--file", "jobs.ndjson"]).code(2);
        assert!(ran.err.contains("line 2"), "{bad}: {ran:?}");
    }
    for bad in ["null", "5", "[]", "[null]", "\"x\"", "{\"task\": null}", "{\"task\": \"t\""] {
        here.write("jobs.ndjson", &format!("{bad}\n"));
        here.qo(&["submit", "--file", "jobs.ndjson"]).code(2);
    }
    for bad in [
        &["submit", "bad name!"][..],
        &["submit", "t", "1e400"],
        &["submit", "t", &deep],
        &["submit", "t", "--cost", "-5"],
    ] {
        here.qo(bad).code(2);
    }
    assert!(!here.path(".qo").exists(), "nothing was made");
}
