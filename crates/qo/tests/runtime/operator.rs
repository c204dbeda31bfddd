//! What operators do, by the client; and slots that a guard holds.

use crate::stage::{PATIENCE, Running, TokioClock, ended, on_every_store, until};
use async_trait::async_trait;
use qo::core::{Answer, Command, Exchange, ExchangeReply};
use qo::{Client, Error, ErrorKind, Failure, JobFilter, JobState, Page, Result, Store, Task, Worker};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const DOUBLE: Task<u64, u64> = Task::new("double");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_typed_task_gives_back_what_its_handler_returns() {
    on_every_store(async |store| {
        let double = async |number: u64, _| Ok::<_, Failure>(number * 2);
        let worker = Running::start(Worker::builder(store.clone()).task(DOUBLE, double));
        let client = Client::new(store);
        let job = client.submit(DOUBLE, &21).await.expect("submitted");
        assert_eq!(DOUBLE.output(&client, job).await, Ok(42));
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_cancels_retries_lists_and_explains_jobs() {
    on_every_store(async |store| {
        let client = Client::new(store);
        let mut jobs = Vec::new();
        for number in 0..3 {
            jobs.push(client.submit("mail", &number).await.expect("submitted"));
        }
        let first = client.jobs(&JobFilter::default(), Page::default().limit(2)).await.expect("a page");
        let next = first.next.expect("there is more");
        let second = client.jobs(&JobFilter::default(), Page::after(next)).await.expect("a page");
        let listed: Vec<_> = first.jobs.iter().chain(&second.jobs).map(|job| job.id).collect();
        assert_eq!((listed, second.next), (jobs.clone(), None));
        assert!(!client.explain(jobs[0]).await.expect("explained").reasons.is_empty());

        assert_eq!(client.cancel(jobs[0]).await, Ok(JobState::Cancelled));
        assert_eq!(client.retry(jobs[0]).await, Ok(JobState::Pending));
        let unknown = qo::JobId(uuid::Uuid::nil());
        assert_eq!(client.cancel(unknown).await.expect_err("unknown").kind(), ErrorKind::NotFound);

        assert_eq!(client.cancel_matching(&JobFilter::default()).await, Ok(3));
        assert_eq!(client.job(jobs[2]).await.expect("a job").view.state, JobState::Cancelled);
        assert_eq!(client.retry_matching(&JobFilter::default()).await, Ok(3));
        assert_eq!(client.log(qo::FenceToken(77)).await, Ok(None));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_sets_limits_and_pauses_queues() {
    on_every_store(async |store| {
        let client = Client::new(store);
        client.set_limit("mail/*", 2).await.expect("set");
        client.set_limit("mail", 3).await.expect("set");
        assert_eq!(client.group("mail").await.expect("a group").status.limit, Some(3));
        assert_eq!(client.groups(Page::default()).await.expect("groups").groups.len(), 2);
        assert_eq!(
            (client.unset_limit("mail").await, client.unset_limit("mail").await),
            (Ok(true), Ok(false))
        );
        let error = client.set_limit("a b", 1).await.expect_err("not a group");
        assert_eq!((error.kind(), error.path().as_deref()), (ErrorKind::Invalid, Some("group")));

        client.pause("slow").await.expect("paused");
        assert!(client.queues().await.expect("queues").iter().any(|queue| queue.paused));
        client.resume("slow").await.expect("resumed");
        assert!(!client.queues().await.expect("queues").iter().any(|queue| queue.paused));
        assert_eq!(client.workers().await.map(|workers| workers.len()), Ok(0));
        let token = qo::FenceToken(7);
        assert_eq!(client.release_slot("mail", token).await.expect_err("free").kind(), ErrorKind::NotFound);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_steers_a_halted_workflow() {
    on_every_store(async |store| {
        let fail = async |(): (), _| Err::<(), _>(Failure::fail("no"));
        let worker = Running::start(Worker::builder(store.clone()).task("step", fail));
        let client = Client::new(store);
        let step = || client.submit("step", &()).workflow("album").max_attempts(1);
        let (first, second) = (step().await.expect("submitted"), step().await.expect("submitted"));
        assert_eq!(ended(&client, first).await.view.state, JobState::Failed);
        assert_eq!(client.workflow("album").await.expect("it is there").head.map(|head| head.step), Some(1));
        let error = client.skip_step("album", 2).await.expect_err("step 1 halts it");
        assert_eq!(error.kind(), ErrorKind::Conflict);
        client.skip_step("album", 1).await.expect("skipped");
        assert_eq!(ended(&client, second).await.view.state, JobState::Failed);
        client.cancel_workflow("album").await.expect("cancelled");
        assert_eq!(client.workflows(Page::default()).await.expect("workflows").workflows.len(), 1);
        assert_eq!(step().await.expect_err("it takes no more").kind(), ErrorKind::Conflict);
        let missing = client.trigger_schedule("nightly").await.expect_err("there is none");
        assert_eq!((missing.kind(), client.schedules().await), (ErrorKind::NotFound, Ok(Vec::new())));
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_gives_its_slots_back_when_it_is_dropped() {
    on_every_store(async |store| {
        let client = Client::new(store);
        let held = client.acquire("gpu").slots(2).limit(3).holder("render").await.expect("free");
        assert!(held.is_held());
        assert!(client.acquire("gpu").slots(2).now().await.expect("asked").is_none(), "one is left");
        let waiting = tokio::spawn(client.acquire("gpu").slots(2).into_future());
        until("it waits", async || client.group("gpu").await.is_ok_and(|group| group.status.used == 2)).await;
        drop(held);
        let next = tokio::time::timeout(PATIENCE, waiting).await.expect("it comes").expect("no panic");
        let next = next.expect("free again");
        next.release().await.expect("given back");
        let group = client.group("gpu").await;
        assert!(group.is_err() || group.is_ok_and(|group| group.status.used == 0));
        let error = client.acquire("cluster").now().await.expect_err("not for programs");
        assert_eq!((error.kind(), error.path().as_deref()), (ErrorKind::Invalid, Some("group")));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_renews_its_lease_and_tells_when_an_operator_takes_the_slots() {
    let client = Client::new(TokioClock::store());
    let held = client.acquire("gpu").limit(1).lease(Duration::from_secs(10)).await.expect("free");
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(held.is_held(), "it was renewed ten times");
    client.release_slot("gpu", held.token()).await.expect("taken away");
    let why =
        tokio::time::timeout(Duration::from_secs(4), held.lost()).await.expect("within a third of the lease");
    assert_eq!(why.kind(), ErrorKind::Fenced);
    assert!(!held.is_held());
    held.release().await.expect("there is nothing to give back");
}

/// A store that can be cut off.
struct Cable {
    store: Arc<dyn Store>,
    is_cut: AtomicBool,
}

impl Cable {
    fn store(&self) -> Result<&dyn Store> {
        match self.is_cut.load(Ordering::Relaxed) {
            true => Err(Error::new(ErrorKind::Unavailable, "cut")),
            false => Ok(&*self.store),
        }
    }
}

#[async_trait]
impl Intercept for Cable {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(self.store()?, command).await
    }

    async fn fetch(&self, exchange: Exchange) -> Result<Option<ExchangeReply>> {
        self.store()?.fetch(exchange).await
    }

    fn look(&self) -> Result<&dyn Store> {
        self.store()
    }

    fn listen(&self) -> Result<&dyn Store> {
        self.store()
    }
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_cannot_renew_is_lost_before_its_lease_is_over() {
    let cable = Cable { store: TokioClock::store(), is_cut: AtomicBool::new(false) };
    let cable = Arc::new(Intercepted(cable));
    let client = Client::new(cable.clone());
    let (lease, started) = (Duration::from_secs(9), Instant::now());
    let held = client.acquire("gpu").limit(1).lease(lease).await.expect("free");
    cable.0.is_cut.store(true, Ordering::Relaxed);
    let why = tokio::time::timeout(lease, held.lost()).await.expect("before the lease is over");
    assert_eq!((why.kind(), held.is_held()), (ErrorKind::Fenced, false));
    assert!(started.elapsed() < lease, "another program can have the slot then");
    let elsewhere = Client::new(Arc::clone(&cable.0.store));
    assert!(elsewhere.acquire("gpu").now().await.expect("asked").is_none(), "and not earlier");
}
