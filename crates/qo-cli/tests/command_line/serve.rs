//! `qo serve`: one address for commands and workers.

use crate::fixture::{Here, signal, until};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

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
