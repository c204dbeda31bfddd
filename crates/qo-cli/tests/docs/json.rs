//! The reference of JSON has every field that the commands print, and no other.
//!
//! The test reads the tables of the page, brings jobs into every situation that has a field of its own, runs every
//! command that the page lists, and compares. A field must be documented, have its type, be there if the page does not
//! say that it may be absent, and have been seen with a value at least once.

use crate::fixture::{Here, Ran, Worker, signal, until};
use crate::page::Page;
use qo::core::JobId;
use qo::{Client, Context, Failure, TaskConfig};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

/// A trace that a job may belong to.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const PAGE: &str = "docs/reference/json.md";

/// Fields that this test cannot bring about.
const ELSEWHERE: [(&str, &str, &str); 14] = [
    ("Worker", "owner", "needs a qo serve with tokens: qo-server's tests"),
    ("Job", "unreadable", "needs a damaged job: tests/attack/doors.rs"),
    ("Tick", "error", "a tick that a newer release wrote"),
    ("Sweepable", "slot_object", "needs a bucket"),
    ("Expired slot", "group", "needs a bucket"),
    ("Expired slot", "slot_id", "needs a bucket"),
    ("Expired slot", "task_id", "needs a bucket"),
    ("Expired slot", "worker_id", "needs a bucket"),
    ("Expired slot", "expires_at", "needs a bucket"),
    ("Expired slot", "is_expired", "needs a bucket"),
    ("Expired slot", "token", "needs a bucket"),
    ("Version", "oldest_client", "needs PostgreSQL: tests/command_line/postgres.rs"),
    ("Version", "pending", "needs PostgreSQL: tests/command_line/postgres.rs"),
    ("Version", "done", "needs PostgreSQL: tests/command_line/postgres.rs"),
];

/// A field of a shape, as the page has it.
struct Field {
    /// Types that its value may have.
    types: Vec<String>,
    may_be_absent: bool,
}

/// The page.
struct Reference {
    shapes: BTreeMap<String, BTreeMap<String, Field>>,
    /// Which shape each command prints.
    commands: BTreeMap<String, String>,
    /// Fields that a shape has from another, which has to be seen with them.
    inherited: BTreeSet<(String, String)>,
    /// Values that the page lists for `reason`.
    reasons: BTreeSet<String>,
    seen: RefCell<BTreeSet<(String, String)>>,
    explained: RefCell<BTreeSet<String>>,
    ran: RefCell<BTreeSet<String>>,
}

impl Reference {
    fn read() -> Self {
        let page = Page::read(PAGE);
        let cells =
            |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
        let quoted = |cell: &str| cell.split('`').nth(1).map(str::to_owned);
        let (mut shapes, mut commands, mut reasons) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let mut parents: Vec<(String, String)> = Vec::new();
        let mut shape = None;
        for line in page.text.lines() {
            if let Some(heading) = line.strip_prefix("### ") {
                shape = Some(heading.to_owned());
                shapes.insert(heading.to_owned(), BTreeMap::new());
            } else if let (Some(rest), Some(shape)) = (line.strip_prefix("The fields of ["), &shape) {
                let parent = rest.split(']').next().unwrap_or_default();
                parents.push((shape.clone(), parent.to_owned()));
            } else if line.starts_with("| `") {
                let cells = cells(line);
                let name = quoted(&cells[1]).unwrap_or_else(|| panic!("{line}"));
                let Some(fields) = shape.as_ref().and_then(|shape| shapes.get_mut(shape)) else {
                    commands.insert(name, cells[2].clone());
                    continue;
                };
                if name == "reason" {
                    reasons = cells[3].split('`').skip(1).step_by(2).map(str::to_owned).collect();
                }
                let (kind, may_be_absent) = match cells[2].strip_suffix(", may be absent") {
                    Some(kind) => (kind, true),
                    None => (cells[2].as_str(), false),
                };
                let types = kind.split(" or ").map(str::to_owned).collect();
                fields.insert(name, Field { types, may_be_absent });
            }
        }
        let mut all_inherited = BTreeSet::new();
        for (child, parent) in parents {
            let inherited: Vec<_> = shapes[&parent]
                .iter()
                .map(|(name, field)| {
                    (name.clone(), Field { types: field.types.clone(), may_be_absent: field.may_be_absent })
                })
                .collect();
            all_inherited.extend(inherited.iter().map(|(name, _)| (child.clone(), name.clone())));
            shapes.get_mut(&child).expect("a shape").extend(inherited);
        }
        let (seen, explained, ran) = Default::default();
        Self { shapes, commands, inherited: all_inherited, reasons, seen, explained, ran }
    }

    /// Whether a value has a type of the page; if not, what is wrong.
    fn has_type(&self, kind: &str, value: &Value, place: &str) -> Result<(), String> {
        let fits = |does: bool| if does { Ok(()) } else { Err(format!("{place}: {value} is no {kind}")) };
        if let Some(kind) = kind.strip_prefix("array of ") {
            let Some(all) = value.as_array() else { return fits(false) };
            return all
                .iter()
                .enumerate()
                .try_for_each(|(index, one)| self.has_type(kind, one, &format!("{place}[{index}]")));
        }
        if let Some(name) = kind.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            return self.has_shape(name, value, place);
        }
        fits(match kind {
            "any" => true,
            "null" => value.is_null(),
            "string" => value.is_string(),
            "number" => value.is_number(),
            "boolean" => value.is_boolean(),
            "object of number" => value.as_object().is_some_and(|all| all.values().all(Value::is_number)),
            "time" => value
                .as_str()
                .is_some_and(|text| text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()),
            "id" => value.as_str().is_some_and(|text| uuid::Uuid::try_parse(text).is_ok()),
            _ => panic!("{PAGE} has an unknown type, {kind}"),
        })
    }

    fn has_shape(&self, name: &str, value: &Value, place: &str) -> Result<(), String> {
        let shape = self.shapes.get(name).unwrap_or_else(|| panic!("{PAGE} has no shape {name}"));
        let Some(object) = value.as_object() else { return Err(format!("{place}: {value} is no {name}")) };
        if let Some(undocumented) = object.keys().find(|key| !shape.contains_key(*key)) {
            return Err(format!("{place}.{undocumented}: {name} of {PAGE} has no such field"));
        }
        if let (Some(Value::String(reason)), "Reason") = (object.get("reason"), name) {
            self.explained.borrow_mut().insert(reason.clone());
        }
        for (key, field) in shape {
            let place = format!("{place}.{key}");
            let Some(value) = object.get(key) else {
                if field.may_be_absent { continue } else { return Err(format!("{place}: is absent")) }
            };
            let tried: Vec<_> = field.types.iter().map(|kind| self.has_type(kind, value, &place)).collect();
            if let (true, Some(Err(error))) = (tried.iter().all(Result::is_err), tried.first()) {
                return Err(error.clone());
            }
            if !value.is_null() {
                self.seen.borrow_mut().insert((name.to_owned(), key.clone()));
            }
        }
        Ok(())
    }

    /// Notes that a command of the page has printed a document, and checks it.
    #[track_caller]
    fn check(&self, command: &str, document: &Value) {
        let kind = self.commands.get(command).unwrap_or_else(|| panic!("{PAGE} does not list {command}"));
        self.has_type(kind, document, "").unwrap_or_else(|error| panic!("{command}: {error}\n{document:#}"));
        self.ran.borrow_mut().insert(command.to_owned());
    }
}

/// A directory whose commands are checked.
struct Checked<'a> {
    here: Here,
    reference: &'a Reference,
}

impl Checked<'_> {
    /// Runs a command as the page writes it, with these arguments.
    #[track_caller]
    fn qo(&self, command: &str, arguments: &[&str]) -> Value {
        let Ran { out, err, .. } = self.here.qo(&[arguments, &["--json"]].concat());
        let document = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"));
        self.reference.check(command, &document);
        document
    }

    #[track_caller]
    fn submit(&self, arguments: &[&str]) -> String {
        let submitted = self.qo("qo submit TASK", &[&["submit"], arguments].concat());
        submitted["id"].as_str().unwrap_or_else(|| panic!("{submitted}")).to_owned()
    }

    fn state(&self, job: &str) -> String {
        self.qo("qo jobs show JOB", &["jobs", "show", job])["state"].as_str().expect("a state").to_owned()
    }

    #[track_caller]
    fn until(&self, job: &str, state: &str) {
        until(&format!("{job} is {state}"), || self.state(job) == state);
    }

    #[track_caller]
    fn explain(&self, job: &str, reason: &str) {
        let explanation = self.qo("qo explain JOB", &["explain", job]);
        let reasons = explanation["reasons"].as_array().expect("reasons");
        assert!(reasons.iter().any(|one| one["reason"] == reason), "{reason}: {explanation:#}");
    }
}

const CONFIGURATION: &str = r#"
app = "shop"
[concurrency.limits]
nap = 50
gpu = 4
[queues.slow]
priority = 5
max_concurrency = 7
[schedules.often]
cron = "* * * * * *"
task = "ok"
payload = { n = 1 }
timeout_secs = 60
[schedules.stuck]
cron = "* * * * * *"
task = "missing"
[retention]
failed = "7d"
"#;

#[test]
fn the_reference_of_json_has_every_field_and_no_other() {
    let reference = Reference::read();
    let store = Checked { here: Here::new(), reference: &reference };
    configuration(&store);
    before_any_worker(&store);
    with_workers(&store);
    errors(&store);
    leftovers(&Checked { here: Here::new(), reference: &reference });

    let all: BTreeSet<_> = reference.commands.keys().cloned().collect();
    let ran = reference.ran.take();
    assert_eq!(all.difference(&ran).collect::<Vec<_>>(), Vec::<&String>::new(), "commands that did not run");
    let explained = reference.explained.take();
    let missing: Vec<_> = reference.reasons.difference(&explained).collect();
    assert!(missing.is_empty(), "reasons that were not seen: {missing:?}");
    let seen = reference.seen.take();
    let mut unseen = Vec::new();
    for (shape, fields) in &reference.shapes {
        for field in fields.keys() {
            let is_elsewhere = ELSEWHERE.iter().any(|(s, f, _)| (s, f) == (&shape.as_str(), &field.as_str()));
            let field_of_shape = (shape.clone(), field.clone());
            let inherited = reference.inherited.contains(&field_of_shape);
            if !is_elsewhere && !inherited && !seen.contains(&field_of_shape) {
                unseen.push(format!("{shape}.{field}"));
            }
        }
    }
    assert!(unseen.is_empty(), "fields that no command printed: {unseen:?}");
}

/// Each command that has `--json` is on the page.
#[test]
fn every_command_that_prints_json_is_listed() {
    let reference = Reference::read();
    let page = Page::read("docs/reference/cli.md").text;
    for section in page.split("\n## ").flat_map(|section| section.split("\n### ")).skip(1) {
        let name = section.lines().next().unwrap_or_default();
        let listed = reference
            .commands
            .keys()
            .any(|command| command == name || command.starts_with(&format!("{name} ")));
        let has_json = section.contains("\n      --json");
        assert!(!has_json || listed || name == "qo bench", "{PAGE} does not list {name}");
    }
}

fn configuration(store: &Checked<'_>) {
    let here = &store.here;
    here.write(".qo.toml", CONFIGURATION);
    store.qo("qo migrate up", &["migrate", "up"]);
    store.qo("qo migrate status", &["migrate", "status"]);
    store.qo("qo config diff", &["config", "diff"]);
    store.qo("qo config apply", &["config", "apply"]);
    here.write(".qo.toml", &CONFIGURATION.replace("gpu = 4", "gpu = 3").replace("failed = \"7d\"", ""));
    store.qo("qo config diff", &["config", "diff"]);
    store.qo("qo config apply", &["config", "apply"]);
    store.qo("qo config history", &["config", "history"]);
    store.qo("qo config show", &["config", "show", "--app", "shop"]);
    let mut show = here.command(&["config", "show", "--json"]);
    let shown = show.env("QO_MAX_CONCURRENT_TASKS", "9").output().expect("qo runs").stdout;
    store.reference.check("qo config show", &serde_json::from_slice(&shown).expect("JSON"));
}

/// Jobs that wait, and what operators do to them.
fn before_any_worker(store: &Checked<'_>) {
    let expired = store.submit(&["ok", "--good-until", "2020-01-01T00:00:00Z"]);
    store.explain(&expired, "expired");
    let whole = ["ok", "{\"n\": 1}", "--key", "ann", "--limits", "gpu=1", "--good-until", "1h"];
    let more = ["--timeout", "60s", "--idempotency-key", "k", "--limit", "3", "--workflow", "w"];
    let first = store.submit(&[&whole[..], &more].concat());
    store.submit(&[&whole[..], &more].concat());
    let second = store.submit(&["ok", "--workflow", "w"]);
    store.explain(&second, "waiting_for_step");
    store.explain(&first, "no_live_worker");
    store.state(&first);
    let later = store.submit(&["ok", "--delay", "1h"]);
    store.explain(&later, "scheduled_until");
    for _ in 0..2 {
        store.qo("qo submit TASK", &["submit", "sync", "--limit", "1", "--on-limit", "skip"]);
    }
    store.qo("qo submit TASK --count N", &["submit", "many", "--count", "2"]);
    let lines = "{\"task\": \"many\"}\n{\"task\": \"sync\", \"limit\": 1, \"on_limit\": \"reject\"}\n";
    store.here.write("jobs.ndjson", lines);
    store.qo("qo submit --file FILE", &["submit", "--file", "jobs.ndjson"]);

    store.qo("qo queues pause NAME", &["queues", "pause", "slow"]);
    let paused = store.submit(&["ok", "--queue", "slow"]);
    store.explain(&paused, "queue_paused");
    store.qo("qo queues", &["queues"]);
    store.qo("qo queues resume NAME", &["queues", "resume", "slow"]);

    store.qo("qo concurrency set GROUP --limit N", &["concurrency", "set", "zero", "--limit", "0"]);
    let held = store.submit(&["zero"]);
    store.explain(&held, "held_by_limit_zero");
    let huge = store.submit(&["huge", "--cost", "5"]);
    store.qo("qo concurrency set GROUP --limit N", &["concurrency", "set", "huge", "--limit", "2"]);
    store.explain(&huge, "can_never_run");
    store.qo("qo concurrency unset GROUP", &["concurrency", "unset", "huge"]);
    store.qo("qo concurrency status", &["concurrency", "status"]);

    store.qo("qo jobs cancel JOB", &["jobs", "cancel", &held, &JobId(uuid::Uuid::nil()).to_string()]);
    store.qo("qo jobs retry JOB", &["jobs", "retry", &held]);
    store.qo("qo jobs cancel --task TASK", &["jobs", "cancel", "--task", "many", "--yes"]);
    store.qo("qo jobs retry --task TASK", &["jobs", "retry", "--task", "many", "--yes"]);
    store.qo("qo workflows", &["workflows"]);
    store.qo("qo schedules disable NAME", &["schedules", "disable", "often"]);
    store.qo("qo schedules trigger NAME", &["schedules", "trigger", "often"]);
    store.qo("qo schedules enable NAME", &["schedules", "enable", "often"]);
    tokens(store);
}

fn tokens(store: &Checked<'_>) {
    let bound = ["--queue", "mail", "--app", "shop", "--expires", "90d"];
    let create = ["token", "create", "shop", "--scope", "submit,read"];
    store.qo("qo token create NAME", &[&create[..], &bound].concat());
    store.qo("qo token list", &["token", "list"]);
    store.qo("qo token revoke NAME", &["token", "revoke", "shop"]);
    store.qo("qo audit", &["audit"]);
}

/// A handler that says how far it is, until it is told to stop.
async fn coded((): (), context: Context) -> Result<(), Failure> {
    context.progress(0.5, "half of it");
    context.cancelled().await;
    Err(Failure::Cancelled)
}

fn with_workers(store: &Checked<'_>) {
    let here = &store.here;
    let tasks = ["nap=exec sleep 600", "ok=echo log >&2; echo 1", "bad=exit 100", "later=exit 75"];
    let tasks: Vec<&str> = tasks.iter().flat_map(|task| ["--task", task]).collect();
    let _main = here.worker(&[&tasks[..], &["--processes", "20", "--name", "main"]].concat());
    let done = store.submit(&["ok", "--priority", "-5", "--traceparent", TRACE]);
    store.until(&done, "succeeded");
    store.qo("qo jobs logs JOB", &["jobs", "logs", &done]);
    store.qo("qo wait JOB", &["wait", &done]);
    store.qo("qo jobs retry JOB", &["jobs", "retry", &done]);
    store.qo("qo submit TASK --wait", &["submit", "ok", "--wait"]);
    here.write("one.ndjson", "{\"task\": \"ok\"}\n");
    store.qo("qo submit --file FILE --wait", &["submit", "--file", "one.ndjson", "--wait"]);
    let later = store.submit(&["later"]);
    until("it waits for its next attempt", || {
        store.qo("qo jobs show JOB", &["jobs", "show", &later])["attempts_used"] == 1
    });
    store.explain(&later, "retry_at");

    for task in ["bad", "ok"] {
        store.submit(&[task, "--workflow", "h"]);
    }
    let workflow = || store.qo("qo workflows show NAME", &["workflows", "show", "h"]);
    until("it is halted", || workflow()["state"] == "halted");
    let waits = workflow()["jobs"][1]["id"].as_str().expect("an id").to_owned();
    store.explain(&waits, "workflow_halted");
    store.qo("qo workflows retry NAME", &["workflows", "retry", "h"]);
    until("it is halted again", || workflow()["state"] == "halted");
    store.qo("qo workflows skip NAME", &["workflows", "skip", "h"]);
    store.until(&waits, "succeeded");
    store.qo("qo workflows cancel NAME", &["workflows", "cancel", "h"]);

    slots(store);
    let _busy = busy_workers(store);
    code(store);
    store.qo("qo workers", &["workers"]);
    store.qo("qo jobs list", &["jobs", "list"]);
    store.qo("qo doctor", &["doctor"]);
    until("a schedule has fired, and one has skipped a tick", || {
        let schedules = store.qo("qo schedules", &["schedules"]);
        schedules[0]["last"]["outcome"] == "accepted" && schedules[1]["last"]["outcome"] == "skipped"
    });
}

/// A full group, slots that are kept for a big job, slots of a program.
fn slots(store: &Checked<'_>) {
    let here = &store.here;
    here.qo(&["concurrency", "set", "full", "--limit", "1"]).ok();
    let runs = store.submit(&["nap", "--group", "full"]);
    store.until(&runs, "running");
    let waits = store.submit(&["nap", "--group", "full"]);
    store.explain(&waits, "group_full");
    here.qo(&["concurrency", "set", "big", "--limit", "3"]).ok();
    let runs = store.submit(&["nap", "--group", "big", "--cost", "2"]);
    store.until(&runs, "running");
    store.submit(&["nap", "--group", "big", "--cost", "2"]);
    let small = store.submit(&["nap", "--group", "big"]);
    store.explain(&small, "reserved_for");

    let program = here.command(&["slot", "run", "--group", "script", "--limit", "1", "--", "sleep", "600"]);
    let _program = background(program);
    let status = || {
        let groups = here.qo(&["concurrency", "status", "--json"]).json();
        groups.as_array().is_some_and(|all| all.iter().any(|group| group["group"] == "script"))
    };
    until("the program has its slot", status);
    let group = store.qo("qo concurrency status GROUP", &["concurrency", "status", "script"]);
    let token = group["holders"][0]["token"].to_string();
    store.qo("qo concurrency status GROUP", &["concurrency", "status", "full"]);
    let release = ["concurrency", "release", "script", &token, "--force"];
    store.qo("qo concurrency release GROUP SLOT_ID --force", &release);
}

fn background(mut command: std::process::Command) -> Worker {
    Worker::of(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("qo starts"))
}

/// Workers that have claimed ahead of time, are saturated, or do not look for work.
fn busy_workers(store: &Checked<'_>) -> Vec<Worker> {
    let here = &store.here;
    let ahead = ["--prefetch-buffer", "1", "--claim-lease-ms", "60000"];
    let claims = here.worker(
        &[&["--task", "ahead=exec sleep 600", "--processes", "1", "--name", "ahead"], &ahead[..]].concat(),
    );
    let alone = here.worker(&["--task", "alone=exec sleep 600", "--processes", "1", "--name", "alone"]);
    let stopped = here.worker(&["--task", "idle=true", "--name", "idle"]);
    stopped.signal("STOP");
    let idle = store.submit(&["idle"]);
    store.explain(&idle, "only_waiting_for_claim");
    let jobs = ["ahead", "alone"].map(|task| [(); 2].map(|()| store.submit(&[task])));
    store.until(&jobs[0][0], "running");
    store.until(&jobs[0][1], "claimed");
    store.explain(&jobs[0][1], "claimed_by_prefetch");
    store.until(&jobs[1][0], "running");
    store.explain(&jobs[1][1], "workers_busy");
    vec![claims, alone, stopped]
}

/// What only code can say: a limit of a task, a backoff of a job, progress.
fn code(store: &Checked<'_>) {
    let url = format!("file:{}", store.here.path(".qo").display());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (job, stop, working) = runtime.block_on(async {
        let opened = qo::connect(&url).await.expect("the store");
        let limited = TaskConfig::new().max_concurrent(3);
        let worker =
            qo::Worker::builder(opened.clone()).task_with("coded", limited, coded).build().expect("a worker");
        let stop = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        let job =
            Client::new(opened).submit("coded", &()).retry(qo::RetryPolicy::new()).await.expect("a job");
        (job.to_string(), stop, working)
    });
    until("it says how far it is", || {
        store.qo("qo jobs show JOB", &["jobs", "show", &job])["running"]["progress"].is_object()
    });
    store.qo("qo jobs list", &["jobs", "list"]);
    store.qo("qo concurrency status GROUP", &["concurrency", "status", "coded"]);
    store.qo("qo jobs cancel JOB", &["jobs", "cancel", &job]);
    store.until(&job, "cancelled");
    stop.drain();
    runtime.block_on(working).expect("the worker ended").expect("well");
}

fn errors(store: &Checked<'_>) {
    let ran = store.here.qo(&["jobs", "show", &uuid::Uuid::nil().to_string(), "--json"]).code(3);
    let error = serde_json::from_str(&ran.err).expect("JSON");
    store.reference.has_shape("Error", &error, "").expect("an error");
}

/// What a worker and a program leave that are killed: where no worker runs, no sweep ends it.
fn leftovers(store: &Checked<'_>) {
    let here = &store.here;
    let lease = ["--default-lease-duration-secs", "1", "--name", "dead"];
    let worker = here.worker(&[&["--task", "nap=exec sleep 600"], &lease[..]].concat());
    let job = store.submit(&["nap", "--limit", "1"]);
    store.until(&job, "running");
    let mut program = here.command(&["slot", "run", "--group", "script", "--limit", "1", "--lease", "1s"]);
    program
        .args(["--", "sh", "-c", "touch held; exec sleep 600"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut program = program.spawn().expect("qo starts");
    until("the program has its slot", || here.path("held").exists());
    worker.signal("KILL");
    signal(program.id(), "KILL");
    program.wait().expect("it ended");
    until("both are over", || {
        let findings = store.qo("qo doctor", &["doctor"]);
        let over = |kind: &str| {
            findings.as_array().is_some_and(|all| all.iter().any(|one| one["would_sweep"][kind].is_object()))
        };
        over("session") && over("lease")
    });
}
