//! The page for people, at `/`.
//!
//! The server renders it whole, so it works without JavaScript. One small script of our own adds live changes.
//!
//! | module | what it holds |
//! |---|---|
//! | `overview`, `groups`, `queues`, `workers`, `jobs`, `job`, `workflows`, `schedules`, `audit`, `tokens` | the pages, a file for each |
//! | `why` | what holds jobs back, at a glance |
//! | `action` | what people can do, said before it is done |
//! | `frame` | what stands around every page; errors as pages; the sign-in page |
//! | `piece`, `bar`, `moment`, `link`, `text` | parts of pages: states, bars, times, links, JSON |
//! | `history` | the last minutes, in memory, for sparklines |
//! | `recent` | views that may take long: the last answer, with its age |
//! | `live` | tells open pages that something has changed |
//! | `asset` | the style sheet and the script |
//!
//! Rules of every page:
//! - It reads the store of its caller, and never without a bound.
//! - Texts of jobs are text, never HTML: maud escapes them.
//! - No script or style is inline, so the content security policy allows none.
//! - A change is a form that is posted with the caller's form token, behind a page that says what it will do.

mod action;
mod asset;
mod audit;
mod bar;
mod frame;
mod groups;
pub(crate) mod history;
mod job;
mod jobs;
mod link;
mod live;
mod moment;
mod overview;
mod piece;
mod queues;
pub(crate) mod recent;
mod schedules;
mod text;
mod tokens;
mod why;
mod workers;
mod workflows;

#[allow(unused_imports, reason = "the routes of signing in show it")]
pub(crate) use frame::sign_in;

use crate::route::{Needs, Routes};
use axum::http::Method;
use qo_core::Scope;

pub(crate) fn routes() -> Routes {
    let read = Needs::Scope(Scope::Read);
    let admin = Needs::Scope(Scope::Admin);
    Routes::new()
        .add(Method::GET, "/", read, overview::overview)
        .add(Method::GET, "/groups", read, groups::list)
        .add(Method::GET, "/groups/{group}", read, groups::one)
        .add(Method::GET, "/queues", read, queues::list)
        .add(Method::GET, "/workers", read, workers::list)
        .add(Method::GET, "/workers/{session}", read, workers::one)
        .add(Method::GET, "/jobs", read, jobs::list)
        .add(Method::GET, "/jobs/{job}", read, job::one)
        .add(Method::GET, "/jobs/{job}/payload", read, job::payload)
        .add(Method::GET, "/jobs/{job}/output", read, job::output)
        .add(Method::GET, "/jobs/{job}/logs/{token}", read, job::log)
        .add(Method::GET, "/workflows", read, workflows::list)
        .add(Method::GET, "/workflows/{workflow}", read, workflows::one)
        .add(Method::GET, "/schedules", read, schedules::list)
        .add(Method::GET, "/audit", admin, audit::list)
        .add(Method::GET, "/tokens", admin, tokens::list)
        .add(Method::GET, "/actions/{action}", admin, action::preview)
        .add(Method::POST, "/actions/{action}", admin, action::perform)
        .add(Method::GET, "/live", read, live::changes)
        .add(Method::GET, "/assets/{name}", Needs::Nothing, asset::asset)
}
