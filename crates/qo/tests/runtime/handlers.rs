//! What handlers get, and what the worker does with what they return.

use crate::stage::{Running, TokioClock, at_once, ended, on_every_store, until};
use qo::core::{AttemptOutcome, JobState, caps};
use qo::{CancelReason, Client, Context, Failure, TaskConfig, Worker};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Picture {
    path: String,
    width: u32,
}

async fn resize(picture: Picture, context: Context) -> Result<Picture, Failure> {
    assert_eq!((&**context.task(), &**context.queue(), context.attempt()), ("resize", "fast", 1));
    assert_eq!((context.key().map(|key| &**key), context.max_attempts()), (Some("user-7"), 3));
    assert!(!context.is_cancelled() && context.extend_lease().as_millis() > 0);
    context.progress(0.5, "half");
    Ok(Picture { width: picture.width / 2, ..picture })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_gets_its_payload_and_its_output_comes_back() {
    on_every_store(async |store| {
        let worker = Running::start(Worker::builder(store.clone()).task("resize", resize));
        let client = Client::new(store);
        let picture = Picture { path: "cat.png".into(), width: 640 };
        let job = client.submit("resize", &picture).queue("fast").key("user-7").await.expect("submitted");
        let output: Picture = client.wait_for(job).await.expect("an output");
        assert_eq!((&*output.path, output.width), ("cat.png", 320));
        worker.drain().await;
        assert!(client.store().workers().await.expect("a list").is_empty(), "the session is closed");
    })
    .await;
}

async fn moody(mood: String, context: Context) -> Result<(), Failure> {
    match (&*mood, context.attempt()) {
        ("retry", 1) => Err(Failure::retry("not today")),
        ("later", 1) => Err(Failure::retry_after("later", Duration::from_millis(5))),
        ("error", 1) => Ok("x".parse::<i32>().map(drop)?),
        ("fail", _) => Err(Failure::fail("never")),
        ("cancelled", _) => Err(Failure::Cancelled),
        ("panic", 1) => panic!("oh no: {mood}"),
        _ => Ok(()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_says_what_happens_when_it_did_not_succeed() {
    on_every_store(async |store| {
        let config = TaskConfig::new().retry(at_once());
        let worker = Running::start(Worker::builder(store.clone()).task_with("moody", config, moody));
        let client = Client::new(store);
        for (mood, state, attempts, error) in [
            ("fine", JobState::Succeeded, 1, None),
            ("retry", JobState::Succeeded, 2, Some("not today")),
            ("later", JobState::Succeeded, 2, Some("later")),
            ("error", JobState::Succeeded, 2, Some("invalid digit found in string")),
            ("fail", JobState::Failed, 1, Some("never")),
            ("cancelled", JobState::Cancelled, 1, None),
            ("panic", JobState::Succeeded, 2, Some("panicked: oh no: panic")),
        ] {
            let job = client.submit("moody", mood).await.expect("submitted");
            let detail = ended(&client, job).await;
            assert_eq!((detail.view.state, detail.attempts.len()), (state, attempts), "{mood}");
            assert_eq!(detail.attempts[0].error.as_ref().map(|text| text.as_str()), error, "{mood}");
        }
        let job = client.submit("moody", "fail").await.expect("submitted");
        let error = client.wait_for::<()>(job).await.expect_err("it failed");
        assert!(error.to_string().ends_with("failed: never"), "{error}");
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snoozed_job_runs_again_and_no_attempt_is_used() {
    on_every_store(async |store| {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = runs.clone();
        let snooze = move |(): (), context: Context| {
            let runs = counted.fetch_add(1, Ordering::SeqCst) + 1;
            async move {
                assert_eq!(context.attempt(), 1);
                if runs < 4 { Err(Failure::snooze(Duration::from_millis(3))) } else { Ok(runs) }
            }
        };
        let worker = Running::start(Worker::builder(store.clone()).task("snooze", snooze));
        let client = Client::new(store);
        let job = client.submit("snooze", &()).max_attempts(1).await.expect("submitted");
        assert_eq!(client.wait_for::<u32>(job).await, Ok(4));
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_read_or_kept_fails_for_good_and_the_worker_goes_on() {
    on_every_store(async |store| {
        let long = |length: usize, _: Context| async move { Ok::<_, Failure>("x".repeat(length)) };
        let worker = Running::start(Worker::builder(store.clone()).task("long", long));
        let client = Client::new(store);
        let unreadable = ended(&client, client.submit("long", "seven").await.expect("submitted")).await;
        assert_eq!((unreadable.view.state, unreadable.attempts.len()), (JobState::Failed, 1));
        let error = unreadable.attempts[0].error.as_ref().expect("an error").as_str();
        assert!(error.starts_with("payload: task long cannot read it: invalid type: string"), "{error}");

        let submit = client.submit("long", &caps::PAYLOAD_BYTES);
        let too_long = ended(&client, submit.await.expect("submitted")).await;
        assert_eq!((too_long.view.state, too_long.attempts.len()), (JobState::Failed, 1));
        let error = too_long.attempts[0].error.as_ref().expect("an error").as_str();
        assert!(error.contains("output") && error.contains("1048576 bytes"), "{error}");

        // Many large outputs at once are more than one exchange may carry.
        let mut jobs = Vec::new();
        for _ in 0..40 {
            jobs.push(client.submit("long", &1_000_000).await.expect("submitted"));
        }
        for job in jobs {
            assert_eq!(ended(&client, job).await.view.state, JobState::Succeeded);
        }
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_takes_too_long_is_told_then_dropped_and_tried_again() {
    on_every_store(async |store| {
        let slow = |listens: bool, context: Context| async move {
            match (context.attempt(), listens) {
                (1, true) => {
                    assert_eq!(context.cancelled().await, CancelReason::TimedOut);
                    Err(Failure::retry("I was told"))
                }
                (1, false) => std::future::pending().await,
                _ => Ok(()),
            }
        };
        let config = TaskConfig::new().timeout(Duration::from_millis(30)).retry(at_once());
        let builder = Worker::builder(store.clone()).cancel_grace(Duration::from_millis(30));
        let worker = Running::start(builder.task_with("slow", config, slow));
        let client = Client::new(store);
        for (listens, error) in [(true, "timed out after 30ms: I was told"), (false, "timed out after 30ms")]
        {
            let detail = ended(&client, client.submit("slow", &listens).await.expect("submitted")).await;
            assert_eq!(detail.view.state, JobState::Succeeded);
            assert_eq!(detail.attempts[0].error.as_ref().map(|text| text.as_str()), Some(error));
            assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Retried);
        }
        worker.drain().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blocking_handler_runs_and_panics_like_any_other() {
    on_every_store(async |store| {
        let add = |(a, b): (u32, u32), context: Context| -> Result<u32, Failure> {
            assert!(context.attempt() > 1, "the first try panics");
            Ok(a + b)
        };
        let config = TaskConfig::new().retry(at_once());
        let worker = Running::start(Worker::builder(store.clone()).blocking_task("add", config, add));
        let client = Client::new(store);
        let job = client.submit("add", &(3, 4)).await.expect("submitted");
        assert_eq!(client.wait_for::<u32>(job).await, Ok(7));
        let detail = ended(&client, job).await;
        let error = detail.attempts[0].error.as_ref().expect("an error").as_str();
        assert!(error.starts_with("panicked: the first try panics"), "{error}");
        worker.drain().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn progress_is_told_about_once_a_second_and_the_newest_report_counts() {
    let store = TokioClock::store();
    let climb = |(): (), context: Context| async move {
        for step in 0..2_000 {
            context.progress(f64::from(step) / 2_000.0, &format!("step {step}"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        context.progress(f64::NAN, "the end");
        std::future::pending::<Result<(), Failure>>().await
    };
    let worker = Running::start(Worker::builder(store.clone()).own_threads(false).task("climb", climb));
    let client = Client::new(store);
    let job = client.submit("climb", &()).await.expect("submitted");
    let before = client.store().changed(None).await.expect("a count");
    let progress = || async { client.store().job(job).await.expect("a job").view.running?.progress };
    until("half of it", || async { progress().await.is_some_and(|progress| progress.percent >= 50) }).await;
    let note = progress().await.expect("a report").note;
    assert!(note.as_str().starts_with("step "), "{note}");
    let is_at_the_end =
        || async { progress().await.is_some_and(|progress| progress.note.as_str() == "the end") };
    until("the end", is_at_the_end).await;
    let changes = client.store().changed(None).await.expect("a count") - before;
    assert!((8..=16).contains(&changes), "{changes} changes in ten seconds");
    worker.shutdown.release();
    worker.end().await.expect("it ends well");
}

#[test]
fn a_worker_with_mistakes_is_not_built_and_all_are_listed() {
    let store = Arc::new(qo::core::MemoryStore::new());
    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let error = Worker::builder(store.clone()).build().expect_err("no tasks");
    assert!(error.to_string().contains("tasks: \"0\""), "{error}");
    let builder = Worker::builder(store)
        .task("a b", nothing)
        .task("twice", nothing)
        .task("twice", nothing)
        .task_with("limited", TaskConfig::new().max_concurrent(2_000_000), nothing)
        .program("program", TaskConfig::new(), Vec::<String>::new())
        .name("-")
        .max_concurrent_tasks(0);
    let error = builder.build().expect_err("mistakes").to_string();
    for part in [
        "task: \"a b\"",
        "twice",
        "tasks[limited].max_concurrent",
        "tasks[program].command",
        "name",
        "max_concurrent_tasks",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_handler_logs_is_shown_while_it_runs_and_after_it_ended() {
    on_every_store(async |store| {
        let (go, going) = tokio::sync::watch::channel(false);
        let talks = move |lines: u32, context: Context| {
            let mut going = going.clone();
            async move {
                (0..lines).for_each(|line| context.log(&format!("line {line}\n")));
                going.wait_for(|going| *going).await.map_err(Failure::retry)?;
                context.log("the end\n");
                Ok::<_, Failure>(())
            }
        };
        let worker = Running::start(Worker::builder(store.clone()).task("talks", talks));
        let client = Client::new(store);
        let job = client.submit("talks", &2).await.expect("submitted");
        let log = async || {
            let running = client.job(job).await.expect("a job").view.running?;
            client.log(running.token).await.expect("a log")
        };
        until("the log of a running handler", async || log().await.as_deref() == Some("line 0\nline 1\n"))
            .await;
        go.send_replace(true);
        let token = ended(&client, job).await.attempts[0].token;
        let whole = client.log(token).await.expect("a log");
        assert_eq!(whole.as_deref(), Some("line 0\nline 1\nthe end\n"));
        let long = ended(&client, client.submit("talks", &20_000).await.expect("submitted")).await;
        let log = client.log(long.attempts[0].token).await.expect("a log").expect("the end of it");
        assert!(log.len() <= caps::LOG_BYTES && log.ends_with("line 19999\nthe end\n"), "{}", log.len());
        assert!(qo::log::cut(&log).0 > 0, "it says how much is gone");
        worker.drain().await;
    })
    .await;
}
