//! `qo serve`: one address for commands and workers.

use crate::fixture::{Here, signal, until};
use qo::Store;
use qo::core::MemoryStore;
use qo_testkit::{FaultRates, FaultyStore};
use std::io::{BufRead, BufReader, Read};
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
    here.qo(&["serve", "--listen", "0.0.0.0:7700"]).code(2).says("neither tokens nor TLS");
    assert!(!here.path(".qo").exists(), "no namespace is made");
    here.qo(&["jobs", "list", "--store", "https://localhost:7700"]).code(2).says("this release has no TLS");
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
