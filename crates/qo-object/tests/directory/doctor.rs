//! Damage on a real directory: noticed, named and repaired, with a report of what was lost.

use qo_core::{
    Claim, ErrorKind, Exchange, JobFilter, JobId, JobState, Json, Name, NewJob, NewSession, Outcome,
    SessionId, Settle, Store, TaskOptions,
};
use qo_object::doctor::{examine, release, repair};
use qo_object::{LogStore, Options};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn id(number: u128) -> JobId {
    JobId(Uuid::from_u128(number))
}

fn job(number: u128) -> NewJob {
    NewJob::new(id(number), name("work"))
}

async fn open(directory: &Path) -> LogStore {
    LogStore::open_directory(directory, Options::default()).await.expect("it opens")
}

fn record(directory: &TempDir, number: u64) -> PathBuf {
    directory.path().join(format!("log/{number:020}"))
}

/// A namespace whose records each submit one job.
async fn namespace(jobs: u128) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = open(directory.path()).await;
    for number in 1..=jobs {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    directory
}

async fn jobs(directory: &Path) -> Vec<JobId> {
    let page = open(directory).await.jobs(JobFilter::default(), None, 1_000).await.expect("it answers");
    page.jobs.into_iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn a_last_record_cut_or_flipped_anywhere_is_named_and_not_used() {
    let directory = namespace(3).await;
    let last = record(&directory, 3);
    let whole = fs::read(&last).expect("it is there");
    let cuts = (0..whole.len()).map(|cut| whole[..cut].to_vec());
    let flips = (0..whole.len()).map(|at| {
        let mut flipped = whole.clone();
        flipped[at] ^= 1 << (at % 8);
        flipped
    });
    for damaged in cuts.chain(flips) {
        fs::write(&last, &damaged).expect("it can be damaged");
        let health = examine(directory.path()).await.expect("it can be looked at");
        assert!(!health.is_usable());
        assert_eq!(health.damage.len(), 1);
        assert!(health.damage[0].what.starts_with("log/00000000000000000003: "), "{health:?}");
    }
    fs::write(&last, &whole[..whole.len() - 1]).expect("it can be damaged");
    let error = LogStore::open_directory(directory.path(), Options::default()).await.expect_err("torn");
    assert_eq!(error.kind(), ErrorKind::Data);
    fs::write(&last, &whole).expect("it can be put back");
    assert!(examine(directory.path()).await.expect("it can be looked at").is_usable());
    assert_eq!(jobs(directory.path()).await, [id(1), id(2), id(3)]);
}

#[tokio::test]
async fn a_lost_record_costs_its_own_content_and_no_more() {
    let directory = namespace(5).await;
    let store = open(directory.path()).await;
    store.set_limit("work".parse().expect("a group"), 7).await.expect("set");
    store.pause_queue(name("nightly"), true).await.expect("paused");
    drop(store);
    for damage in ["torn", "gone"] {
        let copy = tempfile::tempdir().expect("a temporary directory");
        copy_all(directory.path(), copy.path());
        let lost = record(&copy, 3);
        match damage {
            "torn" => fs::write(&lost, "qo 1 0").expect("it can be damaged"),
            _ => fs::remove_file(&lost).expect("it can be lost"),
        }
        let error = LogStore::open_directory(copy.path(), Options::default()).await.expect_err("damaged");
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        let done = repair(copy.path()).await.expect("it can be repaired");
        assert_eq!(done.lost.len(), 1, "{done:?}");
        assert!(done.lost[0].starts_with("log/00000000000000000003: "), "{done:?}");
        assert_eq!((done.not_used, &done.submitted_again), (4, &vec![id(4), id(5)]));
        assert_eq!(done.set_again, ["limit of work: 7", "queue nightly: paused"]);
        assert_eq!(jobs(copy.path()).await, [id(1), id(2), id(4), id(5)]);
        let store = open(copy.path()).await;
        let group = store.group("work".parse().expect("a group")).await.expect("it is there");
        assert_eq!(group.status.limit, Some(7));
        store.submit(vec![job(6)]).await.expect("it goes on");
        drop(store);
        assert_eq!(jobs(copy.path()).await.len(), 5);
        // The records that were not used are still there.
        assert!(done.moved.iter().all(|moved| copy.path().join(moved).exists()), "{done:?}");
        let again = repair(copy.path()).await.expect_err("nothing is damaged any more");
        assert_eq!(again.kind(), ErrorKind::Conflict);
    }
}

#[tokio::test]
async fn a_job_that_ended_in_an_unused_record_runs_again() {
    let directory = namespace(2).await;
    let store = open(directory.path()).await;
    let session = SessionId(Uuid::from_u128(50));
    let (queues, tasks) = (vec![], vec![name("work")]);
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues,
        tasks,
        lease_ms: 60_000,
        permits: 5,
        owner: None,
    };
    store.open_session(new).await.expect("open");
    let claim = Claim { max: 1, ..Claim::default() };
    let reply = store.exchange(Exchange { claim, ..Exchange::renew(session, 1) }).await.expect("claimed");
    store.submit(vec![job(3)]).await.expect("accepted");
    let done = &reply.claimed[0];
    let settle =
        Settle { job: done.id, token: done.token, outcome: Outcome::Succeed { output: Json::null() } };
    let settles = vec![settle];
    store.exchange(Exchange { settles, ..Exchange::renew(session, 2) }).await.expect("settled");
    // The third submit: no record before it rests on it.
    fs::write(record(&directory, 5), "").expect("it can be damaged");
    let told = repair(directory.path()).await.expect("it can be repaired");
    assert_eq!((told.runs_again, told.submitted_again), (vec![id(1)], vec![]));
    // A process that still runs on what was lost gets an error, and stops.
    let stale = store.submit(vec![job(9)]).await.expect_err("its log does not go on");
    assert_eq!(stale.kind(), ErrorKind::Data, "{stale}");
    let fresh = open(directory.path()).await;
    let state = fresh.job(id(1)).await.expect("it is there").view.state;
    assert_eq!(state, JobState::Running, "until its lease is over");
}

#[tokio::test]
async fn offers_before_the_damage_are_not_lost() {
    let directory = namespace(1).await;
    let light = LogStore::open_directory_to_submit(directory.path(), Options::default()).await;
    let light = light.expect("it opens");
    light.submit(vec![job(2)]).await.expect("acknowledged");
    light.submit(vec![job(3)]).await.expect("acknowledged");
    // The next record would have admitted them.
    open(directory.path()).await.submit(vec![job(4)]).await.expect("accepted");
    fs::write(record(&directory, 4), "").expect("it can be damaged");
    let told = repair(directory.path()).await.expect("it can be repaired");
    assert_eq!(told.submitted_again, [id(2), id(3)]);
    assert_eq!(jobs(directory.path()).await, [id(1), id(2), id(3)]);
}

#[tokio::test]
async fn a_token_that_a_lost_record_may_have_granted_is_not_reused() {
    let directory = namespace(3).await;
    let store = open(directory.path()).await;
    let session = SessionId(Uuid::from_u128(50));
    let (queues, tasks) = (vec![], vec![name("work")]);
    let new = NewSession {
        id: session,
        worker: name("w"),
        queues,
        tasks,
        lease_ms: 60_000,
        permits: 5,
        owner: None,
    };
    store.open_session(new).await.expect("open");
    let claim = Claim { max: 3, ..Claim::default() };
    let reply = store.exchange(Exchange { claim, ..Exchange::renew(session, 1) }).await.expect("claimed");
    let lost = reply.claimed.iter().map(|job| job.token).max().expect("three were claimed");
    drop(store);
    fs::write(record(&directory, 5), "").expect("it can be damaged");
    repair(directory.path()).await.expect("it can be repaired");
    release(directory.path()).await.expect("released").expect("it was on hold");
    let store = open(directory.path()).await;
    let reply = store.exchange(Exchange { claim, ..Exchange::renew(session, 1) }).await.expect("claimed");
    assert_eq!(reply.claimed.len(), 3);
    assert!(reply.claimed.iter().all(|job| job.token > lost), "{:?} and {lost}", reply.claimed);
}

#[tokio::test]
async fn jobs_that_came_and_ended_in_unused_records_are_reported() {
    let directory = namespace(2).await;
    let store = open(directory.path()).await;
    store.submit(vec![job(3)]).await.expect("accepted");
    store.cancel(vec![id(3)]).await.expect("cancelled");
    drop(store);
    fs::write(record(&directory, 2), "").expect("it can be damaged");
    let told = repair(directory.path()).await.expect("it can be repaired");
    assert_eq!(told.submitted_again, []);
    let (lost, why) = &told.not_submitted[0];
    assert_eq!((lost, told.not_submitted.len()), (&id(3), 1));
    assert!(why.contains("had ended"), "{why}");
}

#[tokio::test]
async fn damage_that_a_snapshot_covers_costs_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let options = Options { snapshot_every: 5, snapshot_bytes: 1, ..Options::default() };
    let store = LogStore::open_directory(directory.path(), options).await.expect("it opens");
    // Snapshots are written beside the submits: wait until there are two.
    let mut count = 0;
    let mut snapshots = vec![];
    while snapshots.len() < 2 {
        count += 1;
        store.submit(vec![job(count)]).await.expect("accepted");
        snapshots = whole_snapshots(directory.path());
    }
    let count = usize::try_from(count).expect("few");
    drop(store);
    snapshots.sort();
    let newest = snapshots.last().expect("there is one");
    fs::write(record(&directory, 2), "").expect("it can be damaged");
    let health = examine(directory.path()).await.expect("it can be looked at");
    assert!(health.is_usable() && health.damage.len() == 1, "{health:?}");
    assert_eq!(jobs(directory.path()).await.len(), count);
    // A damaged snapshot: an older one and the records say the same.
    let whole = fs::read(newest).expect("readable");
    fs::write(newest, &whole[..whole.len() / 2]).expect("it can be damaged");
    assert_eq!(jobs(directory.path()).await.len(), count);
}

/// Whole snapshots: the process may be writing another.
fn whole_snapshots(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory.join("snapshot")) else { return vec![] };
    let paths = entries.map(|entry| entry.expect("readable").path());
    paths.filter(|path| !path.display().to_string().contains('#')).collect()
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            fs::create_dir(&target).expect("made");
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).expect("copied");
        }
    }
}

/// A job's group and its date are fixed at its submit, also if a repair takes it over.
#[tokio::test]
async fn a_repaired_job_keeps_its_group_and_its_date() {
    let directory = namespace(3).await;
    let store = open(directory.path()).await;
    let before = store.job(id(3)).await.expect("it is there").view;
    let elsewhere = TaskOptions { group: Some(name("elsewhere")), ..TaskOptions::new(name("work")) };
    store.register(vec![elsewhere]).await.expect("registered");
    drop(store);
    fs::remove_file(record(&directory, 2)).expect("it can be lost");
    let done = repair(directory.path()).await.expect("it can be repaired");
    assert_eq!(done.submitted_again, [id(3)]);
    let after = open(directory.path()).await.job(id(3)).await.expect("it is there").view;
    assert_eq!((&*after.group, after.run_at), ("work", before.run_at));
}
