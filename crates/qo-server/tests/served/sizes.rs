//! The largest calls that the rules allow fit into messages; larger ones are refused cleanly.

use crate::stage::{Served, block_on, remote};
use qo_core::{Claim, ErrorKind, Exchange, JobId, Json, MemoryStore, Name, NewJob, NewSession, Outcome};
use qo_core::{SessionId, Settle, Store, caps};
use qo_wire::limits;
use std::sync::Arc;
use uuid::Uuid;

fn payload(bytes: usize) -> Json {
    Json::parse("payload", &format!("\"{}\"", "x".repeat(bytes - 2))).expect("JSON")
}

fn job(n: u128, bytes: usize) -> NewJob {
    let task = Name::parse("task", "mail").expect("a name");
    NewJob { payload: payload(bytes), ..NewJob::new(JobId(Uuid::from_u128(n + 1)), task) }
}

fn worker() -> NewSession {
    let name = |text| Name::parse("name", text).expect("a name");
    let (worker, tasks) = (name("w"), vec![name("mail")]);
    NewSession {
        id: SessionId(Uuid::from_u128(1)),
        worker,
        queues: vec![],
        tasks,
        lease_ms: 60_000,
        permits: 100,
        owner: None,
    }
}

#[test]
fn calls_and_answers_at_their_caps_are_carried() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        let most = caps::SUBMIT_BYTES / caps::PAYLOAD_BYTES;
        for call in 0..2 {
            let jobs = (0..most).map(|n| job((call * most + n) as u128, caps::PAYLOAD_BYTES)).collect();
            assert!(store.submit(jobs).await.expect("it fits").iter().all(Result::is_ok));
        }
        let session = store.open_session(worker()).await.map(|_| worker().id).expect("a session");
        let mut owned = Vec::new();
        for number in 1..=2 {
            let claim = Claim { max: 100, ..Claim::default() };
            let reply = store
                .exchange(Exchange { claim, ..Exchange::renew(session, number) })
                .await
                .expect("it fits");
            assert!(!reply.claimed.is_empty(), "{number}");
            owned.extend(reply.claimed);
        }
        assert_eq!(owned.len(), 2 * most, "all of them, in two answers");
        let settle = |job: &qo_core::ClaimedJob| {
            let outcome = Outcome::Succeed { output: payload(caps::PAYLOAD_BYTES) };
            Settle { job: job.id, token: job.token, outcome }
        };
        let settles: Vec<_> = owned.iter().map(settle).collect();
        assert_eq!(settles.len() * caps::PAYLOAD_BYTES, caps::SETTLE_BYTES);
        let reply =
            store.exchange(Exchange { settles, ..Exchange::renew(session, 3) }).await.expect("it fits");
        assert!(reply.settled.iter().all(Result::is_ok));
        let detail = store.job(owned[0].id).await.expect("it fits");
        assert_eq!(detail.output.map(|output| output.as_str().len()), Some(caps::PAYLOAD_BYTES));
    });
}

#[test]
fn ten_thousand_jobs_with_every_option_fit_into_a_call() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        let long = |c: &str| Name::parse("name", &c.repeat(caps::NAME_BYTES)).expect("a name");
        let key = |c: &str| qo_core::Key::parse("key", &c.repeat(caps::KEY_BYTES)).expect("a key");
        let limits: Vec<_> = (0..caps::EXTRA_LIMITS)
            .map(|n| {
                let key = qo_core::Key::parse("key", &format!("{n:0>width$}", width = caps::KEY_BYTES));
                (qo_core::GroupRef::Key(long("g"), key.expect("a key")), 1)
            })
            .collect();
        let full = |n: usize| NewJob {
            queue: long("q"),
            group: Some(long("o")),
            key: Some(key("k")),
            limits: limits.iter().cloned().collect(),
            workflow: Some(long("w")),
            ..job(n as u128, 64)
        };
        let jobs: Vec<_> = (0..caps::SUBMIT_JOBS).map(full).collect();
        let outcomes = store.submit(jobs).await.expect("it fits");
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), caps::SUBMIT_JOBS);
    });
}

#[test]
fn a_call_that_is_too_large_is_invalid_and_changes_nothing() {
    block_on(async {
        let served = Served::start(Arc::new(MemoryStore::new())).await;
        let store = remote(&[served.address]).await;
        let jobs = |count: usize| (0..count).map(|n| job(n as u128, caps::PAYLOAD_BYTES)).collect::<Vec<_>>();
        let over = jobs(caps::SUBMIT_BYTES / caps::PAYLOAD_BYTES + 1);
        let far_over = jobs(limits::REQUEST_BYTES / caps::PAYLOAD_BYTES + 1);
        for jobs in [over, far_over] {
            let error = store.submit(jobs).await.expect_err("too large");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        }
        let all = store.jobs(qo_core::JobFilter::default(), None, 10).await.expect("a page");
        assert_eq!(all.jobs.len(), 0);
        assert!(store.now().await.is_ok(), "the connection goes on");
    });
}
