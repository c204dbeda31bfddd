//! A connection that is lost in the middle of a call: before it got through, or before its answer came back.

use crate::fixtures::{RUNTIME, connect};
use crate::proxy::Trap;
use crate::stage::{Stage, exchange, group, job, name, open_session, options, passes, server, soon};
use crate::stage::{succeeded, until};
use qo_core::{ErrorKind, JobState, NewJob, Store, Submitted};

#[test]
fn a_submit_whose_reply_is_lost_finds_the_same_job_again() {
    RUNTIME.block_on(async {
        let stage = Stage::new("lost_submit", options(2)).await;
        stage.store.now().await.expect("it answers");
        for (round, trap) in [(0, Trap::LosesAnswer), (1, Trap::LosesAcknowledgement)] {
            let new = || vec![job(10 * round, "t"), job(10 * round + 1, "t")];
            stage.proxy.set(trap);
            let error = soon(stage.store.submit(new())).await.expect_err("its answer is lost");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{trap:?}: {error}");
            assert!(stage.proxy.has_sprung());
            let again = stage.store.submit(new()).await.expect("a call");
            let known: Vec<_> = new().iter().map(|job| Ok(Submitted::Existing(job.id))).collect();
            assert_eq!(again, known, "it had happened");
        }
        assert_eq!(stage.direct.group(group("t")).await.expect("a group").status.live, 4);
    });
}

#[test]
fn a_submit_that_is_cut_off_may_be_repeated_and_happens_once() {
    RUNTIME.block_on(async {
        let stage = Stage::new("lost_request", options(2)).await;
        stage.store.now().await.expect("it answers");
        stage.proxy.set(Trap::LosesRequest);
        let error = soon(stage.store.submit(vec![job(1, "t")])).await.expect_err("it is lost");
        assert!(passes(&error), "{error:?}");
        assert!(stage.proxy.has_sprung());
        let missing = stage.direct.job(job(1, "t").id).await.expect_err("it did not happen");
        assert_eq!(missing.kind(), ErrorKind::NotFound);
        let again = stage.store.submit(vec![job(1, "t")]).await.expect("a call");
        assert_eq!(again, [Ok(Submitted::Accepted(job(1, "t").id))]);
    });
}

#[test]
fn an_exchange_whose_reply_is_lost_gets_the_same_reply_again() {
    RUNTIME.block_on(async {
        for (schema, workflow) in [("lost_exchange", None), ("lost_exchange_alone", Some(name("w")))] {
            let stage = Stage::new(schema, options(2)).await;
            stage.direct.set_limit(group("t"), 1).await.expect("it is set");
            let step = |id| NewJob { workflow: workflow.clone(), ..job(id, "t") };
            stage.direct.submit(vec![step(1), step(2)]).await.expect("a call");
            let session = open_session(&stage.store, 1).await;
            stage.proxy.set(Trap::LosesAnswer);
            let claim = || exchange(session, 1, vec![], 5);
            let error = soon(stage.store.exchange(claim())).await.expect_err("its answer is lost");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            let reply = stage.store.exchange(claim()).await.expect("an answer");
            assert_eq!(reply.claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [job(1, "t").id]);
            assert_eq!(stage.direct.exchange(claim()).await.expect("an answer"), reply);

            stage.proxy.set(Trap::LosesAcknowledgement);
            let settle = || exchange(session, 2, vec![succeeded(&reply.claimed[0])], 5);
            let error = soon(stage.store.exchange(settle())).await.expect_err("its answer is lost");
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
            let next = stage.store.exchange(settle()).await.expect("an answer");
            assert_eq!(next.settled, [Ok(JobState::Succeeded)]);
            assert_eq!(next.claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [job(2, "t").id]);
            let first = stage.direct.job(job(1, "t").id).await.expect("a job");
            assert_eq!((first.view.state, first.attempts.len()), (JobState::Succeeded, 1));
            assert_eq!(stage.direct.group(group("t")).await.expect("a group").status.used, 1);
            assert_eq!(stage.direct.drift().await.as_deref(), Ok("[]"));
        }
    });
}

#[test]
fn an_exchange_that_is_cut_off_claims_nothing_and_frees_its_number() {
    RUNTIME.block_on(async {
        let stage = Stage::new("lost_exchange_request", options(2)).await;
        stage.direct.submit(vec![job(1, "t")]).await.expect("a call");
        let session = open_session(&stage.store, 1).await;
        stage.proxy.set(Trap::LosesRequest);
        let error =
            soon(stage.store.exchange(exchange(session, 1, vec![], 5))).await.expect_err("it is lost");
        assert!(passes(&error), "{error:?}");
        let state = stage.direct.job(job(1, "t").id).await.expect("a job").view.state;
        assert_eq!(state, JobState::Pending);
        let reply = stage.store.exchange(exchange(session, 1, vec![], 5)).await.expect("an answer");
        assert_eq!(reply.claimed.len(), 1);
    });
}

#[test]
fn a_call_that_the_server_ends_early_is_unavailable_and_did_nothing() {
    RUNTIME.block_on(async {
        let stage = Stage::new("lost_ended", options(2)).await;
        let holder = stage.holder().await;
        let end = "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
            WHERE wait_event_type = 'Lock' AND query LIKE '%lost_ended.api_set_limit%'";
        let killer = connect(&server()).await;
        let kill = until("it waits, and is ended", async || {
            killer.query_one(end, &[]).await.expect("a look").get(0)
        });
        let (answer, ()) = soon(async { tokio::join!(stage.store.set_limit(group("t"), 5), kill) }).await;
        assert_eq!(answer.map_err(|error| error.kind()), Err(ErrorKind::Unavailable));
        holder.batch_execute("COMMIT").await.expect("it ends");
        let limit = stage.direct.group(group("t")).await.map(|group| group.status.limit);
        assert!(!matches!(limit, Ok(Some(_))), "{limit:?}");
        soon(stage.store.set_limit(group("t"), 5)).await.expect("the store goes on");
    });
}
