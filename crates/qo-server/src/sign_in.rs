//! Signing in to the page: a person types a token in, and the browser keeps a cookie.
//!
//! The cookie is random and means nothing elsewhere; the server keeps its hash, and which token it stands for. So it
//! ends with that token, after eight hours without a request, and with the server.

use crate::caller::Caller;
use crate::gate::Gate;
use crate::peer::Peer;
use crate::random;
use crate::refusal::{Asked, Refusal, SIGN_IN};
use crate::route::{Needs, Routes};
use crate::shared::Shared;
use crate::tokens::{Live, LiveTokens};
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::{Extension, Form};
use maud::{DOCTYPE, Markup, html};
use qo_core::{Result, TokenHash};
use serde::Deserialize;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a sign-in lasts without a request.
const IDLE: Duration = Duration::from_secs(8 * 3_600);
/// Most people at once. The one that was idle longest has to sign in again.
const VISITS: usize = 10_000;
/// The cookie, over HTTPS and without. A browser accepts the first one from this very server alone.
const COOKIES: [&str; 2] = ["__Host-qo", "qo"];

/// People who have signed in.
#[derive(Default)]
pub(crate) struct Visits(Mutex<HashMap<[u8; 32], Visit>>);

struct Visit {
    live: Arc<Live>,
    form_token: Arc<str>,
    seen: Instant,
}

impl Visits {
    /// Begins a visit and returns its cookie's value.
    fn begin(&self, live: Arc<Live>) -> Result<String> {
        let (cookie, form_token) = (random::secret()?, random::secret()?.into());
        let seen = Instant::now();
        let mut visits = self.visits();
        visits.retain(|_, visit| visit.seen.elapsed() < IDLE);
        if visits.len() >= VISITS
            && let Some(oldest) = visits.iter().min_by_key(|(_, visit)| visit.seen).map(|(key, _)| *key)
        {
            visits.remove(&oldest);
        }
        visits.insert(key(&cookie), Visit { live, form_token, seen });
        Ok(cookie)
    }

    /// The token that a cookie stands for, and what the forms of its page carry.
    pub fn of(&self, cookie: &str, tokens: &LiveTokens) -> Option<(Arc<Live>, Arc<str>)> {
        let mut visits = self.visits();
        let key = key(cookie);
        let visit = visits.get_mut(&key)?;
        let live = tokens.live(visit.live.id()).filter(|live| live.is(&visit.live));
        match live {
            Some(live) if visit.seen.elapsed() < IDLE => {
                visit.seen = Instant::now();
                Some((live, Arc::clone(&visit.form_token)))
            }
            Some(_) | None => {
                visits.remove(&key);
                None
            }
        }
    }

    fn end(&self, cookie: &str) {
        self.visits().remove(&key(cookie));
    }

    /// The cookie of a request.
    pub fn cookie(headers: &HeaderMap) -> Option<String> {
        let all = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let mut pairs = all.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
        let ours = |(name, value): (&str, &str)| COOKIES.contains(&name).then(|| value.to_owned());
        pairs.find_map(ours).filter(|value| !value.is_empty())
    }

    fn visits(&self) -> MutexGuard<'_, HashMap<[u8; 32], Visit>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a cookie is found again: by its hash, so that looking it up tells nothing about those that there are.
fn key(cookie: &str) -> [u8; 32] {
    *TokenHash::of(cookie).as_bytes()
}

pub(crate) fn routes() -> Routes {
    Routes::new()
        .add(Method::GET, SIGN_IN, Needs::Nothing, ask)
        .add(Method::POST, SIGN_IN, Needs::Nothing, sign_in)
        .add(Method::POST, "/logout", Needs::Nothing, sign_out)
}

#[derive(Deserialize)]
struct Came {
    next: Option<String>,
}

#[derive(Deserialize)]
struct Typed {
    token: String,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Leaves {
    form_token: String,
}

async fn ask(caller: Caller, Query(came): Query<Came>) -> Response {
    Html(form(&caller, came.next.as_deref(), None).into_string()).into_response()
}

async fn sign_in(
    caller: Caller,
    State(shared): State<Shared>,
    Extension(asked): Extension<Asked>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(typed): Form<Typed>,
) -> Response {
    let gate: &Gate = &shared.gate;
    let (from, is_https) = gate.came(peer, &headers);
    let begun = gate.signs_in(&typed.token, from).and_then(|live| match live {
        Some(live) => Ok(Some(gate.visits.begin(live)?)),
        None => Ok(None),
    });
    let next = local(typed.next.as_deref());
    match begun {
        Ok(Some(cookie)) => with_cookie(Redirect::to(next).into_response(), &cookie, is_https),
        Ok(None) => {
            let again = form(&caller, Some(next), Some("That is no live token."));
            (StatusCode::UNAUTHORIZED, Html(again.into_string())).into_response()
        }
        Err(refusal) => refusal.into_response(&asked),
    }
}

async fn sign_out(
    caller: Caller,
    State(shared): State<Shared>,
    Extension(asked): Extension<Asked>,
    Extension(peer): Extension<Peer>,
    headers: HeaderMap,
    Form(form): Form<Leaves>,
) -> Response {
    if !caller.is_form_token(&form.form_token) {
        return Refusal::new(StatusCode::FORBIDDEN, "the form is of another sign-in").into_response(&asked);
    }
    if let Some(cookie) = Visits::cookie(&headers) {
        shared.gate.visits.end(&cookie);
    }
    let (_, is_https) = shared.gate.came(peer, &headers);
    with_cookie(Redirect::to(SIGN_IN).into_response(), "", is_https)
}

/// Sets the cookie; an empty value takes it back.
fn with_cookie(mut response: Response, value: &str, is_https: bool) -> Response {
    let (name, secure) = if is_https { (COOKIES[0], "; Secure") } else { (COOKIES[1], "") };
    let ends = if value.is_empty() { "; Max-Age=0" } else { "" };
    let cookie = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{ends}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

/// Where to go after signing in: a path of this server, never another site.
fn local(next: Option<&str>) -> &str {
    let is_local = |next: &&str| {
        next.starts_with('/')
            && !next.starts_with("//")
            && !next.contains('\\')
            && next.bytes().all(|byte| byte.is_ascii_graphic())
    };
    next.filter(is_local).unwrap_or("/")
}

fn form(caller: &Caller, next: Option<&str>, mistake: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Sign in · qo" }
            }
            body {
                main {
                    h1 { "Sign in" }
                    @if let Some(mistake) = mistake { p role="alert" { (mistake) } }
                    form method="post" action=(SIGN_IN) {
                        input type="hidden" name="next" value=(local(next));
                        label for="token" { "Token" }
                        input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                        button { "Sign in" }
                    }
                    p { "An operator makes a token: " code { "qo token create NAME --scope read" } }
                    @if caller.is_known() {
                        form method="post" action="/logout" {
                            input type="hidden" name="form_token" value=(caller.form_token());
                            p { "Now here as " strong { (caller.name()) } ". " button { "Sign out" } }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signing_in_leads_to_no_other_site() {
        for path in ["/jobs?a=1", "/", "/a/b#c"] {
            assert_eq!(local(Some(path)), path);
        }
        for path in ["//evil", "https://evil", "/\\evil", "evil", "", "/a\r\nb", "/ä"] {
            assert_eq!(local(Some(path)), "/", "{path}");
        }
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, HeaderValue::from_static("a=b; qo=cc; other=qo=dd"));
        assert_eq!(Visits::cookie(&headers).as_deref(), Some("cc"));
        headers.insert(header::COOKIE, HeaderValue::from_static("xqo=1; qo="));
        assert_eq!(Visits::cookie(&headers), None);
    }
}
