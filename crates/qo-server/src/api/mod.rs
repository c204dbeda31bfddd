//! The calls of the store as HTTP and JSON, under `/api/v1`, for programs in any language.
//!
//! | file | what it holds |
//! |---|---|
//! | `submit` `job` `group` `place` `workflow` `schedule` `slot` `operator` `events` | the handlers |
//! | `shape` | the documents that they answer with |
//! | `input` `filter` | what a request says; what is not known is refused by name |
//! | `problem` | refusals as problem documents |
//! | `wait` | requests that wait for the end of a job |
//! | `document` | the OpenAPI document |

mod document;
mod events;
mod filter;
mod group;
mod input;
mod job;
mod operator;
mod place;
mod problem;
mod schedule;
mod shape;
mod slot;
mod submit;
mod wait;
mod workflow;

pub(crate) use problem::{Problem, explain};
pub(crate) use wait::Waits;

use crate::route::{Needs, Routes};
use axum::http::Method;
use qo_core::Scope;

const READ: Needs = Needs::Scope(Scope::Read);
const SUBMIT: Needs = Needs::Scope(Scope::Submit);
const WORK: Needs = Needs::Scope(Scope::Work);
const ADMIN: Needs = Needs::Scope(Scope::Admin);
/// Who may submit may look at what it has submitted.
const SEE: Needs = Needs::OneOf(&[Scope::Read, Scope::Submit]);

pub(crate) fn routes() -> Routes {
    let get = Method::GET;
    let (put, post, delete) = (Method::PUT, Method::POST, Method::DELETE);
    Routes::new()
        .add(post.clone(), "/api/v1/jobs", SUBMIT, submit::submit_job)
        .add(post.clone(), "/api/v1/jobs/batch", SUBMIT, submit::submit_jobs)
        .add(get.clone(), "/api/v1/jobs", READ, job::list_jobs)
        .add(get.clone(), "/api/v1/jobs/{job}", SEE, job::get_job)
        .add(get.clone(), "/api/v1/jobs/{job}/explain", SEE, job::explain_job)
        .add(get.clone(), "/api/v1/jobs/{job}/logs", READ, job::list_logs)
        .add(get.clone(), "/api/v1/jobs/{job}/log", READ, job::get_log)
        .add(post.clone(), "/api/v1/jobs/{job}/cancel", ADMIN, job::cancel_job)
        .add(post.clone(), "/api/v1/jobs/{job}/retry", ADMIN, job::retry_job)
        .add(post.clone(), "/api/v1/jobs/cancel", ADMIN, job::cancel_jobs)
        .add(post.clone(), "/api/v1/jobs/retry", ADMIN, job::retry_jobs)
        .add(get.clone(), "/api/v1/groups", READ, group::list_groups)
        .add(get.clone(), "/api/v1/groups/{group}", READ, group::get_group)
        .add(put.clone(), "/api/v1/groups/{group}/limit", ADMIN, group::set_limit)
        .add(delete.clone(), "/api/v1/groups/{group}/limit", ADMIN, group::unset_limit)
        .add(post.clone(), "/api/v1/groups/{group}/slots/{slot}/release", ADMIN, group::release_slot)
        .add(get.clone(), "/api/v1/queues", READ, place::list_queues)
        .add(put.clone(), "/api/v1/queues/{queue}/pause", ADMIN, place::pause_queue)
        .add(put.clone(), "/api/v1/queues/{queue}/resume", ADMIN, place::resume_queue)
        .add(get.clone(), "/api/v1/workers", READ, place::list_workers)
        .add(get.clone(), "/api/v1/workflows", READ, workflow::list_workflows)
        .add(get.clone(), "/api/v1/workflows/{workflow}", READ, workflow::get_workflow)
        .add(post.clone(), "/api/v1/workflows/{workflow}/retry", ADMIN, workflow::retry_workflow)
        .add(post.clone(), "/api/v1/workflows/{workflow}/skip", ADMIN, workflow::skip_workflow)
        .add(post.clone(), "/api/v1/workflows/{workflow}/cancel", ADMIN, workflow::cancel_workflow)
        .add(get.clone(), "/api/v1/schedules", READ, schedule::list_schedules)
        .add(put.clone(), "/api/v1/schedules/{schedule}/enable", ADMIN, schedule::enable_schedule)
        .add(put.clone(), "/api/v1/schedules/{schedule}/disable", ADMIN, schedule::disable_schedule)
        .add(post.clone(), "/api/v1/schedules/{schedule}/trigger", ADMIN, schedule::trigger_schedule)
        .add(post.clone(), "/api/v1/slots", WORK, slot::acquire_slots)
        .add(put, "/api/v1/slots/{lease}", WORK, slot::extend_slots)
        .add(delete.clone(), "/api/v1/slots/{lease}", WORK, slot::return_slots)
        .add(get.clone(), "/api/v1/tokens", ADMIN, operator::list_tokens)
        .add(post, "/api/v1/tokens", ADMIN, operator::create_token)
        .add(delete, "/api/v1/tokens/{token}", ADMIN, operator::revoke_token)
        .add(get.clone(), "/api/v1/audit", ADMIN, operator::list_audit)
        .add(get.clone(), "/api/v1/configurations", READ, operator::list_configurations)
        .add(get.clone(), "/api/v1/pushes", READ, operator::list_pushes)
        .add(get.clone(), "/api/v1/status", READ, place::get_status)
        .add(get.clone(), "/api/v1/events", READ, events::follow_changes)
        .add(get, "/api/v1/openapi.json", Needs::Nothing, document::get_document)
}
