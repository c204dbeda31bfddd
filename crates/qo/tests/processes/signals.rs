//! Worker processes that are killed, stopped and drained.

use crate::stage::{Stage, ended, is_alive, now_ms, until};
use crate::worker::SILENT;
use qo::core::{AttemptOutcome, JobState};
use qo_testkit::Bucket;
use rustix::process::Signal;
use std::cell::Cell;
use std::fs;

pub async fn a_worker_that_is_killed_takes_its_programs_and_their_children_along() {
    let stage = Stage::new().await;
    let worker = stage.worker(2_000);
    let job = stage.client.submit("family", &()).await.expect("submitted");
    let (child, parent) = (stage.number("child").await, stage.number("parent").await);
    assert!(is_alive(child) && is_alive(parent) && stage.is_running(job).await);
    let killed_at = now_ms();
    worker.signal(Signal::KILL);
    until("both are dead", async || !is_alive(child) && !is_alive(parent)).await;
    assert!(now_ms() - killed_at < 1_000, "long before the lease is over");
    assert_eq!(worker.end().await.0, None);
    // Its slot comes back when its lease is over, and the job runs elsewhere.
    let other = stage.worker(2_000);
    let detail = ended(&stage.client, job).await;
    let outcomes: Vec<_> = detail.attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::LeaseEnded, AttemptOutcome::Succeeded]);
    other.signal(Signal::TERM);
    assert_eq!(other.end().await.0, Some(0));
}

pub async fn a_stopped_worker_that_goes_on_runs_nothing_and_is_fenced() {
    stop_and_go_on(&Stage::new().await, 1_500).await;
}

pub async fn a_stopped_worker_on_a_bucket_that_goes_on_runs_nothing() {
    stop_and_go_on(&Stage::in_bucket(Bucket::start(3)).await, 5_000).await;
}

async fn stop_and_go_on(stage: &Stage, lease_ms: u64) {
    let worker = stage.worker(lease_ms);
    let program = stage.client.submit("family", &()).await.expect("submitted");
    let tick = stage.client.submit("tick", &()).await.expect("submitted");
    let (child, parent) = (stage.number("child").await, stage.number("parent").await);
    until("it ticks", async || stage.path("ticks").exists()).await;
    let lease_until = stage.store.job(tick).await.expect("a job").view.running.expect("it runs").lease_until;
    worker.signal(Signal::STOP);
    // The guard kills the program while its worker is stopped, before another worker could run the job.
    until("both are dead", async || !is_alive(child) && !is_alive(parent)).await;
    let renewed = stage.store.job(tick).await.expect("a job").view.running.expect("it runs").lease_until;
    assert!(stage.store.now().await.expect("a time") < renewed.max(lease_until));
    // A view shows the leases as over by store time. In a bucket a sweep ends them only after it has watched them for a
    // lease.
    let ended_attempts = Cell::new(0);
    until("both leases are ended", async || {
        let swept = stage.store.sweep().await.expect("swept");
        ended_attempts.set(ended_attempts.get() + swept.attempts);
        ended_attempts.get() >= 2
    })
    .await;
    let ticks = || fs::read_to_string(stage.path("ticks")).expect("ticks").lines().count();
    let (before, resumed_at) = (ticks(), now_ms());
    worker.signal(Signal::CONT);
    // It opens a new session and runs both again; the second attempts end at once.
    for job in [tick, program] {
        let detail = ended(&stage.client, job).await;
        let outcomes: Vec<_> = detail.attempts.iter().map(|attempt| attempt.outcome).collect();
        assert_eq!(outcomes, [AttemptOutcome::LeaseEnded, AttemptOutcome::Succeeded]);
    }
    let text = fs::read_to_string(stage.path("ticks")).expect("ticks");
    let last: u64 = text.lines().last().expect("a tick").parse().expect("a number");
    assert!(last <= resumed_at + 100, "a tick {} ms after it went on", last - resumed_at);
    // A tick that had begun may be finished, but none begins.
    assert!(ticks() <= before + 1, "{} ticks after it went on", ticks() - before);
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().await, (Some(0), "fenced 2\n".into()));
}

pub async fn a_blocking_handler_ends_a_process_without_lease_with_exit_code_70() {
    let stage = Stage::new().await;
    let worker = stage.worker(400);
    let job = stage.client.submit("block", &()).await.expect("submitted");
    stage.number("started").await;
    worker.signal(Signal::STOP);
    until("its lease is over", async || {
        stage.store.sweep().await.expect("swept");
        !stage.is_running(job).await
    })
    .await;
    worker.signal(Signal::CONT);
    assert_eq!(worker.end().await.0, Some(70));
}

pub async fn a_process_whose_exit_is_held_up_is_killed() {
    let stage = Stage::new().await;
    let worker = stage.worker_with(400, &[(SILENT, "1")]);
    let job = stage.client.submit("block", &()).await.expect("submitted");
    stage.number("started").await;
    worker.signal(Signal::STOP);
    until("its lease is over", async || {
        stage.store.sweep().await.expect("swept");
        !stage.is_running(job).await
    })
    .await;
    worker.signal(Signal::CONT);
    // No exit code: SIGKILL.
    assert_eq!(worker.end().await.0, None);
}

pub async fn the_first_sigterm_drains_and_the_second_releases() {
    let stage = Stage::new().await;
    let worker = stage.worker(2_000);
    let first = stage.client.submit("wait", &()).await.expect("submitted");
    stage.number("started").await;
    worker.signal(Signal::TERM);
    let is_draining =
        async || stage.store.workers().await.expect("a list").iter().all(|worker| worker.draining);
    until("it drains", is_draining).await;
    let second = stage.client.submit("wait", &()).await.expect("submitted");
    fs::write(stage.path("go"), "").expect("written");
    assert_eq!(worker.end().await, (Some(0), "fenced 0\n".into()));
    assert_eq!(stage.store.job(first).await.expect("a job").view.state, JobState::Succeeded);
    assert_eq!(stage.store.job(second).await.expect("a job").view.state, JobState::Pending);

    for file in ["go", "started"] {
        fs::remove_file(stage.path(file)).expect("removed");
    }
    let worker = stage.worker(2_000);
    stage.number("started").await;
    worker.signal(Signal::INT);
    until("it drains", is_draining).await;
    worker.signal(Signal::TERM);
    assert_eq!(worker.end().await, (Some(0), "fenced 0\n".into()));
    let detail = stage.store.job(second).await.expect("a job");
    assert_eq!((detail.view.state, detail.view.attempts_used), (JobState::Pending, 0));
    assert_eq!(detail.attempts[0].outcome, AttemptOutcome::Released);
    assert!(stage.store.workers().await.expect("a list").is_empty());
}
