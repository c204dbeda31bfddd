//! Another server takes over.

use crate::fixtures::{RUNTIME, Schemas};
use crate::proxy::Proxy;
use crate::server::Server;
use crate::stage::until;
use crate::stage::{again, exchange, group, job, namespace, open, open_session, options, soon, succeeded};
use qo_core::{ErrorKind, JobFilter, JobId, JobState, ManualClock, Store, Time};
use qo_postgres::PostgresStore;
use qo_testkit::START;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

const LIMIT: usize = 3;

/// What the callers know, from the answers alone.
#[derive(Default)]
struct Known {
    submitted: Mutex<Vec<JobId>>,
    settled: Mutex<Vec<JobId>>,
    tokens: Mutex<BTreeSet<u64>>,
    running: AtomicUsize,
    /// Submitters should stop.
    enough: AtomicBool,
    /// Submitters have stopped.
    all: AtomicBool,
}

/// Submits until it should stop, and remembers what was acknowledged.
async fn submit(store: &PostgresStore, known: &Known, first: u128) {
    for id in first.. {
        if known.enough.load(Ordering::SeqCst) {
            return;
        }
        again(|| store.submit(vec![job(id, "t")])).await;
        known.submitted.lock().expect("no panic").push(job(id, "t").id);
    }
}

/// Works until nothing is left and no more will be submitted, and counts what runs at once.
async fn work(store: &PostgresStore, known: &Known, id: u128) {
    let session = open_session(store, id).await;
    let (mut settles, mut settling, mut latest) = (Vec::new(), Vec::new(), Time::default());
    for number in 1.. {
        let was_all = known.all.load(Ordering::SeqCst);
        let step = exchange(session, number, std::mem::take(&mut settles), 2);
        let reply = again(|| store.exchange(step.clone())).await;
        assert!(reply.now >= latest, "store time fell from {latest} to {}", reply.now);
        latest = reply.now;
        assert!(
            reply.settled.iter().all(|settled| *settled == Ok(JobState::Succeeded)),
            "{:?}",
            reply.settled
        );
        known.settled.lock().expect("no panic").append(&mut settling);
        if was_all && reply.claimed.is_empty() && reply.settled.is_empty() {
            return;
        }
        let running = known.running.fetch_add(reply.claimed.len(), Ordering::SeqCst) + reply.claimed.len();
        assert!(running <= LIMIT, "{running} run at once");
        for job in &reply.claimed {
            assert!(known.tokens.lock().expect("no panic").insert(job.token.0), "token {} twice", job.token);
        }
        settles = reply.claimed.iter().map(succeeded).collect();
        settling = reply.claimed.iter().map(|job| job.id).collect();
        known.running.fetch_sub(reply.claimed.len(), Ordering::SeqCst);
    }
}

#[test]
fn after_a_failover_nothing_acknowledged_is_lost_and_no_limit_is_exceeded() {
    RUNTIME.block_on(async {
        let mut primary = Server::new().await;
        let url = namespace(&primary.url(), "failover").await;
        let standby = primary.standby().await;
        let proxy = Proxy::to(&url).await;
        let store = Arc::new(open(&proxy.url(&url), options(8)).await);
        store.set_limit(group("t"), LIMIT as u32).await.expect("it is set");
        let known = Arc::new(Known::default());
        let (mut submitting, mut working) = (Vec::new(), Vec::new());
        for who in 1..=2_u128 {
            let (store_, known_) = (Arc::clone(&store), Arc::clone(&known));
            submitting.push(tokio::spawn(async move { submit(&store_, &known_, who << 64).await }));
            let (store_, known_) = (Arc::clone(&store), Arc::clone(&known));
            working.push(tokio::spawn(async move { work(&store_, &known_, who).await }));
        }
        let settled = || known.settled.lock().expect("no panic").len();
        until("they get on", async || settled() > 50).await;
        primary.stop(Signal::QUIT);
        let (acknowledged, before) = (known.submitted.lock().expect("no panic").len(), settled());
        standby.promote().await;
        proxy.switch(&standby.url());
        until("they go on", async || settled() > before + 50).await;
        known.enough.store(true, Ordering::SeqCst);
        for task in submitting {
            soon(task).await.expect("every error was one that passes");
        }
        known.all.store(true, Ordering::SeqCst);
        for task in working {
            soon(task).await.expect("every promise was kept");
        }
        let mut ended = BTreeSet::new();
        let mut after = None;
        loop {
            let page = store.jobs(JobFilter::default(), after, 1_000).await.expect("a page");
            ended.extend(page.jobs.iter().filter(|job| job.state == JobState::Succeeded).map(|job| job.id));
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let submitted: BTreeSet<JobId> = known.submitted.lock().expect("no panic").iter().copied().collect();
        assert!(acknowledged > 50 && submitted.len() > acknowledged);
        let lost: Vec<_> = submitted.symmetric_difference(&ended).collect();
        assert!(lost.is_empty(), "each was acknowledged once, and ran once: {lost:?}");
        assert_eq!(known.settled.lock().expect("no panic").len(), ended.len());
        assert_eq!(store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn a_standby_is_unavailable_and_its_connection_is_not_kept() {
    RUNTIME.block_on(async {
        let primary = Server::new().await;
        let url = namespace(&primary.url(), "demoted").await;
        let standby = primary.standby().await;
        let proxy = Proxy::to(&standby.url()).await;
        let theirs = format!("{}?schema=demoted", proxy.url(&standby.url()));
        let store = open(&theirs, options(1)).await;
        for _ in 0..2 {
            let error = store.submit(vec![job(1, "t")]).await.expect_err("it cannot write");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        // New connections lead to the primary; open ones are not told.
        proxy.lead_to(&url);
        soon(store.submit(vec![job(1, "t")])).await.expect("a call")[0].as_ref().expect("it is stored");
    });
}

#[test]
fn of_several_servers_the_one_that_can_write_is_found() {
    RUNTIME.block_on(async {
        let mut primary = Server::new().await;
        namespace(&primary.url(), "several").await;
        let standby = primary.standby().await;
        let host = |server: &Server| {
            server.url()["postgres://postgres@".len()..].split('/').next().map(String::from)
        };
        let (first, second) = (host(&standby).expect("a host"), host(&primary).expect("a host"));
        let url = format!("postgres://postgres@{first},{second}/postgres?schema=several");
        let store = open(&url, options(2)).await;
        store.submit(vec![job(1, "t")]).await.expect("a call")[0].as_ref().expect("it is stored");
        primary.stop(Signal::QUIT);
        standby.promote().await;
        again(|| store.submit(vec![job(2, "t")])).await[0].as_ref().expect("it is stored");
        let known = again(|| store.job(job(1, "t").id)).await;
        assert_eq!(known.view.state, JobState::Pending);
    });
}

#[test]
fn on_a_server_whose_clock_is_behind_a_sessions_time_does_not_fall() {
    RUNTIME.block_on(async {
        let clock = Arc::new(ManualClock::new(START));
        let store = Schemas::on("QO_TEST_POSTGRES").at(Arc::clone(&clock)).await;
        let [first, second] = [open_session(&store, 1).await, open_session(&store, 2).await];
        // No exchange runs alone from here on.
        for number in 1..=10 {
            clock.advance_ms(900);
            store.submit(vec![job(number.into(), "t")]).await.expect("a call");
            let reply = store.exchange(exchange(first, number, vec![], 5)).await.expect("an answer");
            assert_eq!(reply.claimed.len(), 1);
        }
        let before = START.plus_ms(9_000);
        clock.set(START.plus_ms(2_000));
        let reply = store.exchange(exchange(first, 11, vec![], 5)).await.expect("an answer");
        assert!(reply.now >= before, "{} after {before}", reply.now);
        let now = store.exchange(exchange(second, 1, vec![], 5)).await.expect("an answer").now;
        assert!(now.plus_ms(1_000) >= before, "{now} after {before}");
        let now = store.now().await.expect("a time");
        assert!(now.plus_ms(1_000) >= before, "{now} after {before}");
    });
}
