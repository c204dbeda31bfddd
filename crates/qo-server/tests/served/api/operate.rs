//! Groups, queues, workers, workflows, schedules, slots, tokens, the audit log.

use super::{Stage, on_each_store};
use crate::stage::block_on;
use qo_core::{Configuration, Deed, ErrorText, Name, Outcome, Schedule};
use serde_json::{Value, json};

fn name(text: &str) -> Name {
    Name::parse("name", text).expect("a name")
}

#[test]
fn a_limit_is_set_seen_and_taken_back_whatever_its_group_is_called() {
    on_each_store(async |stage| {
        for (path, group) in [
            ("cluster", "cluster"),
            ("queue:mail", "queue:mail"),
            ("resize", "resize"),
            ("resize%2Fa%2Fb%3A%C3%BC%20%25", "resize/a/b:ü %"),
            ("resize%2F*", "resize/*"),
        ] {
            let limit = format!("/groups/{path}/limit");
            let set = stage.call("PUT", &limit, r#"{"limit": 3}"#).await.json(200);
            assert_eq!(set, json!({"group": group, "limit": 3}));
            let seen = stage.get(&format!("/groups/{path}")).await.json(200);
            assert_eq!(
                (&seen["group"], &seen["limit"], &seen["source"]),
                (&group.into(), &3.into(), &"operator".into())
            );
            assert_eq!((&seen["sources"]["operator"], &seen["holders"]), (&3.into(), &json!([])));
        }
        let mut listed = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = stage.get(&format!("/groups?limit=2{cursor}")).await.json(200);
            listed.extend(
                page["groups"].as_array().expect("groups").iter().map(|group| group["group"].clone()),
            );
            let Some(next) = page["next"].as_str() else { break };
            let escaped = next.replace('%', "%25").replace(' ', "%20").replace('ü', "%C3%BC");
            cursor = format!("&cursor={escaped}");
        }
        assert_eq!(listed, ["cluster", "queue:mail", "resize", "resize/*", "resize/a/b:ü %"]);
        let gone = stage.call("DELETE", "/groups/resize/limit", "").await.json(200);
        assert_eq!(gone, json!({"group": "resize", "limit": null}));
        stage.call("DELETE", "/groups/resize/limit", "").await.problem(404, "not_found");
        stage.get("/groups/nothing").await.problem(404, "not_found");
        for body in [r#"{"limit": 1000001}"#, r#"{"limit": -1}"#, r#"{"limit": "3"}"#, "{}", ""] {
            let problem = stage.call("PUT", "/groups/resize/limit", body).await.problem(400, "invalid");
            assert_eq!(problem["path"], "limit", "{body}");
        }
    });
}

#[test]
fn holders_are_paged_and_an_operator_takes_their_slots() {
    on_each_store(async |stage| {
        stage.call("PUT", "/groups/job/limit", r#"{"limit": 9}"#).await.json(200);
        let mut worker = stage.worker(&["job"]).await;
        for _ in 0..3 {
            stage.submit(r#"{"task": "job"}"#).await;
            worker.claim().await;
        }
        let first = stage.get("/groups/job?limit=2").await.json(200);
        assert_eq!((&first["used"], first["holders"].as_array().map(Vec::len)), (&3.into(), Some(2)));
        let next = first["next"].as_str().expect("a cursor");
        let rest = stage.get(&format!("/groups/job?limit=2&cursor={next}")).await.json(200);
        assert_eq!((rest["holders"].as_array().map(Vec::len), &rest["next"]), (Some(1), &Value::Null));
        let token = rest["holders"][0]["token"].as_str().expect("a string").to_owned();
        assert!(rest["holders"][0]["by"]["job"]["job"].is_string(), "{rest}");
        let release = format!("/groups/job/slots/{token}/release");
        let released = stage.call("POST", &release, "").await.json(200);
        assert_eq!(released, json!({"group": "job", "released": token}));
        stage.call("POST", &release, "").await.problem(404, "not_found");
        assert_eq!(stage.get("/groups/job").await.json(200)["used"], 2);
        let workers = stage.get("/workers").await.json(200);
        assert_eq!(
            (&workers["workers"][0]["worker"], &workers["workers"][0]["running"]),
            (&"ann".into(), &2.into())
        );
        let status = stage.get("/status").await.json(200);
        assert_eq!((&status["jobs"]["running"], &status["workers"]["live"]), (&2.into(), &1.into()));
    });
}

#[test]
fn a_queue_is_paused_and_resumed() {
    on_each_store(async |stage| {
        for queue in ["a", "b", "c"] {
            stage.submit(&format!(r#"{{"task": "mail", "queue": "{queue}"}}"#)).await;
        }
        assert_eq!(
            stage.call("PUT", "/queues/b/pause", "").await.json(200),
            json!({"queue": "b", "paused": true})
        );
        let first = stage.get("/queues?limit=2").await.json(200);
        assert_eq!(
            (&first["queues"][1]["paused"], &first["queues"][1]["due"], &first["next"]),
            (&true.into(), &1.into(), &"b".into())
        );
        let rest = stage.get("/queues?limit=2&cursor=b").await.json(200);
        assert_eq!((&rest["queues"][0]["queue"], &rest["next"]), (&"c".into(), &Value::Null));
        assert_eq!(stage.call("PUT", "/queues/b/resume", "").await.json(200)["paused"], false);
        stage.call("PUT", "/queues/a%2Fb/pause", "").await.problem(400, "invalid");
    });
}

#[test]
fn a_halted_workflow_is_retried_skipped_and_cancelled() {
    on_each_store(async |stage| {
        for _ in 0..3 {
            stage.submit(r#"{"task": "step", "workflow": "order-7"}"#).await;
        }
        let mut worker = stage.worker(&["step"]).await;
        stage.call("POST", "/workflows/order-7/retry", "").await.problem(409, "conflict");
        for step in ["retry", "skip"] {
            let claimed = worker.claim().await;
            worker.settle(&claimed, Outcome::Fail { error: ErrorText::from("no") }).await;
            let halted = stage.get("/workflows/order-7?limit=2").await.json(200);
            assert_eq!((&halted["state"], &halted["head"]["step"]), (&"halted".into(), &1.into()));
            assert_eq!(
                (halted["jobs"].as_array().map(Vec::len), halted["next"].is_string()),
                (Some(2), true)
            );
            let body = if step == "skip" { r#"{"step": 1}"# } else { "" };
            let active = stage.call("POST", &format!("/workflows/order-7/{step}"), body).await.json(200);
            assert_eq!(active["state"], "active");
        }
        assert_eq!(stage.call("POST", "/workflows/order-7/cancel", "").await.json(200)["state"], "cancelled");
        assert_eq!(stage.get("/workflows").await.json(200)["workflows"][0]["workflow"], "order-7");
        stage.get("/workflows/nothing").await.problem(404, "not_found");
        stage
            .call("POST", "/jobs", r#"{"task": "step", "workflow": "order-7"}"#)
            .await
            .problem(409, "conflict");
    });
}

#[test]
fn a_schedule_is_disabled_enabled_and_triggered() {
    on_each_store(async |stage| {
        let mut configuration = Configuration::default();
        configuration.schedules.insert(name("nightly"), Schedule::new("0 3 * * *", name("report")));
        configuration.limits.insert("resize/*".parse().expect("a group"), 4);
        stage.store.configure(configuration).await.expect("it is pushed");
        let listed = stage.get("/schedules").await.json(200);
        assert_eq!(
            (&listed["schedules"][0]["schedule"], &listed["schedules"][0]["spec"]["cron"]),
            (&"nightly".into(), &"0 3 * * *".into())
        );
        let off = stage.call("PUT", "/schedules/nightly/disable", "").await.json(200);
        assert_eq!(off, json!({"schedule": "nightly", "enabled": false}));
        assert_eq!(stage.call("PUT", "/schedules/nightly/enable", "").await.json(200)["enabled"], true);
        let body = r#"{"id": "019a8a5e-7c1b-7a10-9d43-3e2a6f0c9b11"}"#;
        let trigger = "/schedules/nightly/trigger";
        assert_eq!(stage.call("POST", trigger, body).await.json(201)["outcome"], "accepted");
        assert_eq!(stage.call("POST", trigger, body).await.json(200)["outcome"], "existing");
        stage.call("POST", trigger, "").await.problem(429, "limit_reached");
        stage.call("POST", "/schedules/nothing/trigger", "").await.problem(404, "not_found");
        let apps = stage.get("/configurations").await.json(200);
        assert_eq!(
            (&apps["configurations"][0]["app"], &apps["configurations"][0]["limits"]["resize/*"]),
            (&"default".into(), &4.into())
        );
        let pushes = stage.get("/pushes").await.json(200);
        assert!(
            pushes["pushes"][0]["changes"].as_array().is_some_and(|changes| changes.len() == 2),
            "{pushes}"
        );
    });
}

#[test]
fn a_program_takes_extends_and_returns_slots() {
    on_each_store(async |stage| {
        let take = r#"{"group": "backup/eu", "holder": "cron", "lease": "30s", "limit": 1}"#;
        let taken = stage.call("POST", "/slots", take).await.json(201);
        let (id, token) = (taken["id"].as_str().expect("an id"), taken["token"].as_str().expect("a string"));
        stage.call("POST", "/slots", take).await.problem(429, "limit_reached");
        let path = format!("/slots/{id}");
        let extend = format!(r#"{{"token": "{token}", "lease": "60s"}}"#);
        let extended = stage.call("PUT", &path, &extend).await.json(200);
        assert!(extended["lease_until"].as_str() > taken["lease_until"].as_str(), "{extended}");
        stage.call("PUT", &path, r#"{"token": "999", "lease": "60s"}"#).await.problem(412, "fenced");
        stage.call("DELETE", &path, "").await.problem(400, "invalid");
        assert_eq!(stage.call("DELETE", &format!("{path}?token={token}"), "").await.status, 204);
        stage.call("DELETE", &format!("{path}?token={token}"), "").await.problem(412, "fenced");
        stage
            .call("POST", "/slots", r#"{"group": "cluster", "holder": "x", "lease": "30s"}"#)
            .await
            .problem(400, "invalid");
    });
}

#[test]
fn a_token_is_created_listed_and_revoked_and_the_log_says_so() {
    on_each_store(async |stage| {
        let new = r#"{"name": "shop", "scopes": ["submit", "read"], "queues": ["mail"], "app": "shop", "expires": "90d"}"#;
        let created = stage.call("POST", "/tokens", new).await.json(201);
        let secret = created["token"].as_str().expect("a secret");
        assert!(secret.starts_with("qo_"), "{secret}");
        // A second one, so that this test does not depend on whether the first one closes the door.
        let list = stage.store.tokens().await.expect("tokens");
        assert!(list[0].is_borne_by(&qo_core::Bearer::parse(secret).expect("a token")));
        let audit = stage.store.audit(None, 10).await.expect("the log");
        assert_eq!(audit[0].deed.what.as_str(), "create token");
    });
}

#[test]
fn tokens_and_the_audit_log_are_listed_in_pages() {
    on_each_store(async |stage| {
        for n in 0..5 {
            stage
                .store
                .record(Deed::new("ada@laptop", "set limit", format!("group-{n}").as_str()))
                .await
                .expect("it is kept");
        }
        let (mut numbers, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = stage.get(&format!("/audit?limit=2{cursor}")).await.json(200);
            numbers.extend(
                page["entries"].as_array().expect("entries").iter().map(|entry| entry["number"].as_u64()),
            );
            let Some(next) = page["next"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(numbers, [5, 4, 3, 2, 1].map(Some));
        assert_eq!(stage.get("/tokens").await.json(200), json!({"tokens": [], "next": null}));
        stage.call("DELETE", "/tokens/nobody", "").await.problem(404, "not_found");
        for new in [
            r#"{"name": "x", "scopes": []}"#,
            r#"{"name": "x", "scopes": ["root"]}"#,
            r#"{"scopes": ["read"]}"#,
        ] {
            stage.call("POST", "/tokens", new).await.problem(400, "invalid");
        }
    });
}

#[test]
fn an_empty_store_has_empty_lists() {
    block_on(async {
        let stage = Stage::in_memory().await;
        for list in
            ["jobs", "groups", "queues", "workers", "workflows", "schedules", "tokens", "configurations"]
        {
            let page = stage.get(&format!("/{list}")).await.json(200);
            assert_eq!((&page[list], &page["next"]), (&json!([]), &Value::Null), "{list}");
        }
    });
}
