//! A store behind a bad network.

use crate::stage::{Running, TokioClock, at_once, ended, until};
use qo::core::{ClaimSettings, JobState};
use qo::{CancelReason, Client, Context, Failure, TaskConfig, Worker, WorkerOptions};
use qo_testkit::{FaultRates, FaultyStore};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const RATES: FaultRates = FaultRates { before: 150, after: 150, late: 0, twice: 0, late_ms: 1 };

/// Two workers on a store that loses calls and answers: every job runs once.
async fn nothing_is_lost_or_done_twice(seed: u64, claim: ClaimSettings) {
    let store = TokioClock::store();
    let faulty = Arc::new(FaultyStore::new(store.clone(), seed, RATES));
    let runs = Arc::new(Mutex::new(BTreeMap::new()));
    let workers: Vec<_> = (0..2)
        .map(|index| {
            let runs = runs.clone();
            let count = move |(): (), context: Context| {
                *runs.lock().expect("no panic").entry(context.job()).or_insert(0) += 1;
                async move {
                    tokio::time::sleep(Duration::from_millis(7)).await;
                    Ok::<_, Failure>(())
                }
            };
            let options = WorkerOptions {
                claim: claim.clone(),
                max_concurrent_tasks: 5,
                memory_threshold_percent: 100,
                ..WorkerOptions::default()
            };
            let builder =
                Worker::builder(faulty.clone()).options(options).own_threads(false).seed(seed + index);
            Running::start(builder.task_with("count", TaskConfig::new().max_concurrent(7), count))
        })
        .collect();
    let client = Client::new(store.clone());
    let mut jobs = Vec::new();
    for _ in 0..100 {
        jobs.push(client.submit("count", &()).await.expect("submitted"));
    }
    for &job in &jobs {
        let detail = ended(&client, job).await;
        assert_eq!((detail.view.state, detail.attempts.len()), (JobState::Succeeded, 1), "seed {seed}");
    }
    assert!(jobs.iter().all(|job| runs.lock().expect("no panic")[job] == 1), "seed {seed}");
    faulty.heal();
    for worker in workers {
        worker.drain().await;
    }
    assert_eq!(store.audit().expect("an audit"), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn lost_calls_and_answers_lose_no_job_and_run_none_twice() {
    for seed in 0..20 {
        nothing_is_lost_or_done_twice(seed, ClaimSettings::default()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn lost_calls_and_answers_do_no_harm_to_jobs_that_are_claimed_ahead() {
    for seed in 0..20 {
        let claim =
            ClaimSettings { prefetch_buffer: 4, claim_lease_ms: Some(10_000), ..ClaimSettings::default() };
        nothing_is_lost_or_done_twice(seed, claim).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fenced_worker_stops_its_handlers_opens_a_new_session_and_goes_on() {
    let store = TokioClock::store();
    let reasons = Arc::new(Mutex::new(Vec::new()));
    let told = reasons.clone();
    let wait = move |(): (), context: Context| {
        let told = told.clone();
        async move {
            if context.attempt() == 1 {
                let reason = context.cancelled().await;
                told.lock().expect("no panic").push(reason);
            }
            Ok::<_, Failure>(context.attempt())
        }
    };
    let builder = Worker::builder(store.clone()).own_threads(false);
    let worker = Running::start(builder.task_with("wait", TaskConfig::new().retry(at_once()), wait));
    let client = Client::new(store.clone());
    let job = client.submit("wait", &()).await.expect("submitted");
    let running = || async { client.store().job(job).await.expect("a job").view.running };
    until("it runs", || async { running().await.is_some() }).await;
    let session = running().await.expect("it runs").session;
    client.store().close_session(session).await.expect("closed behind its back");
    assert_eq!(client.wait_for::<u32>(job).await, Ok(2));
    // Its lease was over: it was not even asked to come to an end, and what it returned would have been refused.
    assert!(reasons.lock().expect("no panic").iter().all(|reason| *reason == CancelReason::LeaseLost));
    worker.drain().await;
}
