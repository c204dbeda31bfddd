//! Opening a bucket by its URL.

use crate::fixtures::fresh_prefix;
use crate::{SERVER, real_server};
use qo_core::{Error, ErrorKind, JobId, Name, NewJob, Store};
use qo_object::doctor::{examine_bucket, format_levels_of_bucket};
use qo_object::{Bucket, LogStore, Options};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::{Conditions, NAME};
use std::time::Duration;
use uuid::Uuid;

fn at(server: &str, prefix: &str) -> Bucket {
    Bucket::parse(&format!("s3://{NAME}/{prefix}?endpoint={server}")).expect("a bucket")
}

async fn open(bucket: &Bucket) -> Result<LogStore, Error> {
    LogStore::open_bucket(bucket, Options::bucket()).await
}

fn job(id: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(id)), Name::parse("task", "t").expect("a name"))
}

async fn due(store: &LogStore) -> u64 {
    store.queues().await.expect("answered").first().map_or(0, |queue| queue.due)
}

#[tokio::test]
async fn a_namespace_in_a_bucket_is_there_for_the_next_process() {
    for server in [SERVER.url().to_owned(), real_server()] {
        let bucket = at(&server, &fresh_prefix());
        let store = open(&bucket).await.expect("it opens");
        store.submit(vec![job(1), job(2)]).await.expect("accepted");
        drop(store);
        let light = LogStore::open_bucket_to_submit(&bucket, Options::bucket()).await.expect("it opens");
        light.submit(vec![job(3)]).await.expect("accepted");
        assert_eq!(due(&open(&bucket).await.expect("it opens")).await, 3);
        assert_eq!(format_levels_of_bucket(&bucket).await, Ok((Some(1), 1)));
        assert!(examine_bucket(&bucket).await.expect("it can be read").is_usable());
    }
}

#[tokio::test]
async fn a_server_that_does_not_create_atomically_is_refused() {
    let rclone = std::env::var("QO_TEST_S3_RCLONE").expect("`make test` starts one: scripts/with_s3.py");
    let [ignoring, racy] = [Server::start(1), Server::start(2)];
    ignoring.set_conditions(Conditions::Ignored);
    racy.set_conditions(Conditions::Racy(Duration::from_millis(100)));
    for server in [rclone.as_str(), ignoring.url(), racy.url()] {
        let error = open(&at(server, &fresh_prefix())).await.expect_err("it is careless");
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.message().contains("If-None-Match"), "{error}");
    }
    assert_eq!(ignoring.names(""), Vec::<String>::new(), "nothing is left behind");
}

#[tokio::test]
async fn a_bucket_that_is_not_there_is_not_found() {
    for server in [SERVER.url().to_owned(), real_server()] {
        let nowhere = Bucket::parse(&format!("s3://nowhere?endpoint={server}")).expect("a bucket");
        let error = open(&nowhere).await.expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(error.message().starts_with("s3://nowhere: there is no such bucket"), "{error}");
        assert_eq!(examine_bucket(&nowhere).await.expect_err("there is none").kind(), ErrorKind::NotFound);
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let error = open(&at("http://127.0.0.1:1", "p")).await.expect_err("no server is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.message().contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_bucket_that_goes_away_is_not_an_empty_log() {
    let server = Server::start(3);
    let bucket = at(server.url(), "p");
    let store = open(&bucket).await.expect("it opens");
    store.submit(vec![job(1)]).await.expect("accepted");
    drop(server);
    let error = store.queues().await.expect_err("no server is there");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Options of processes that look seldom, and whose records are swept soon.
fn sleepy() -> Options {
    let asleep = Duration::from_secs(100_000);
    Options {
        snapshot_every: 5,
        sweep_age: Duration::from_secs(60),
        poll: asleep,
        poll_without_bell: asleep,
        ..Options::bucket()
    }
}

/// Other processes write thirty jobs; two minutes pass at the bucket, and the records that its snapshots cover are
/// swept, except `kept`.
async fn others_go_on(server: &Server, bucket: &Bucket, kept: &str) -> LogStore {
    let others = LogStore::open_bucket(bucket, sleepy()).await.expect("it opens");
    for id in 10..40 {
        others.submit(vec![job(id)]).await.expect("accepted");
        others.finish().await;
    }
    // A process writes snapshots as often as it can afford them: a slow machine needs more records.
    let mut limit = 0;
    while server.names("p/snapshot/").len() < 2 {
        limit += 1;
        others.set_limit("g".parse().expect("a group"), limit).await.expect("set");
        others.finish().await;
    }
    let snapshots = server.names("p/snapshot/");
    let covered = &snapshots[snapshots.len() - 2].replace("snapshot", "log");
    for record in server.names("p/log/").iter().filter(|record| *record <= covered && *record != kept) {
        assert!(server.remove(record), "it is swept");
    }
    server.advance(Duration::from_secs(120));
    others
}

/// A machine that sleeps counts no time; the bucket's clock goes on. The end of the log of then has been used and swept
/// since, so a record can be created there that no reader gets to.
#[tokio::test]
async fn a_process_that_slept_past_the_sweep_age_acknowledges_nothing() {
    let server = Server::start(8);
    let bucket = at(server.url(), "p");
    let sleeper = LogStore::open_bucket(&bucket, sleepy()).await.expect("it opens");
    sleeper.submit(vec![job(1)]).await.expect("accepted");
    let light = LogStore::open_bucket_to_submit(&bucket, sleepy()).await.expect("it opens");
    light.submit(vec![job(2)]).await.expect("accepted");
    let others = others_go_on(&server, &bucket, "").await;
    for (late, id) in [(&sleeper, 100), (&light, 101)] {
        let error = late.submit(vec![job(id)]).await.expect_err("no reader gets to it");
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        late.submit(vec![job(id)]).await.expect("once more, with the same id");
    }
    for store in [&sleeper, &others, &open(&bucket).await.expect("it opens")] {
        assert_eq!(due(store).await, 34);
    }
}

/// Records are swept in no order. A leftover record behind a remembered end does not show that the place behind it is
/// free.
#[tokio::test]
async fn a_stalled_light_client_does_not_append_to_leftover_records() {
    let server = Server::start(9);
    let bucket = at(server.url(), "p");
    let light = LogStore::open_bucket_to_submit(&bucket, sleepy()).await.expect("it opens");
    light.submit(vec![job(1)]).await.expect("accepted");
    let others = others_go_on(&server, &bucket, "p/log/00000000000000000002").await;
    light.submit(vec![job(100)]).await.expect("accepted, where it is read");
    for store in [&others, &open(&bucket).await.expect("it opens")] {
        assert_eq!(due(store).await, 32);
    }
}

/// The same for a writer with the state: leftover records, and records of another stalled writer, do not follow each
/// other.
#[tokio::test]
async fn a_stalled_writer_reopens_when_it_meets_leftover_records() {
    let server = Server::start(10);
    let bucket = at(server.url(), "p");
    let [sleeper, twin] = [(); 2].map(|()| LogStore::open_bucket(&bucket, sleepy()));
    let (sleeper, twin) = (sleeper.await.expect("it opens"), twin.await.expect("it opens"));
    sleeper.submit(vec![job(1)]).await.expect("accepted");
    assert_eq!(due(&twin).await, 1);
    let others = others_go_on(&server, &bucket, "p/log/00000000000000000003").await;
    let error = sleeper.submit(vec![job(100)]).await.expect_err("no reader gets to it");
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    twin.submit(vec![job(101)]).await.expect("accepted, where it is read");
    for store in [&sleeper, &twin, &others, &open(&bucket).await.expect("it opens")] {
        assert_eq!(due(store).await, 32);
    }
}
