//! The S3 servers that the suites run against: do they behave as the suites assume? `scripts/with_s3.py` starts them,
//! as `make test` does.

use object_store::aws::AmazonS3;
use object_store::{Error, ObjectStoreExt, path::Path};
use qo_testkit::bucket::client;
use std::env;

use crate::racers::{creators, updaters};

/// A server's address and its bucket. A missing one is a failure: a skipped test proves nothing.
fn variables(server: &str) -> [String; 2] {
    [server, "QO_TEST_S3_BUCKET"].map(|name| {
        env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run this under scripts/with_s3.py"))
    })
}

fn server(variable: &str) -> AmazonS3 {
    let [url, bucket] = variables(variable);
    client(&url, &bucket).build().expect("a client")
}

#[tokio::test]
async fn seaweedfs_lets_one_creator_win() {
    assert_eq!(creators(&server("QO_TEST_S3"), "servers/create").await, 1);
}

#[tokio::test]
async fn seaweedfs_lets_one_updater_win() {
    assert_eq!(updaters(&server("QO_TEST_S3"), "servers/update").await, 1);
}

#[tokio::test]
async fn seaweedfs_refuses_strangers_and_has_no_other_bucket() {
    let [url, bucket] = variables("QO_TEST_S3");
    let path = Path::from("servers/strange");
    let stranger = client(&url, &bucket).with_secret_access_key("what").build().expect("a client");
    let refused = stranger.put(&path, "x".into()).await;
    assert!(matches!(refused, Err(Error::PermissionDenied { .. })), "{refused:?}");
    let elsewhere = client(&url, "elsewhere").build().expect("a client");
    let missing = elsewhere.put(&path, "x".into()).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })), "{missing:?}");
}

/// The probe at opening must refuse this server.
#[tokio::test]
async fn rclone_lets_several_win() {
    let client = server("QO_TEST_S3_RCLONE");
    assert!(creators(&client, "servers/create").await > 1);
    assert!(updaters(&client, "servers/update").await > 1);
}
