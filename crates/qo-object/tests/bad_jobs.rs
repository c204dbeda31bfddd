//! Objects with a right checksum whose content breaks a rule: a bad job fails alone, and no record is deleted that a
//! reader needs.

use qo_core::{ErrorKind, JobFilter, JobId, Key, Name, NewJob, Store};
use qo_object::doctor::examine;
use qo_object::{LogStore, Options};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

fn job(number: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), Name::parse("name", "work").expect("a name"))
}

fn keyed(number: u128, key: &str) -> NewJob {
    NewJob { idempotency_key: Some(Key::parse("key", key).expect("a key")), ..job(number) }
}

/// Snapshots after every few records, and a sweep as soon as there is something to sweep.
fn busy() -> Options {
    Options {
        snapshot_every: 5,
        snapshot_bytes: 1,
        sweep_age: Duration::from_millis(100),
        ..Options::default()
    }
}

async fn open(directory: &Path, options: Options) -> LogStore {
    LogStore::open_directory(directory, options).await.expect("it opens")
}

/// Writes an object anew, with another body under a checksum that is right.
fn rewrite(path: &Path, change: impl Fn(&str) -> String) {
    let text = fs::read_to_string(path).expect("readable");
    let body = change(text.split_once('\n').expect("a first line").1);
    let first = format!("qo 1 {:08x} {:020}\n", crc32fast::hash(body.as_bytes()), body.len());
    fs::write(path, first + &body).expect("written");
}

fn objects(directory: &Path, folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join(folder)).expect("readable");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let mut paths: Vec<_> = paths.filter(|path| !path.display().to_string().contains('#')).collect();
    paths.sort();
    paths
}

/// Submits until something is true, for at most a minute. Returns how many jobs that took.
async fn until(store: &LogStore, is_true: impl Fn() -> bool) -> usize {
    let begun = tokio::time::Instant::now();
    let mut number = 0;
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never became true");
        number += 1;
        // With so short a sweep age a slow disk makes a record too late to be trusted: the same id again is the same
        // job.
        while let Err(error) = store.submit(vec![job(1_000_000 + number)]).await {
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
    }
    usize::try_from(number).expect("few")
}

/// Two processes, one after the other, each of which writes some records and a snapshot. Returns how many jobs they
/// submitted. (A process that goes on waits with its next snapshot until it can afford one, on a busy machine for
/// long.)
async fn two_snapshots(directory: &Path) -> usize {
    let options = Options { sweep_age: Duration::from_secs(3_600), ..busy() };
    let mut number = 2_000_000;
    for _ in 0..2 {
        let store = open(directory, options.clone()).await;
        for _ in 0..8 {
            number += 1;
            store.submit(vec![job(number)]).await.expect("accepted");
        }
        store.finish().await;
    }
    assert!(objects(directory, "snapshot").len() >= 2);
    16
}

async fn due(store: &LogStore) -> usize {
    let queues = store.queues().await.expect("it answers");
    usize::try_from(queues.iter().map(|queue| queue.due).sum::<u64>()).expect("few")
}

fn first_record(directory: &TempDir) -> PathBuf {
    directory.path().join("log/00000000000000000001")
}

#[tokio::test]
async fn two_bad_jobs_of_one_record_fail_alone() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = open(directory.path(), Options::default()).await;
    store.submit(vec![keyed(1, "a1"), keyed(2, "a2")]).await.expect("accepted");
    drop(store);
    let bad = |body: &str| body.replace("\"a1\"", "\"a\\u0001\"").replace("\"a2\"", "\"a\\u0002\"");
    rewrite(&first_record(&directory), bad);
    let more = two_snapshots(directory.path()).await;
    let store = open(directory.path(), busy()).await;
    let more = more + until(&store, || !first_record(&directory).exists()).await;
    store.finish().await;
    drop(store);
    let store = open(directory.path(), Options::default()).await;
    assert_eq!(due(&store).await, 2 + more);
    let page = store.jobs(JobFilter::default(), None, 2).await.expect("listed");
    for job in &page.jobs {
        let said = job.unreadable.as_deref().expect("it is marked");
        assert!(said.contains("idempotency_key: "), "{said}");
        assert_eq!((job.idempotency_key.as_ref(), &*job.group), (None, "unreadable"));
    }
    let health = examine(directory.path()).await.expect("looked at");
    assert!(health.damage.is_empty(), "{health:?}");
}

#[tokio::test]
async fn no_record_is_swept_for_a_snapshot_that_cannot_be_restored() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let count = two_snapshots(directory.path()).await;
    for snapshot in objects(directory.path(), "snapshot") {
        rewrite(&snapshot, |body| {
            let last = body.lines().rev().find(|line| line.starts_with("{\"job\"")).expect("a job");
            format!("{body}\n{last}")
        });
    }
    // A sweep that has finished deletes this.
    let left = directory.path().join("clock/left");
    fs::create_dir_all(directory.path().join("clock")).expect("made");
    let file = fs::File::create(&left).expect("written");
    let before = file.metadata().expect("known").modified().expect("known") - Duration::from_secs(7_200);
    file.set_modified(before).expect("set");
    let no_more = Options { snapshot_every: u64::MAX, snapshot_bytes: usize::MAX, ..busy() };
    let store = open(directory.path(), no_more).await;
    let more = until(&store, || !left.exists()).await;
    assert!(first_record(&directory).exists(), "a reader needs it");
    assert_eq!(due(&store).await, count + more);
    store.finish().await;
    let health = examine(directory.path()).await.expect("looked at");
    assert!(health.is_usable(), "{health:?}");
    let hinders = health.damage.iter().filter(|damage| damage.hinders.is_some()).count();
    assert_eq!(hinders, 2, "the doctor says so: {health:?}");
}
