//! What a store is notified of.

use crate::fixtures::RUNTIME;
use crate::stage::{exchange, job, namespace, open, open_session, options, server, soon, succeeded, until};
use qo_core::{GroupRef, Store};
use qo_postgres::Options;

#[test]
fn a_listener_tells_new_jobs_from_other_changes() {
    RUNTIME.block_on(async {
        let url = namespace(&server(), "told").await;
        let listening = open(&url, Options { notify: true, ..options(2) }).await;
        let other = open(&url, options(2)).await;
        until("it listens", async || listening.tells_changes()).await;
        // A worker with free permits, which may be waiting: without one no notification is sent.
        let session = open_session(&other, 1).await;

        let seen = listening.changed(None).await.expect("a change");
        assert!(!listening.told_of_jobs(seen), "nothing has come");
        other.submit(vec![job(1, "t")]).await.expect("submitted");
        let seen_job = soon(listening.changed(Some(seen))).await.expect("a change");
        assert!(listening.told_of_jobs(seen), "a job has come");
        assert!(!listening.told_of_jobs(seen_job), "and none after it");

        let group: GroupRef = "t".parse().expect("a group");
        other.set_limit(group, 5).await.expect("set");
        let seen_limit = soon(listening.changed(Some(seen_job))).await.expect("a change");
        assert!(!listening.told_of_jobs(seen_job), "a limit is no job");

        let reply = other.exchange(exchange(session, 1, vec![], 1)).await.expect("answered");
        let settles = vec![succeeded(&reply.claimed[0])];
        other.exchange(exchange(session, 2, settles, 0)).await.expect("answered");
        soon(listening.changed(Some(seen_limit))).await.expect("a change");
        assert!(!listening.told_of_jobs(seen_job), "a slot that is free again is no job");
    });
}
