//! Requests that wait for the end of a job.

use super::{Stage, on_each_store};
use crate::stage::{PATIENCE, block_on};
use futures::future::{join, join_all};
use qo_core::{Json, Outcome};
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

#[test]
fn a_server_that_ends_answers_the_requests_that_wait() {
    block_on(async {
        let mut stage = Stage::in_memory().await;
        let path = format!("/api/v1/jobs/{}?wait=60s", stage.submit(r#"{"task": "slow"}"#).await);
        let waiting = tokio::spawn({
            let (address, request) = (stage.served.address, super::request("GET", &path, "", ""));
            async move { super::send(address, &request).await }
        });
        // The look of the request has come through when the store was asked twice.
        stage.get("/status").await;
        let ended = timeout(PATIENCE, stage.served.ended()).await.expect("it drains in time");
        ended.expect("well");
        if let Ok(answer) = waiting.await {
            assert!(answer.status == 200 || answer.body.is_empty(), "{answer:?}");
        }
    });
}
