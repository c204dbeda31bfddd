//! The OpenAPI document of the interface, made from the types and handlers.

use super::problem::{Document as Problem, Mistake};
use super::{events, group, job, operator, place, schedule, slot, submit, workflow};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use std::sync::LazyLock;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Content, Ref, ResponseBuilder};
use utoipa::{Modify, OpenApi};

/// The document, as it is served.
static TEXT: LazyLock<String> = LazyLock::new(|| {
    // Plain data: it cannot fail.
    Interface::openapi().to_json().unwrap_or_default()
});

#[derive(OpenApi)]
#[openapi(
    info(
        title = "qo",
        description = "A job queue that decides how much may run at once, across a whole fleet, exactly.\n\nMoments are RFC 3339 in UTC. Numbers of 64 bits that name something (fence tokens, cursors, change counters) are strings. A parameter or field that is not known is refused by name.",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    paths(
        submit::submit_job, submit::submit_jobs,
        job::list_jobs, job::get_job, job::explain_job, job::list_logs, job::get_log,
        job::cancel_job, job::retry_job, job::cancel_jobs, job::retry_jobs,
        group::list_groups, group::get_group, group::set_limit, group::unset_limit, group::release_slot,
        place::list_queues, place::pause_queue, place::resume_queue, place::list_workers, place::get_status,
        workflow::list_workflows, workflow::get_workflow, workflow::retry_workflow, workflow::skip_workflow,
        workflow::cancel_workflow,
        schedule::list_schedules, schedule::enable_schedule, schedule::disable_schedule, schedule::trigger_schedule,
        slot::acquire_slots, slot::extend_slots, slot::return_slots,
        operator::list_tokens, operator::create_token, operator::revoke_token,
        operator::list_audit, operator::list_configurations, operator::list_pushes,
        events::follow_changes, get_document,
    ),
    components(schemas(Problem, Mistake)),
    modifiers(&Everywhere),
)]
struct Interface;

/// What every operation has: a problem document as the answer to a refusal, and a token.
struct Everywhere;

impl Modify for Everywhere {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        document.info.version = env!("CARGO_PKG_VERSION").into();
        let content = Content::new(Some(Ref::from_schema_name("Problem")));
        let refusal = ResponseBuilder::new()
            .description("It was refused.")
            .content("application/problem+json", content)
            .build();
        for item in document.paths.paths.values_mut() {
            let operations =
                [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten();
            for operation in operations {
                operation.responses.responses.insert("default".into(), refusal.clone().into());
            }
        }
        if let Some(components) = &mut document.components {
            let mut bearer = Http::new(HttpAuthScheme::Bearer);
            bearer.description =
                Some("A token of `qo token create`. None is needed on loopback while there are none.".into());
            components.add_security_scheme("token", SecurityScheme::Http(bearer));
        }
        document.security =
            Some(vec![SecurityRequirement::default(), SecurityRequirement::new("token", [] as [&str; 0])]);
    }
}

/// This document: OpenAPI 3.1.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "status",
    responses((status = 200, description = "The document.", body = serde_json::Value))
)]
pub(super) async fn get_document(_: super::input::NoQuery) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str()).into_response()
}
