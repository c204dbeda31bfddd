//! A server that does not answer any more.

use crate::fixtures::RUNTIME;
use crate::proxy::Trap;
use crate::stage::{Stage, group, job, options, soon, until};
use futures::future::join_all;
use qo_core::{ErrorKind, Store};
use qo_postgres::Options;
use std::time::Duration;
use tokio::time::{Instant, timeout};

#[test]
fn a_call_dropped_while_the_server_hangs_closes_its_connection() {
    RUNTIME.block_on(async {
        let stage = Stage::new("hang_dropped", options(1)).await;
        stage.store.now().await.expect("it answers");
        let before = stage.proxy.accepted();
        stage.proxy.hang();
        timeout(Duration::from_millis(100), stage.store.now()).await.expect_err("it hangs");
        stage.proxy.open();
        soon(stage.store.now()).await.expect("it answers again");
        assert_eq!(stage.proxy.accepted(), before + 1, "on a new connection");
    });
}

#[test]
fn a_call_that_timed_out_closes_the_idle_connections_too() {
    RUNTIME.block_on(async {
        let stage = Stage::new("hang_idle", options(4)).await;
        let before = stage.proxy.accepted();
        for answer in join_all((0..4).map(|_| stage.store.jobs(Default::default(), None, 10))).await {
            answer.expect("it answers");
        }
        assert!(stage.proxy.accepted() > before + 1, "there are several connections");
        stage.proxy.hang();
        timeout(Duration::from_millis(1_500), stage.store.now()).await.expect_err("it hangs");
        stage.proxy.open();
        for _ in 0..4 {
            let answer = timeout(Duration::from_secs(3), stage.store.now()).await;
            answer.expect("it does not hang").expect("it answers");
        }
    });
}

#[test]
fn a_new_connection_that_hangs_is_unavailable_within_the_patience() {
    RUNTIME.block_on(async {
        let stage = Stage::new("hang_new", options(2)).await;
        stage.proxy.hang();
        let started = Instant::now();
        let error = soon(stage.store.now()).await.expect_err("the server does not answer");
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(started.elapsed() < options(2).patience * 2, "{:?}", started.elapsed());
        stage.proxy.open();
        soon(stage.store.now()).await.expect("it answers");
    });
}

#[test]
fn a_client_that_vanishes_mid_call_holds_its_locks_for_seconds_only() {
    RUNTIME.block_on(async {
        let stage = Stage::new("hang_commit", options(2)).await;
        stage.store.now().await.expect("it answers");
        stage.proxy.set(Trap::HoldsCommit);
        let call = stage.store.set_limit(group("t"), 7);
        timeout(Duration::from_millis(500), call).await.expect_err("it hangs");
        assert!(stage.proxy.has_sprung());
        // It ran alone when it vanished, and the server does not know that it is gone.
        soon(stage.direct.set_limit(group("u"), 3)).await.expect("it is set");
        let limit = stage.direct.group(group("t")).await.map(|group| group.status.limit);
        assert!(!matches!(limit, Ok(Some(_))), "what was not committed never was: {limit:?}");
    });
}

#[test]
fn a_listener_whose_server_hangs_notices_it_and_hears_again() {
    RUNTIME.block_on(async {
        let stage = Stage::new("hang_listener", Options { notify: true, ..options(2) }).await;
        until("it hears", async || stage.store.tells_changes()).await;
        let seen = stage.store.changed(None).await.expect("a number");
        stage.proxy.hang();
        stage.proxy.open();
        stage.direct.submit(vec![job(1, "t")]).await.expect("a call");
        // That notifications may have been missed counts as a change.
        soon(stage.store.changed(Some(seen))).await.expect("a change");
        until("it hears again", async || stage.store.tells_changes()).await;
        let seen = stage.store.changed(None).await.expect("a number");
        stage.direct.submit(vec![job(2, "t")]).await.expect("a call");
        let heard = timeout(Duration::from_secs(2), stage.store.changed(Some(seen))).await;
        heard.expect("it hears").expect("a change");
    });
}
