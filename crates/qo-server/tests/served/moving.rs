//! Several servers of one store, and clients that move between them.

use crate::stage::{PATIENCE, Served, block_on, remote};
use qo_core::{Claim, ErrorKind, Exchange, JobFilter, JobId, Name, NewJob, NewSession, SessionId, Store};
use qo_object::{LogStore, Options};
use std::path::Path;
use std::sync::Arc;
use tokio::time::timeout;
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

fn job(n: u128) -> NewJob {
    NewJob::new(JobId(Uuid::from_u128(n)), name("mail"))
}

async fn serve(directory: &Path) -> Served {
    let store = LogStore::open_directory(directory, Options::default()).await.expect("a namespace");
    Served::start(Arc::new(store)).await
}

async fn open(store: &dyn Store) -> SessionId {
    let id = SessionId(Uuid::from_u128(1));
    let tasks = vec![name("mail")];
    let new = NewSession {
        id,
        worker: name("w"),
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 9,
        owner: None,
    };
    store.open_session(new).await.expect("a session");
    id
}

#[test]
fn a_client_moves_to_another_server_and_keeps_its_session() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut first, second) = (serve(directory.path()).await, serve(directory.path()).await);
        let client = remote(&[first.address, second.address]).await;
        let session = open(&client).await;
        client.submit((1..=4).map(job).collect()).await.expect("accepted");
        let exchange = |number| Exchange {
            claim: Claim { max: 2, ..Claim::default() },
            ..Exchange::renew(session, number)
        };
        let before = client.exchange(exchange(1)).await.expect("a reply");
        let now = client.now().await.expect("a time");
        first.kill().await;

        // The call that finds the connection gone may have happened; the same number again is safe.
        let mut tries = 0;
        let after = loop {
            match client.exchange(exchange(2)).await {
                Ok(reply) => break reply,
                Err(error) => assert!(error.is_transient() && tries < 3, "{error}"),
            }
            tries += 1;
        };
        assert_eq!((before.claimed.len(), after.claimed.len()), (2, 2));
        assert!(after.claimed.iter().all(|job| !before.claimed.iter().any(|old| old.id == job.id)));
        assert!(client.now().await.expect("a time") >= now, "store time never falls");
        assert_eq!(client.workers().await.expect("workers").len(), 1, "it is the same session");
    });
}

#[test]
fn a_server_that_drains_sends_its_clients_to_another() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let (mut first, second) = (serve(directory.path()).await, serve(directory.path()).await);
        let client = remote(&[first.address, second.address]).await;
        let session = open(&client).await;
        let claim = Claim { max: 1, ..Claim::default() };
        let work = client.work(session, claim).await.expect("a look");
        assert!(!work.now);
        first.ended().await.expect("it drains");
        // The stream of wake-ups moved: the client is told to look again, and then of the job.
        let mut seen = work.seen;
        // The same id, until the answer is known.
        while let Err(error) = client.submit(vec![job(1)]).await {
            assert!(error.is_transient(), "{error}");
        }
        loop {
            seen =
                timeout(PATIENCE, client.changed(Some(seen))).await.expect("it is woken").expect("a number");
            if client.work(session, claim).await.is_ok_and(|work| work.now) {
                break;
            }
        }
    });
}

#[test]
fn what_a_server_answered_before_its_end_is_stored() {
    block_on(async {
        let directory = tempfile::tempdir().expect("a directory");
        let mut served = serve(directory.path()).await;
        let client = Arc::new(remote(&[served.address]).await);
        let calls: Vec<_> = (1..=20)
            .map(|n| {
                let client = Arc::clone(&client);
                tokio::spawn(async move { client.submit(vec![job(n)]).await })
            })
            .collect();
        served.ended().await.expect("it drains");
        let (mut stored, mut unknown) = (0, 0);
        for call in calls {
            match call.await.expect("no panic") {
                Ok(outcomes) => stored += outcomes.len(),
                Err(error) if error.kind() == ErrorKind::Unknown => unknown += 1,
                // It came too late: nothing happened.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            }
        }
        let store =
            LogStore::open_directory(directory.path(), Options::default()).await.expect("a namespace");
        let jobs = store.jobs(JobFilter::default(), None, 100).await.expect("a page").jobs.len();
        assert!(
            (stored..=stored + unknown).contains(&jobs),
            "{stored} answered, {unknown} lost, {jobs} stored"
        );
    });
}
