//! The log in a bucket: on a server in memory, which can be made to fail, and on a real one.

#[path = "../fixtures/mod.rs"]
mod fixtures;
mod opening;
mod simulation;
mod slots;

use qo_testkit::Bucket;
use std::sync::LazyLock;

/// The server in memory of all tests that need no faults.
static SERVER: LazyLock<Bucket> = LazyLock::new(|| Bucket::start(1));

/// The URL of a real server.
fn real_server() -> String {
    std::env::var("QO_TEST_S3").expect("`make test` starts a server: scripts/with_s3.py")
}

mod conformance {
    qo_testkit::conformance!(crate::fixtures::Logs::in_a_bucket(crate::SERVER.url()));
}

mod conformance_on_a_real_server {
    qo_testkit::conformance!(crate::fixtures::Logs::in_a_bucket(&crate::real_server()));
}
