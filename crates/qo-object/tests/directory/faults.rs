//! The log when requests fail before the write, after it, and for good; when objects are torn; when writers race.

use crate::fixtures::{open, options};
use async_trait::async_trait;
use futures::executor::block_on;
use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
};
use object_store::{PutMultipartOptions, PutOptions, PutPayload, PutResult, memory::InMemory, path::Path};
use qo_core::{
    Claim, Clock, ErrorKind, Exchange, JobId, Json, ManualClock, Name, NewJob, NewSession, SessionId, Store,
};
use qo_object::LogStore;
use qo_testkit::{START, random::Random};
use std::fmt;
use std::sync::{Arc, Mutex};
use uuid::Uuid;

/// An object store that fails now and then, before it writes or after.
#[derive(Debug)]
struct Faulty {
    inner: InMemory,
    dice: Mutex<Option<Random>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Fault {
    None,
    Before,
    After,
}

impl Faulty {
    fn new(seed: u64) -> Self {
        Self { inner: InMemory::new(), dice: Mutex::new(Some(Random::new(seed))) }
    }

    fn heal(&self) {
        *self.dice.lock().expect("not poisoned") = None;
    }

    fn fault(&self) -> Fault {
        let mut dice = self.dice.lock().expect("not poisoned");
        match dice.as_mut().map(|dice| dice.below(100)) {
            Some(0..15) => Fault::Before,
            Some(15..35) => Fault::After,
            _ => Fault::None,
        }
    }
}

fn failed() -> object_store::Error {
    object_store::Error::Generic { store: "faulty", source: "the connection broke".into() }
}

impl fmt::Display for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(
        &self,
        path: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        match self.fault() {
            Fault::Before => Err(failed()),
            Fault::None => self.inner.put_opts(path, bytes, options).await,
            Fault::After => {
                self.inner.put_opts(path, bytes, options).await?;
                Err(failed())
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        path: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(path, options).await
    }

    async fn get_opts(&self, path: &Path, options: GetOptions) -> object_store::Result<GetResult> {
        if self.fault() == Fault::Before { Err(failed()) } else { self.inner.get_opts(path, options).await }
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

fn job(number: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), name("work"))
}

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// With its own id a submit may be repeated until its outcome is known: it happens once (G3).
#[test]
fn every_submit_happens_once_whatever_fails() {
    for seed in 0..40 {
        block_on(async {
            let faulty = Arc::new(Faulty::new(seed));
            let objects: Arc<dyn ObjectStore> = faulty.clone();
            let clock = Arc::new(ManualClock::new(START));
            faulty.heal();
            let stores = [open(&objects, &clock).await, open(&objects, &clock).await];
            *faulty.dice.lock().expect("not poisoned") = Some(Random::new(seed));
            for number in 1..=40 {
                while let Err(error) = stores[number as usize % 2].submit(vec![job(number)]).await {
                    let kinds = [ErrorKind::Unknown, ErrorKind::Unavailable];
                    assert!(kinds.contains(&error.kind()), "{error}");
                }
            }
            faulty.heal();
            let fresh = open(&objects, &clock).await;
            for store in stores.iter().chain([&fresh]) {
                assert_eq!(store.queues().await.expect("it answers")[0].due, 40, "seed {seed}");
            }
        });
    }
}

/// Two processes claim at the same time. The limit holds, and each job has one owner (G1, G4).
#[test]
fn racing_writers_keep_a_limit_exactly() {
    block_on(async {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let clock = Arc::new(ManualClock::new(START));
        let mut stores = Vec::new();
        for number in 0..4 {
            let store = open(&objects, &clock).await;
            let id = SessionId(Uuid::from_u128(number));
            let (queues, tasks) = (vec![], vec![name("work")]);
            let session = NewSession {
                id,
                worker: name("w"),
                queues,
                tasks,
                lease_ms: 60_000,
                permits: 50,
                owner: None,
            };
            store.open_session(session).await.expect("it opens");
            stores.push((id, store));
        }
        stores[0].1.set_limit("work".parse().expect("a group"), 10).await.expect("it is set");
        stores[1].1.submit((1..=100).map(job).collect()).await.expect("they are accepted");
        let claims = stores.iter().map(|(id, store)| {
            let claim = Claim { max: 50, ..Claim::default() };
            store.exchange(Exchange { claim, free_permits: 50, ..Exchange::renew(*id, 1) })
        });
        let replies = futures::future::join_all(claims).await;
        let mut claimed: Vec<_> = replies
            .into_iter()
            .flat_map(|reply| reply.expect("it answers").claimed)
            .map(|job| (job.id, job.token))
            .collect();
        assert_eq!(claimed.len(), 10);
        claimed.sort();
        claimed.dedup_by_key(|(id, _)| *id);
        assert_eq!(claimed.len(), 10, "each job has one owner");
    });
}

/// The last record is cut short, or a bit of it is flipped: the error names it, and nothing is read from it.
#[test]
fn a_damaged_record_is_named_and_never_skipped() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        for number in 1..=3 {
            store.submit(vec![job(number)]).await.expect("accepted");
        }
        drop(store);
        let last = directory.path().join("log/00000000000000000003");
        let whole = std::fs::read(&last).expect("the record is there");
        let mut flipped = whole.clone();
        flipped[60] ^= 4;
        for damaged in [&whole[..whole.len() / 2], &whole[..0], &flipped] {
            std::fs::write(&last, damaged).expect("it can be damaged");
            let error = LogStore::open_directory(directory.path(), options()).await.expect_err("damaged");
            assert_eq!(error.kind(), ErrorKind::Data);
            assert!(error.message().contains("log/00000000000000000003"), "{error}");
        }
        std::fs::write(&last, &whole).expect("it can be put back");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        assert_eq!(store.queues().await.expect("it answers")[0].due, 3);
    });
}

/// A record is missing in the middle: the error names it, and nothing is written in its place.
#[test]
fn a_missing_record_is_named_and_not_written_anew() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        for number in 1..=5 {
            store.submit(vec![job(number)]).await.expect("accepted");
        }
        drop(store);
        let gone = directory.path().join("log/00000000000000000003");
        std::fs::remove_file(&gone).expect("it was there");
        let error = LogStore::open_directory(directory.path(), options()).await.expect_err("a gap");
        assert_eq!(error.kind(), ErrorKind::Data);
        assert!(error.message().contains("log/00000000000000000003: is missing"), "{error}");
        assert!(!gone.exists());
    });
}

/// Many big submits at once do not become one huge record.
#[test]
fn a_record_takes_only_so_many_bytes() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        let payload = Json::parse("payload", &format!("{:?}", "x".repeat(1_000_000))).expect("JSON");
        let submits =
            (1..=20).map(|number| store.submit(vec![NewJob { payload: payload.clone(), ..job(number) }]));
        for submitted in futures::future::join_all(submits).await {
            submitted.expect("it answers")[0].as_ref().expect("accepted");
        }
        for record in std::fs::read_dir(directory.path().join("log")).expect("there are records") {
            let bytes = record.expect("a record").metadata().expect("a file").len();
            assert!(bytes < 10_000_000, "{bytes} bytes in one record");
        }
    });
}

/// If a snapshot is damaged or missing, the records say the same.
#[test]
fn a_damaged_snapshot_costs_nothing_but_time() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        for number in 1..=20 {
            store.submit(vec![job(number)]).await.expect("accepted");
        }
        store.finish().await;
        drop(store);
        let snapshots = std::fs::read_dir(directory.path().join("snapshot")).expect("there are snapshots");
        let snapshot = snapshots.map(|entry| entry.expect("a snapshot").path()).max().expect("one at least");
        let whole = std::fs::read(&snapshot).expect("the snapshot is there");
        std::fs::write(&snapshot, &whole[..whole.len() - 3]).expect("it can be damaged");
        let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
        assert_eq!(store.queues().await.expect("it answers")[0].due, 20);
    });
}

/// A path that is no directory, and a place where nothing may be written, are clear errors.
#[test]
fn a_store_that_is_a_file_is_refused() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let file = directory.path().join("file");
        std::fs::write(&file, "not a directory").expect("it can be written");
        let error = LogStore::open_directory(&file, options()).await.expect_err("a file");
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.message().contains("file"), "{error}");
    });
}

/// What was acknowledged is there for the next process that opens the directory (G10).
#[test]
fn what_was_acknowledged_outlives_the_process() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for round in 0..10_u128 {
            let store = LogStore::open_directory(directory.path(), options()).await.expect("it opens");
            let due = store.queues().await.expect("it answers").first().map_or(0, |queue| queue.due);
            assert_eq!(due, round as u64 * 3);
            let jobs = (1..=3).map(|number| job(round * 10 + number)).collect();
            store.submit(jobs).await.expect("accepted");
        }
    });
}

/// Time is the store's: it never falls, whatever the clock of the next process shows (G9).
#[test]
fn a_process_with_a_slow_clock_keeps_to_the_logs_time() {
    block_on(async {
        let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
        let fast = Arc::new(ManualClock::new(START.plus_ms(60_000)));
        open(&objects, &fast).await.submit(vec![job(1)]).await.expect("accepted");
        let slow = Arc::new(ManualClock::new(START));
        let store = open(&objects, &slow).await;
        assert_eq!(store.now().await, Ok(fast.now()));
        store.submit(vec![job(2)]).await.expect("accepted");
        let second = store.job(JobId(Uuid::from_u128(2))).await.expect("it is there");
        assert_eq!(second.view.submitted_at, fast.now());
    });
}
