//! The toy in the simplest case: one worker, one limit, one crash.

use futures::executor::block_on;
use qo_core::{
    Claim, Exchange, GroupRef, JobId, JobState, Name, NewJob, NewSession, Outcome, SessionId, Settle,
};
use qo_testkit::{Fixtures, ToyFixtures};
use uuid::Uuid;

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

#[test]
fn a_limit_binds_a_settle_frees_and_a_crash_gives_back() {
    block_on(async {
        let fixture = ToyFixtures::default().fresh().await;
        let store = &fixture.store;
        let jobs = (1..=3).map(|n| NewJob::new(JobId(Uuid::from_u128(n)), name("mail"))).collect();
        store.submit(jobs).await.expect("submit");
        store.set_limit(GroupRef::Group(name("mail")), 1).await.expect("set");
        let session = SessionId(Uuid::from_u128(9));
        let tasks = vec![name("mail")];
        let new = NewSession {
            id: session,
            worker: name("w"),
            queues: vec![],
            tasks,
            lease_ms: 30_000,
            permits: 5,
            owner: None,
        };
        store.open_session(new).await.expect("open");
        let claim = Claim { max: 5, max_claim_batch: None, prefetch: None };
        let first = Exchange { claim, ..Exchange::renew(session, 1) };
        let reply = store.exchange(first.clone()).await.expect("exchange");
        assert_eq!(reply.claimed.len(), 1);
        assert_eq!(store.exchange(first).await, Ok(reply.clone()));

        let held = &reply.claimed[0];
        let settles = vec![Settle { job: held.id, token: held.token, outcome: Outcome::Cancelled }];
        let reply =
            store.exchange(Exchange { settles, claim, ..Exchange::renew(session, 2) }).await.expect("again");
        assert_eq!(reply.settled, [Ok(JobState::Cancelled)]);
        assert_eq!(reply.claimed.len(), 1);

        fixture.clock.advance_ms(30_000).await;
        assert_eq!(store.sweep().await.expect("sweep").attempts, 1);
        let job = store.job(reply.claimed[0].id).await.expect("job");
        assert_eq!((job.view.state, job.view.attempts_used), (JobState::Pending, 1));
    });
}
