//! Two worker processes with one name: session and fence token decide which owns a job, not the name.

use crate::diary;
use crate::stage::{Stage, ended, until};
use qo::core::{AttemptOutcome, JobId, JobState, Running};
use qo_judge::{Case, Job, Limit, Run, Stop, Verdict, now_ns};
use qo_testkit::Bucket;
use rustix::process::Signal;
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
    let second_job = submit(stage, "b").await;
    let other = running(stage, second_job).await;
    assert_eq!(before.worker, other.worker, "they have one name");
    assert_ne!(before.session, other.session);

    let stopped_ns = first.stop().await;
    release(stage, "b");
    until("its job is the other one's", async || {
        let detail = stage.store.job(lost).await.expect("a job");
        detail.view.running.is_some_and(|now| now.session == other.session)
    })
    .await;
    let after = running(stage, lost).await;
    assert_eq!(after.worker, before.worker);
    assert!(after.token > before.token, "the newest token owns");
    assert_eq!(run_of(stage, &after).worker.to_string(), second.id().to_string());

    let waiting = submit(stage, "a").await;
    let free = submit(stage, "c").await;
    let resumed_ns = now_ns();
    first.signal(Signal::CONT);
    // It passes over the job that is first in line, because the other worker holds the only slot of that key.
    let anew = running(stage, free).await;
    assert_eq!(*run_of(stage, &anew).worker, *first.id().to_string());
    assert_eq!(anew.worker, before.worker);
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
    let stopped = first.id().to_string();
    for (worker, said) in [(first, "fenced 1\n"), (second, "fenced 0\n")] {
        worker.signal(Signal::TERM);
        assert_eq!(worker.end().await, (Some(0), said.into()));
    }
    let limited = |(job, key): (JobId, &str)| {
        (job.to_string(), Job { needs: vec![(format!("hold/{key}"), 1)], ..Job::default() })
    };
    let jobs = [(lost, "a"), (second_job, "b"), (waiting, "a"), (free, "c")];
    let case = Case {
        jobs: jobs.into_iter().map(limited).collect(),
        limits: vec![Limit { group: "hold/*".to_owned(), limit: 1, changes: Vec::new() }],
        // While it was stopped it did not run. When it goes on it may finish the beat that it had begun, but begins
        // none.
        stops: vec![Stop { worker: stopped, at_ns: stopped_ns, until_ns: Some(resumed_ns), writes: Some(1) }],
        is_over: true,
        ..Case::default()
    };
    let verdict = Verdict::of(&case, &diary::read(&stage.path("")));
    assert!(verdict.holds(), "{verdict}");
    assert_eq!(verdict.runs, 5, "{verdict}");
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
    runs(stage).into_iter().find(|run| run.token == running.token.0).expect("it is recorded")
}

fn runs(stage: &Stage) -> Vec<Run> {
    diary::read(&stage.path("")).runs().cloned().collect()
}
