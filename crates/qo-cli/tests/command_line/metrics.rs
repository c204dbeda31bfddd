//! `/metrics` of servers and workers, as real processes: each number is counted once.

use crate::fixture::{Here, Worker, until};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

/// Every sample that is shown at an address, by its name and labels.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("a text");
    let samples = answer.lines().filter(|line| line.starts_with("qo_") || line.starts_with("worker_"));
    samples
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(series, value)| (series.to_owned(), value.parse().expect("a number")))
        .collect()
}

/// A server of the directory `store`, and its address.
fn server(here: &Here) -> (Worker, String) {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--store", "file:store"];
    let mut child =
        here.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("qo starts");
    let mut line = String::new();
    let out = child.stdout.as_mut().expect("a pipe");
    BufReader::new(out).read_line(&mut line).expect("a line");
    let address = line.trim_end().rsplit_once("http://").expect("it says where").1.to_owned();
    (Worker::of(child), address)
}

/// A worker of a store, and where it shows its metrics.
fn worker(here: &Here, name: &str, store: &str) -> (Worker, String) {
    let log = here.path(&format!("{name}.log"));
    let child = here
        .command(&["worker", "--store", store, "--name", name, "--max-concurrent-tasks", "4"])
        .args(["--metrics-addr", "127.0.0.1:0", "--task", "echo=cat"])
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).expect("a log"))
        .spawn()
        .expect("qo starts");
    let worker = Worker::of(child);
    let mut address = None;
    until("the worker says where its metrics are", || {
        let said = fs::read_to_string(&log).expect("a log");
        let shown =
            said.split_once("metrics are at http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        address = shown.map(|(address, _)| address.to_owned());
        address.is_some()
    });
    (worker, address.unwrap_or_default())
}

const JOBS: f64 = 60.0;

#[test]
fn two_servers_and_three_workers_count_each_thing_once() {
    let here = Here::new();
    let servers = [server(&here), server(&here)];
    let url = format!("http://{},{}", servers[0].1, servers[1].1);
    here.qo(&["concurrency", "set", "echo", "--limit", "5", "--store", &url]).ok();
    let workers = ["w1", "w2", "w3"].map(|name| worker(&here, name, &url));
    here.qo(&["submit", "echo", "1", "--count", "60", "--store", &url]).ok();
    let sum = |series: &str| workers.iter().map(|(_, address)| scrape(address)[series]).sum::<f64>();
    until("every attempt has ended", || sum("worker_tasks_completed_total") >= JOBS);
    let succeeded = || {
        let store = ["--store", &url];
        here.qo(&[&["jobs", "list", "--state", "succeeded", "--all", "--json"][..], &store].concat()).json()
    };
    until("the store has every outcome", || succeeded().as_array().map(Vec::len) == Some(60));
    // A server shows what it read less than five seconds ago.
    let running = "qo_queue_jobs{queue=\"default\",state=\"running\"}";
    let acquired = "qo_concurrency_acquisition_total{group=\"echo\",result=\"acquired\"}";
    let is_quiet = |shown: &BTreeMap<String, f64>| {
        shown.get(running).copied().unwrap_or_default() == 0.0
            && shown.get(acquired).is_some_and(|all| *all >= JOBS)
    };
    until("both servers show that", || servers.iter().all(|(_, address)| is_quiet(&scrape(address))));
    for series in
        ["worker_tasks_completed_total", "worker_claim_size_sum", "worker_task_duration_seconds_count"]
    {
        assert_eq!(sum(series), JOBS, "{series}");
    }
    assert_eq!(sum("worker_in_flight_tasks"), 0.0);
    assert_eq!(sum("worker_permits"), 12.0);
    let waits = "qo_concurrency_wait_seconds_count{group=\"echo\"}";
    let shown = servers.each_ref().map(|(_, address)| scrape(address));
    let measured: f64 = shown.iter().filter_map(|shown| shown.get(waits)).sum();
    assert_eq!(measured, JOBS, "each wait is measured by one server");
    assert!(workers.iter().all(|(_, address)| !scrape(address).contains_key(waits)), "and by no worker");
    for shown in &shown {
        assert_eq!(shown[acquired], JOBS, "the store's own total");
        assert_eq!(shown["qo_concurrency_slots_active{group=\"echo\"}"], 0.0);
        assert_eq!(shown["qo_workers{state=\"alive\"}"], 3.0);
        assert_eq!(shown["qo_worker_permits"], 12.0);
    }
}

#[test]
fn a_worker_that_opens_the_store_measures_the_waits_itself() {
    let here = Here::new();
    let (_worker, address) = worker(&here, "w1", "file:store");
    here.qo(&["submit", "echo", "1", "--count", "3", "--store", "file:store"]).ok();
    let waits = "qo_concurrency_wait_seconds_count{group=\"echo\"}";
    until("three waits are measured", || scrape(&address).get(waits) == Some(&3.0));
}

#[test]
fn metrics_that_others_could_read_need_a_word_of_consent() {
    let here = Here::new();
    let worker =
        |more: &[&str]| here.qo(&[&["worker", "--task", "echo=cat", "--store", "file:store"], more].concat());
    worker(&["--metrics-addr", "0.0.0.0:0"]).code(2).says("metrics_insecure");
    worker(&["--metrics-addr", "localhost:1"]).code(2).says("must be an IP address and a port");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    worker(&["--metrics-addr", &address]).code(75).says("metrics_addr: listen on");
}
