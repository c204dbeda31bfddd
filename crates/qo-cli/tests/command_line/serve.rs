//! `qo serve`: one address for commands and workers.

use crate::fixture::{Here, signal, until};
use qo::Store;
use qo::core::MemoryStore;
use qo_testkit::{FaultRates, FaultyStore};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A server, and the URL that it printed.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(here: &Here) -> Self {
        let mut child = here
            .command(&["serve", "--listen", "127.0.0.1:0", "--store", "file:store"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("qo starts");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let url = line.trim_end().rsplit_once(" at ").expect("it says where").1.to_owned();
        Self { child, url }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn commands_and_workers_use_the_address_that_serve_prints() {
    let here = Here::new();
    let mut server = Server::start(&here);
    let store = ["--store", &server.url.clone()];
    let qo = |arguments: &[&str]| here.qo(&[arguments, &store].concat());
    let job = qo(&["submit", "echo", "{\"n\": 1}"]).line();
    qo(&["explain", &job]).ok().shows("No live worker");
    let log = std::fs::File::create(here.path("worker.log")).expect("a log");
    let mut worker = here
        .command(&[&["worker", "--task", "echo=cat"][..], &store].concat())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("qo starts");
    until("the job is done", || qo(&["jobs", "show", &job, "--json"]).out.contains("\"succeeded\""));
    // What the server keeps is in the store that it serves.
    here.qo(&["jobs", "show", &job, "--store", "file:store"]).ok().shows("succeeded");
    signal(worker.id(), "TERM");
    assert!(worker.wait().expect("it ends").success());
    signal(server.child.id(), "TERM");
    assert!(server.child.wait().expect("it drains").success());
    let mut rest = String::new();
    server.child.stdout.take().expect("a pipe").read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "", "it prints one line");
    qo(&["jobs", "list"]).code(75).says("`qo serve` starts one");
}

#[test]
fn serve_refuses_an_address_that_others_can_reach() {
    let here = Here::new();
    here.qo(&["serve", "--listen", "0.0.0.0:0"]).code(2).says("--tls-cert FILE");
    here.qo(&["serve", "--tls-cert", "qo.crt"]).code(2).says("--tls-key");
    here.qo(&["serve", "--trusted-proxy", "anywhere"]).code(2).says("as in 10.0.0.0/8");
    assert!(!here.path(".qo").exists(), "no namespace is made");
}

#[test]
fn a_command_shows_the_token_of_its_environment_and_of_no_url() {
    let here = Here::new();
    let token = here.qo(&["token", "create", "shop", "--scope", "submit", "--store", "file:store"]).line();
    let ops = here.qo(&["token", "create", "ops", "--scope", "admin", "--store", "file:store"]).line();
    std::fs::write(here.path("ops.token"), format!("{ops}\n")).expect("written");
    let server = Server::start(&here);
    let with = |variable: &str, value: &str, arguments: &[&str]| {
        let mut command = here.command(&[arguments, &["--store", &server.url]].concat());
        command.env(variable, value).output().expect("qo starts")
    };
    let said = |output: &std::process::Output| String::from_utf8_lossy(&output.stderr).into_owned();
    here.qo(&["jobs", "list", "--store", &server.url]).code(2).says("QO_TOKEN holds a token");
    let job = with("QO_TOKEN", &token, &["submit", "echo"]);
    assert!(job.status.success(), "{}", said(&job));
    let listed = with("QO_TOKEN", &token, &["jobs", "list"]);
    assert!(listed.status.code() == Some(2) && said(&listed).contains("scope read"), "{}", said(&listed));
    let file = here.path("ops.token").display().to_string();
    let paused = with("QO_TOKEN_FILE", &file, &["queues", "pause", "default"]);
    assert!(paused.status.success(), "{}", said(&paused));
    // What it did there is recorded under the token's name, once; on the store itself under the user's.
    here.qo(&["queues", "resume", "default", "--store", "file:store"]).ok();
    let entries = here.qo(&["audit", "--json", "--store", "file:store"]).json();
    let text = |entry: usize, field: &str| entries[entry][field].as_str().expect("text").to_owned();
    assert_eq!(
        (text(0, "what"), text(1, "what"), text(1, "by")),
        ("resume queue".into(), "pause queue".into(), "ops".into())
    );
    assert!(text(0, "by").contains('@') && text(2, "what") == "create token", "{entries}");
    let bad = with("QO_TOKEN", "qo_nonsense", &["jobs", "list"]);
    assert!(bad.status.code() == Some(2) && !said(&bad).contains("nonsense"), "{}", said(&bad));
}

/// What a server answers to a GET.
fn get(url: &str, path: &str) -> Value {
    let address = url.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = format!("GET /api/v1{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {body}"))
}

/// A document of the command line as HTTP has it: fence tokens are strings.
fn over_http(mut document: Value) -> Value {
    match &mut document {
        Value::Object(fields) => {
            for (name, value) in fields {
                let token = value.as_u64().filter(|_| name == "token");
                *value = token.map_or_else(|| over_http(value.take()), |token| token.to_string().into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = over_http(item.take())),
        _ => {}
    }
    document
}

const EVERYTHING: &str = r#"
[concurrency.limits]
nap = 1
"nap/*" = 1
[queues.slow]
priority = 5
max_concurrency = 7
[schedules.nightly]
cron = "0 3 * * *"
task = "echo"
payload = { n = 1 }
"#;

#[test]
fn http_says_what_the_command_line_prints() {
    let here = Here::new();
    here.write(".qo.toml", EVERYTHING);
    let server = Server::start(&here);
    let qo = |arguments: &[&str]| here.qo(&[arguments, &["--store", "file:store"]].concat());
    let tasks = ["nap=exec sleep 600", "echo=echo log >&2; cat", "bad=exit 100"];
    let tasks: Vec<&str> = tasks.iter().flat_map(|task| ["--task", task]).collect();
    let worker = [&["worker", "--store", "file:store"], &tasks[..]].concat();
    let _worker = crate::fixture::Worker::of(
        here.command(&worker).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("qo starts"),
    );
    let whole =
        ["--key", "a/b", "--limits", "gpu=1", "--timeout", "60s", "--idempotency-key", "k", "--limit", "9"];
    let done = qo(&[&["submit", "echo", "{\"n\": 1.50}"], &whole[..]].concat()).line();
    let runs = qo(&["submit", "nap", "--key", "ann"]).line();
    let waits = qo(&["submit", "nap", "--key", "ann", "--good-until", "1h"]).line();
    let failed = qo(&["submit", "bad", "--workflow", "order-7"]).line();
    qo(&["submit", "echo", "--workflow", "order-7"]).ok();
    qo(&["submit", "echo", "--queue", "slow", "--delay", "1h"]).ok();
    let state = |job: &str| qo(&["jobs", "show", job, "--json"]).json()["state"].clone();
    until("all is done", || {
        state(&done) == "succeeded" && state(&runs) == "running" && state(&failed) == "failed"
    });
    qo(&["concurrency", "set", "cluster", "--limit", "50"]).ok();

    let [job, explain, logs] = ["", "/explain", "/logs"].map(|part| format!("/jobs/{done}{part}"));
    let waiting = format!("/jobs/{waits}/explain");
    let same: [(&str, &str, &[&str]); 15] = [
        (&job, "", &["jobs", "show", &done]),
        (&explain, "", &["explain", &done]),
        (&logs, "", &["jobs", "logs", &done]),
        (&format!("/jobs/{runs}"), "", &["jobs", "show", &runs]),
        (&waiting, "", &["explain", &waits]),
        ("/jobs", "jobs", &["jobs", "list"]),
        ("/groups", "groups", &["concurrency", "status"]),
        ("/groups/nap%2Fann", "", &["concurrency", "status", "nap/ann"]),
        ("/queues", "queues", &["queues"]),
        ("/workers", "workers", &["workers"]),
        ("/workflows", "workflows", &["workflows"]),
        ("/workflows/order-7", "", &["workflows", "show", "order-7"]),
        ("/schedules", "schedules", &["schedules"]),
        ("/pushes", "pushes", &["config", "history"]),
        ("/audit", "entries", &["audit"]),
    ];
    for (path, list, command) in same {
        let printed = || over_http(qo(&[command, &["--json"]].concat()).json());
        let answered = || {
            let mut document = get(&server.url, path);
            if !list.is_empty() {
                return document[list].take();
            }
            // Holders and steps are paged.
            if let Some(fields) = document.as_object_mut() {
                fields.remove("next");
            }
            document
        };
        // A lease may be renewed between the two.
        until(&format!("{path} says what {command:?} prints"), || printed() == answered());
    }
}

#[test]
fn a_token_that_may_exist_is_shown_all_the_same() {
    let here = Here::new();
    let store = Arc::new(MemoryStore::new());
    // Every change is made, and no answer arrives.
    let rates = FaultRates { after: 1_000, ..FaultRates::NONE };
    let faulty = Arc::new(FaultyStore::new(Arc::clone(&store) as Arc<dyn Store>, 1, rates));
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let options = qo_server::Options { sweep_every: Duration::from_secs(3600), ..Default::default() };
    let server = runtime.block_on(async {
        let listener = qo_server::bind("127.0.0.1:0").await.expect("a free port");
        qo_server::Server::new(listener, faulty, options).expect("a server")
    });
    let url = format!("http://{}", server.address());
    runtime.spawn(server.run());
    let create = ["token", "create", "ops", "--scope", "admin", "--store", &url];
    let doubt = here.qo(&create).code(75).says("unknown outcome").says("qo token revoke");
    let tokens = runtime.block_on(store.tokens()).expect("a list");
    let live = tokens.first().expect("it exists");
    assert!(doubt.out.contains(live.id.as_str()), "its secret is nowhere else: {}", doubt.out);
}
