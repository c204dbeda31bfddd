//! The one public error type. Its kind says what the caller must do.

use serde::{Deserialize, Serialize};
use std::{fmt, sync::Arc};

/// What the caller must do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Fix the call: a value breaks a rule. Nothing happened.
    Invalid,
    /// No such job, session, group or slot.
    NotFound,
    /// The call contradicts what is stored: read again, then decide.
    Conflict,
    /// A limit refused the submit. Nothing was stored.
    LimitReached,
    /// The token or session no longer owns anything: stop, do not retry.
    Fenced,
    /// The store cannot be reached and nothing happened: retry later.
    Unavailable,
    /// It may or may not have happened: retry with the same id or number.
    Unknown,
    /// Stored bytes are bad.
    Data,
    /// A bug in qo.
    Internal,
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not found",
            Self::Conflict => "conflict",
            Self::LimitReached => "limit reached",
            Self::Fenced => "fenced",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown outcome",
            Self::Data => "bad data",
            Self::Internal => "internal",
        })
    }
}

/// A cause that callers act upon, beyond the [kind](ErrorKind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Cause {
    /// There is no namespace at the URL yet. The first submit or worker makes it.
    NoNamespace,
    /// There is no namespace at the URL, and `create=never` forbids to make one.
    MustNotCreate,
    /// Another namespace stands where the open one was.
    OtherNamespace,
    /// The namespace has a format that this release does not read.
    OtherFormat,
    /// The server answers and refuses: a user, password, database or right must change first.
    Refused,
    /// A server knows no live token of its caller: show one, or another one. Nothing happened.
    NoToken,
    /// The caller's token does not allow the call. Nothing happened.
    NotAllowed,
}

/// An error of qo: a [kind](ErrorKind) for the program, a message for the person, and the parts of the message as data.
///
/// ```
/// # use qo_core::{Error, ErrorKind};
/// let error = Error::invalid("key", "*", "must not be *").at_item("jobs", 3);
/// assert_eq!(error.to_string(), "invalid: jobs[3].key: \"*\": must not be *");
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.path(), Some("jobs[3].key".to_owned()));
/// assert_eq!(error.item("jobs"), Some(3));
/// assert!(!error.is_transient());
/// ```
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Wire", into = "Wire")]
pub struct Error(Box<Parts>);

#[derive(Clone)]
struct Parts {
    kind: ErrorKind,
    /// A file and line, or another place outside the call.
    origin: Option<String>,
    path: Path,
    /// As it is shown: quoted and cut.
    value: Option<String>,
    /// The rule that the value breaks, or the whole text of an error that names no value.
    rule: String,
    cause: Option<Cause>,
    mistakes: Vec<Error>,
    source: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// All of it in one text.
    message: String,
}

/// The result of anything in qo that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of any kind. The message says what is wrong in the caller's terms.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let rule = message.into();
        Self::made(kind, Path::default(), None, rule)
    }

    /// `Invalid`, in its one form: field, value, rule.
    pub fn invalid(field: impl fmt::Display, value: impl fmt::Display, rule: impl fmt::Display) -> Self {
        let path = Path(vec![Step::Field(field.to_string())]);
        Self::made(ErrorKind::Invalid, path, Some(Shown(&value.to_string()).to_string()), rule.to_string())
    }

    /// An error that comes from another process in parts. `path` is as [`path`](Self::path) writes it, `value` as
    /// [`value`](Self::value) does.
    pub fn from_parts(kind: ErrorKind, path: &str, value: Option<&str>, rule: &str) -> Self {
        Self::made(kind, Path::read(path), value.map(str::to_owned), rule.to_owned())
    }

    /// `Ok` without mistakes, else one error that lists them all, so that a file can be fixed at one go.
    pub fn all(mistakes: Vec<Self>) -> Result<()> {
        Self::listed(mistakes, joined)
    }

    /// The same with a text of the caller's around the list. One mistake stands for itself.
    pub fn listed(mistakes: Vec<Self>, text: impl FnOnce(&[Self]) -> String) -> Result<()> {
        match mistakes.as_slice() {
            [] => Ok(()),
            [only] => Err(only.clone()),
            [first, ..] => {
                let mut all = Self::new(first.kind(), text(&mistakes));
                all.0.mistakes = mistakes;
                Err(all)
            }
        }
    }

    fn made(kind: ErrorKind, path: Path, value: Option<String>, rule: String) -> Self {
        let parts = Parts {
            kind,
            origin: None,
            path,
            value,
            rule,
            cause: None,
            mistakes: Vec::new(),
            source: None,
            message: String::new(),
        };
        Self(Box::new(parts)).composed()
    }

    fn composed(mut self) -> Self {
        let Parts { origin, path, value, rule, .. } = &*self.0;
        let path = path.to_string();
        let before = [origin.as_deref(), Some(&*path).filter(|path| !path.is_empty()), value.as_deref()];
        let mut message = String::new();
        for part in before.into_iter().flatten() {
            message.push_str(part);
            message.push_str(": ");
        }
        message.push_str(rule);
        self.0.message = message;
        self
    }

    /// What the caller must do.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed later: `Unavailable` and `Unknown`. Repeat it with the same ids.
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::Unavailable | ErrorKind::Unknown)
    }

    /// The message, without the kind.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The field that breaks a rule, from the call inwards: `jobs[3].key`.
    pub fn path(&self) -> Option<String> {
        Some(self.0.path.to_string()).filter(|path| !path.is_empty())
    }

    /// The value of that field: quoted, escaped, and cut if it is long.
    pub fn value(&self) -> Option<&str> {
        self.0.value.as_deref()
    }

    /// The rule that the value breaks; the whole message of an error that names no value.
    pub fn rule(&self) -> &str {
        &self.0.rule
    }

    /// Where outside the call the value comes from, such as a file and line.
    pub fn origin(&self) -> Option<&str> {
        self.0.origin.as_deref()
    }

    /// What callers may act upon beyond the kind.
    pub fn cause(&self) -> Option<Cause> {
        self.0.cause
    }

    /// The errors that this one lists; itself if it lists none.
    pub fn mistakes(&self) -> &[Self] {
        if self.0.mistakes.is_empty() { std::slice::from_ref(self) } else { &self.0.mistakes }
    }

    /// The index in a list of the call that the error is about: 3 of `jobs[3].key` for `jobs`.
    pub fn item(&self, list: &str) -> Option<usize> {
        match self.0.path.0.first() {
            Some(Step::Item(at, index)) if at == list => Some(*index),
            Some(_) | None => None,
        }
    }

    /// The same error, with the field around the one that it names in front.
    #[must_use]
    pub fn at(self, field: impl fmt::Display) -> Self {
        let step = Step::Field(field.to_string());
        self.changed(|path| path.0.insert(0, step.clone()))
    }

    /// The same error, with the item of a list in front: `jobs[3]`.
    #[must_use]
    pub fn at_item(self, list: &str, index: usize) -> Self {
        let step = Step::Item(list.to_owned(), index);
        self.changed(|path| path.0.insert(0, step.clone()))
    }

    /// The same error with the [item](Self::item) of a list left out, for a caller that sent only one.
    #[must_use]
    pub fn without_item(self, list: &str) -> Self {
        match self.item(list) {
            Some(_) => self.changed(|path| drop(path.0.remove(0))),
            None => self,
        }
    }

    /// The same error with another path. Of a list, each mistake gets it: the list names no field of its own.
    fn changed(mut self, change: impl Fn(&mut Path) + Copy) -> Self {
        if self.0.mistakes.is_empty() {
            change(&mut self.0.path);
            return self.composed();
        }
        let is_joined = self.0.rule == joined(&self.0.mistakes);
        let mistakes = std::mem::take(&mut self.0.mistakes);
        self.0.mistakes = mistakes.into_iter().map(|mistake| mistake.changed(change)).collect();
        match is_joined {
            true => self.0.rule = joined(&self.0.mistakes),
            // The caller's own text around the list.
            false => change(&mut self.0.path),
        }
        self.composed()
    }

    /// The same error, with where the value comes from in front: a file and line.
    #[must_use]
    pub fn found_in(mut self, origin: impl fmt::Display) -> Self {
        self.0.origin = Some(origin.to_string());
        self.composed()
    }

    /// The same error with another kind, for a layer that knows more about what happened.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// The same error with a cause.
    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.0.cause = Some(cause);
        self
    }

    /// The same error with the error of another library that it comes from, for [`source`](std::error::Error::source).
    #[must_use]
    pub fn with_source(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Arc::new(source));
        self
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::NotFound, message)
    }

    pub(crate) fn conflict(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Conflict, message)
    }

    pub(crate) fn fenced(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Fenced, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind(), self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error").field("kind", &self.kind()).field("message", &self.message()).finish()
    }
}

/// Two errors are equal if they say the same, whatever library they come from.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.kind(), self.message()) == (other.kind(), other.message())
    }
}

impl Eq for Error {}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// An error on its way to another process: the message for people, and its parts.
#[derive(Serialize, Deserialize)]
struct Wire {
    kind: ErrorKind,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    origin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cause: Option<Cause>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    mistakes: Vec<Error>,
}

impl From<Error> for Wire {
    fn from(error: Error) -> Self {
        let Parts { kind, origin, path, value, rule, cause, mistakes, message, .. } = *error.0;
        let path = Some(path.to_string()).filter(|path| !path.is_empty());
        let rule = (rule != message).then_some(rule);
        Self { kind, message, origin, path, value, rule, cause, mistakes }
    }
}

impl From<Wire> for Error {
    fn from(wire: Wire) -> Self {
        let Wire { kind, message, origin, path, value, rule, cause, mistakes } = wire;
        let path = path.map(|path| Path::read(&path)).unwrap_or_default();
        let rule = rule.unwrap_or_else(|| message.clone());
        Self(Box::new(Parts { kind, origin, path, value, rule, cause, mistakes, source: None, message }))
    }
}

/// Mistakes in one text.
fn joined(mistakes: &[Error]) -> String {
    mistakes.iter().map(Error::message).collect::<Vec<_>>().join("; ")
}

/// A field of a call, from the outside inwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Path(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Field(String),
    Item(String, usize),
}

impl Path {
    /// A path as it is written. Only a leading item of a list is told apart: nothing asks for one further inwards.
    fn read(text: &str) -> Self {
        let item = || {
            let (list, rest) = text.split_once('[')?;
            let (index, rest) = rest.split_once(']')?;
            let rest = if rest.is_empty() { None } else { Some(rest.strip_prefix('.')?) };
            Some((Step::Item(list.to_owned(), index.parse().ok()?), rest))
        };
        match item() {
            Some((item, None)) => Self(vec![item]),
            Some((item, Some(rest))) => Self(vec![item, Step::Field(rest.to_owned())]),
            None if text.is_empty() => Self::default(),
            None => Self(vec![Step::Field(text.to_owned())]),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (depth, step) in self.0.iter().enumerate() {
            if depth > 0 {
                f.write_str(".")?;
            }
            match step {
                Step::Field(name) => f.write_str(name)?,
                Step::Item(list, index) => write!(f, "{list}[{index}]")?,
            }
        }
        Ok(())
    }
}

/// A caller's value inside a message: quoted, escaped, and cut so that a huge value cannot flood a log.
struct Shown<'a>(&'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 80;
        let mut cut = self.0.len().min(MOST);
        while !self.0.is_char_boundary(cut) {
            cut -= 1;
        }
        write!(f, "{:?}", &self.0[..cut])?;
        if cut < self.0.len() { write!(f, "… ({} bytes)", self.0.len()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_names_field_value_and_rule() {
        let error = Error::invalid("cost", 0, "must be 1 to 1000000").at_item("jobs", 3);
        assert_eq!(error.to_string(), "invalid: jobs[3].cost: \"0\": must be 1 to 1000000");
    }

    #[test]
    fn a_huge_or_binary_value_is_shown_short_and_escaped() {
        let long = format!("a\u{7}{}", "ü".repeat(500));
        let message = Error::invalid("task", long, "rule").to_string();
        assert!(message.contains("\\u{7}") && message.contains("(1002 bytes)"), "{message}");
        assert!(message.len() < 200);
    }

    #[test]
    fn an_error_keeps_its_parts_on_the_way_to_another_process() {
        let invalid = Error::invalid("a.b", "x: \"y", "must: z").at_item("jobs", 12).found_in("f.toml:7");
        let other = Error::new(ErrorKind::Data, "no namespace").with_cause(Cause::NoNamespace);
        let list = Error::all(vec![invalid.clone(), other.clone()]).expect_err("two mistakes");
        for error in [invalid, other, list] {
            let text = serde_json::to_string(&error).expect("it is plain data");
            let read: Error = serde_json::from_str(&text).expect("it was written so");
            assert_eq!(read, error);
            assert_eq!((read.path(), read.value(), read.rule()), (error.path(), error.value(), error.rule()));
            assert_eq!((read.origin(), read.cause()), (error.origin(), error.cause()));
            assert_eq!((read.item("jobs"), read.mistakes()), (error.item("jobs"), error.mistakes()));
        }
    }

    #[test]
    fn every_mistake_of_a_list_gets_the_field_around_it() {
        let mistakes =
            vec![Error::invalid("cost", 0, "must be 1"), Error::invalid("key", "", "must be named")];
        let list = Error::all(mistakes).expect_err("two mistakes").at("options").at_item("jobs", 3);
        let paths: Vec<_> = list.mistakes().iter().filter_map(Error::path).collect();
        assert_eq!(paths, ["jobs[3].options.cost", "jobs[3].options.key"]);
        assert_eq!(
            list.message(),
            "jobs[3].options.cost: \"0\": must be 1; jobs[3].options.key: \"\": must be named"
        );
    }

    #[test]
    fn the_index_of_a_job_can_be_read_and_left_out() {
        let error =
            Error::from_parts(ErrorKind::Invalid, "jobs[3].limits[gpu/a.b]", Some("\"0\""), "must be 1");
        assert_eq!(error.message(), "jobs[3].limits[gpu/a.b]: \"0\": must be 1");
        assert_eq!((error.item("jobs"), error.item("job"), error.item("limits")), (Some(3), None, None));
        let alone = error.without_item("jobs");
        assert_eq!(alone.path().as_deref(), Some("limits[gpu/a.b]"));
        assert_eq!(alone.clone().without_item("jobs"), alone);
        let named = Error::from_parts(ErrorKind::Invalid, "tasks[mail].group", None, "rule");
        assert_eq!((named.item("tasks"), named.message()), (None, "tasks[mail].group: rule"));
    }

    #[test]
    fn an_error_names_the_error_it_comes_from() {
        let error = Error::new(ErrorKind::Unavailable, "no").with_source(std::io::Error::other("disk"));
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!((source.as_deref(), error.is_transient()), (Some("disk"), true));
        assert_eq!(error, Error::new(ErrorKind::Unavailable, "no"), "and says the same without it");
    }
}
