//! Requests that wait for the end of a job.

use super::{Stage, on_each_store, request, send};
use crate::stage::{PATIENCE, Served, block_on};
use async_trait::async_trait;
use futures::future::{join, join_all};
use qo_core::{Answer, Command, Json, MemoryStore, Outcome, Result, Store};
use qo_testkit::generator::call;
use qo_testkit::intercept::{Intercept, Intercepted};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::time::timeout;

#[test]
fn a_request_that_waits_is_answered_when_the_job_ends() {
    on_each_store(async |stage| {
        let path = format!("/jobs/{}", stage.submit(r#"{"task": "slow"}"#).await);
        let mut worker = stage.worker(&["slow"]).await;
        let claimed = worker.claim().await;
        let waiting = format!("{path}?wait=60s");
        let settle = async {
            // The request is under way while the job runs.
            stage.get(&path).await;
            worker.settle(&claimed, Outcome::Succeed { output: Json::null() }).await;
        };
        let begun = Instant::now();
        let (many, ()) = join(join_all((0..20).map(|_| stage.get(&waiting))), settle).await;
        assert!(begun.elapsed() < PATIENCE, "it did not wait for the whole time");
        assert!(many.iter().all(|answer| answer.json(200)["state"] == "succeeded"));
        assert_eq!(stage.get(&waiting).await.json(200)["state"], "succeeded", "one that has ended");
    });
}

#[test]
fn a_wait_ends_after_its_time_with_the_job_as_it_is() {
    block_on(async {
        let stage = Stage::in_memory().await;
        let path = format!("/jobs/{}", stage.submit(r#"{"task": "slow"}"#).await);
        let begun = Instant::now();
        assert_eq!(stage.get(&format!("{path}?wait=200ms")).await.json(200)["state"], "pending");
        assert!(begun.elapsed() >= Duration::from_millis(200));
        for bad in ["61s", "x", "-1s", ""] {
            let problem = stage.get(&format!("{path}?wait={bad}")).await.problem(400, "invalid");
            assert_eq!(problem["path"], "wait");
        }
        stage.get("/jobs/019a8a5e-7c1b-7a10-9d43-000000000000?wait=60s").await.problem(404, "not_found");
    });
}

/// A store that counts the looks into it.
struct Counting {
    store: MemoryStore,
    looks: AtomicUsize,
}

#[async_trait]
impl Intercept for Counting {
    async fn command(&self, command: Command) -> Result<Answer> {
        call(&self.store, command).await
    }

    fn look(&self) -> Result<&dyn Store> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Ok(&self.store)
    }
}

#[test]
fn a_server_that_ends_answers_the_requests_that_wait() {
    block_on(async {
        let store = Arc::new(Intercepted(Counting { store: MemoryStore::new(), looks: AtomicUsize::new(0) }));
        let mut served = Served::start(store.clone()).await;
        let json = "Content-Type: application/json";
        let job = send(served.address, &request("POST", "/api/v1/jobs", json, r#"{"task": "slow"}"#)).await;
        let path = format!("/api/v1/jobs/{}?wait=60s", job.json(201)["id"].as_str().expect("an id"));
        let looks = || store.0.looks.load(Ordering::SeqCst);
        let before = looks();
        let address = served.address;
        let waiting = tokio::spawn(async move { send(address, &request("GET", &path, "", "")).await });
        let looked = async {
            while looks() == before {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, looked).await.expect("the request has looked at its job, and waits");
        served.ended().await.expect("well");
        let answer = waiting.await.expect("an answer");
        assert_eq!(answer.json(200)["state"], "pending", "the job as it is");
    });
}
