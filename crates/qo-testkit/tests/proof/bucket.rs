//! The bucket in memory, as `object_store` sees it: correct by default, and wrong where a test asks for that.

use futures::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::{ClientOptions, Error, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use object_store::{UpdateVersion, path::Path};
use qo_testkit::bucket::{Bucket, Conditions, Fault, FaultRates, Kind, Requests};
use std::time::{Duration, Instant};

use crate::racers::{RACERS, creators, updaters};

/// Without retries, so that each call is one request.
fn once(builder: AmazonS3Builder) -> AmazonS3 {
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let options = ClientOptions::new().with_allow_http(true).with_timeout(Duration::from_secs(20));
    builder.with_retry(retry).with_client_options(options).build().expect("a client")
}

fn bucket() -> (Bucket, AmazonS3) {
    let bucket = Bucket::start(1);
    let client = once(bucket.client());
    (bucket, client)
}

async fn create(client: &AmazonS3, name: &str, text: &str) -> Result<(), Error> {
    let bytes = text.to_owned().into_bytes().into();
    client.put_opts(&Path::from(name), bytes, PutMode::Create.into()).await.map(drop)
}

async fn names(client: &AmazonS3, folder: &str) -> Vec<String> {
    let listing = client.list(Some(&Path::from(folder)));
    listing.map_ok(|meta| meta.location.to_string()).try_collect().await.expect("a listing")
}

#[tokio::test]
async fn one_of_racing_creators_wins() {
    let (bucket, client) = bucket();
    bucket.set_latency(Duration::from_millis(4));
    for round in 0..10 {
        assert_eq!(creators(&client, &format!("log/{round}")).await, 1);
    }
}

#[tokio::test]
async fn one_of_racing_updaters_wins() {
    let (bucket, client) = bucket();
    bucket.set_latency(Duration::from_millis(4));
    for round in 0..10 {
        assert_eq!(updaters(&client, &format!("slots/{round}")).await, 1);
    }
}

#[tokio::test]
async fn several_creators_win_on_a_broken_server() {
    let (bucket, client) = bucket();
    for (conditions, name) in
        [(Conditions::Racy(Duration::from_millis(200)), "racy"), (Conditions::Ignored, "ignored")]
    {
        bucket.set_conditions(conditions);
        assert!(creators(&client, &format!("create/{name}")).await > 1, "{conditions:?}");
        assert!(updaters(&client, &format!("update/{name}")).await > 1, "{conditions:?}");
    }
    assert_eq!(creators(&client, "create/again").await, RACERS, "without conditions every writer wins");
}

#[tokio::test]
async fn an_object_is_written_read_listed_and_deleted() {
    let (bucket, client) = bucket();
    let path = Path::from("a/b c+d");
    let put = client.put(&path, "hello".into()).await.expect("a write");
    let meta = client.head(&path).await.expect("the object's facts");
    assert_eq!((meta.size, &meta.e_tag), (5, &put.e_tag));
    let found = client.get(&path).await.expect("the object");
    assert_eq!((&found.meta.e_tag, found.meta.last_modified), (&put.e_tag, meta.last_modified));
    assert_eq!(found.bytes().await.expect("its bytes"), "hello");
    assert_eq!(client.get_range(&path, 1..3).await.expect("a part"), "el");
    assert_eq!(bucket.read("a/b c+d"), Some(b"hello".to_vec()));

    let other = client.put(&path, "world".into()).await.expect("a write");
    assert_ne!(other.e_tag, put.e_tag);
    bucket.write("a/raw", "raw");
    assert_eq!(names(&client, "a").await, ["a/b c+d", "a/raw"]);
    client.delete(&path).await.expect("a deletion");
    assert!(matches!(client.get(&path).await, Err(Error::NotFound { .. })));
    assert!(matches!(client.head(&path).await, Err(Error::NotFound { .. })));
    assert_eq!(bucket.names(""), ["a/raw"]);
}

#[tokio::test]
async fn a_long_listing_comes_in_pages_and_starts_where_asked() {
    let (bucket, client) = bucket();
    for number in 0..2_500 {
        bucket.write(&format!("log/{number:05}"), "x");
    }
    bucket.write("other/x", "x");
    assert_eq!(names(&client, "log").await, bucket.names("log/"));
    assert_eq!(bucket.take_requests(), Requests { list: 3, ..Requests::default() });

    let rest = client.list_with_offset(Some(&Path::from("log")), &Path::from("log/02496"));
    let rest: Vec<_> = rest.map_ok(|meta| meta.location.to_string()).try_collect().await.expect("a listing");
    assert_eq!(rest, ["log/02497", "log/02498", "log/02499"]);

    let top = client.list_with_delimiter(None).await.expect("a listing of folders");
    assert_eq!(top.common_prefixes, [Path::from("log"), Path::from("other")]);
    assert!(top.objects.is_empty());

    let all = client.list(Some(&Path::from("log")));
    let paths = futures::StreamExt::boxed(all.map_ok(|meta| meta.location));
    let deleted: Vec<_> = client.delete_stream(paths).try_collect().await.expect("deletions");
    assert_eq!((deleted.len(), bucket.names("")), (2_500, vec!["other/x".to_owned()]));
    assert_eq!(bucket.requests().delete, 3, "a thousand at a time");
}

#[tokio::test]
async fn requests_are_counted_by_kind() {
    let (bucket, client) = bucket();
    let path = Path::from("a");
    create(&client, "a", "1").await.expect("a write");
    assert!(create(&client, "a", "2").await.is_err(), "it is there");
    client.get(&path).await.expect("the object");
    client.head(&path).await.expect("its facts");
    client.head(&path).await.expect("its facts");
    names(&client, "").await;
    client.delete(&path).await.expect("a deletion");
    let expected = Requests { put: 2, get: 1, head: 2, list: 1, delete: 1 };
    assert_eq!((bucket.take_requests(), bucket.requests().total()), (expected, 0));
}

#[tokio::test]
async fn strangers_and_other_buckets_are_refused() {
    let (bucket, _) = bucket();
    let path = Path::from("a");
    for stranger in
        [bucket.client().with_access_key_id("stranger"), bucket.client().with_secret_access_key("what")]
    {
        let refused = once(stranger).put(&path, "x".into()).await;
        assert!(matches!(refused, Err(Error::PermissionDenied { .. })), "{refused:?}");
    }
    let missing = once(bucket.client().with_bucket_name("elsewhere")).put(&path, "x".into()).await;
    let Err(error @ Error::NotFound { .. }) = missing else { panic!("{missing:?}") };
    assert!(std::error::Error::source(&error).expect("a reason").to_string().contains("NoSuchBucket"));
    assert!(bucket.names("").is_empty());
}

#[tokio::test]
async fn an_update_of_nothing_is_refused() {
    let (_bucket, client) = bucket();
    let version = UpdateVersion { e_tag: Some("\"0\"".to_owned()), version: None };
    let options = PutOptions::from(PutMode::Update(version));
    let refused = client.put_opts(&Path::from("a"), "x".into(), options).await;
    assert!(matches!(refused, Err(Error::Precondition { .. })), "{refused:?}");
}

#[tokio::test]
async fn a_lost_reply_leaves_the_object_and_an_early_reset_leaves_none() {
    let (bucket, client) = bucket();
    bucket.fail_next(Kind::Put, Fault::ResetBefore);
    bucket.fail_next(Kind::Put, Fault::ResetAfter);
    for (text, there) in [("early", None), ("late", Some(b"late".to_vec()))] {
        let lost = create(&client, "a", text).await;
        assert!(matches!(lost, Err(Error::Generic { .. })), "{lost:?}");
        assert_eq!(bucket.read("a"), there);
    }
}

#[tokio::test]
async fn a_refused_write_did_nothing() {
    let (bucket, client) = bucket();
    for (fault, code) in [
        (Fault::Error, "InternalError"),
        (Fault::SlowDown, "SlowDown"),
        (Fault::Conflict, "ConditionalRequestConflict"),
    ] {
        bucket.fail_next(Kind::Put, fault);
        let error = create(&client, "a", "x").await.expect_err("a refusal");
        assert!(error.to_string().contains(code), "{error}");
        assert!(bucket.names("").is_empty());
    }
    bucket.fail_next(Kind::Put, Fault::Conflict);
    client.put(&Path::from("b"), "x".into()).await.expect("there is no condition to be in conflict about");
}

#[tokio::test]
async fn a_client_that_gets_half_an_object_gets_an_error() {
    let (bucket, client) = bucket();
    let path = Path::from("a");
    for length in [1, 100, 3_000_000] {
        bucket.write("a", vec![7; length]);
        bucket.fail_next(Kind::Get, Fault::Truncated);
        let found = client.get(&path).await.expect("the head of an answer");
        assert_eq!(found.meta.size, length as u64);
        assert!(found.bytes().await.is_err(), "half of {length} bytes");
    }
    assert_eq!(bucket.requests().get, 3);
    let whole = client.get(&path).await.expect("the object").bytes().await.expect("all of it");
    assert_eq!(whole.len(), 3_000_000);
}

#[tokio::test]
async fn faults_come_as_often_as_said_and_the_same_for_the_same_seed() {
    async fn outcomes(seed: u64) -> Vec<bool> {
        let bucket = Bucket::start(seed);
        let client = once(bucket.client());
        let rates = FaultRates { error: 20, reset_before: 10, reset_after: 10, ..FaultRates::default() };
        bucket.set_faults(&[Kind::Head], rates);
        bucket.write("a", "x");
        let mut fine = Vec::new();
        for _ in 0..300 {
            fine.push(client.head(&Path::from("a")).await.is_ok());
        }
        client.get(&Path::from("a")).await.expect("the faults are those of another kind");
        bucket.set_faults(Kind::ALL, FaultRates::default());
        client.head(&Path::from("a")).await.expect("the faults are over");
        fine
    }
    let seven = outcomes(7).await;
    let failed = seven.iter().filter(|fine| !**fine).count();
    assert!((80..160).contains(&failed), "{failed} of 300, for 40 %");
    assert_eq!(seven, outcomes(7).await);
    assert_ne!(seven, outcomes(8).await);
}

#[tokio::test]
async fn a_late_listing_has_no_young_objects() {
    let (bucket, client) = bucket();
    bucket.write("a/1", "x");
    bucket.set_listing_delay(Duration::from_secs(3_600));
    assert!(names(&client, "a").await.is_empty());
    client.get(&Path::from("a/1")).await.expect("it can be read all the same");
    bucket.set_listing_delay(Duration::ZERO);
    assert_eq!(names(&client, "a").await, ["a/1"]);
}

#[tokio::test]
async fn every_request_takes_its_time() {
    let (bucket, client) = bucket();
    let latency = Duration::from_millis(100);
    bucket.set_latency(latency);
    let begun = Instant::now();
    create(&client, "a", "x").await.expect("a write");
    assert!(begun.elapsed() >= latency);
}

#[tokio::test]
async fn other_requests_do_not_wait_for_one_that_is_held_up() {
    let (bucket, client) = bucket();
    bucket.fail_next(Kind::Head, Fault::Delay(Duration::from_secs(3_600)));
    let path = Path::from("a");
    let others = async {
        while bucket.requests().head == 0 {
            tokio::task::yield_now().await;
        }
        creators(&client, "a").await
    };
    tokio::select! {
        answer = client.head(&path) => panic!("it was to be held up: {answer:?}"),
        winners = others => assert_eq!(winners, 1),
    }
}

#[tokio::test]
async fn the_clock_can_be_put_forward() {
    let (bucket, client) = bucket();
    let path = Path::from("a");
    client.put(&path, "x".into()).await.expect("a write");
    let before = client.head(&path).await.expect("its facts").last_modified;
    bucket.advance(Duration::from_secs(3_600));
    client.put(&path, "x".into()).await.expect("a write");
    let after = client.head(&path).await.expect("its facts").last_modified;
    assert!((after - before).num_seconds() >= 3_599, "{before} {after}");
}
