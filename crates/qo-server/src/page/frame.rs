//! What stands around every page: the head, the sections, what was just done; errors as pages; the sign-in page.

use super::action::Done;
use super::asset;
use crate::caller::{Caller, Scope};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use qo_core::{Error, ErrorKind};
use qo_wire::status;
use serde::Deserialize;

/// No page needs anything from elsewhere, and nothing inline.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The sections of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Overview,
    Groups,
    Queues,
    Workers,
    Jobs,
    Workflows,
    Schedules,
    Audit,
    Tokens,
}

impl Section {
    const ALL: [(Self, &'static str, &'static str); 9] = [
        (Self::Overview, "/", "Overview"),
        (Self::Groups, "/groups", "Groups"),
        (Self::Queues, "/queues", "Queues"),
        (Self::Workers, "/workers", "Workers"),
        (Self::Jobs, "/jobs", "Jobs"),
        (Self::Workflows, "/workflows", "Workflows"),
        (Self::Schedules, "/schedules", "Schedules"),
        (Self::Audit, "/audit", "Audit"),
        (Self::Tokens, "/tokens", "Tokens"),
    ];

    fn is_for(self, caller: &Caller) -> bool {
        !matches!(self, Self::Audit | Self::Tokens) || caller.may(Scope::Admin)
    }
}

/// What an action leaves in the address of the page that it leads to.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct After {
    done: String,
    count: Option<u64>,
}

/// How often a page that is open asks again, beside the changes that it is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// For the times that it shows.
    Usual,
    /// It follows a log, which makes no change that anything is told of.
    Following,
    /// It does not change by itself.
    Still,
}

impl Pace {
    fn ms(self) -> &'static str {
        match self {
            Self::Usual => "10000",
            Self::Following => "1000",
            Self::Still => "0",
        }
    }
}

/// A page.
pub struct Frame<'a> {
    pub caller: &'a Caller,
    pub section: Section,
    pub title: String,
    pub after: After,
    pub pace: Pace,
}

impl<'a> Frame<'a> {
    /// A page of a section. The title says the state, for the tab of the browser.
    pub fn new(caller: &'a Caller, section: Section, title: impl Into<String>) -> Self {
        Self { caller, section, title: title.into(), after: After::default(), pace: Pace::Usual }
    }

    /// With what was just done.
    pub fn after(mut self, after: After) -> Self {
        self.after = after;
        self
    }

    /// With another pace.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// The whole page around its content.
    pub fn around(self, content: Markup) -> Response {
        let said = Done::parse(&self.after.done).map(|done| done.said(self.after.count));
        let pace = self.pace.ms();
        let header = sections(self.caller, self.section);
        let content = html! {
            main id="main" tabindex="-1" data-pace=(pace) {
                @if let Some(said) = said { p.said id="said" role="status" { (said) } }
                (content)
            }
        };
        let name = self.caller.name();
        page(
            StatusCode::OK,
            &format!("{} · qo", self.title),
            &header,
            &content,
            &html! {
                span { "qo " (env!("CARGO_PKG_VERSION")) }
                @if name != "local" {
                    form method="post" action="/logout" {
                        (token(self.caller))
                        span { "signed in as " b { (name) } }
                        button.quiet type="submit" { "Sign out" }
                    }
                }
            },
        )
    }
}

/// The hidden field by which a form shows that it comes from this caller's own page.
pub fn token(caller: &Caller) -> Markup {
    html! { input type="hidden" name="form_token" value=(caller.form_token()); }
}

fn sections(caller: &Caller, here: Section) -> Markup {
    let sections = Section::ALL.into_iter().filter(|(section, ..)| section.is_for(caller));
    html! {
        a.brand href="/" { img src=(asset::icon()) width="22" height="22" alt=""; "qo" }
        nav aria-label="Sections" {
            ul {
                @for (section, link, name) in sections {
                    li { a href=(link) aria-current=[(section == here).then_some("page")] { (name) } }
                }
            }
        }
        div.tools {
            span.live id="live" hidden { "live" }
            button.quiet id="theme" type="button" hidden { "Dark" }
        }
    }
}

fn page(status: StatusCode, title: &str, header: &Markup, content: &Markup, footer: &Markup) -> Response {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                link rel="icon" href=(asset::icon()) type="image/svg+xml";
                link rel="stylesheet" href=(asset::style());
                // It keeps the theme, so it runs before the page is drawn.
                script src=(asset::script()) {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header { (header) }
                (content)
                footer { (footer) }
                div.unseen id="news" aria-live="polite" {}
                dialog id="ask" aria-labelledby="confirm-title" {}
            }
        }
    };
    answer(status, "text/html; charset=utf-8", page.into_string())
}

/// An answer with the headers of every page.
pub fn answer(status: StatusCode, kind: &'static str, body: String) -> Response {
    let headers: [(HeaderName, HeaderValue); 6] = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
    ];
    (status, headers, body).into_response()
}

/// A text of a job as it is.
pub fn raw(text: String) -> Response {
    answer(StatusCode::OK, "text/plain; charset=utf-8", text)
}

/// An error of a page.
#[derive(Debug)]
pub struct Trouble {
    status: StatusCode,
    title: &'static str,
    message: String,
}

/// What the handler of a page returns.
pub type Answer = Result<Response, Trouble>;

impl Trouble {
    /// A form that does not come from this caller's own page.
    pub fn foreign_form() -> Self {
        Self {
            status: StatusCode::FORBIDDEN,
            title: "This form is not yours",
            message: "It was made for another session, or it is too old. Nothing was changed. Go back, reload the page \
                      and try again."
                .into(),
        }
    }

    /// An address that names nothing.
    pub fn nothing_here() -> Self {
        Self {
            status: StatusCode::NOT_FOUND,
            title: "There is nothing here",
            message: "No page has this address.".into(),
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let title = match error.kind() {
            ErrorKind::Invalid => "That cannot be done",
            ErrorKind::NotFound => "Not found",
            ErrorKind::Conflict | ErrorKind::LimitReached | ErrorKind::Fenced => "It has changed meanwhile",
            ErrorKind::Unavailable | ErrorKind::Unknown => "The store does not answer",
            ErrorKind::Data | ErrorKind::Internal => "Something is broken",
        };
        let message = match error.kind() {
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::LimitReached
            | ErrorKind::Fenced => error.message().to_owned(),
            ErrorKind::Unavailable => "Nothing was changed. Try again in a moment.".into(),
            ErrorKind::Unknown => "What you asked for may have been done. Look before you repeat it.".into(),
            // The text may name what callers should not know.
            ErrorKind::Data | ErrorKind::Internal => {
                tracing::error!("a page: {error}");
                "The server's log says more.".into()
            }
        };
        let status =
            StatusCode::from_u16(status::http(error.kind())).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, title, message }
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        let header =
            html! { a.brand href="/" { img src=(asset::icon()) width="22" height="22" alt=""; "qo" } };
        let content = html! {
            main.alone id="main" tabindex="-1" data-pace="0" {
                h1 { (self.title) }
                p { (self.message) }
                p { a href="/" { "To the overview" } }
            }
        };
        page(self.status, &format!("{} · qo", self.title), &header, &content, &html! {})
    }
}

/// The sign-in page, with what was wrong with the last try.
#[allow(dead_code, reason = "the routes of signing in show it")]
pub(crate) fn sign_in(error: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { "Sign in · qo" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                link rel="icon" href=(asset::icon()) type="image/svg+xml";
                link rel="stylesheet" href=(asset::style());
                script src=(asset::script()) {}
            }
            body {
                main.alone id="main" tabindex="-1" data-pace="0" {
                    p.brand { img src=(asset::icon()) width="22" height="22" alt=""; "qo" }
                    h1 { "Sign in" }
                    @if let Some(error) = error { p.bad id="error" role="alert" { (error) } }
                    form.stack method="post" action="/login" {
                        label for="token" { "Token" }
                        input id="token" name="token" type="password" required autofocus autocomplete="current-password"
                            spellcheck="false" autocapitalize="none" aria-invalid=[error.map(|_| "true")]
                            aria-describedby=[error.map(|_| "error")];
                        button type="submit" { "Sign in" }
                    }
                    p.hint { "An operator makes a token with " code { "qo token create NAME --scope read" } "." }
                }
            }
        }
    }
}
