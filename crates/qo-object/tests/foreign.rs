//! A directory with files that are not qo's, or with files missing: no process hangs or goes on without a needed
//! record, and foreign files stop no process.

use qo_core::{ErrorKind, JobId, Name, NewJob, Store};
use qo_object::doctor::{examine, format_levels, repair};
use qo_object::{LogStore, Options};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;
use uuid::Uuid;

fn job(number: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), Name::parse("name", "work").expect("a name"))
}

async fn open_with(directory: &Path, options: Options) -> LogStore {
    LogStore::open_directory(directory, options).await.expect("it opens")
}

async fn open(directory: &Path) -> LogStore {
    open_with(directory, Options::default()).await
}

async fn namespace(jobs: u128, options: Options) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = open_with(directory.path(), options).await;
    for number in 1..=jobs {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    directory
}

async fn due(store: &LogStore) -> u64 {
    store.queues().await.expect("it answers").first().map_or(0, |queue| queue.due)
}

fn names(directory: &Path, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(directory.join(folder)).expect("readable");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn age(path: &Path, by: Duration) {
    let file = fs::File::options().write(true).open(path).expect("it is there");
    let before = file.metadata().expect("known").modified().expect("known") - by;
    file.set_modified(before).expect("set");
}

/// Submits until something is true, for at most a minute.
async fn until(store: &LogStore, is_true: impl Fn() -> bool) {
    let begun = tokio::time::Instant::now();
    let mut number = 1_000_000;
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it never became true");
        number += 1;
        match store.submit(vec![job(number)]).await {
            // A slow disk makes a record too late for the short sweep age of these tests.
            Err(error) if error.kind() == ErrorKind::Unknown => {}
            outcome => drop(outcome.expect("accepted")),
        }
    }
}

const FOREIGN: [&[u8]; 9] = [
    b"readme.txt",
    b".DS_Store",
    b"+0000000000000000099",
    b"7",
    b"00000000000000000002.bak",
    b"00000000000000000002~",
    b"18446744073709551615",
    b"99999999999999999999",
    b"not-\xff-utf-8",
];

#[tokio::test]
async fn files_that_are_not_qos_stop_no_process() {
    let options = Options {
        snapshot_every: 5,
        snapshot_bytes: 1,
        sweep_age: Duration::from_millis(100),
        ..Options::default()
    };
    let directory = namespace(12, options.clone()).await;
    for folder in ["log", "snapshot", "format"] {
        for name in FOREIGN {
            fs::write(directory.path().join(folder).join(OsStr::from_bytes(name)), "mine").expect("written");
        }
        let below = directory.path().join(folder).join("sub");
        fs::create_dir(&below).expect("made");
        fs::write(below.join("00000000000000000099"), "mine").expect("written");
        std::os::unix::fs::symlink(&below, below.join("loop")).expect("linked");
    }
    let health = examine(directory.path()).await.expect("it can be looked at");
    assert!(health.is_usable(), "{health:?}");
    assert_eq!(health.last, 12);
    let store = open_with(directory.path(), options.clone()).await;
    assert_eq!(due(&store).await, 12);
    let light = LogStore::open_directory_to_submit(directory.path(), options).await.expect("it opens");
    light.submit(vec![job(13)]).await.expect("acknowledged");
    assert_eq!(due(&store).await, 13);
    let first = directory.path().join("log/00000000000000000001");
    until(&store, || !first.exists()).await;
    for folder in ["log", "snapshot", "format"] {
        for name in FOREIGN {
            assert!(
                directory.path().join(folder).join(OsStr::from_bytes(name)).exists(),
                "not qo's to delete"
            );
        }
        assert!(
            directory.path().join(folder).join("sub/00000000000000000099").exists(),
            "not qo's to delete"
        );
    }
}

#[tokio::test]
async fn a_record_far_behind_the_last_is_reported_as_one_gap() {
    let directory = namespace(3, Options::default()).await;
    let far = directory.path().join("log/09000000000000000000");
    fs::write(&far, "whatever").expect("written");
    let error = LogStore::open_directory(directory.path(), Options::default()).await.expect_err("a gap");
    assert_eq!(error.kind(), ErrorKind::Data);
    let health = examine(directory.path()).await.expect("it can be looked at");
    assert!(!health.is_usable() && health.damage.len() == 2, "{health:?}");
    let told = repair(directory.path()).await.expect("it can be repaired");
    assert_eq!((told.lost.len(), told.moved.len()), (2, 1), "{told:?}");
    let store = open(directory.path()).await;
    assert_eq!(due(&store).await, 3);
    store.submit(vec![job(4)]).await.expect("it goes on");
    assert_eq!(due(&open(directory.path()).await).await, 4);
}

#[tokio::test]
async fn a_light_client_writes_nothing_behind_a_missing_record() {
    let directory = namespace(40, Options::default()).await;
    for number in [3, 10, 32, 39] {
        let path = directory.path().join(format!("log/{number:020}"));
        let record = fs::read(&path).expect("readable");
        fs::remove_file(&path).expect("removed");
        let light = LogStore::open_directory_to_submit(directory.path(), Options::default()).await;
        let error = light.expect("it opens").submit(vec![job(41)]).await.expect_err("it would not be read");
        assert_eq!(error.kind(), ErrorKind::Data, "{number}: {error}");
        assert!(error.message().contains(&format!("log/{number:020}: is missing")), "{number}: {error}");
        fs::write(&path, record).expect("put back");
    }
    assert_eq!(names(directory.path(), "log").len(), 40);
    let light = LogStore::open_directory_to_submit(directory.path(), Options::default()).await;
    light.expect("it opens").submit(vec![job(41)]).await.expect("acknowledged");
}

#[tokio::test]
async fn an_unreadable_snapshot_that_covers_swept_records_is_a_loss() {
    let directory = namespace(3, Options::default()).await;
    fs::write(directory.path().join("snapshot/00000000000000000009"), "torn").expect("written");
    let error = LogStore::open_directory(directory.path(), Options::default()).await.expect_err("a loss");
    assert_eq!(error.kind(), ErrorKind::Data);
    assert!(error.message().contains("log/00000000000000000004"), "{error}");
    assert!(!examine(directory.path()).await.expect("it can be looked at").is_usable());
    repair(directory.path()).await.expect("it can be repaired");
    assert_eq!(names(directory.path(), "snapshot"), ["00000000000000000009"]);
    let store = open(directory.path()).await;
    assert_eq!(due(&store).await, 3);
    let light = LogStore::open_directory_to_submit(directory.path(), Options::default()).await;
    light.expect("it opens").submit(vec![job(4)]).await.expect("acknowledged");
    assert_eq!(due(&store).await, 4);
}

#[tokio::test]
async fn looking_at_a_store_makes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let nowhere = directory.path().join("nowhere");
    for error in [
        examine(&nowhere).await.map(drop).expect_err("nothing is there"),
        format_levels(&nowhere).await.map(drop).expect_err("nothing is there"),
        repair(&nowhere).await.map(drop).expect_err("nothing is there"),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.message().contains("nowhere"), "{error}");
    }
    assert!(!nowhere.exists());
    let health = examine(directory.path()).await.expect("an empty directory is a new store");
    assert_eq!((health.format, health.records), (None, 0));
    assert_eq!(format_levels(directory.path()).await.expect("it is new").0, None);
    assert_eq!(fs::read_dir(directory.path()).expect("readable").count(), 0);
}

#[tokio::test]
async fn files_that_a_killed_process_was_writing_are_swept() {
    let options = Options {
        snapshot_every: 5,
        snapshot_bytes: 1,
        sweep_age: Duration::from_millis(100),
        ..Options::default()
    };
    let directory = namespace(12, options.clone()).await;
    let left =
        ["log/00000000000000000001#1", "snapshot/00000000000000000002#3", "attempt/00000000000000000001#1"];
    let left = left.map(|name| directory.path().join(name));
    fs::create_dir_all(directory.path().join("attempt")).expect("made");
    // A writer may still be at work on this one: it is at the end of the log.
    let ahead = directory.path().join("log/00000000000000999999#1");
    for path in left.iter().chain([&ahead]) {
        fs::write(path, "half a rec").expect("written");
        age(path, Duration::from_secs(2 * 3_600));
    }
    let store = open_with(directory.path(), options).await;
    until(&store, || left.iter().all(|path| !path.exists())).await;
    assert!(ahead.exists());
}

/// The store's clock jumps, or a process's own clock stands still while its machine sleeps: records are swept before
/// the process has read them, although it seems to have looked just now. It must not go on in the past.
#[tokio::test]
async fn a_process_whose_place_was_swept_goes_on_at_the_end() {
    let never = Duration::from_secs(100_000);
    let directory = namespace(3, Options::default()).await;
    let asleep = Options { poll: never, poll_without_bell: never, ..Options::default() };
    let behind = open_with(directory.path(), asleep.clone()).await;
    let looks = open_with(directory.path(), asleep).await;
    assert_eq!(due(&behind).await, 3);
    // They are not woken: another bell is rung.
    fs::remove_file(directory.path().join("bell")).expect("removed");
    let often = Options { snapshot_every: 5, snapshot_bytes: 1, ..Options::default() };
    let busy = open_with(directory.path(), often).await;
    for number in 4..=40 {
        busy.submit(vec![job(number)]).await.expect("accepted");
    }
    until(&busy, || names(directory.path(), "snapshot").len() >= 3).await;
    let snapshots = names(directory.path(), "snapshot");
    let covered: u64 = snapshots[snapshots.len() - 2].parse().expect("a number");
    for number in 1..=covered {
        fs::remove_file(directory.path().join(format!("log/{number:020}"))).expect("swept");
    }
    let before = due(&busy).await;
    assert_eq!(due(&looks).await, before, "a reader sees the present");
    // Every job that was acknowledged is there.
    while behind.submit(vec![job(500_000)]).await.is_err() {}
    assert_eq!(due(&busy).await, before + 1);
    assert_eq!(due(&open(directory.path()).await).await, before + 1);
}

#[tokio::test]
async fn time_goes_on_after_the_machines_clock_was_set_back() {
    let directory = namespace(1, Options::default()).await;
    drop(open(directory.path()).await);
    // As if it had been written when the machine's clock was an hour ahead.
    let ahead = SystemTime::UNIX_EPOCH + Duration::from_millis(hour_ahead(directory.path()).await);
    assert!(ahead > fs::metadata(directory.path()).expect("there").modified().expect("known"));
    let store = open(directory.path()).await;
    let begun = store.now().await.expect("it answers");
    let patience = tokio::time::Instant::now();
    while store.now().await.expect("it answers") == begun {
        assert!(patience.elapsed() < Duration::from_secs(10), "time stands still");
    }
}

/// Writes a record that was decided an hour from now, and returns when that is.
async fn hour_ahead(directory: &Path) -> u64 {
    use object_store::local::LocalFileSystem;
    use qo_core::{ManualClock, Time};
    use std::sync::Arc;
    let now = open(directory).await.now().await.expect("it answers");
    let ahead: Time = now.plus_ms(3_600_000);
    let objects = Arc::new(LocalFileSystem::new_with_prefix(directory).expect("a directory"));
    let clock = Arc::new(ManualClock::new(ahead));
    let store = LogStore::open(objects, clock, Options::default()).await.expect("it opens");
    store.submit(vec![job(777)]).await.expect("accepted");
    u64::try_from(ahead.as_millis()).expect("after 1970")
}
