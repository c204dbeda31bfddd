//! `/metrics` of a server and of a worker, and what refers to them: the reference page, the dashboard, the alerts.

use crate::stage::{PATIENCE, Served, block_on, remote};
use async_trait::async_trait;
use qo::{Client, Worker, WorkerOptions};
use qo_core::{Answer, Claim, Command, Error, ErrorKind, Exchange, ExchangeReply, JobId, Key, MemoryStore};
use qo_core::{Name, NewJob, NewSession, OnLimit, Result, SessionId, Store};
use qo_server::Options;
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

/// The head and the body of an answer.
async fn get(server: SocketAddr, accept: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server).await.expect("it listens");
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    let answer = String::from_utf8(answer).expect("a text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_ascii_lowercase(), unchunked(head, body))
}

/// The body, also if it came in chunks.
fn unchunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut rest, mut whole) = (body, String::new());
    while let Some((length, after)) = rest.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).expect("a length");
        whole.push_str(&after[..length]);
        rest = after[length..].trim_start_matches("\r\n");
    }
    whole
}

/// Every sample by its name and labels.
async fn scrape(server: SocketAddr) -> BTreeMap<String, f64> {
    let (head, body) = get(server, "text/plain").await;
    assert!(head.starts_with("http/1.1 200") && head.contains("version=0.0.4"), "{head}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (series, value) = line.rsplit_once(' ').expect("a value");
            (series.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

/// Scrapes until a sample has this value: the server reads a store seldom.
async fn shown_once(server: SocketAddr, series: &str, value: f64) -> BTreeMap<String, f64> {
    let shown = async {
        loop {
            let shown = scrape(server).await;
            if shown.get(series) == Some(&value) {
                return shown;
            }
        }
    };
    timeout(PATIENCE, shown).await.unwrap_or_else(|_| panic!("{series} is not {value}"))
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(n: u128, task: &str, key: Option<&str>) -> NewJob {
    let key = key.map(|key| Key::parse("key", key).expect("a key"));
    NewJob { key, ..NewJob::new(JobId(Uuid::from_u128(n)), name(task)) }
}

/// A session that serves every queue.
async fn session(store: &dyn Store, n: u128, permits: u32) -> SessionId {
    let id = SessionId(Uuid::from_u128(n));
    let session = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks: vec![name("mail"), name("resize")],
        lease_ms: 60_000,
        permits,
        owner: None,
    };
    store.open_session(session).await.expect("a session");
    id
}

fn claim(session: SessionId, number: u64, max: u32) -> Exchange {
    Exchange {
        claim: Claim { max, ..Claim::default() },
        free_permits: max,
        ..Exchange::renew(session, number)
    }
}

async fn served(store: Arc<dyn Store>) -> Served {
    let options =
        Options { sweep_every: PATIENCE * 1_000, sample_every: Duration::ZERO, ..Options::default() };
    Served::start_with(store, options).await
}

#[test]
fn a_scrape_shows_slots_limits_queues_and_workers() {
    block_on(async {
        let served = served(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        for (group, limit) in [("mail", 2), ("resize/*", 1), ("cluster", 3)] {
            store.set_limit(group.parse().expect("a group"), limit).await.expect("set");
        }
        let mails = (1..=4).map(|n| job(n, "mail", None));
        let resizes = [("a", 5), ("a", 6), ("b", 7)].map(|(key, n)| job(n, "resize", Some(key)));
        let outcomes = store.submit(mails.chain(resizes).collect()).await.expect("accepted");
        assert!(outcomes.iter().all(Result::is_ok));
        let session = session(&store, 1, 10).await;
        let claimed = store.exchange(claim(session, 1, 10)).await.expect("an exchange").claimed;
        assert_eq!(claimed.len(), 3);
        for n in [20, 21] {
            let full = NewJob { on_limit: OnLimit::Reject, ..job(n, "mail", None) };
            let refused = store.submit(vec![full]).await.expect("an answer");
            assert_eq!(refused[0].as_ref().expect_err("no room").kind(), ErrorKind::LimitReached);
        }
        let shown = scrape(served.address).await;
        let resizing = claimed.iter().filter(|job| *job.task == *"resize").count() as f64;
        for (series, value) in [
            ("qo_store_up", 1.0),
            ("qo_concurrency_slots_active{group=\"cluster\"}", 3.0),
            ("qo_concurrency_slots_limit{group=\"cluster\"}", 3.0),
            ("qo_concurrency_slots_waiting{group=\"cluster\"}", 4.0),
            ("qo_concurrency_slots_active{group=\"mail\"}", 3.0 - resizing),
            ("qo_concurrency_acquisition_total{group=\"cluster\",result=\"acquired\"}", 3.0),
            ("qo_concurrency_acquisition_total{group=\"resize/*\",result=\"acquired\"}", resizing),
            ("qo_concurrency_acquisition_total{group=\"mail\",result=\"rejected\"}", 2.0),
            ("qo_concurrency_slots_limit{group=\"mail\"}", 2.0),
            ("qo_concurrency_slots_active{group=\"resize/*\"}", resizing),
            ("qo_concurrency_slots_limit{group=\"resize/*\"}", 1.0),
            ("qo_concurrency_slots_waiting{group=\"resize/*\"}", 3.0 - resizing),
            ("qo_queue_jobs{queue=\"default\",state=\"running\"}", 3.0),
            ("qo_queue_jobs{queue=\"default\",state=\"due\"}", 4.0),
            ("qo_queue_jobs{queue=\"default\",state=\"scheduled\"}", 0.0),
            ("qo_queue_workers{queue=\"default\"}", 1.0),
            ("qo_workers{state=\"alive\"}", 1.0),
            ("qo_workers{state=\"saturated\"}", 0.0),
            ("qo_worker_permits", 10.0),
            ("qo_worker_permits_free", 7.0),
            ("qo_server_grpc_calls_total{method=\"Exchange\",code=\"OK\"}", 1.0),
        ] {
            assert_eq!(shown.get(series), Some(&value), "{series} in {shown:#?}");
        }
        assert!(!shown.keys().any(|series| series.contains("resize/a")), "keys are no labels");
    });
}

#[test]
fn a_job_that_waits_makes_the_oldest_of_its_queue_older() {
    block_on(async {
        let served = served(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        store.submit(vec![job(1, "mail", None)]).await.expect("accepted");
        let series = "qo_queue_oldest_due_age_seconds{queue=\"default\"}";
        let age = async || scrape(served.address).await[series];
        timeout(PATIENCE, async { while age().await <= 0.002 {} }).await.expect("it grows");
        let session = session(&store, 1, 10).await;
        let reply = store.exchange(claim(session, 1, 10)).await.expect("an exchange");
        let waited = reply.now.ms_since(reply.claimed[0].due_at.expect("it was due"));
        assert!(waited > 2);
        let shown = shown_once(served.address, series, 0.0).await;
        assert_eq!(shown["qo_concurrency_wait_seconds_count{group=\"mail\"}"], 1.0);
        assert_eq!(shown["qo_concurrency_wait_seconds_sum{group=\"mail\"}"], waited as f64 / 1e3);
    });
}

#[test]
fn a_reply_that_is_sent_again_is_one_wait() {
    block_on(async {
        let served = served(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        store.submit(vec![job(1, "mail", None)]).await.expect("accepted");
        let session = session(&store, 1, 10).await;
        for _ in 0..3 {
            assert_eq!(store.exchange(claim(session, 1, 10)).await.expect("the reply").claimed.len(), 1);
        }
        let shown = scrape(served.address).await;
        assert_eq!(shown["qo_concurrency_wait_seconds_count{group=\"mail\"}"], 1.0);
    });
}

#[test]
fn groups_beyond_a_thousand_are_one_label() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        for n in 0..1_100 {
            store.set_limit(format!("g{n:04}").parse().expect("a group"), 1).await.expect("set");
        }
        // More keys than a page holds do not hide what comes after them.
        store.set_limit("k/*".parse().expect("a group"), 1).await.expect("set");
        let jobs = (0..1_500).map(|n| {
            let key = Key::parse("key", &format!("key{n:04}")).expect("a key");
            NewJob { group: Some(name("k")), key: Some(key), ..job(n, "mail", None) }
        });
        store.submit(jobs.collect()).await.expect("accepted");
        store.set_limit("zz".parse().expect("a group"), 5).await.expect("set");
        let zz = NewJob { group: Some(name("zz")), ..job(9_000, "mail", None) };
        store.submit(vec![zz]).await.expect("accepted");
        let served = served(store).await;
        let shown = scrape(served.address).await;
        let labels = shown.keys().filter(|series| series.starts_with("qo_concurrency_slots_active{"));
        assert_eq!(labels.count(), 1_001);
        assert_eq!(shown["qo_concurrency_slots_waiting{group=\"other\"}"], 1_501.0);
    });
}

#[test]
fn keys_of_many_pages_are_summed_exactly() {
    block_on(async {
        let store = Arc::new(MemoryStore::new());
        store.set_limit("mail/*".parse().expect("a group"), 1).await.expect("set");
        store.set_limit("zz".parse().expect("a group"), 7).await.expect("set");
        let jobs = (0..2_500).map(|n| job(n, "mail", Some(&format!("key{n}"))));
        store.submit(jobs.collect()).await.expect("accepted");
        let session = session(&*store, 1, 10).await;
        assert_eq!(store.exchange(claim(session, 1, 10)).await.expect("jobs").claimed.len(), 10);
        let served = served(store).await;
        let shown = scrape(served.address).await;
        assert_eq!(shown["qo_concurrency_slots_active{group=\"mail/*\"}"], 10.0);
        assert_eq!(shown["qo_concurrency_slots_waiting{group=\"mail/*\"}"], 2_490.0);
        assert_eq!(shown["qo_concurrency_slots_limit{group=\"zz\"}"], 7.0);
    });
}

/// A store that counts looks, and may be down.
#[derive(Clone)]
struct Watched(Arc<Inner>);

struct Inner {
    store: MemoryStore,
    looks: AtomicUsize,
    down: AtomicBool,
}

#[async_trait]
impl Intercept for Watched {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&self.0.store, command).await
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.0.store.fetch(exchange).await
    }

    fn look(&self) -> Result<&dyn Store> {
        self.0.looks.fetch_add(1, Ordering::SeqCst);
        match self.0.down.load(Ordering::SeqCst) {
            true => Err(Error::new(ErrorKind::Unavailable, "the store is down")),
            false => Ok(&self.0.store),
        }
    }

    fn listen(&self) -> Result<&dyn Store> {
        Ok(&self.0.store)
    }
}

fn watched() -> Watched {
    let (looks, down) = (AtomicUsize::new(0), AtomicBool::new(false));
    Watched(Arc::new(Inner { store: MemoryStore::new(), looks, down }))
}

#[test]
fn many_scrapers_cost_the_store_as_much_as_one() {
    block_on(async {
        let watched = watched();
        let store = Arc::new(Intercepted(watched.clone()));
        let served = Served::start(store).await;
        scrape(served.address).await;
        let once = watched.0.looks.load(Ordering::SeqCst);
        assert!(once > 0);
        let scrapes = (0..20).map(|_| scrape(served.address));
        for shown in futures::future::join_all(scrapes).await {
            assert_eq!(shown["qo_store_up"], 1.0);
        }
        assert_eq!(watched.0.looks.load(Ordering::SeqCst), once);
    });
}

#[test]
fn a_store_that_is_down_leaves_the_last_numbers_and_says_so() {
    block_on(async {
        let watched = watched();
        let served = served(Arc::new(Intercepted(watched.clone()))).await;
        watched.0.store.set_limit("mail".parse().expect("a group"), 4).await.expect("set");
        shown_once(served.address, "qo_store_up", 1.0).await;
        watched.0.down.store(true, Ordering::SeqCst);
        let shown = shown_once(served.address, "qo_store_up", 0.0).await;
        assert_eq!(shown["qo_concurrency_slots_limit{group=\"mail\"}"], 4.0);
        watched.0.down.store(false, Ordering::SeqCst);
        shown_once(served.address, "qo_store_up", 1.0).await;
    });
}

#[test]
fn a_scraper_that_asks_for_openmetrics_gets_it() {
    block_on(async {
        let served = served(Arc::new(MemoryStore::new())).await;
        let (head, body) = get(served.address, "application/openmetrics-text; version=1.0.0").await;
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
        assert!(body.ends_with("# EOF\n") && body.contains("# TYPE qo_store_up gauge"), "{body}");
    });
}

/// What a real server and a real worker show after a job, as the names of their metrics.
async fn exported() -> BTreeSet<String> {
    let served = served(Arc::new(MemoryStore::new())).await;
    let url = format!("http://{}", served.address);
    let client = Client::connect(&url).await.expect("it connects");
    client.store().set_limit("square".parse().expect("a group"), 2).await.expect("set");
    // A worker that opens the store itself measures the waits itself.
    let own = Arc::new(MemoryStore::new());
    let mut names = names(served.address).await;
    for store in [qo::connect(&url).await.expect("it connects"), own] {
        // A port that was free a moment ago: the worker says in its log alone which one it took.
        let free = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let options = WorkerOptions { metrics_addr: Some(address), ..WorkerOptions::default() };
        let client = Client::new(Arc::clone(&store));
        let worker = Worker::builder(store)
            .options(options)
            .task("square", |n: u64, _: qo::Context| async move { Ok::<_, qo::Failure>(n * n) })
            .build()
            .expect("a worker");
        let shutdown = worker.shutdown_handle();
        let working = tokio::spawn(worker.run());
        let job = client.submit("square", &3_u64).await.expect("accepted");
        timeout(PATIENCE, client.wait(job)).await.expect("it runs").expect("it is there");
        names.extend(self::names(address).await);
        shutdown.drain();
        timeout(PATIENCE, working).await.expect("it ends").expect("no panic").expect("it ends well");
        let gone = async { while TcpStream::connect(address).await.is_ok() {} };
        timeout(PATIENCE, gone).await.expect("a worker that has ended shows nothing");
    }
    names.extend(self::names(served.address).await);
    names
}

async fn names(server: SocketAddr) -> BTreeSet<String> {
    let (_, body) = get(server, "text/plain").await;
    let types = body.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    types.map(str::to_owned).collect()
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The metrics that an expression of Prometheus names.
fn named_in(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("qo_") || word.starts_with("worker_"));
    let family = |word: &str| {
        let suffix = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| word.strip_suffix(suffix));
        suffix.unwrap_or(word).to_owned()
    };
    ours.map(family).collect()
}

/// The expressions of a dashboard, wherever they stand.
fn expressions(value: &serde_json::Value, found: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(|expr| expr.as_str()).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, found));
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

#[test]
fn what_is_exported_is_documented_and_what_is_used_is_exported() {
    block_on(async {
        let exported = exported().await;
        let reference = read("docs/reference/metrics.md");
        let row = |line: &str| Some(line.strip_prefix("| `")?.split(['`', '{']).next()?.to_owned());
        let documented: BTreeSet<String> = reference.lines().filter_map(row).collect();
        assert_eq!(documented, exported);
        let dashboard = serde_json::from_str(&read("deploy/grafana/qo.json")).expect("JSON");
        let mut used = Vec::new();
        expressions(&dashboard, &mut used);
        assert!(used.len() > 10, "{used:?}");
        let alerts = read("deploy/prometheus/alerts.yml");
        let rules = alerts.lines().filter_map(|line| line.trim().strip_prefix("expr: ").map(str::to_owned));
        let rules: Vec<String> = rules.collect();
        assert!(rules.len() >= 5, "{rules:?}");
        for expression in used.iter().chain(&rules) {
            let named = named_in(expression);
            assert!(!named.is_empty() && named.is_subset(&exported), "{expression}: {named:?}");
        }
    });
}
