//! A request that no handler sees, in the words of its caller: a status of gRPC, a problem document, or a page.

use crate::api::Problem;
use crate::request_id::RequestId;
use crate::rights::not_allowed;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use maud::{DOCTYPE, html};
use qo_core::{Cause, Error, ErrorKind};
use qo_wire::{limits, status};
use std::time::Duration;

/// Where people sign in.
pub(crate) const SIGN_IN: &str = "/login";

/// In which words a caller is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Words {
    /// A status of gRPC.
    Grpc,
    /// A problem document, as RFC 9457 has it.
    Problem,
    /// A page for people.
    Page,
}

/// What is known of a request before any handler runs.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Its id.
    pub id: RequestId,
    words: Words,
    /// The path and query, to come back to after signing in.
    path: Box<str>,
}

impl Asked {
    pub fn of(request: &Request, id: RequestId) -> Self {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        let words = words(request.uri().path(), request.headers());
        let comes_back = matches!(*request.method(), Method::GET | Method::HEAD) && words == Words::Page;
        Self { id, words, path: if comes_back { path } else { "/" }.into() }
    }

    /// Whether it is a call of gRPC.
    pub fn is_grpc(&self) -> bool {
        self.words == Words::Grpc
    }
}

fn words(path: &str, headers: &HeaderMap) -> Words {
    let starts = |name, with: &[u8]| {
        headers.get(name).is_some_and(|value: &HeaderValue| value.as_bytes().starts_with(with))
    };
    let is_below =
        |root: &str| path.strip_prefix(root).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if starts(header::CONTENT_TYPE, b"application/grpc")
        || ["/qo.v1.", "/grpc."].iter().any(|service| path.starts_with(service))
    {
        Words::Grpc
    } else if is_below("/api") || is_below("/metrics") {
        Words::Problem
    } else {
        let accepts = headers.get(header::ACCEPT).and_then(|accepts| accepts.to_str().ok());
        let is_person = accepts.is_some_and(|accepts| accepts.contains("text/html"));
        if is_person { Words::Page } else { Words::Problem }
    }
}

/// Why a request is refused.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    status: StatusCode,
    error: Error,
    retry_after: Option<Duration>,
}

impl Refusal {
    /// A refusal with a status that no kind of error has.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        let error = match status {
            StatusCode::FORBIDDEN => not_allowed(message),
            _ => Error::new(ErrorKind::Invalid, message),
        };
        Self { status, error, retry_after: None }
    }

    /// A refusal of a caller that asks too often.
    pub fn too_often(wait: Duration) -> Self {
        let error =
            Error::new(ErrorKind::Unavailable, "this caller makes too many requests: ask again later");
        Self { status: StatusCode::TOO_MANY_REQUESTS, error, retry_after: Some(wait) }
    }

    /// The answer.
    pub fn into_response(self, asked: &Asked) -> Response {
        let Self { status, error, retry_after } = self;
        let mut response = match asked.words {
            Words::Grpc => status::status(&error, limits::ERROR_BYTES).into_http(),
            Words::Problem => problem(status, &error, asked),
            Words::Page if error.cause() == Some(Cause::NoToken) => sign_in(asked),
            Words::Page => page(status, &error, asked),
        };
        let headers = response.headers_mut();
        if error.cause() == Some(Cause::NoToken) && asked.words != Words::Page {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"qo\""));
        }
        if let Some(wait) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(wait.as_secs() + 1));
        }
        response
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        let status =
            StatusCode::from_u16(status::http_of(&error)).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self { status, error, retry_after: None }
    }
}

fn problem(status: StatusCode, error: &Error, asked: &Asked) -> Response {
    Problem::refused(status, error, &asked.id.to_string()).into_response()
}

/// Back to where the person was, after signing in.
fn sign_in(asked: &Asked) -> Response {
    let next: String = asked.path.bytes().map(escaped).collect();
    Redirect::to(&format!("{SIGN_IN}?next={next}")).into_response()
}

/// A byte of a query's value.
fn escaped(byte: u8) -> String {
    match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    }
}

fn page(status: StatusCode, error: &Error, asked: &Asked) -> Response {
    let title = status.canonical_reason().unwrap_or("Refused");
    let body = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · qo" }
            }
            body {
                main {
                    h1 { (title) }
                    p { (error.message()) }
                    p { small { "Request " (asked.id) } }
                    p { a href="/" { "Start page" } " · " a href=(SIGN_IN) { "Sign in" } }
                }
            }
        }
    };
    (status, Html(body.into_string())).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_is_answered_in_its_own_words() {
        let mut person = HeaderMap::new();
        person.insert(header::ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
        let mut grpc = HeaderMap::new();
        grpc.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc+proto"));
        let none = HeaderMap::new();
        for (path, headers, due) in [
            ("/qo.v1.Queue/Submit", &none, Words::Grpc),
            ("/anything", &grpc, Words::Grpc),
            ("/api/v1/jobs", &person, Words::Problem),
            ("/metrics", &person, Words::Problem),
            ("/apis", &person, Words::Page),
            ("/", &person, Words::Page),
            ("/", &none, Words::Problem),
        ] {
            assert_eq!(words(path, headers), due, "{path}");
        }
    }

    #[test]
    fn a_path_to_come_back_to_holds_no_parameter_of_its_own() {
        let text: String = "/jobs?a=1&next=//evil".bytes().map(escaped).collect();
        assert_eq!(text, "/jobs%3Fa%3D1%26next%3D//evil");
    }
}
