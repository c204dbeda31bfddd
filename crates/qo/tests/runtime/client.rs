//! The client.

use crate::stage::{TokioClock, on_every_store};
use async_trait::async_trait;
use qo::core::{Answer, Command, JobId, JobState, NewJob, OnFailure, OnLimit, Submitted};
use qo::{Client, Error, ErrorKind, Store};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use qo_testkit::{FaultRates, FaultyStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use uuid::Uuid;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_option_of_a_job_arrives() {
    on_every_store(async |store| {
        let client = Client::new(store.clone());
        let now = store.now().await.expect("a time");
        let job = client
            .submit("resize", &[1, 2])
            .queue("slow")
            .priority(-3)
            .delay(Duration::from_secs(60))
            .good_until(now.plus_ms(120_000))
            .max_attempts(7)
            .timeout(Duration::from_secs(5))
            .group("pictures")
            .key("user/7")
            .cost(2)
            .limits([("gpu", 1)])
            .limit(10)
            .idempotency_key("once")
            .workflow("album")
            .on_failure(OnFailure::Continue);
        let id = job.await.expect("submitted");
        let detail = store.job(id).await.expect("a job");
        assert_eq!((detail.payload.as_str(), detail.view.state), ("[1,2]", JobState::Pending));
        assert_eq!((&*detail.view.queue, detail.view.priority), ("slow", -3));
        assert!(detail.view.run_at >= now.plus_ms(60_000) && detail.view.run_at < now.plus_ms(90_000));
        assert_eq!((&*detail.view.group, detail.view.cost, detail.view.limits.len()), ("pictures", 2, 1));
        assert_eq!((detail.view.max_attempts, detail.view.step), (7, Some(1)));
        let again = client.submit("resize", &[1, 2]).idempotency_key("once").outcome().await;
        assert_eq!(again, Ok(Submitted::Existing(id)));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submit_names_a_mistake_and_tells_a_full_group_apart() {
    on_every_store(async |store| {
        let client = Client::new(store.clone());
        for (submit, part) in [
            (client.submit("a b", &()), "task: \"a b\""),
            (client.submit("a", &()).queue("cluster"), "queue: \"cluster\""),
            (client.submit("a", &()).key("*").cost(0), "key: \"*\""),
            (client.submit("a", &()).cost(0), "invalid: cost: \"0\""),
            (client.submit("a", &()).limits([("cluster", 1)]), "limits"),
        ] {
            let error = submit.await.expect_err("a mistake");
            assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(part), "{error}");
        }
        store.set_limit("full".parse().expect("a group"), 0).await.expect("set");
        let skip = || client.submit("full", &()).on_limit(OnLimit::Skip);
        assert_eq!(skip().outcome().await, Ok(Submitted::Skipped));
        assert_eq!(skip().await.expect_err("skipped").kind(), ErrorKind::LimitReached);
        let rejected = client.submit("full", &()).on_limit(OnLimit::Reject).await;
        assert_eq!(rejected.expect_err("rejected").kind(), ErrorKind::LimitReached);
    })
    .await;
}

#[tokio::test]
async fn a_submit_of_many_jobs_takes_several_calls_and_names_a_bad_one() {
    let store = TokioClock::store();
    let client = Client::new(store);
    let job = |_| NewJob::new(JobId(Uuid::now_v7()), "noop".parse_name());
    let submitted = client.submit_many((0..10_500).map(job).collect()).await.expect("submitted");
    assert!(
        submitted.len() == 10_500 && submitted.iter().all(|one| matches!(one, Ok(Submitted::Accepted(_))))
    );
    client.store().set_limit("noop".parse().expect("a group"), 3).await.expect("set");
    let mut jobs: Vec<_> = (0..10_500).map(job).collect();
    jobs[10_400].cost = 4;
    let error = client.submit_many(jobs.clone()).await.expect_err("it can never run");
    assert!(error.message().starts_with("jobs[10400]."), "{error}");
    jobs[17].max_attempts = 0;
    let error = client.submit_many(jobs).await.expect_err("a mistake");
    assert!(error.message().starts_with("jobs[17].max_attempts"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_submit_whose_answer_is_lost_is_made_again_as_the_same_job() {
    let store = TokioClock::store();
    let rates = FaultRates { before: 300, after: 300, ..FaultRates::NONE };
    let faulty = Arc::new(FaultyStore::new(store.clone(), 7, rates));
    let client = Client::new(faulty);
    for _ in 0..100 {
        client.submit("noop", &()).await.expect("submitted in the end");
    }
    let jobs = client.store().jobs(Default::default(), None, 1_000).await.expect("a page");
    assert_eq!(jobs.jobs.len(), 100);

    let never = FaultRates { before: 1_000, ..FaultRates::NONE };
    let client = Client::new(Arc::new(FaultyStore::new(store, 7, never))).deadline(Duration::from_secs(3));
    let started = tokio::time::Instant::now();
    let error = client.submit("noop", &()).await.expect_err("the time is up");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(started.elapsed() <= Duration::from_secs(3));
}

/// A store that does the first call, loses its answer, and cannot be reached from then on.
struct Vanishing {
    store: Arc<dyn Store>,
    calls: AtomicU32,
}

#[async_trait]
impl Intercept for Vanishing {
    async fn command(&self, command: Command) -> qo::Result<Answer> {
        if self.calls.fetch_add(1, Ordering::SeqCst) > 0 {
            return Err(Error::new(ErrorKind::Unavailable, "nothing is there"));
        }
        call(&*self.store, command).await?;
        Err(Error::new(ErrorKind::Unknown, "the answer is lost"))
    }

    fn look(&self) -> qo::Result<&dyn Store> {
        Ok(&*self.store)
    }
}

#[tokio::test(start_paused = true)]
async fn a_submit_that_may_have_happened_says_so_and_names_its_id() {
    let store = TokioClock::store();
    let vanishing = Intercepted(Vanishing { store: store.clone(), calls: AtomicU32::new(0) });
    let vanishing = Arc::new(vanishing);
    let submit = Client::new(vanishing.clone()).submit("noop", &());
    let id = submit.job_id().expect("it has no mistake");
    let error = submit.await.expect_err("the time is up");
    assert!(vanishing.0.calls.load(Ordering::SeqCst) > 1, "the last error was another one");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(error.message().contains(&id.to_string()), "{error}");
    let again = Client::new(store).submit("noop", &()).id(id).outcome().await;
    assert_eq!(again, Ok(Submitted::Existing(id)));
}

trait ParseName {
    fn parse_name(&self) -> qo::core::Name;
}

impl ParseName for str {
    fn parse_name(&self) -> qo::core::Name {
        qo::core::Name::parse("task", self).expect("a name")
    }
}
