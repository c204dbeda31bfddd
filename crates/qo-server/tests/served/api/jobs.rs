//! Submitting, looking, listing, changing.

use super::{Stage, on_each_store, request, send};
use crate::stage::block_on;
use qo_core::{Json, Outcome};
use serde_json::{Value, json};
use std::collections::BTreeSet;

#[test]
fn a_job_is_submitted_seen_explained_run_and_its_log_read() {
    on_each_store(async |stage| {
        let job = r#"{"task": "resize", "payload": {"n": 12345678901234567890123}, "key": "a/b:ü", "cost": 2,
            "limits": {"gpu": 1}, "delay": "10m", "timeout": "60s", "max_attempts": 5, "workflow": "w"}"#;
        let answer = stage.call("POST", "/jobs", job).await;
        let id = answer.json(201)["id"].as_str().expect("an id").to_owned();
        let path = format!("/jobs/{id}");
        assert_eq!(answer.header("location"), Some(format!("/api/v1{path}").as_str()));

        let whole = stage.get(&path).await;
        assert!(whole.body.contains(r#""payload":{"n": 12345678901234567890123}"#), "{}", whole.body);
        let whole = whole.json(200);
        assert_eq!(
            (&whole["state"], &whole["key"], &whole["step"]),
            (&"pending".into(), &"a/b:ü".into(), &1.into())
        );
        assert_eq!(
            (&whole["cost"], &whole["limits"]["gpu"], &whole["timeout_ms"]),
            (&2.into(), &1.into(), &60_000.into())
        );
        assert_eq!((&whole["max_attempts"], &whole["output"]), (&5.into(), &Value::Null));
        let [submitted, run] =
            ["submitted_at", "run_at"].map(|field| whole[field].as_str().expect("a moment").to_owned());
        assert!(submitted.ends_with('Z') && submitted < run, "{submitted} {run}");
        let reasons = stage.get(&format!("{path}/explain")).await.json(200);
        assert_eq!(
            (&reasons["id"], &reasons["reasons"][0]["reason"]),
            (&id.as_str().into(), &"scheduled_until".into())
        );

        stage.clock.advance_ms(600_000).await;
        let mut worker = stage.worker(&["resize"]).await;
        let claimed = worker.claim().await;
        stage.store.keep_log(claimed.token, "half\n".into()).await.expect("it is kept");
        let running = stage.get(&path).await.json(200);
        assert_eq!((&running["state"], &running["running"]["worker"]), (&"running".into(), &"ann".into()));
        assert_eq!(running["running"]["token"], claimed.token.to_string(), "a 64-bit number is a string");
        assert_eq!(stage.get(&format!("{path}/log")).await.body, "half\n");
        stage.store.keep_log(claimed.token, "half\nwhole\n".into()).await.expect("it is kept");
        worker
            .settle(&claimed, Outcome::Succeed { output: Json::parse("output", "[1]").expect("JSON") })
            .await;

        let done = stage.get(&path).await.json(200);
        assert_eq!((&done["state"], &done["output"]), (&"succeeded".into(), &json!([1])));
        assert_eq!(done["attempts"][0]["outcome"], "succeeded");
        let log = stage.get(&format!("{path}/log?attempt=1")).await;
        assert_eq!((log.status, log.header("content-type")), (200, Some("text/plain; charset=utf-8")));
        assert_eq!(log.body, "half\nwhole\n");
        let logs = stage.get(&format!("{path}/logs")).await.json(200);
        assert_eq!(
            (&logs[0]["attempt"], &logs[0]["running"], &logs[0]["log"]),
            (&1.into(), &false.into(), &"half\nwhole\n".into())
        );
        stage.get(&format!("{path}/log?attempt=2")).await.problem(404, "not_found");
    });
}

#[test]
fn the_same_submit_again_is_the_same_job() {
    on_each_store(async |stage| {
        let id = "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11";
        let with_id = format!(r#"{{"task": "mail", "id": "{id}"}}"#);
        assert_eq!(stage.submit(&with_id).await, id);
        assert_eq!(
            stage.call("POST", "/jobs", &with_id).await.json(200),
            json!({"outcome": "existing", "id": id})
        );

        for (header, body) in [("k/1", ""), ("\"k/1\"", ""), ("k/1", r#", "idempotency_key": "k/1""#)] {
            let headers = format!("Content-Type: application/json\nIdempotency-Key: {header}");
            let job = format!(r#"{{"task": "pay", "payload": 1{body}}}"#);
            let answer = stage.call_with("POST", "/jobs", &headers, &job).await;
            assert!([200, 201].contains(&answer.status), "{}", answer.body);
        }
        let jobs = stage.get("/jobs?task=pay").await.json(200);
        assert_eq!(
            (jobs["jobs"].as_array().map(Vec::len), &jobs["jobs"][0]["idempotency_key"]),
            (Some(1), &"k/1".into())
        );
        let other = "Content-Type: application/json\nIdempotency-Key: other";
        let refused =
            stage.call_with("POST", "/jobs", other, r#"{"task": "pay", "idempotency_key": "k/1"}"#).await;
        assert_eq!(refused.problem(400, "invalid")["path"], "Idempotency-Key");
        let conflict = "Content-Type: application/json\nIdempotency-Key: k/1";
        stage
            .call_with("POST", "/jobs", conflict, r#"{"task": "pay", "payload": 2}"#)
            .await
            .problem(409, "conflict");
    });
}

#[test]
fn a_full_group_refuses_or_skips_a_submit() {
    on_each_store(async |stage| {
        stage.submit(r#"{"task": "sync", "limit": 1}"#).await;
        let refused = stage.call("POST", "/jobs", r#"{"task": "sync", "on_limit": "reject"}"#).await;
        refused.problem(429, "limit_reached");
        let skipped = stage.call("POST", "/jobs", r#"{"task": "sync", "on_limit": "skip"}"#).await;
        assert_eq!(skipped.json(200), json!({"outcome": "skipped"}));
    });
}

#[test]
fn a_batch_has_an_outcome_for_each_job() {
    on_each_store(async |stage| {
        let lines = "{\"task\": \"sync\", \"limit\": 1}\n\n{\"task\": \"sync\", \"on_limit\": \"reject\"}\r\n{\"task\": \"sync\", \"on_limit\": \"skip\"}\n";
        let answer = stage
            .call_with("POST", "/jobs/batch", "Content-Type: application/x-ndjson", lines)
            .await
            .json(200);
        let outcomes: Vec<_> = answer["jobs"]
            .as_array()
            .expect("jobs")
            .iter()
            .map(|job| (&job["line"], &job["outcome"]))
            .collect();
        assert_eq!(
            format!("{outcomes:?}"),
            r#"[(Number(1), String("accepted")), (Number(3), String("refused")), (Number(4), String("skipped"))]"#
        );
        assert_eq!(answer["jobs"][1]["error"]["kind"], "limit_reached");
        let array = r#"[{"task": "a", "delay": "5m"}, {"task": "b"}]"#;
        let answer = stage.call("POST", "/jobs/batch", array).await.json(200);
        assert_eq!(answer["jobs"].as_array().map(Vec::len), Some(2));

        let wrong = r#"[{"task": "a"}, {"task": "b", "prio": 1}, {"task": "c", "cost": "x"}]"#;
        let problem = stage.call("POST", "/jobs/batch", wrong).await.problem(400, "invalid");
        let paths: Vec<_> =
            problem["mistakes"].as_array().expect("mistakes").iter().map(|one| &one["path"]).collect();
        assert_eq!(paths, ["jobs[1].prio", "jobs[2].cost"]);
        assert_eq!(stage.get("/jobs?task=c").await.json(200)["jobs"], json!([]), "nothing was submitted");
        let lines = "{\"task\": \"a\"}\n\n{\"task\": 7}\n";
        let ndjson = "Content-Type: application/x-ndjson";
        let problem = stage.call_with("POST", "/jobs/batch", ndjson, lines).await.problem(400, "invalid");
        assert_eq!(problem["path"], "jobs[1].task");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("line 3")), "{problem}");
        let keyed = "Content-Type: application/json\nIdempotency-Key: k";
        stage.call_with("POST", "/jobs/batch", keyed, "[]").await.problem(400, "invalid");
    });
}

#[test]
fn a_cursor_goes_through_thousands_of_jobs_in_either_order() {
    block_on(async {
        let stage = Stage::in_memory().await;
        let batch: Vec<Value> = (0..2_500)
            .map(|n| json!({"task": "many", "payload": n, "key": format!("ü/{}", n % 7)}))
            .collect();
        stage.call("POST", "/jobs/batch", &json!(batch).to_string()).await.json(200);
        let mut lists: Vec<Vec<String>> = Vec::new();
        for order in ["", "&newest=true"] {
            let (mut ids, mut cursor) = (Vec::new(), String::new());
            loop {
                let page = stage.get(&format!("/jobs?limit=900&task=many{order}{cursor}")).await.json(200);
                let jobs = page["jobs"].as_array().expect("jobs");
                ids.extend(jobs.iter().map(|job| job["id"].as_str().expect("an id").to_owned()));
                let Some(next) = page["next"].as_str() else { break };
                cursor = format!("&cursor={next}");
            }
            lists.push(ids);
        }
        assert_eq!((lists[0].len(), lists[0].iter().collect::<BTreeSet<_>>().len()), (2_500, 2_500));
        lists[1].reverse();
        assert_eq!(lists[0], lists[1]);
        let keyed = stage.get("/jobs?key=%C3%BC%2F3&limit=1000").await.json(200);
        assert_eq!(keyed["jobs"].as_array().map(Vec::len), Some(357));
        let prefix = &lists[0][0][..8];
        let found =
            stage.get(&format!("/jobs?id={prefix}&state=pending,running&since=1h&limit=1")).await.json(200);
        assert_eq!(found["jobs"].as_array().map(Vec::len), Some(1));
        assert_eq!(stage.get("/jobs?until=2020-01-01T00:00:00Z").await.json(200)["jobs"], json!([]));
    });
}

#[test]
fn jobs_are_cancelled_and_retried_one_by_one_and_by_filter() {
    on_each_store(async |stage| {
        let id = stage.submit(r#"{"task": "one"}"#).await;
        let path = format!("/jobs/{id}");
        assert_eq!(
            stage.call("POST", &format!("{path}/cancel"), "").await.json(200),
            json!({"id": id, "state": "cancelled"})
        );
        assert_eq!(
            stage.call("POST", &format!("{path}/retry"), "").await.json(200),
            json!({"id": id, "state": "pending"})
        );

        let nobody = "019a8a5e-7c1b-7a10-9d43-000000000000";
        let named =
            stage.call("POST", "/jobs/cancel", &json!({"jobs": [id, nobody]}).to_string()).await.json(200);
        assert_eq!((&named["changed"], &named["jobs"][1]["error"]["kind"]), (&1.into(), &"not_found".into()));
        stage.call("POST", &format!("/jobs/{nobody}/cancel"), "").await.problem(404, "not_found");

        for _ in 0..3 {
            stage.submit(r#"{"task": "many"}"#).await;
        }
        let first = stage.call("POST", "/jobs/cancel", r#"{"task": "many", "limit": 2}"#).await.json(200);
        assert_eq!((&first["changed"], &first["jobs"]), (&2.into(), &Value::Null));
        let rest = json!({"task": "many", "limit": 2, "cursor": first["next"]}).to_string();
        assert_eq!(stage.call("POST", "/jobs/cancel", &rest).await.json(200)["changed"], 1);
        let again =
            stage.call("POST", "/jobs/retry", r#"{"state": ["cancelled"], "task": "many"}"#).await.json(200);
        assert_eq!((&again["changed"], &again["next"]), (&3.into(), &Value::Null));
        let all = stage.call("POST", "/jobs/cancel", r#"{"all": true}"#).await.json(200);
        assert_eq!(all["changed"], 3);
        for body in ["", "{}", r#"{"all": true, "task": "many"}"#, r#"{"jobs": [], "all": true}"#] {
            stage.call("POST", "/jobs/cancel", body).await.problem(400, "invalid");
        }
    });
}

#[test]
fn a_payload_at_the_cap_is_accepted_and_a_larger_body_is_not() {
    block_on(async {
        let stage = Stage::in_memory().await;
        let payload = |bytes: usize| format!(r#"{{"task": "big", "payload": "{}"}}"#, "x".repeat(bytes - 2));
        stage.submit(&payload(qo_core::caps::PAYLOAD_BYTES)).await;
        let problem = stage
            .call("POST", "/jobs", &payload(qo_core::caps::PAYLOAD_BYTES + 1))
            .await
            .problem(400, "invalid");
        assert_eq!(problem["path"], "payload");
        stage.call("POST", "/jobs", &payload(2 << 20)).await.problem(413, "too_large");
        // One whose length is not known before.
        let chunk = "x".repeat(2 << 20);
        let head = "POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n";
        let chunked =
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{chunk}\r\n0\r\n\r\n", chunk.len());
        send(stage.served.address, chunked.as_bytes()).await.problem(413, "too_large");
        let many = format!("[{}]", vec![r#"{"task":"t"}"#; 10_001].join(","));
        let problem = stage.call("POST", "/jobs/batch", &many).await.problem(400, "invalid");
        assert_eq!(problem["path"], "jobs");
        let most = format!("[{}]", vec![r#"{"task":"t"}"#; 10_000].join(","));
        let answer = send(
            stage.served.address,
            &request("POST", "/api/v1/jobs/batch", "Content-Type: application/json", &most),
        )
        .await;
        assert_eq!(answer.json(200)["jobs"].as_array().map(Vec::len), Some(10_000));
    });
}
