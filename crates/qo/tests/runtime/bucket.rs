//! What an idle worker does for other workers, in a bucket.

use crate::stage::{Running, until};
use qo::core::{Claim, Exchange, JobState, Name, NewSession, SessionId};
use qo::{Client, Context, Failure, Worker};
use qo_object::{Bucket, LogStore, Options};
use qo_testkit::Bucket as Server;
use qo_testkit::bucket::NAME;
use std::sync::Arc;
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

/// No client submits, no worker claims, and no other worker could run the job: its slots come back all the same.
#[tokio::test]
async fn an_idle_worker_ends_the_session_of_a_dead_one_whose_jobs_hold_slots() {
    let server = Server::start(1);
    assert!(
        std::env::var("AWS_ACCESS_KEY_ID").is_ok(),
        "`make test` sets the credentials: scripts/with_s3.py"
    );
    let bucket = Bucket::parse(&format!("s3://{NAME}/p?endpoint={}", server.url())).expect("a bucket");
    let open = || LogStore::open_bucket(&bucket, Options::bucket());
    // A worker that claims and dies.
    let theirs = Client::new(Arc::new(open().await.expect("it opens")));
    let group = "wait".parse().expect("a group");
    theirs.store().set_limit(group, 1).await.expect("set");
    let job = theirs.submit("wait", &()).await.expect("submitted");
    let id = SessionId(Uuid::new_v4());
    let session = NewSession {
        id,
        worker: name("dead"),
        queues: Vec::new(),
        tasks: vec![name("wait")],
        lease_ms: 2_000,
        permits: 1,
        owner: None,
    };
    theirs.store().open_session(session).await.expect("opened");
    let claim = Claim { max: 1, ..Claim::default() };
    let exchange = Exchange { claim, ..Exchange::renew(id, 1) };
    assert_eq!(theirs.store().exchange(exchange).await.expect("answered").claimed.len(), 1);

    let nothing = |(): (), _: Context| async { Ok::<_, Failure>(()) };
    let ours = Arc::new(open().await.expect("it opens"));
    let idle = Running::start(Worker::builder(ours).task("noop", nothing));
    until("the job is back", || async {
        theirs.store().job(job).await.expect("a job").view.state == JobState::Pending
    })
    .await;
    let group = theirs.store().group("wait".parse().expect("a group")).await.expect("a group");
    assert_eq!((group.status.used, group.holders.len()), (0, 0));
    let workers = theirs.store().workers().await.expect("answered");
    assert!(workers.iter().all(|worker| worker.session != id), "{workers:?}");
    idle.drain().await;
}
