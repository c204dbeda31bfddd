//! What is refused, and how the refusal says what is wrong.

use super::{Stage, request, send};
use crate::stage::{Served, block_on};
use async_trait::async_trait;
use qo_core::{Answer, Command, Error, ErrorKind, Result, Store};
use qo_testkit::intercept::{Intercept, Intercepted};
use std::sync::Arc;

#[test]
fn an_unknown_parameter_or_field_is_refused_by_name_with_a_hint() {
    block_on(async {
        let stage = Stage::in_memory().await;
        for (method, path, body, field, hint) in [
            ("GET", "/jobs?statte=failed", "", "statte", "did you mean state?"),
            ("GET", "/jobs?limit=1&limit=2", "", "limit", "more than once"),
            ("GET", "/jobs?limit=0", "", "limit", "1 to 1000"),
            ("GET", "/jobs?limit=1001", "", "limit", "1 to 1000"),
            ("GET", "/jobs?cursor=x", "", "cursor", "earlier page"),
            ("GET", "/jobs?state=runing", "", "state", "did you mean running?"),
            ("GET", "/jobs?since=2026-01-01T00:00:00", "", "since", "offset"),
            ("GET", "/groups?curser=a", "", "curser", "did you mean cursor?"),
            ("GET", "/status?x=1", "", "x", "there are none"),
            ("POST", "/jobs?wait=1s", r#"{"task": "a"}"#, "wait", "there are none"),
            ("POST", "/jobs", r#"{"task": "a", "prioritty": 1}"#, "prioritty", "did you mean priority?"),
            ("POST", "/jobs", r#"{"task": "a b"}"#, "task", "must match"),
            ("POST", "/jobs", r#"{"payload": 1}"#, "task", "must be given"),
            ("POST", "/jobs", r#"{"task": "a", "cost": 0}"#, "cost", "must be 1 to"),
            ("POST", "/jobs", r#"{"task": "a",}"#, "job", "line 1 column"),
            ("POST", "/jobs", "", "job", "line 1 column"),
            ("POST", "/jobs/batch", "{}", "body", "array"),
            ("PUT", "/groups/a/limit", r#"{"limit": 1, "limt": 2}"#, "limt", "did you mean limit?"),
            ("PUT", "/groups/a%20b/limit", r#"{"limit": 1}"#, "group", "must match"),
            ("POST", "/slots", r#"{"group": "a", "holder": "b"}"#, "lease", "must be given"),
            ("GET", "/jobs/7", "", "job", "whole id"),
            (
                "GET",
                "/jobs/019a8a5e-7c1b-7a10-9d43-000000000000/log?attempt=x",
                "",
                "attempt",
                "number of an attempt",
            ),
        ] {
            let problem = stage.call(method, path, body).await.problem(400, "invalid");
            let detail = problem["detail"].as_str().expect("a text");
            assert_eq!(problem["path"], field, "{method} {path} {body}: {problem}");
            assert!(detail.contains(hint), "{method} {path} {body}: {detail}");
        }
    });
}

#[test]
fn wrong_methods_types_and_paths_are_problems_too() {
    block_on(async {
        let stage = Stage::in_memory().await;
        let wrong = stage.call("PATCH", "/jobs", "").await;
        wrong.problem(405, "method_not_allowed");
        let allowed = wrong.header("allow").expect("the methods");
        assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed}");
        for kind in ["text/plain", "application/xml", "multipart/form-data"] {
            let headers = format!("Content-Type: {kind}");
            stage
                .call_with("POST", "/jobs", &headers, r#"{"task": "a"}"#)
                .await
                .problem(415, "unsupported_media_type");
        }
        stage.call_with("POST", "/jobs", "", r#"{"task": "a"}"#).await.problem(415, "unsupported_media_type");
        let charset = "Content-Type: application/json; charset=utf-8\nAccept: text/html";
        stage.call_with("POST", "/jobs", charset, r#"{"task": "a"}"#).await.json(201);
        for path in ["/nothing", "/groups/a/b", "/jobs/", ""] {
            stage.get(path).await.problem(404, "not_found");
        }
        let mut binary = request("POST", "/api/v1/jobs", "Content-Type: application/json", "{}");
        binary.truncate(binary.len() - 2);
        binary.extend([0xff, 0xfe]);
        assert_eq!(send(stage.served.address, &binary).await.problem(400, "invalid")["path"], "body");
        stage.get("/groups/%FF").await.problem(400, "invalid");
    });
}

/// A store whose errors say what callers must not see.
struct Leaky(ErrorKind);

const SECRET: &str = "SELECT payload FROM qo.jobs; /var/lib/qo/log: permission denied";

#[async_trait]
impl Intercept for Leaky {
    async fn command(&self, _: Command) -> Result<Answer> {
        Err(Error::new(self.0, SECRET))
    }

    fn look(&self) -> Result<&dyn Store> {
        Err(Error::new(self.0, SECRET))
    }
}

#[test]
fn errors_from_inside_the_store_show_neither_paths_nor_statements() {
    block_on(async {
        for (kind, status, word) in [
            (ErrorKind::Unavailable, 503, "unavailable"),
            (ErrorKind::Unknown, 504, "unknown"),
            (ErrorKind::Data, 500, "data"),
            (ErrorKind::Internal, 500, "internal"),
        ] {
            let store = Arc::new(Intercepted(Leaky(kind)));
            let served = Served::start_without_tokens(store).await;
            for (method, path, body) in [("GET", "/jobs", ""), ("POST", "/jobs", r#"{"task": "a"}"#)] {
                let json = if body.is_empty() { "" } else { "Content-Type: application/json" };
                let answer =
                    send(served.address, &request(method, &format!("/api/v1{path}"), json, body)).await;
                answer.problem(status, word);
                assert!(!answer.body.contains("SELECT") && !answer.body.contains("/var"), "{}", answer.body);
            }
        }
    });
}
