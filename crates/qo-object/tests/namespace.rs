//! The identity of a namespace, its mark, and its hold after a repair that lost records.

use futures::future::join_all;
use qo_core::{ErrorKind, FenceToken, GroupRef, JobId, LeaseId, Name, NewJob, SlotRequest, Store};
use qo_object::doctor::{examine, examine_bucket, namespace, release, repair, repair_bucket};
use qo_object::{Absent, Bucket, LogStore, Options};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::NAME;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(number: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(number)), name("work"))
}

fn temporary() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

async fn open(directory: &Path) -> LogStore {
    LogStore::open_directory(directory, Options::default()).await.expect("it opens")
}

fn bucket(server: &Server) -> Bucket {
    Bucket::parse(&format!("s3://{NAME}/p?endpoint={}", server.url())).expect("a bucket")
}

/// Options of a process that confirms the identity before every record.
fn wary() -> Options {
    Options { recognise_every: Duration::ZERO, ..Options::bucket() }
}

fn remove_all(server: &Server, prefix: &str) {
    server.names(prefix).iter().for_each(|name| assert!(server.remove(name)));
}

#[tokio::test]
async fn one_of_several_first_users_makes_the_namespace() {
    let (directory, server) = (temporary(), Server::start(1));
    let path = directory.path().join("store");
    let on_disk = join_all((0..8).map(|_| LogStore::open_directory(&path, Options::default()))).await;
    let place = bucket(&server);
    let in_bucket = join_all((0..8).map(|_| LogStore::open_bucket(&place, Options::bucket()))).await;
    for stores in [on_disk, in_bucket] {
        let stores: Vec<_> = stores.into_iter().map(|store| store.expect("it opens")).collect();
        assert_eq!(stores.iter().filter(|store| store.has_made()).count(), 1);
        let ids: BTreeSet<_> = stores.iter().map(|store| store.identity().expect("known").id).collect();
        assert!(ids.len() == 1 && !ids.contains(&None), "{ids:?}");
    }
}

#[tokio::test]
async fn a_namespace_of_an_older_release_is_read_without_an_id() {
    let directory = temporary();
    let store = open(directory.path()).await;
    store.submit(vec![job(1)]).await.expect("accepted");
    drop(store);
    let body = r#"{"level":1}"#;
    let format = format!("qo 1 {:08x} {:020}\n{body}", crc32fast::hash(body.as_bytes()), body.len());
    fs::write(directory.path().join("format/00000000000000000001"), format).expect("written");
    fs::remove_file(directory.path().join("mark")).expect("removed");
    let store = open(directory.path()).await;
    let identity = store.identity().expect("known");
    assert!(identity.id.is_none() && identity.made_at.is_some(), "{identity}");
    store.submit(vec![job(2)]).await.expect("accepted");
    let health = examine(directory.path()).await.expect("looked at");
    assert!(health.is_usable() && health.last == 2 && health.mark == 2, "{health:?}");
}

#[tokio::test]
async fn a_directory_that_is_away_is_not_made_anew() {
    let above = temporary();
    let (path, aside) = (above.path().join("store"), above.path().join("aside"));
    let (heavy, light) =
        (open(&path).await, LogStore::open_directory_to_submit(&path, Options::default()).await);
    let light = light.expect("it opens");
    heavy.submit(vec![job(1)]).await.expect("accepted");
    light.submit(vec![job(2)]).await.expect("accepted");
    fs::rename(&path, &aside).expect("moved");
    for (store, id) in [(&heavy, 3), (&light, 4)] {
        let error = store.submit(vec![job(id)]).await.expect_err("it is away");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    let error = heavy.queues().await.expect_err("it is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // This call needs the state, which a light client opens now.
    let error = light.queues().await.expect_err("it is away");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(!path.exists(), "it was made anew");
    fs::rename(&aside, &path).expect("moved back");
    for (store, id) in [(&heavy, 3), (&light, 4)] {
        store.submit(vec![job(id)]).await.expect("it is back");
    }
    assert_eq!(light.queues().await.expect("answered")[0].due, 4);
}

#[tokio::test]
async fn an_emptied_bucket_gets_no_record_of_the_old_namespace() {
    let server = Server::start(2);
    let place = bucket(&server);
    let heavy = LogStore::open_bucket(&place, wary()).await.expect("it opens");
    let light = LogStore::open_bucket_to_submit(&place, wary()).await.expect("it opens");
    heavy.submit(vec![job(1)]).await.expect("accepted");
    light.submit(vec![job(2)]).await.expect("accepted");
    remove_all(&server, "p/");
    for store in [&heavy, &light] {
        let error = store.submit(vec![job(3)]).await.expect_err("it is gone");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    }
    assert_eq!(server.names("p/"), Vec::<String>::new());
    let next = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    next.submit(vec![job(4)]).await.expect("accepted");
    let ids = [&heavy, &next].map(|store| store.identity().expect("known").to_string());
    for store in [&heavy, &light] {
        let error = store.submit(vec![job(5)]).await.expect_err("it is another one");
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(ids.iter().all(|id| error.message().contains(id)), "{error}: {ids:?}");
    }
    assert_eq!(server.names("p/log/").len(), 1);
}

#[tokio::test]
async fn a_bucket_marks_record_1_every_hundredth_and_the_last() {
    let server = Server::start(3);
    let place = bucket(&server);
    let marks = || server.names("p/format/mark-");
    let light = LogStore::open_bucket_to_submit(&place, Options::bucket()).await.expect("it opens");
    light.submit(vec![job(1)]).await.expect("accepted");
    assert_eq!(marks(), ["p/format/mark-00000000000000000001"]);
    let store = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    server.take_requests();
    for number in 2..=150 {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    let puts = server.take_requests().put;
    let records = u64::try_from(server.names("p/log/").len()).expect("few");
    assert!(puts <= records + 1, "{puts} PUTs for {records} records");
    store.finish().await;
    assert!(marks().contains(&"p/format/mark-00000000000000000100".to_owned()), "{:?}", marks());
    let last = server.names("p/log/").pop().expect("there is one").replace("log/", "format/mark-");
    assert_eq!(marks().last(), Some(&last));
    store.finish().await;
    assert_eq!(marks().len(), 3, "nothing was written since");
}

#[tokio::test]
async fn every_process_that_opens_misses_records_at_the_end() {
    let server = Server::start(4);
    let place = bucket(&server);
    let store = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    for number in 1..=5 {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    store.finish().await;
    drop(store);
    for record in &server.names("p/log/")[3..] {
        assert!(server.remove(record));
    }
    let options = || Options { pause: Duration::ZERO, ..Options::bucket() };
    let error = LogStore::open_bucket(&place, options()).await.expect_err("two are gone");
    let light = LogStore::open_bucket_to_submit(&place, options()).await.expect("nothing is read yet");
    let offered = light.submit(vec![job(6)]).await.expect_err("two are gone");
    for error in [error, offered] {
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
        assert!(
            error.message().starts_with("log/00000000000000000004 to log/00000000000000000005"),
            "{error}"
        );
        assert!(error.message().contains("run qo doctor"), "{error}");
    }
    assert_eq!(server.names("p/log/").len(), 3);
    let health = examine_bucket(&place).await.expect("looked at");
    assert!(!health.is_usable() && health.damage.len() == 1 && health.last == 5, "{health:?}");
    let done = repair_bucket(&place).await.expect("repaired");
    assert!(done.hold.is_some(), "{done:?}");
    let store = LogStore::open_bucket(&place, options()).await.expect("it opens");
    store.submit(vec![job(6)]).await.expect("accepted");
    assert!(examine_bucket(&place).await.expect("looked at").is_usable());
}

#[tokio::test]
async fn a_missing_format_object_is_reported_and_repaired() {
    let directory = temporary();
    open(directory.path()).await.submit(vec![job(1)]).await.expect("accepted");
    fs::remove_file(directory.path().join("format/00000000000000000001")).expect("removed");
    for absent in [Absent::Make, Absent::Refuse, Absent::NotFound] {
        let options = Options { absent, ..Options::default() };
        let error = LogStore::open_directory(directory.path(), options).await.expect_err("it is damaged");
        assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    }
    assert!(!examine(directory.path()).await.expect("looked at").is_usable());
    let done = repair(directory.path()).await.expect("repaired");
    assert_eq!((done.lost.len(), done.hold), (1, None), "no record was lost");
    open(directory.path()).await.submit(vec![job(2)]).await.expect("accepted");
}

/// The operator's limit of `cluster`.
async fn cluster(directory: &Path) -> Option<u32> {
    open(directory).await.group(GroupRef::Cluster).await.ok().and_then(|group| group.status.sources.operator)
}

/// Removes the last record.
fn lose_the_end(directory: &Path) {
    let records =
        fs::read_dir(directory.join("log")).expect("readable").map(|entry| entry.expect("one").path());
    fs::remove_file(records.max().expect("there is one")).expect("removed");
}

async fn takes_a_slot(directory: &Path, id: u128) -> bool {
    let group = GroupRef::parse("group", "g").expect("a group");
    let request = SlotRequest::new(LeaseId(Uuid::from_u128(id)), group, name("w"), 60_000);
    let request = SlotRequest { limit: Some(5), ..request };
    open(directory).await.acquire_slots(request).await.expect("answered").is_some()
}

#[tokio::test]
async fn a_repair_that_lost_records_holds_everything_until_released() {
    for before in [None, Some(7), Some(0)] {
        let directory = temporary();
        let path = directory.path();
        let store = open(path).await;
        store.submit(vec![job(1)]).await.expect("accepted");
        if let Some(limit) = before {
            store.set_limit(GroupRef::Cluster, limit).await.expect("set");
        }
        store.submit(vec![job(2)]).await.expect("accepted");
        drop(store);
        lose_the_end(path);
        assert_eq!(release(path).await.expect_err("it is damaged").kind(), ErrorKind::Data);
        let hold = repair(path).await.expect("repaired").hold.expect("on hold");
        assert_eq!((hold.cluster, cluster(path).await), (before, Some(0)));
        assert!(!takes_a_slot(path, 1).await, "its limit may have been lost");
        // Another loss before the first hold is released: the limit from before the first counts.
        open(path).await.submit(vec![job(3)]).await.expect("accepted");
        lose_the_end(path);
        assert_eq!(repair(path).await.expect("repaired").hold.expect("on hold").cluster, before);
        let known = namespace(path).await.expect("looked at").expect("there is one");
        assert_eq!(known.hold.map(|hold| hold.cluster), Some(before));
        assert!(release(path).await.expect("released").is_some());
        assert_eq!(cluster(path).await, before);
        assert!(takes_a_slot(path, 2).await);
        assert_eq!(release(path).await, Ok(None), "not on hold any more");
        assert_eq!(examine(path).await.expect("looked at").hold, None);
    }
}

#[tokio::test]
async fn an_operator_that_sets_the_limit_of_cluster_ends_the_hold() {
    let directory = temporary();
    let path = directory.path();
    open(path).await.submit(vec![job(1)]).await.expect("accepted");
    lose_the_end(path);
    repair(path).await.expect("repaired");
    open(path).await.set_limit(GroupRef::Cluster, 3).await.expect("set");
    assert_eq!(release(path).await, Ok(None));
    assert_eq!(cluster(path).await, Some(3));
}

/// The holds of a namespace in a directory.
fn holds(directory: &Path) -> Vec<std::path::PathBuf> {
    let format = fs::read_dir(directory.join("format")).expect("readable");
    let paths = format.map(|entry| entry.expect("one").path());
    paths.filter(|path| path.display().to_string().contains("/hold-")).collect()
}

/// A namespace that lost its last record and was repaired.
async fn on_hold() -> TempDir {
    let directory = temporary();
    open(directory.path()).await.submit(vec![job(1)]).await.expect("accepted");
    lose_the_end(directory.path());
    repair(directory.path()).await.expect("repaired");
    directory
}

#[tokio::test]
async fn a_leftover_hold_undoes_no_limit_that_was_set_since() {
    let directory = on_hold().await;
    let path = directory.path();
    let [hold] = &holds(path)[..] else { panic!("one hold") };
    let kept = fs::read(hold).expect("readable");
    open(path).await.set_limit(GroupRef::Cluster, 3).await.expect("set");
    assert_eq!(holds(path).len(), 0, "the store itself ends it");
    // As if the process had been killed before it could delete, or had no right to.
    fs::write(hold, kept).expect("written");
    assert_eq!(examine(path).await.expect("looked at").hold, None, "cluster is not closed");
    assert_eq!(release(path).await, Ok(None));
    assert_eq!((cluster(path).await, holds(path).len()), (Some(3), 0));
}

#[tokio::test]
async fn the_last_of_several_holds_has_the_limit_from_before() {
    let directory = on_hold().await;
    let path = directory.path();
    let [hold] = &holds(path)[..] else { panic!("one hold") };
    let kept = fs::read(hold).expect("readable");
    open(path).await.set_limit(GroupRef::Cluster, 3).await.expect("set");
    fs::write(hold, kept).expect("written");
    open(path).await.submit(vec![job(2)]).await.expect("accepted");
    lose_the_end(path);
    assert_eq!(repair(path).await.expect("repaired").hold.expect("on hold").cluster, Some(3));
    assert_eq!(holds(path).len(), 2);
    assert!(release(path).await.expect("released").is_some());
    assert_eq!(cluster(path).await, Some(3));
}

#[tokio::test]
async fn a_released_hold_that_cannot_be_deleted_is_over() {
    let directory = on_hold().await;
    let path = directory.path();
    let [hold] = &holds(path)[..] else { panic!("one hold") };
    let spoken = hold.display().to_string().replace("/hold-", "/spoken-");
    fs::write(spoken, "").expect("written");
    let known = namespace(path).await.expect("looked at").expect("there is one");
    assert_eq!(known.hold, None);
}

#[tokio::test]
async fn a_damaged_format_object_is_reported_and_repaired() {
    let directory = temporary();
    let path = directory.path();
    open(path).await.submit(vec![job(1)]).await.expect("accepted");
    let format = path.join("format/00000000000000000001");
    fs::write(&format, "qo 1 torn").expect("damaged");
    open(path).await.submit(vec![job(2)]).await.expect("it goes on");
    let health = examine(path).await.expect("looked at");
    assert!(health.is_usable() && health.identity.is_none() && health.damage.len() == 1, "{health:?}");
    assert!(health.damage[0].what.starts_with("format/00000000000000000001: is "), "{health:?}");
    assert!(health.damage[0].hinders.is_some(), "{health:?}");
    let known = namespace(path).await.expect("looked at").expect("there is one");
    assert!(known.damage.is_some(), "{known:?}");
    let done = repair(path).await.expect("repaired");
    assert_eq!((done.lost.len(), done.moved.len(), done.hold), (1, 1, None));
    assert!(examine(path).await.expect("looked at").damage.is_empty());
    assert_eq!(open(path).await.queues().await.expect("answered")[0].due, 2);
}

#[tokio::test]
async fn a_format_object_damaged_for_a_while_changes_no_identity() {
    let server = Server::start(5);
    let place = bucket(&server);
    LogStore::open_bucket(&place, wary()).await.expect("it opens").finish().await;
    let name = "p/format/00000000000000000001";
    let whole = server.read(name).expect("it is there");
    server.write(name, "qo 1 torn");
    let store = LogStore::open_bucket(&place, wary()).await.expect("it opens");
    store.submit(vec![job(1)]).await.expect("accepted");
    server.write(name, whole);
    store.submit(vec![job(2)]).await.expect("it is the same one");
    assert!(store.identity().expect("known by now").id.is_some());
    server.write(name, "qo 1 torn");
    store.submit(vec![job(3)]).await.expect("that tells nothing");
}

#[tokio::test]
async fn a_process_writes_nothing_into_another_namespace() {
    let server = Server::start(6);
    let place = bucket(&server);
    let old = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    old.submit(vec![job(1)]).await.expect("accepted");
    old.finish().await;
    // The process owes a mark of these.
    for number in 2..=3 {
        old.submit(vec![job(number)]).await.expect("accepted");
    }
    remove_all(&server, "p/");
    let next = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    next.submit(vec![job(4)]).await.expect("accepted");
    next.finish().await;
    let before = server.names("p/");
    let error = old.keep_log(FenceToken(9), "late".into()).await.expect_err("it is another one");
    assert_eq!(error.kind(), ErrorKind::Data, "{error}");
    old.finish().await;
    assert_eq!(server.names("p/"), before, "no mark, and no log of an attempt");
    assert!(examine_bucket(&place).await.expect("looked at").damage.is_empty());
}

#[tokio::test]
async fn old_marks_are_deleted_where_no_process_lives_long() {
    let server = Server::start(7);
    let place = bucket(&server);
    for number in 1..=30 {
        let store = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
        store.submit(vec![job(number)]).await.expect("accepted");
        store.finish().await;
    }
    let marks = server.names("p/format/mark-");
    assert!(marks.len() <= 12, "{marks:?}");
    assert_eq!(marks.last().map(String::as_str), Some("p/format/mark-00000000000000000030"));
}

#[tokio::test]
async fn a_reader_marks_records_that_light_clients_left_unmarked() {
    let server = Server::start(8);
    let place = bucket(&server);
    let light = LogStore::open_bucket_to_submit(&place, Options::bucket()).await.expect("it opens");
    for number in 1..=12 {
        light.submit(vec![job(number)]).await.expect("accepted");
    }
    assert_eq!(server.names("p/format/mark-").len(), 1);
    LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens").finish().await;
    let marks = server.names("p/format/mark-");
    assert_eq!(marks.last().map(String::as_str), Some("p/format/mark-00000000000000000012"));
}

#[tokio::test]
async fn a_bucket_is_swept_although_no_process_lives_for_the_sweep_age() {
    let server = Server::start(9);
    let place = bucket(&server);
    let options = || Options { snapshot_every: 5, snapshot_bytes: 1, ..Options::bucket() };
    let mut number = 0;
    for _ in 0..3 {
        let store = LogStore::open_bucket(&place, options()).await.expect("it opens");
        for _ in 0..8 {
            number += 1;
            store.submit(vec![job(number)]).await.expect("accepted");
        }
        store.finish().await;
        server.advance(Duration::from_secs(26 * 3_600));
    }
    let records = server.names("p/log/");
    assert!(!records.contains(&"p/log/00000000000000000001".to_owned()), "{records:?}");
    assert!(records.len() >= 8, "what is not a day older than a snapshot stays: {records:?}");
    let health = examine_bucket(&place).await.expect("looked at");
    assert!(health.damage.is_empty(), "{health:?}");
    let store = LogStore::open_bucket(&place, options()).await.expect("it opens");
    assert_eq!(store.queues().await.expect("answered")[0].due, u64::try_from(number).expect("few"));
}

#[tokio::test]
async fn a_light_client_finds_the_end_with_few_requests() {
    let server = Server::start(10);
    let place = bucket(&server);
    let store = LogStore::open_bucket(&place, Options::bucket()).await.expect("it opens");
    for number in 1..=50 {
        store.submit(vec![job(number)]).await.expect("accepted");
    }
    store.finish().await;
    server.take_requests();
    let light = LogStore::open_bucket_to_submit(&place, Options::bucket()).await.expect("it opens");
    light.submit(vec![job(51)]).await.expect("accepted");
    let asked = server.take_requests();
    assert!(asked.head <= 2, "{asked:?}");
}
