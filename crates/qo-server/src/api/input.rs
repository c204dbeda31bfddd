//! What a request says: parameters of its address, its path, its body. Whatever is not known is refused by name.

use super::problem::Problem;
use axum::body::Body as Stream;
use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use axum::http::header;
use axum::http::request::Parts;
use qo_core::{Cursor, Error, GroupRef, JobId, Name, Result, caps};
use qo_text::{Fields, nearest, word};
use std::time::Duration;
use tokio_stream::StreamExt;

/// Most bytes of a body, except those that carry jobs.
const BODY: usize = 1 << 20;
/// How much of a body that is too large is passed over.
const PASSED_OVER: usize = 8 << 20;
/// Rows of a page unless the caller says otherwise.
const ROWS: usize = 100;
/// Longest wait for the end of a job.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The parameters of an address. A handler takes those that it knows, then calls [`finish`](Self::finish).
pub(crate) struct Query {
    left: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Query {
    fn of(parts: &Parts) -> Self {
        let read = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        let left = read.map(|axum::extract::Query(pairs)| pairs).unwrap_or_default();
        Self { left, known: Vec::new() }
    }

    /// Every value of a parameter.
    pub fn all(&mut self, name: &'static str) -> Vec<String> {
        self.known.push(name);
        let (found, left) = std::mem::take(&mut self.left).into_iter().partition(|(known, _)| known == name);
        self.left = left;
        let found: Vec<(String, String)> = found;
        found.into_iter().map(|(_, value)| value).collect()
    }

    /// A parameter that may be there once.
    pub fn take<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>> {
        let mut values = self.all(name);
        let Some(value) = values.pop() else { return Ok(None) };
        if !values.is_empty() {
            return Err(Error::invalid(name, value, "is given more than once"));
        }
        read(&value).map(Some).map_err(|rule| Error::invalid(name, &value, rule))
    }

    /// How many rows a page has.
    pub fn limit(&mut self) -> Result<usize> {
        Ok(self.take("limit", limit)?.unwrap_or(ROWS))
    }

    /// Where a page of jobs begins.
    pub fn cursor(&mut self) -> Result<Option<Cursor>> {
        self.take("cursor", cursor)
    }

    /// How long the answer may take.
    pub fn wait(&mut self) -> Result<Option<Duration>> {
        self.take("wait", wait)
    }

    /// `Invalid` for a parameter that nothing has taken.
    pub fn finish(self) -> Result<()> {
        let Some((name, _)) = self.left.first() else { return Ok(()) };
        let rule = match nearest(name, self.known.iter().copied()) {
            Some(near) => format!("is not a parameter of this address; did you mean {near}?"),
            None if self.known.is_empty() => "is not a parameter of this address; there are none".into(),
            None => format!("is not a parameter of this address; there are: {}", self.known.join(", ")),
        };
        Err(Error::invalid(name, name, rule))
    }
}

/// How many rows a page has.
pub(super) fn limit(text: &str) -> Result<usize, String> {
    let rows = text.parse().ok().filter(|rows| (1..=caps::PAGE).contains(rows));
    rows.ok_or_else(|| format!("must be 1 to {}", caps::PAGE))
}

/// Where a page of jobs begins.
pub(super) fn cursor(text: &str) -> Result<Cursor, String> {
    text.parse().map(Cursor).map_err(|_| "must be `next` of an earlier page".to_owned())
}

/// Yes or no.
pub(super) fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "must be true or false".to_owned())
}

fn wait(text: &str) -> Result<Duration, String> {
    const RULE: &str = "must be a length of time of at most 60s, such as 30s";
    let wait = qo_text::parse_ms(text).map(Duration::from_millis).map_err(|_| RULE.to_owned())?;
    if wait > LONGEST_WAIT { Err(RULE.to_owned()) } else { Ok(wait) }
}

impl<S: Sync> FromRequestParts<S> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Ok(Self::of(parts))
    }
}

/// An address without parameters.
pub(crate) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        Query::of(parts).finish()?;
        Ok(Self)
    }
}

/// Reads a part of a path.
fn part<T>(field: &str, text: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, Problem> {
    read(text).map_err(|rule| Error::invalid(field, text, rule).into())
}

/// The first part of a path that stands for something.
async fn first<S: Send + Sync>(parts: &mut Parts, state: &S) -> Result<String, Problem> {
    let Path(all) = Path::<Vec<(String, String)>>::from_request_parts(parts, state)
        .await
        .map_err(|_| Error::invalid("path", parts.uri.path(), "must be UTF-8, percent-encoded"))?;
    Ok(all.into_iter().next().map(|(_, text)| text).unwrap_or_default())
}

/// The job that a path names.
pub(crate) struct JobPath(pub JobId);

impl<S: Send + Sync> FromRequestParts<S> for JobPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part("job", &first(parts, state).await?, word::job).map(Self)
    }
}

/// The group that a path names.
pub(crate) struct GroupPath(pub GroupRef);

impl<S: Send + Sync> FromRequestParts<S> for GroupPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part("group", &first(parts, state).await?, word::group).map(Self)
    }
}

/// The queue, workflow or schedule that a path names.
pub(crate) struct NamePath(pub Name);

impl<S: Send + Sync> FromRequestParts<S> for NamePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        part("name", &first(parts, state).await?, word::name).map(Self)
    }
}

/// What a body may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// One JSON value.
    Json,
    /// A JSON value on each line.
    Lines,
}

/// A body, as text.
pub(crate) struct Text {
    pub kind: Kind,
    pub text: String,
}

impl Text {
    /// Reads a body of at most so many bytes. Lines are accepted if `lines` says so.
    pub async fn read(request: Request, most: usize, lines: bool) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let kind = kind(&parts, lines)?;
        let text = read(body, most).await?;
        if kind.is_none() && !text.is_empty() {
            return Err(Problem::media_type(types(lines)));
        }
        Ok(Self { kind: kind.unwrap_or(Kind::Json), text })
    }
}

fn types(lines: bool) -> &'static str {
    if lines { "application/json or application/x-ndjson" } else { "application/json" }
}

fn kind(parts: &Parts, lines: bool) -> Result<Option<Kind>, Problem> {
    let Some(given) = parts.headers.get(header::CONTENT_TYPE) else { return Ok(None) };
    let given = given.to_str().unwrap_or_default();
    match given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "application/json" => Ok(Some(Kind::Json)),
        "application/x-ndjson" if lines => Ok(Some(Kind::Lines)),
        _ => Err(Problem::media_type(types(lines))),
    }
}

/// Reads a body of at most so many bytes.
///
/// The rest of a larger one is passed over, up to a bound: a client that still sends when its connection is closed may
/// lose the answer that says why.
async fn read(body: Stream, most: usize) -> Result<String, Problem> {
    let (mut bytes, mut passed) = (Vec::new(), 0);
    let mut stream = body.into_data_stream();
    while let Some(chunk) = stream.next().await {
        // Only a connection that is gone ends it early, and then no client reads the answer.
        let chunk = chunk.map_err(|_| Error::invalid("body", "", "must come as a whole"))?;
        passed += chunk.len();
        if passed <= most {
            bytes.extend_from_slice(&chunk);
        } else if passed > most + PASSED_OVER {
            break;
        }
    }
    if passed > most {
        return Err(Problem::too_large(most));
    }
    String::from_utf8(bytes).map_err(|_| Error::invalid("body", "", "must be UTF-8").into())
}

/// A body that is one JSON object, of a bounded size. No body at all is an empty object.
pub(crate) struct Body(String);

impl Body {
    /// Its fields. `what` says what it is: `a limit`.
    pub fn fields(&self, what: &'static str) -> Result<Fields> {
        let text = if self.0.is_empty() { "{}" } else { &self.0 };
        Fields::parse("body", what, text)
    }
}

impl<S: Send + Sync> FromRequest<S> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        Ok(Self(Text::read(request, BODY, false).await?.text))
    }
}

/// A page of a list that its store tells as a whole: at most `limit` items after the one that `cursor` names.
///
/// `place` names an item, and the items come in the order of their places.
pub(super) fn page<T>(
    all: Vec<T>,
    cursor: Option<&str>,
    limit: usize,
    place: impl Fn(&T) -> String,
) -> (Vec<T>, Option<String>) {
    let after = |item: &T| cursor.is_none_or(|cursor| place(item).as_str() > cursor);
    let mut items: Vec<T> = all.into_iter().filter(after).take(limit + 1).collect();
    let more = items.len() > limit;
    items.truncate(limit);
    let next = items.last().filter(|_| more).map(place);
    (items, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_length_of_time_of_at_most_a_minute() {
        assert_eq!(wait("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(wait("0"), Ok(Duration::ZERO));
        for bad in ["", "61s", "30", "-1s", "soon"] {
            assert!(wait(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_list_is_paged_by_the_last_item_of_a_page() {
        let all = || ["a", "b", "c"].map(str::to_owned).to_vec();
        let place = |item: &String| item.clone();
        assert_eq!(page(all(), None, 2, place), (vec!["a".into(), "b".into()], Some("b".into())));
        assert_eq!(page(all(), Some("b"), 2, place), (vec!["c".into()], None));
        assert_eq!(page(all(), None, 3, place).1, None, "a full last page is the last");
    }
}
