//! Bad values at every door: flags, lines of a file, SQL functions as the roles that may call them, and Rust. There is
//! one table of bad values. Each door must refuse each value that it can express, with the field and the rule, and
//! store nothing. Then random values: all doors must agree.

use crate::fixture::Here;
use qo::core::{Time, caps};
use qo::{Client, ErrorKind};
use qo_testkit::random::Random;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::process::Stdio;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// One mistake in a job, as a line of a file would have it.
#[derive(Debug, Clone)]
struct Bad {
    field: &'static str,
    /// JSON, or a text that is no JSON.
    value: String,
    /// The other fields of the job.
    with: Vec<(&'static str, Value)>,
}

const NAMES: [&str; 4] = ["task", "queue", "group", "workflow"];
const KEYS: [&str; 2] = ["key", "idempotency_key"];
/// Fields whose value is a text: every value of their flags is one.
const TEXTS: [&str; 13] = [
    "task",
    "queue",
    "group",
    "workflow",
    "key",
    "idempotency_key",
    "delay",
    "at",
    "good_until",
    "timeout",
    "on_limit",
    "on_failure",
    "traceparent",
];

fn bad(field: &'static str, value: impl Into<String>) -> Bad {
    Bad { field, value: value.into(), with: Vec::new() }
}

fn text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Everything that no door may accept.
fn table() -> Vec<Bad> {
    let mut rows = Vec::new();
    let long_name = "n".repeat(caps::NAME_BYTES + 1);
    for field in NAMES {
        let names = [
            "",
            "a b",
            "bad name!",
            "cluster",
            "-x",
            ".x",
            "a/b",
            "a:b",
            "*",
            "ünder",
            "a\n",
            "a\0",
            &long_name,
        ];
        rows.extend(names.map(|name| bad(field, text(name))));
        rows.extend(["7", "true", "[]", "{}"].map(|value| bad(field, value)));
    }
    let long_key = "k".repeat(caps::KEY_BYTES + 1);
    let long_umlauts = "ü".repeat(caps::KEY_BYTES / 2 + 1);
    for field in KEYS {
        let keys = ["*", "a\u{1}", "a\tb", "a\n", "\u{7f}", "\u{85}", "a\0", &long_key, &long_umlauts];
        rows.extend(keys.map(|key| bad(field, text(key))));
        rows.extend(["7", "[]", "{}"].map(|value| bad(field, value)));
    }
    let numbers: [(&'static str, &[&str]); 4] = [
        ("cost", &["0", "-5", "1000001", "4294967296", "1.5", "\"two\"", "[1]"]),
        ("limit", &["-1", "1000001", "4294967296", "0.5", "\"\""]),
        ("max_attempts", &["0", "-1", "1001", "4294967296", "2.5", "\"many\""]),
        ("priority", &["2147483648", "-2147483649", "1e99", "0.5", "\"high\""]),
    ];
    for (field, values) in numbers {
        rows.extend(values.iter().map(|value| bad(field, *value)));
    }
    let many: serde_json::Map<String, Value> =
        (0..=caps::EXTRA_LIMITS).map(|n| (format!("g{n}"), json!(1))).collect();
    let limits = [
        r#"{"queue:a": 1}"#,
        r#"{"cluster": 1}"#,
        r#"{"gpu": 0}"#,
        r#"{"gpu": -1}"#,
        r#"{"gpu": 1000001}"#,
        r#"{"gpu": 1.5}"#,
        r#"{"gpu": "1"}"#,
        r#"{"gpu": null}"#,
        r#"{"gpu/*": 1}"#,
        r#"{"": 1}"#,
        r#"{"a b": 1}"#,
        r#"{"gpu/": 1}"#,
        r#"{"gpu/\u0001": 1}"#,
        r#"{"mail": 1}"#,
        r#"{"mail/x": 1}"#,
        r#"[1]"#,
        r#""gpu""#,
        "7",
    ];
    rows.extend(limits.map(|value| bad("limits", value)));
    rows.push(bad("limits", Value::from(many).to_string()));
    for field in ["at", "good_until"] {
        let moments =
            ["yesterday", "", "1969-12-31T23:59:59Z", "10000-01-01T00:00:00Z", "-1s", "2026-13-01T00:00:00Z"];
        rows.extend(moments.map(|moment| bad(field, text(moment))));
    }
    let early = vec![("at", json!("2100-01-01T00:00:00Z"))];
    rows.push(Bad { with: early, ..bad("good_until", text("2099-01-01T00:00:00Z")) });
    for (field, lengths) in
        [("delay", ["-5s", "soon", "", "99999999h"]), ("timeout", ["-1s", "0s", "soon", "99999999h"])]
    {
        rows.extend(lengths.map(|length| bad(field, text(length))));
    }
    rows.extend([bad("on_limit", text("drop")), bad("on_failure", text("halt"))]);
    rows.push(Bad { with: vec![("workflow", json!("w"))], ..bad("on_failure", text("stop")) });
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let (zeros, long) =
        (trace.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)), format!("{trace}-00"));
    let traces = [
        "",
        "00-0-0-0",
        &trace.to_uppercase(),
        &trace.replacen("00", "ff", 1),
        &zeros,
        &long,
        &format!("{trace}\n"),
    ];
    rows.extend(traces.map(|trace| bad("traceparent", text(trace))));
    rows.extend(["7", "[]", "{}"].map(|value| bad("traceparent", value)));
    rows.push(bad("id", text("nope")));
    rows.push(bad("prioritty", "1"));
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let large = text(&"x".repeat(caps::PAYLOAD_BYTES));
    let payloads =
        ["{", "", "nil", "[1,]", "1e400", "-1e400", "[1e999]", r#""\ud800""#, "\"a\tb\"", &deep, &large];
    rows.extend(payloads.map(|payload| bad("payload", payload)));
    rows
}

impl Bad {
    /// The value if it is a text.
    fn plain(&self) -> Option<String> {
        serde_json::from_str::<Value>(&self.value).ok()?.as_str().map(str::to_owned)
    }

    /// The value as a flag or an argument of SQL; none if it cannot be expressed there.
    fn argument(&self) -> Option<String> {
        let plain = self.plain();
        let said = match (&plain, self.field) {
            (_, "payload") => self.value.clone(),
            (Some(plain), _) => plain.clone(),
            (None, field) if TEXTS.contains(&field) => return None,
            (None, _) => self.value.clone(),
        };
        // An empty number is no number, but an empty text may mean none.
        (!said.contains('\0')).then_some(said)
    }

    /// The job as a line.
    fn line(&self) -> String {
        let mut line = String::from("{");
        if self.field != "task" {
            line.push_str("\"task\":\"mail\",");
        }
        for (name, value) in &self.with {
            let _ = write!(line, "{}:{value},", text(name));
        }
        let _ = write!(line, "{}:{}}}", text(self.field), self.value);
        line
    }

    fn shown(&self) -> String {
        self.line().chars().take(120).collect()
    }

    /// Names of the field in messages: flags have dashes, SQL and Rust have times and milliseconds.
    fn names(&self) -> Vec<String> {
        let other = match self.field {
            "at" | "delay" => "run_at",
            "timeout" => "timeout_ms",
            // The value is no JSON, so the line is none.
            "payload" => "job",
            field => field,
        };
        vec![self.field.to_owned(), self.field.replace('_', "-"), other.to_owned()]
    }

    /// What is wrong with the message of a refusal.
    fn complaint(&self, message: &str) -> Option<String> {
        let named = self.names().iter().any(|name| message.contains(name.as_str()))
            || (self.field == "task" && message.contains("'[TASK]'"))
            || (self.field == "payload" && message.contains("JSON"));
        match (named, message.len()) {
            (false, _) => Some(format!("{} is refused without its field: {message}", self.shown())),
            (_, 3_000..) => Some(format!("{} is refused in {} bytes", self.shown(), message.len())),
            _ => None,
        }
    }
}

/// Fails with every mistake of a door.
#[track_caller]
fn assert_none(door: &str, wrong: Vec<String>) {
    assert!(wrong.is_empty(), "{door}: {} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

/// The views work and show one job, the good one.
#[track_caller]
fn assert_untouched(here: &Here, good: &str) {
    assert_eq!(here.jobs().iter().map(|job| job["id"].as_str()).collect::<Vec<_>>(), [Some(good)]);
    for arguments in
        [&["concurrency", "status"][..], &["queues"], &["workflows"], &["explain", good], &["doctor"]]
    {
        here.qo(arguments).ok();
    }
}

#[test]
fn a_line_of_a_file_that_another_door_refuses_is_refused() {
    let here = Here::new();
    let good = here.qo(&["submit", "mail"]).line();
    let mut wrong = Vec::new();
    for row in table() {
        here.write("bad.ndjson", &format!("{}\n", row.line()));
        let ran = here.qo(&["submit", "--file", "bad.ndjson"]);
        if ran.code != 2 || !ran.err.starts_with("error: ") || ran.err.contains("panicked") {
            wrong.push(format!("{}: exit code {}: {}", row.shown(), ran.code, ran.err));
        } else {
            wrong.extend(row.complaint(&ran.err));
        }
    }
    for line in [&b"\xff\xfe\n"[..], b"{\"task\":\"m\xffil\"}\n", b"null\n", b"[]\n", b"7\n", b"{}\n"] {
        std::fs::write(here.path("bad.ndjson"), line).expect("written");
        let ran = here.qo(&["submit", "--file", "bad.ndjson"]);
        let shown = String::from_utf8_lossy(line);
        wrong.extend((ran.code != 2).then(|| format!("{shown}: exit code {}: {}", ran.code, ran.err)));
    }
    assert_none("lines", wrong);
    assert_untouched(&here, &good);
}

#[test]
fn a_flag_that_another_door_refuses_is_refused() {
    let here = Here::new();
    let good = here.qo(&["submit", "mail"]).line();
    let mut wrong = Vec::new();
    for row in table() {
        let Some(argument) = row.argument().filter(|argument| argument.len() < 100_000) else { continue };
        let (task, mut arguments) =
            (if row.field == "task" { &*argument } else { "mail" }, vec!["submit".to_owned()]);
        match row.field {
            "id" => continue,
            // A value that begins with a dash is a flag, unless it comes after `--`.
            "payload" => arguments.extend(["--".into(), task.into(), argument.clone()]),
            "task" => arguments.extend(["--".into(), task.into()]),
            field => {
                arguments.push(task.to_owned());
                arguments.push(format!("--{}={argument}", field.replace('_', "-")));
            }
        }
        for (name, value) in &row.with {
            arguments.insert(1, format!("--{name}={}", value.as_str().expect("a text")));
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let ran = here.qo(&arguments);
        if ran.code != 2 || !ran.err.starts_with("error: ") || ran.err.contains("panicked") {
            wrong.push(format!("{}: exit code {}: {}", row.shown(), ran.code, ran.err));
        } else {
            wrong.extend(row.complaint(&ran.err));
        }
    }
    let large = table().into_iter().find(|row| row.value.len() > 100_000).expect("a large payload").value;
    let ran = here.qo_with(&["submit", "mail", "-"], &large);
    wrong.extend((ran.code != 2).then(|| format!("a large payload on stdin: {}: {}", ran.code, ran.err)));
    let mut odd = here.command(&["submit", "mail", "--key"]);
    odd.arg(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff")).stdin(Stdio::null());
    let odd = odd.output().expect("qo runs");
    wrong.extend((odd.status.code() != Some(2)).then(|| format!("a key of odd bytes: {odd:?}")));
    assert_none("flags", wrong);
    assert_untouched(&here, &good);
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(future)
}

/// A submit in Rust; none where the types cannot express it.
fn in_rust(client: &Client, row: &Bad) -> Option<qo::Submit> {
    let plain = row.plain();
    let task = if row.field == "task" { plain.as_deref()? } else { "mail" };
    let raw = if row.field == "payload" { &row.value } else { "null" };
    let mut submit = client.submit(task, &RawValue::from_string(raw.to_owned()).ok()?);
    let parsed: Option<Value> = serde_json::from_str(&row.value).ok();
    let number = || parsed.as_ref().and_then(Value::as_u64).and_then(|number| u32::try_from(number).ok());
    let milliseconds = |moment: &str| match moment {
        "1969-12-31T23:59:59Z" => Some(Time::from_millis(-1_000)),
        "10000-01-01T00:00:00Z" => Some(Time::from_millis(caps::TIME_MS + 1)),
        "2099-01-01T00:00:00Z" => Some(Time::from_millis(4_070_908_800_000)),
        "2100-01-01T00:00:00Z" => Some(Time::from_millis(4_102_444_800_000)),
        _ => None,
    };
    let length = |length: &str| match length {
        "0s" => Some(Duration::ZERO),
        "99999999h" => Some(Duration::from_secs(99_999_999 * 3_600)),
        _ => None,
    };
    for (name, value) in &row.with {
        submit = match *name {
            "at" => submit.run_at(milliseconds(value.as_str()?)?),
            _ => return None,
        };
    }
    Some(match row.field {
        "task" | "payload" => submit,
        "queue" => submit.queue(plain.as_deref()?),
        "group" => submit.group(plain.as_deref()?),
        "workflow" => submit.workflow(plain.as_deref()?),
        "key" => submit.key(plain.as_deref()?),
        "idempotency_key" => submit.idempotency_key(plain.as_deref()?),
        "traceparent" => submit.traceparent(plain.as_deref()?),
        "cost" => submit.cost(number()?),
        "limit" => submit.limit(number()?),
        "max_attempts" => submit.max_attempts(number()?),
        "at" => submit.run_at(milliseconds(plain.as_deref()?)?),
        "good_until" => submit.good_until(milliseconds(plain.as_deref()?)?),
        "timeout" => submit.timeout(length(plain.as_deref()?)?),
        "delay" => submit.delay(length(plain.as_deref()?).filter(|length| !length.is_zero())?),
        "on_failure" if row.with.is_empty() => submit.on_failure(qo::core::OnFailure::Halt),
        "limits" => {
            for (group, slots) in parsed.as_ref()?.as_object()? {
                submit =
                    submit.limits([(group, slots.as_u64().and_then(|slots| u32::try_from(slots).ok())?)]);
            }
            submit
        }
        _ => return None,
    })
}

#[test]
fn a_call_in_rust_that_another_door_refuses_is_refused() {
    let here = Here::new();
    let good = here.qo(&["submit", "mail"]).line();
    let mut wrong = Vec::new();
    run(async {
        let url = format!("file:{}", here.path(".qo").display());
        let client = Client::connect(&url).await.expect("it opens");
        let mut told = 0;
        for row in table() {
            let Some(submit) = in_rust(&client, &row) else { continue };
            told += 1;
            match submit.outcome().await {
                Ok(outcome) => wrong.push(format!("{}: {outcome:?}", row.shown())),
                Err(error) if error.kind() != ErrorKind::Invalid => {
                    wrong.push(format!("{}: {error}", row.shown()))
                }
                Err(error) => wrong.extend(row.complaint(error.message())),
            }
        }
        assert!(told > 60, "only {told} rows can be told in Rust");
    });
    assert_none("Rust", wrong);
    assert_untouched(&here, &good);
}

/// A schema with a role for each right.
struct Schema {
    here: Here,
    name: String,
}

const ROLES: [&str; 2] = ["submit", "work"];

fn server() -> String {
    std::env::var("QO_TEST_POSTGRES").expect(
        "QO_TEST_POSTGRES must be the URL of a server; `make test` starts one: scripts/with_postgres.py",
    )
}

impl Schema {
    fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("fuzz_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let here = Here::new();
        here.write(".qo.toml", &format!("store = \"{}?schema={name}\"\n", server()));
        here.qo(&["migrate", "up"]).ok();
        let schema = Self { here, name };
        for part in ROLES {
            let role = schema.role(part);
            schema.owner(&format!(
                "CREATE ROLE {role} LOGIN; SELECT {}.allow('{role}', '{part}')",
                schema.name
            ));
        }
        schema
    }

    fn role(&self, part: &str) -> String {
        format!("{}_{part}", self.name)
    }

    fn owner(&self, statements: &str) {
        run(async {
            let (client, connection) = tokio_postgres::connect(&server(), NoTls).await.expect("it answers");
            tokio::spawn(connection);
            client.batch_execute(statements).await.expect(statements);
        });
    }

    /// Runs statements on the server as a role, one after another, and returns the outcome of each.
    fn ask(&self, part: &str, statements: &[String]) -> Vec<Result<(), (String, String)>> {
        let server = server();
        let (_, place) = server.split_once('@').expect("a user");
        let url = format!("postgres://{}@{place}", self.role(part));
        run(async {
            let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it answers");
            tokio::spawn(connection);
            let mut answers = Vec::new();
            for statement in statements {
                answers.push(match client.simple_query(statement).await {
                    Ok(messages) => refused_inside(&messages),
                    Err(error) => {
                        let said = error.as_db_error().expect("an answer of the server");
                        Err((said.code().code().to_owned(), said.message().to_owned()))
                    }
                });
            }
            answers
        })
    }

    /// Runs one statement for each row that can be expressed, and complains about each that is not refused as it should
    /// be.
    fn refuses(&self, part: &str, rows: Vec<(Bad, String)>) -> Vec<String> {
        let statements: Vec<String> = rows.iter().map(|(_, statement)| statement.clone()).collect();
        let answers = self.ask(part, &statements);
        let wrong = rows.iter().zip(answers).filter_map(|((row, _), answer)| match answer {
            Ok(()) => Some(format!("{} is accepted", row.shown())),
            Err((code, message)) if code == "QOINV" => row.complaint(&message),
            // PostgreSQL itself refuses values that are no number, no date or no JSON.
            Err((code, _)) if code.starts_with("22") => None,
            Err((code, message)) => Some(format!("{}: {code}: {message}", row.shown())),
        });
        wrong.collect()
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let roles = ROLES.map(|part| format!("DROP OWNED BY {0}; DROP ROLE {0};", self.role(part))).concat();
        self.owner(&format!("DROP SCHEMA {} CASCADE; {roles}", self.name));
    }
}

/// A worker's call answers for each job: a call that refuses a job need not fail.
fn refused_inside(messages: &[SimpleQueryMessage]) -> Result<(), (String, String)> {
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    let answers = rows.filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let mut errors = answers.filter_map(|answer| answer.get(0)?.get("Err").cloned());
    match errors.next() {
        Some(error) if error["kind"] == "invalid" => Err(("QOINV".into(), error["message"].to_string())),
        Some(error) => Err(("another answer".into(), error.to_string())),
        None => Ok(()),
    }
}

/// A literal of SQL.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[test]
fn an_argument_of_sql_that_another_door_refuses_is_refused() {
    let schema = Schema::new();
    let good = schema.here.qo(&["submit", "mail"]).line();
    let statement = |row: &Bad| {
        // PostgreSQL accepts `yesterday` as a date.
        let (mut arguments, argument) = (Vec::new(), row.argument().filter(|said| said != "yesterday")?);
        if row.field != "task" {
            arguments.push("task => 'mail'".to_owned());
        }
        let name = |field: &str| match field {
            "at" => "run_at".to_owned(),
            "delay" | "prioritty" => String::new(),
            field => format!("\"{field}\""),
        };
        for (field, value) in &row.with {
            arguments.push(format!("{} => {}", name(field), literal(value.as_str()?)));
        }
        let name = Some(name(row.field)).filter(|name| !name.is_empty())?;
        arguments.push(format!("{name} => {}", literal(&argument)));
        Some(format!("SELECT {}.submit({})", schema.name, arguments.join(", ")))
    };
    let rows = table().into_iter().filter_map(|row| Some((row.clone(), statement(&row)?)));
    let dates = ["run_at", "good_until"].into_iter().flat_map(|field| {
        ["infinity", "-infinity", "294276-01-01", "4713-01-01 BC"].map(|moment| {
            let call = format!("SELECT {}.submit('mail', {field} => '{moment}')", schema.name);
            (bad(field, text(moment)), call)
        })
    });
    let lengths = ["-1 month", "178000000 years", "0.1 ms"].map(|length| {
        let call = format!("SELECT {}.submit('mail', timeout => '{length}')", schema.name);
        (bad("timeout", text(length)), call)
    });
    let rows: Vec<_> = rows.chain(dates).chain(lengths).collect();
    assert!(rows.len() > 100, "{} rows", rows.len());
    assert_none("qo.submit", schema.refuses("submit", rows));
    assert_untouched(&schema.here, &good);
}

/// The row as an object of SQL, where times are milliseconds.
fn object(row: &Bad) -> Option<String> {
    let moment = |text: &str| match text {
        "1969-12-31T23:59:59Z" => json!(-1_000),
        "10000-01-01T00:00:00Z" => json!(caps::TIME_MS + 1),
        "2099-01-01T00:00:00Z" => json!(4_070_908_800_000_u64),
        "2100-01-01T00:00:00Z" => json!(4_102_444_800_000_u64),
        "-1s" => json!(-1_000),
        "0s" => json!(0),
        "99999999h" => json!(99_999_999_u64 * 3_600_000),
        other => json!(other),
    };
    let mut object = row.clone();
    for (field, name) in [("at", "run_at"), ("timeout", "timeout_ms"), ("good_until", "good_until")] {
        if row.field == field {
            object.field = name;
            object.value = moment(&row.plain()?).to_string();
        }
    }
    for (name, value) in &mut object.with {
        if *name == "at" {
            (*name, *value) = ("run_at", moment(value.as_str()?));
        }
    }
    (row.field != "delay").then(|| object.line())
}

#[test]
fn an_object_of_sql_that_another_door_refuses_is_refused() {
    let schema = Schema::new();
    let good = schema.here.qo(&["submit", "mail"]).line();
    let call = |objects: &str| format!("SELECT {}.submit_many({})", schema.name, literal(objects));
    let mut rows: Vec<_> = table()
        .into_iter()
        .filter_map(|row| Some((row.clone(), call(&format!("[{}]", object(&row)?)))))
        .collect();
    for jobs in ["null", "7", "{}", "\"x\"", "[null]", "[7]", "[[]]", "[{}]", "[{\"task\": null}]"] {
        rows.push((bad("job", jobs), call(jobs)));
    }
    let too_many = vec![json!({"task": "mail"}); caps::SUBMIT_JOBS + 1];
    rows.push((bad("jobs", "too many"), call(&Value::from(too_many).to_string())));
    assert_none("qo.submit_many", schema.refuses("submit", rows));
    assert_untouched(&schema.here, &good);
}

#[test]
fn a_call_of_a_worker_that_another_door_refuses_is_refused() {
    let schema = Schema::new();
    let good = schema.here.qo(&["submit", "mail"]).line();
    let rows = table().into_iter().enumerate().filter_map(|(index, row)| {
        // On the wire a payload is a text, and every job has an id.
        let value = if row.field == "payload" { text(&row.value) } else { row.value.clone() };
        let mut wire = Bad { value, ..row.clone() };
        if row.field != "id" {
            wire.with.push(("id", json!(format!("019a8a5e-7c1b-7a10-9d43-{index:012}"))));
        }
        let call =
            format!("SELECT {}.api_submit({})", schema.name, literal(&format!("[{}]", object(&wire)?)));
        Some((row, call))
    });
    assert_none("qo.api_submit", schema.refuses("work", rows.collect()));
    assert_untouched(&schema.here, &good);
}

#[test]
fn a_role_can_do_its_part_in_sql_and_nothing_else() {
    let schema = Schema::new();
    let good = schema.here.qo(&["submit", "mail"]).line();
    let name = &schema.name;
    let forbidden = |part: &str, statements: &[String]| {
        for (statement, answer) in statements.iter().zip(schema.ask(part, statements)) {
            let code = answer.err().map(|(code, _)| code);
            assert_eq!(code.as_deref(), Some("42501"), "{part}: {statement}");
        }
    };
    let tables =
        ["SELECT 1 FROM {}.job", "DELETE FROM {}.job", "UPDATE {}.job SET cost = 5", "DROP TABLE {}.job"];
    let functions = ["SELECT {}.allow('public', 'work')", "SELECT {}.finish(0, 1, 'failed', NULL)"];
    let outside = [&tables[..], &functions].concat().into_iter().map(|text| text.replace("{}", name));
    let outside: Vec<String> = outside.collect();
    let workers = format!("SELECT {name}.api_submit('[]')");
    forbidden("submit", &[&outside[..], &[workers]].concat());
    forbidden("work", &outside);
    assert_untouched(&schema.here, &good);
}

/// A text that is a name, a key or a group, or nearly.
fn near(dice: &mut Random) -> String {
    const PARTS: [&str; 20] = [
        "a", "Z", "0", "_", ".", "-", "/", ":", "*", " ", "ü", "\n", "\t", "\u{1}", "\u{7f}", "\u{85}",
        "\u{a0}", "\u{200b}", "🦀", "cluster",
    ];
    let mut text: String = (0..dice.within(1..=4)).map(|_| dice.pick(&PARTS)).collect();
    if dice.percent(10) {
        let length =
            dice.pick(&[caps::NAME_BYTES, caps::NAME_BYTES + 1, caps::KEY_BYTES, caps::KEY_BYTES + 1]);
        text = "x".repeat(length.saturating_sub(text.len() % 2)) + &text;
    }
    text
}

/// Rust and SQL are two implementations of the rules: they must agree about any text and any number.
#[test]
fn rust_and_sql_agree_about_random_jobs() {
    const NUMBERS: [i64; 12] =
        [-1, 0, 1, 2, 1_000, 1_001, 1_000_000, 1_000_001, 1 << 31, (1 << 32) - 1, 1 << 32, i64::MAX];
    let schema = Schema::new();
    let mut dice = Random::new(7);
    let fields = [
        "task",
        "queue",
        "group",
        "workflow",
        "key",
        "idempotency_key",
        "cost",
        "limit",
        "max_attempts",
        "limits",
    ];
    let rows: Vec<Bad> = (0..400)
        .map(|_| {
            let field = dice.pick(&fields);
            match field {
                "cost" | "limit" | "max_attempts" => bad(field, dice.pick(&NUMBERS).to_string()),
                "limits" => bad(field, json!({near(&mut dice): dice.pick(&NUMBERS)}).to_string()),
                _ => bad(field, text(&near(&mut dice))),
            }
        })
        .collect();
    let call = |row: &Bad| {
        let objects = literal(&format!("[{}]", object(row).expect("an object")));
        // An accepted job must not stay.
        format!("BEGIN; SELECT {}.submit_many({objects}); ROLLBACK", schema.name)
    };
    let mut statements = Vec::new();
    for row in &rows {
        statements.extend([call(row), "ROLLBACK".to_owned()]);
    }
    let answers: Vec<_> = schema.ask("submit", &statements).into_iter().step_by(2).collect();
    let (mut wrong, mut accepted) = (Vec::new(), 0);
    run(async {
        for (row, in_sql) in rows.iter().zip(answers) {
            // A store for each: the limit that a job brings would stay for the next one.
            let client = Client::connect("memory:").await.expect("it opens");
            // The compiler refuses a number that a type of Rust cannot hold.
            let rust = match in_rust(&client, row) {
                Some(submit) => submit.outcome().await.map_err(|error| error.to_string()),
                None => Err("it cannot be said".to_owned()),
            };
            accepted += usize::from(rust.is_ok());
            if rust.is_ok() != in_sql.is_ok() {
                wrong.push(format!("{}: Rust {rust:?}, SQL {in_sql:?}", row.shown()));
            }
        }
    });
    assert_none("Rust and SQL", wrong);
    assert!((50..350).contains(&accepted), "{accepted} of 400 were accepted");
}
