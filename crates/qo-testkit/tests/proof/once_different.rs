//! Minimal scripts on which the rule book and the toy once differed, and what was decided.

use futures::executor::block_on;
use qo_core::{Claim, ErrorKind, Exchange, FenceToken, JobId, LeaseId, Name, NewJob, NewSession, Outcome};
use qo_core::{SessionId, Settle, SlotRequest, Store, caps};
use qo_testkit::{Fixture, Fixtures, MemoryFixtures, ToyFixtures};
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(id: u128, task: &str, queue: &str, priority: i32, cost: u32) -> NewJob {
    let id = JobId(Uuid::from_u128(id));
    NewJob { queue: name(queue), priority, cost, ..NewJob::new(id, name(task)) }
}

fn both() -> [Fixture; 2] {
    [block_on(ToyFixtures::default().fresh()), block_on(MemoryFixtures.fresh())]
}

/// One worker that has every task used here.
struct Worker<'a> {
    store: &'a dyn Store,
    number: u64,
}

impl<'a> Worker<'a> {
    const SESSION: SessionId = SessionId(Uuid::from_u128(1));

    async fn open(store: &'a dyn Store) -> Self {
        let tasks = ["mail", "report", "other"].map(name).to_vec();
        let worker = name("w");
        let session = NewSession {
            id: Self::SESSION,
            worker,
            queues: vec![],
            tasks,
            lease_ms: 30_000,
            permits: 9,
            owner: None,
        };
        store.open_session(session).await.expect("a session");
        Self { store, number: 0 }
    }

    /// Claims, and returns which jobs it got.
    async fn exchange(&mut self, max: u32, draining: bool) -> Vec<u128> {
        self.number += 1;
        let claim = Claim { max, max_claim_batch: None, prefetch: None };
        let exchange = Exchange { claim, draining, ..Exchange::renew(Self::SESSION, self.number) };
        let reply = self.store.exchange(exchange).await.expect("a reply");
        reply.claimed.iter().map(|claimed| claimed.id.0.as_u128()).collect()
    }
}

/// rules.md, Exchange: the worker's report (step 4) is taken before the claim (step 6). A worker that drained and now
/// reports that it does not is "a live session which is not draining" for the big jobs that it serves.
#[test]
fn a_worker_that_no_longer_drains_reserves_for_its_big_jobs_at_once() {
    for fixture in both() {
        block_on(async {
            let store = &*fixture.store;
            store.set_limit("mail".parse().expect("a group"), 3).await.expect("set");
            let jobs = vec![job(1, "mail", "default", -1, 1), job(2, "mail", "default", 0, 3)];
            store.submit(jobs).await.expect("submit");
            store.submit(vec![job(3, "mail", "default", 0, 1)]).await.expect("submit");
            let mut worker = Worker::open(store).await;
            assert_eq!(worker.exchange(0, true).await, [] as [u128; 0]);
            assert_eq!(worker.exchange(3, false).await, [1], "job 3 waits for job 2");
        });
    }
}

/// rules.md, Claim: slots that were kept for a big job stay kept within one claim, although the walk itself has taken
/// the last slot of another group that the big job needs. So no job overtakes another of its own lane.
#[test]
fn what_was_kept_stays_kept_for_the_rest_of_the_claim() {
    for fixture in both() {
        block_on(async {
            let store = &*fixture.store;
            let mut worker = Worker::open(store).await;
            store.submit(vec![job(1, "mail", "slow", 0, 2)]).await.expect("submit");
            assert_eq!(worker.exchange(1, false).await, [1]);
            store.set_limit("mail".parse().expect("a group"), 3).await.expect("set");
            store.set_limit("queue:default".parse().expect("a group"), 1).await.expect("set");
            let big = job(2, "mail", "default", -1, 2);
            let (passed, filling) = (job(3, "mail", "slow", -1, 1), job(4, "report", "default", -1, 1));
            let behind = job(5, "mail", "slow", 0, 1);
            store.submit(vec![big, passed, filling, behind]).await.expect("submit");
            assert_eq!(worker.exchange(2, false).await, [4], "3 is passed over for 2, and so 5 is too");
            assert_eq!(
                worker.exchange(2, false).await,
                [3],
                "now 2 lacks room in its queue and keeps nothing"
            );
        });
    }
}

/// rules.md, Standalone slots: the limit that a program brings counts for the slots that it takes, and stays; it
/// replaces a lower one that a job brought before. The rule book used the old limit, and panicked.
#[test]
fn a_programs_submit_side_limit_counts_for_the_slots_that_it_takes() {
    for fixture in both() {
        block_on(async {
            let store = &*fixture.store;
            store
                .submit(vec![NewJob { limit: Some(0), ..job(1, "mail", "default", 0, 1) }])
                .await
                .expect("submit");
            let group = "mail".parse().expect("a group");
            let request = SlotRequest::new(LeaseId(Uuid::from_u128(9)), group, name("backup"), 30_000);
            let lease = store.acquire_slots(SlotRequest { limit: Some(1), ..request.clone() }).await;
            assert!(lease.is_ok_and(|lease| lease.is_some()));
            let status = store.group(request.group).await.expect("a group").status;
            assert_eq!((status.limit, status.used), (Some(1), 1));
        });
    }
}

/// rules.md, Settle: a bad value is `Invalid`, whether or not the token owns the job. The rule book looked for the
/// owner first.
#[test]
fn a_settle_with_a_bad_value_is_invalid_from_any_session() {
    for fixture in both() {
        block_on(async {
            let worker = Worker::open(&*fixture.store).await;
            let outcome = Outcome::Snooze { delay_ms: caps::DURATION_MS + 1 };
            let settles = vec![Settle { job: JobId(Uuid::nil()), token: FenceToken(0), outcome }];
            let exchange = Exchange { settles, ..Exchange::renew(Worker::SESSION, 1) };
            let reply = worker.store.exchange(exchange).await.expect("a reply");
            assert_eq!(reply.settled[0].as_ref().map_err(|error| error.kind()), Err(ErrorKind::Invalid));
        });
    }
}
