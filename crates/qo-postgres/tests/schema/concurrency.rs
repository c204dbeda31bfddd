//! Many workers at once: limits are kept and reached, no call waits for ever, and the counts equal those of the
//! holders.

use crate::fixtures::{RUNTIME, Schemas, connect};
use qo_core::{
    Claim, ClaimedJob, Exchange, Json, Name, NewJob, NewSession, Outcome, SessionId, Settle, Store,
};
use qo_core::{JobFilter, JobId, JobState};
use qo_postgres::{Options, PostgresStore, Url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

const SERVER: &str = "QO_TEST_POSTGRES";

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(id: u128, task: &str) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(id)), name(task))
}

async fn open(url: &Url) -> PostgresStore {
    let options = Options { connections: 3, notify: false, ..Options::default() };
    PostgresStore::open(url, options).await.expect("it opens")
}

async fn deadlocks(server: &str) -> i64 {
    let client = connect(server).await;
    let row =
        client.query_one("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()", &[]);
    row.await.expect("a row").get(0)
}

/// How many of each group run at once, as the workers see it.
#[derive(Default)]
struct Running {
    now: HashMap<Name, u32>,
    most: HashMap<Name, u32>,
}

impl Running {
    fn begin(&mut self, jobs: &[ClaimedJob]) {
        for job in jobs {
            let now = self.now.entry(job.group.clone()).or_default();
            *now += 1;
            let most = self.most.entry(job.group.clone()).or_default();
            *most = (*most).max(*now);
        }
    }

    fn end(&mut self, jobs: &[ClaimedJob]) {
        for job in jobs {
            *self.now.entry(job.group.clone()).or_default() -= 1;
        }
    }
}

/// One worker: small batches, every job succeeds, until all are done.
async fn work(
    store: PostgresStore,
    tasks: Vec<Name>,
    batch: u32,
    running: Arc<Mutex<Running>>,
    left: Arc<Mutex<usize>>,
) {
    let id = SessionId(Uuid::from_u128(rand()));
    let session = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 1_000,
        owner: None,
    };
    store.open_session(session).await.expect("it opens");
    let mut held: Vec<ClaimedJob> = Vec::new();
    let mut number = 0;
    loop {
        if !held.is_empty() {
            // The jobs run for as long as an exchange takes, so that those of other workers run at the same time.
            number += 1;
            let renewed =
                store.exchange(Exchange { free_permits: 1_000, ..Exchange::renew(id, number) }).await;
            renewed.expect("it is answered");
        }
        number += 1;
        running.lock().expect("a lock").end(&held);
        let settles: Vec<Settle> = held
            .iter()
            .map(|job| Settle {
                job: job.id,
                token: job.token,
                outcome: Outcome::Succeed { output: Json::null() },
            })
            .collect();
        let done = settles.len();
        let claim = Claim { max: batch, max_claim_batch: None, prefetch: None };
        let exchange = Exchange { settles, claim, free_permits: 1_000, ..Exchange::renew(id, number) };
        let reply = store.exchange(exchange).await.expect("it is answered");
        assert!(
            reply.settled.iter().all(|settled| *settled == Ok(JobState::Succeeded)),
            "{:?}",
            reply.settled
        );
        held = reply.claimed;
        running.lock().expect("a lock").begin(&held);
        let mut left = left.lock().expect("a lock");
        *left -= done;
        if *left == 0 {
            return;
        }
    }
}

fn rand() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    u128::from(NEXT.fetch_add(1, Ordering::Relaxed)) << 64 | 1
}

/// Runs so many jobs of so many groups, each with this limit, on 16 workers; returns the most that ran at once, by group.
async fn fleet(schema: &str, jobs: usize, groups: usize, limit: u32, batch: u32) -> HashMap<Name, u32> {
    let schemas = Schemas::on(SERVER);
    let url = schemas.schema(schema).await;
    let store = open(&url).await;
    let tasks: Vec<Name> = (0..groups).map(|group| name(&format!("task{group}"))).collect();
    for task in &tasks {
        store.set_limit(qo_core::GroupRef::Group(task.clone()), limit).await.expect("it is set");
    }
    let all: Vec<NewJob> = (0..jobs).map(|n| job(n as u128 + 1, &tasks[n % groups])).collect();
    for some in all.chunks(5_000) {
        store.submit(some.to_vec()).await.expect("they are stored");
    }
    let before = deadlocks(&schemas.server()).await;
    let (running, left) = (Arc::new(Mutex::new(Running::default())), Arc::new(Mutex::new(jobs)));
    let mut workers = Vec::new();
    for _ in 0..16 {
        let worker = work(open(&url).await, tasks.clone(), batch, running.clone(), left.clone());
        workers.push(tokio::spawn(worker));
    }
    for worker in workers {
        // One worker settles the last job; the others see that with their next exchange.
        worker.await.expect("no worker fails");
    }
    assert_eq!(store.drift().await.as_deref(), Ok("[]"));
    assert_eq!(deadlocks(&schemas.server()).await, before, "no calls deadlocked");
    let done = JobFilter { states: vec![JobState::Pending, JobState::Running], ..JobFilter::default() };
    assert_eq!(store.jobs(done, None, 1).await.expect("a page").jobs, []);
    let running = running.lock().expect("a lock");
    for (group, most) in &running.most {
        assert!(*most <= limit, "{most} of {group} ran at once");
    }
    running.most.clone()
}

#[test]
fn a_limit_of_one_is_serial_on_sixteen_workers() {
    let most = RUNTIME.block_on(fleet("fleet_1", 300, 1, 1, 5));
    assert_eq!(most[&name("task0")], 1);
}

#[test]
fn a_limit_of_seven_is_reached_and_kept_on_sixteen_workers() {
    let most = RUNTIME.block_on(fleet("fleet_7", 1_500, 1, 7, 5));
    assert_eq!(most[&name("task0")], 7);
}

#[test]
fn a_limit_of_five_hundred_is_kept_on_sixteen_workers() {
    RUNTIME.block_on(fleet("fleet_500", 5_000, 1, 500, 10));
}

#[test]
fn a_hundred_groups_are_kept_apart_on_sixteen_workers() {
    let most = RUNTIME.block_on(fleet("fleet_100", 5_000, 100, 4, 10));
    assert_eq!(most.len(), 100);
}
