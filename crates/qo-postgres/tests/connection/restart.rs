//! A server that goes down and comes back.

use crate::fixtures::RUNTIME;
use crate::server::Server;
use crate::stage::until;
use crate::stage::{again, exchange, job, namespace, open, open_session, options, passes, soon, succeeded};
use qo_core::{JobFilter, JobState, Store, Submitted};
use qo_postgres::Options;
use rustix::process::Signal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

#[test]
fn a_store_its_sessions_and_its_listener_survive_a_restart_and_a_crash() {
    RUNTIME.block_on(async {
        let mut server = Server::new().await;
        let url = namespace(&server.url(), "restarted").await;
        let store = Arc::new(open(&url, Options { notify: true, ..options(3) }).await);
        let session = open_session(&*store, 1).await;
        let mut number = 0;
        let mut settles = Vec::new();
        for (round, signal) in [(1, Signal::INT), (2, Signal::QUIT)] {
            until("it hears", async || store.tells_changes()).await;
            store.submit(vec![job(round, "t")]).await.expect("a call");
            server.stop(signal);
            let error = soon(store.now()).await.expect_err("it is down");
            assert!(passes(&error), "{error:?}");
            until("the listener has noticed", async || !store.tells_changes()).await;
            let seen = store.changed(None).await.expect("a number");
            // Calls that reach it while it starts are `Unavailable`, and nothing else.
            server.begin();
            number += 1;
            let claim = exchange(session, number, std::mem::take(&mut settles), 5);
            let reply = again(|| store.exchange(claim.clone())).await;
            assert!(reply.settled.iter().all(|settled| *settled == Ok(JobState::Succeeded)));
            assert_eq!(reply.claimed.iter().map(|job| job.id).collect::<Vec<_>>(), [job(round, "t").id]);
            settles = reply.claimed.iter().map(succeeded).collect();
            soon(store.changed(Some(seen))).await.expect("something may have been missed");
            until("it hears again", async || store.tells_changes()).await;
            let other = open(&url, options(1)).await;
            let seen = store.changed(None).await.expect("a number");
            other.submit(vec![job(round + 100, "u")]).await.expect("a call");
            let heard = timeout(Duration::from_secs(2), store.changed(Some(seen))).await;
            heard.expect("it hears").expect("a change");
            again(|| store.cancel(vec![job(round + 100, "u").id])).await;
        }
        let reply = store.exchange(exchange(session, number + 1, settles, 5)).await.expect("an answer");
        assert_eq!(reply.settled, [Ok(JobState::Succeeded)]);
        assert_eq!(store.drift().await.as_deref(), Ok("[]"));
    });
}

#[test]
fn submits_that_go_on_through_crashes_happen_once_each() {
    RUNTIME.block_on(async {
        let mut server = Server::new().await;
        let url = namespace(&server.url(), "crashes").await;
        let store = Arc::new(open(&url, options(4)).await);
        let submitting: Vec<_> = (0..4_u128)
            .map(|who| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    for id in who * 100..who * 100 + 100 {
                        let outcomes = again(|| store.submit(vec![job(id, "t")])).await;
                        let same = matches!(outcomes[..],
                            [Ok(Submitted::Accepted(known) | Submitted::Existing(known))] if known == job(id, "t").id);
                        assert!(same, "{outcomes:?}");
                    }
                })
            })
            .collect();
        let stored = async || {
            let page = again(|| store.jobs(JobFilter::default(), None, 1_000)).await;
            page.jobs.len()
        };
        for crash in 1..=3 {
            until("they get on", async || stored().await >= crash * 80).await;
            server.stop(Signal::QUIT);
            server.start().await;
        }
        for submitting in submitting {
            submitting.await.expect("every error was one that passes");
        }
        assert_eq!(stored().await, 400);
    });
}
