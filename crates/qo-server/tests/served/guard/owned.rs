//! A session belongs to the token that opened it.

use super::client::remote_as;
use super::{Rights, bearer, create, name};
use crate::stage::{PATIENCE, Served, block_on};
use qo_core::Scope::{Admin, Work};
use qo_core::{
    Claim, Error, ErrorKind, Exchange, JobId, MemoryStore, NewJob, NewSession, Outcome, SessionId,
};
use qo_core::{JobState, Settle, Store};
use qo_wire::RemoteStore;
use std::sync::Arc;
use tokio::time::timeout;
use uuid::Uuid;

fn session(n: u128) -> NewSession {
    NewSession {
        id: SessionId(Uuid::from_u128(0x4000_8000_0000_0000_0000 | n)),
        worker: name("w"),
        queues: vec![],
        tasks: vec![name("send")],
        lease_ms: 60_000,
        permits: 10,
        // A caller does not choose for whom it opens a session.
        owner: Some(bearer().id()),
    }
}

fn claim(session: SessionId, number: u64) -> Exchange {
    Exchange { claim: Claim { max: 1, ..Claim::default() }, ..Exchange::renew(session, number) }
}

fn kind<T>(answer: Result<T, Error>) -> Option<ErrorKind> {
    answer.err().map(|error| error.kind())
}

struct Two {
    store: Arc<MemoryStore>,
    servers: [Served; 2],
    owner: RemoteStore,
    /// The owner at the other server, which has not seen its session.
    moved: RemoteStore,
    others: Vec<RemoteStore>,
}

async fn two() -> Two {
    let store = Arc::new(MemoryStore::new());
    let new = |n: u128| {
        NewJob::new(JobId(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 | n)), name("send"))
    };
    store.submit((0..4).map(new).collect()).await.expect("stored");
    let rights = |scopes| Rights { scopes, ..Rights::default() };
    let own = create(&*store, "own", rights(&[Work])).await;
    let other = create(&*store, "other", rights(&[Work])).await;
    let admin = create(&*store, "admin", rights(&[Admin])).await;
    let start = async || Served::start(Arc::clone(&store) as Arc<dyn Store>).await;
    let servers = [start().await, start().await];
    let (owner, moved) = (remote_as(&servers[0], &own).await, remote_as(&servers[1], &own).await);
    let mut others = Vec::new();
    for server in &servers {
        others.push(remote_as(server, &other).await);
        others.push(remote_as(server, &admin).await);
    }
    Two { store, servers, owner, moved, others }
}

#[test]
fn another_token_can_do_nothing_with_a_session() {
    block_on(async {
        let Two { store, servers, owner, moved, others } = two().await;
        let id = session(1).id;
        owner.open_session(session(1)).await.expect("opened");
        let claimed = owner.exchange(claim(id, 1)).await.expect("its own").claimed.remove(0);
        let settle = Settle {
            job: claimed.id,
            token: claimed.token,
            outcome: Outcome::Succeed { output: qo_core::Json::null() },
        };
        let due = Some(ErrorKind::Fenced);
        for other in &others {
            assert_eq!(kind(other.exchange(claim(id, 2)).await), due);
            let settles = Exchange { settles: vec![settle.clone()], ..Exchange::renew(id, 2) };
            assert_eq!(kind(other.exchange(settles).await), due);
            assert_eq!(kind(other.exchange(claim(id, 1)).await), due, "nor the last answer again");
            assert_eq!(kind(other.fetch(claim(id, 2)).await), due);
            assert_eq!(kind(other.work(id, Claim::default()).await), due);
            assert_eq!(kind(other.close_session(id).await), due);
            assert_eq!(kind(other.keep_log(claimed.token, "forged".into()).await), due);
            assert!(other.open_session(session(1)).await.is_err(), "nor open it again");
        }
        assert_eq!(store.workers().await.expect("workers").len(), 1);
        assert_eq!(store.log(claimed.token).await.expect("a call"), None);
        owner.keep_log(claimed.token, "own".into()).await.expect("its own attempt");
        moved.keep_log(claimed.token, "moved".into()).await.expect("also at a server that did not grant it");
        assert_eq!(store.log(claimed.token).await.expect("a call").as_deref(), Some("moved"));
        let settles = Exchange { settles: vec![settle], ..Exchange::renew(id, 2) };
        let settled = moved.exchange(settles).await.expect("its own, at another server").settled;
        assert_eq!(settled, [Ok(JobState::Succeeded)]);
        moved.close_session(id).await.expect("closed");
        moved.close_session(id).await.expect("closed already");
        drop(servers);
    });
}

#[test]
fn a_stream_of_a_session_is_its_owners() {
    block_on(async {
        let Two { servers, owner, .. } = two().await;
        owner.open_session(session(1)).await.expect("opened");
        let channel = tonic::transport::Endpoint::from_shared(format!("http://{}", servers[0].address));
        let channel = channel.expect("a url").connect().await.expect("it listens");
        let mut client = qo_wire::pb::queue_client::QueueClient::new(channel);
        let request = qo_wire::pb::WatchRequest { session: Some(session(1).id.to_string()) };
        let refused =
            timeout(PATIENCE, client.watch(request)).await.expect("an answer").expect_err("refused");
        assert_eq!(refused.code(), tonic::Code::Unauthenticated);
    });
}

#[test]
fn a_session_that_never_was_tells_nothing() {
    block_on(async {
        let Two { owner, others, servers, .. } = two().await;
        owner.open_session(session(1)).await.expect("opened");
        let unknown = SessionId(Uuid::from_u128(99));
        let of = |error: Error, id: SessionId| error.to_string().replace(&id.to_string(), "ID");
        let there = others[0].exchange(claim(session(1).id, 1)).await.expect_err("another's");
        let nowhere = others[0].exchange(claim(unknown, 1)).await.expect_err("there is none");
        assert_eq!(of(there, session(1).id), of(nowhere, unknown));
        drop(servers);
    });
}
