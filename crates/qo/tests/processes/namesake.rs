//! Two worker processes with one name: session and fence token decide which owns a job, not the name.

use crate::diary::{self, Run, most_at_once};
use crate::stage::{Stage, ended, now_us, until};
use qo::core::{AttemptOutcome, JobId, JobState, Running};
use qo_testkit::Bucket;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

pub async fn two_processes_with_one_name_on_a_directory_are_two_owners() {
    are_two_owners(&Stage::new().await, 1_500).await;
}

pub async fn two_processes_with_one_name_on_a_bucket_are_two_owners() {
    let bucket = Bucket::start(2);
    bucket.set_latency(Duration::from_millis(6));
    are_two_owners(&Stage::in_bucket(bucket).await, 5_000).await;
}

/// One of the two is stopped for longer than its lease; the other gets its job; then the first goes on. Each runs one
/// job at a time.
async fn are_two_owners(stage: &Stage, lease_ms: u64) {
    let of_each_key = "hold/*".parse().expect("a group");
    stage.store.set_limit(of_each_key, 1).await.expect("set");
    let first = stage.worker_of(lease_ms, 1);
    let lost = submit(stage, "a").await;
    let before = running(stage, lost).await;
    let second = stage.worker_of(lease_ms, 1);
    let other = running(stage, submit(stage, "b").await).await;
    assert_eq!(before.worker, other.worker, "they have one name");
    assert_ne!(before.session, other.session);

    let stopped_at = first.stop().await;
    release(stage, "b");
    until("its job is the other one's", async || {
        let detail = stage.store.job(lost).await.expect("a job");
        detail.view.running.is_some_and(|now| now.session == other.session)
    })
    .await;
    let after = running(stage, lost).await;
    assert_eq!(after.worker, before.worker);
    assert!(after.token > before.token, "the newest token owns");
    assert_eq!(run_of(stage, &after).pid, second.id());

    let waiting = submit(stage, "a").await;
    let free = submit(stage, "c").await;
    let resumed_at = now_us();
    first.signal(Signal::CONT);
    // It passes over the job that is first in line, because the other worker holds the only slot of that key.
    let anew = running(stage, free).await;
    assert_eq!((run_of(stage, &anew).pid, &anew.worker), (first.id(), &before.worker));
    assert!(anew.session != before.session && anew.session != other.session, "a session of its own");
    assert_eq!(running(stage, lost).await.token, after.token, "whatever it said about it changed nothing");
    assert_eq!(stage.store.job(waiting).await.expect("a job").view.state, JobState::Pending);

    release(stage, "a");
    release(stage, "c");
    let attempts = ended(&stage.client, lost).await.attempts;
    let owners: Vec<_> = attempts.iter().map(|attempt| (attempt.outcome, attempt.token)).collect();
    let due = [(AttemptOutcome::LeaseEnded, before.token), (AttemptOutcome::Succeeded, after.token)];
    assert_eq!(owners, due);
    for job in [waiting, free] {
        assert_eq!(ended(&stage.client, job).await.attempts.len(), 1);
    }
    for (worker, said) in [(first, "fenced 1\n"), (second, "fenced 0\n")] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.end().await, (Some(0), said.into()));
    }
    let mut runs = runs(stage);
    assert_eq!(runs.len(), 5, "{runs:?}");
    for run in runs.iter_mut().filter(|run| run.token == before.token.0) {
        // While it was stopped it did not run. When it goes on it may finish the beat that it had begun, but begins
        // none.
        let beats = run.beats.iter().filter(|at| **at > resumed_at).count();
        assert!(beats <= 1, "{beats} beats after it went on");
        run.to = run.to.min(stopped_at);
    }
    assert_eq!(most_at_once(runs.iter().filter(|run| run.key == "a")), 1, "{runs:?}");
}

async fn submit(stage: &Stage, key: &str) -> JobId {
    stage.client.submit("hold", &()).key(key).await.expect("submitted")
}

/// Lets jobs of a key end.
fn release(stage: &Stage, key: &str) {
    fs::write(stage.path(&format!("go-{key}")), "").expect("written");
}

/// Waits until a handler runs a job, and returns its claim.
async fn running(stage: &Stage, job: JobId) -> Running {
    let mut running = None;
    until("it runs", async || {
        running = stage.store.job(job).await.expect("a job").view.running;
        running.as_ref().is_some_and(|running| runs(stage).iter().any(|run| run.token == running.token.0))
    })
    .await;
    running.expect("it runs")
}

fn run_of(stage: &Stage, running: &Running) -> Run {
    runs(stage).into_iter().find(|run| run.token == running.token.0).expect("it is written down")
}

fn runs(stage: &Stage) -> Vec<Run> {
    diary::read(&stage.path(""), &BTreeMap::new())
}
