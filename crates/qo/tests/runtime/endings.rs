//! How jobs are cancelled, and how workers shut down.

use crate::stage::{Running, ended, on_every_store, until};
use qo::core::{AttemptOutcome, JobId, JobState};
use qo::{CancelReason, Client, Context, Failure, TaskConfig, Worker};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

async fn is_running(client: &Client, job: JobId) -> bool {
    client.store().job(job).await.expect("a job").view.state == JobState::Running
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_job_is_told_and_ends_as_cancelled_unless_it_succeeds() {
    on_every_store(async |store| {
        let stubborn = |how: String, context: Context| async move {
            if how == "deaf" {
                pending::<()>().await;
            }
            assert_eq!(context.cancelled().await, CancelReason::Cancelled);
            if how == "done" { Ok("done anyway") } else { Err(Failure::Cancelled) }
        };
        let builder = Worker::builder(store.clone()).cancel_grace(Duration::from_millis(20));
        let worker = Running::start(builder.task("stubborn", stubborn));
        let client = Client::new(store.clone());
        for (how, state, outcome) in [
            ("listens", JobState::Cancelled, AttemptOutcome::Cancelled),
            ("deaf", JobState::Cancelled, AttemptOutcome::Cancelled),
            ("done", JobState::Succeeded, AttemptOutcome::Succeeded),
        ] {
            let job = client.submit("stubborn", how).await.expect("submitted");
            until("it runs", || is_running(&client, job)).await;
            client.store().cancel(vec![job]).await.expect("cancelled");
            let detail = ended(&client, job).await;
            assert_eq!((detail.view.state, detail.attempts[0].outcome), (state, outcome), "{how}");
        }
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_an_operator_takes_away_stops_its_handler() {
    on_every_store(async |store| {
        let (told, mut reasons) = mpsc::unbounded_channel();
        let wait = move |(): (), context: Context| {
            let told = told.clone();
            async move {
                if context.attempt() == 1 {
                    told.send(context.cancelled().await).expect("the test listens");
                }
                Ok::<_, Failure>(())
            }
        };
        let config = TaskConfig::new().max_concurrent(1);
        let worker = Running::start(Worker::builder(store.clone()).task_with("wait", config, wait));
        let client = Client::new(store.clone());
        let job = client.submit("wait", &()).await.expect("submitted");
        until("it runs", || is_running(&client, job)).await;
        let token = store.job(job).await.expect("a job").view.running.expect("it runs").token;
        store.release_slot("wait".parse().expect("a group"), token).await.expect("released");
        assert_eq!(reasons.recv().await, Some(CancelReason::LeaseEnded));
        let detail = ended(&client, job).await;
        let outcomes: Vec<_> = detail.attempts.iter().map(|attempt| attempt.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::ReleasedByOperator, AttemptOutcome::Succeeded]);
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_drains_finishes_what_runs_and_takes_no_more() {
    on_every_store(async |store| {
        let gate = Arc::new(Notify::new());
        let opened = gate.clone();
        let wait = move |(): (), _: Context| {
            let gate = opened.clone();
            async move {
                gate.notified().await;
                Ok::<_, Failure>(())
            }
        };
        let builder = Worker::builder(store.clone()).task("wait", wait).max_concurrent_tasks(1);
        let worker = Running::start(builder);
        let client = Client::new(store.clone());
        let first = client.submit("wait", &()).await.expect("submitted");
        let second = client.submit("wait", &()).await.expect("submitted");
        // A worker that drains gives back a job that it has claimed but not started.
        until("it runs", || async { worker.metrics.counts().in_flight_tasks == 1 }).await;
        assert!(is_running(&client, first).await);
        worker.shutdown.drain();
        until("the store knows", || async { store.workers().await.expect("a list")[0].draining }).await;
        gate.notify_one();
        worker.end().await.expect("it ends well");
        assert_eq!(store.job(first).await.expect("a job").view.state, JobState::Succeeded);
        assert_eq!(store.job(second).await.expect("a job").view.state, JobState::Pending);
        assert!(store.workers().await.expect("a list").is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_released_gives_its_jobs_back_as_they_were() {
    on_every_store(async |store| {
        let wait = |deaf: bool, context: Context| async move {
            if deaf {
                pending::<()>().await;
            }
            assert_eq!(context.cancelled().await, CancelReason::ShuttingDown);
            Err::<(), _>(Failure::retry("I am not done"))
        };
        let grace = Duration::from_millis(20);
        let worker = Running::start(Worker::builder(store.clone()).task("wait", wait).cancel_grace(grace));
        let client = Client::new(store.clone());
        let mut jobs = Vec::new();
        for deaf in [true, false] {
            jobs.push(client.submit("wait", &deaf).await.expect("submitted"));
        }
        for &job in &jobs {
            until("it runs", || is_running(&client, job)).await;
        }
        worker.shutdown.release();
        worker.end().await.expect("it ends well");
        for job in jobs {
            let detail = store.job(job).await.expect("a job");
            assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 0));
            assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
        }
        assert!(store.workers().await.expect("a list").is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_run_is_dropped_gives_its_jobs_back() {
    on_every_store(async |store| {
        let wait = |(): (), _: Context| pending::<Result<(), Failure>>();
        let builder =
            Worker::builder(store.clone()).task("wait", wait).cancel_grace(Duration::from_millis(5));
        let run = tokio::spawn(builder.build().expect("a worker").run());
        let client = Client::new(store.clone());
        let job = client.submit("wait", &()).await.expect("submitted");
        until("it runs", || is_running(&client, job)).await;
        run.abort();
        until("no worker is left", || async { store.workers().await.expect("a list").is_empty() }).await;
        assert_eq!(store.job(job).await.expect("a job").attempts[0].outcome, AttemptOutcome::Released);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_whose_runtime_is_gone_gives_its_jobs_back() {
    on_every_store(async |store| {
        let wait = |(): (), _: Context| pending::<Result<(), Failure>>();
        let worker = Worker::builder(store.clone()).task("wait", wait).build().expect("a worker");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.expect("a runtime");
        runtime.spawn(worker.run());
        let client = Client::new(store.clone());
        let job = client.submit("wait", &()).await.expect("submitted");
        until("it runs", || is_running(&client, job)).await;
        runtime.shutdown_background();
        until("no worker is left", || async { store.workers().await.expect("a list").is_empty() }).await;
        assert_eq!(store.job(job).await.expect("a job").attempts[0].outcome, AttemptOutcome::Released);
    })
    .await;
}
