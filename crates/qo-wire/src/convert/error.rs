//! Errors, with all their parts.

use super::{all, enumeration};
use crate::pb;
use qo_core::{Cause, Error, ErrorKind, Result};

enumeration!(ErrorKind, pb::ErrorKind, "kind", {
    Invalid, NotFound, Conflict, LimitReached, Fenced, Unavailable, Unknown, Data, Internal,
});

impl From<Cause> for pb::ErrorCause {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::NoNamespace => Self::NoNamespace,
            Cause::MustNotCreate => Self::MustNotCreate,
            Cause::OtherNamespace => Self::OtherNamespace,
            Cause::OtherFormat => Self::OtherFormat,
            Cause::Refused => Self::Refused,
            Cause::NoToken => Self::NoToken,
            Cause::NotAllowed => Self::NotAllowed,
            // A cause that the protocol does not know yet. The kind says what the caller must do.
            _ => Self::Unspecified,
        }
    }
}

fn cause(number: i32) -> Option<Cause> {
    match pb::ErrorCause::try_from(number) {
        Ok(pb::ErrorCause::NoNamespace) => Some(Cause::NoNamespace),
        Ok(pb::ErrorCause::MustNotCreate) => Some(Cause::MustNotCreate),
        Ok(pb::ErrorCause::OtherNamespace) => Some(Cause::OtherNamespace),
        Ok(pb::ErrorCause::OtherFormat) => Some(Cause::OtherFormat),
        Ok(pb::ErrorCause::Refused) => Some(Cause::Refused),
        Ok(pb::ErrorCause::NoToken) => Some(Cause::NoToken),
        Ok(pb::ErrorCause::NotAllowed) => Some(Cause::NotAllowed),
        Ok(pb::ErrorCause::Unspecified) | Err(_) => None,
    }
}

impl From<&Error> for pb::Error {
    fn from(error: &Error) -> Self {
        let (message, rule) = (error.message(), error.rule());
        // An error that lists none answers with itself.
        let lists = !matches!(error.mistakes(), [only] if std::ptr::eq(only, error));
        Self {
            kind: pb::ErrorKind::from(error.kind()).into(),
            message: message.to_owned(),
            origin: error.origin().map(str::to_owned),
            path: error.path(),
            value: error.value().map(str::to_owned),
            rule: (rule != message).then(|| rule.to_owned()),
            cause: error.cause().map_or(pb::ErrorCause::Unspecified, pb::ErrorCause::from).into(),
            mistakes: if lists { error.mistakes().iter().map(Self::from).collect() } else { Vec::new() },
        }
    }
}

impl From<Error> for pb::Error {
    fn from(error: Error) -> Self {
        Self::from(&error)
    }
}

/// An error is read through serde: its parts alone do not say how its message was put together.
impl From<pb::Error> for Error {
    fn from(error: pb::Error) -> Self {
        let kind = kind(error.kind);
        let parts = parts(error);
        let message = parts["message"].as_str().unwrap_or_default().to_owned();
        super::built(parts).unwrap_or_else(|_| Self::new(kind, message))
    }
}

fn kind(number: i32) -> ErrorKind {
    super::value::<pb::ErrorKind, _>("kind", number).unwrap_or(ErrorKind::Internal)
}

fn parts(error: pb::Error) -> serde_json::Value {
    let pb::Error { kind: number, message, origin, path, value, rule, cause: cause_number, mistakes } = error;
    let mistakes: Vec<_> = mistakes.into_iter().map(parts).collect();
    serde_json::json!({
        "kind": kind(number),
        "message": message,
        "origin": origin,
        "path": path,
        "value": value,
        "rule": rule,
        "cause": cause(cause_number),
        "mistakes": mistakes,
    })
}

/// What became of one item of a call.
pub(crate) fn outcome<T>(error: pb::Error) -> Result<Result<T>> {
    Ok(Err(Error::from(error)))
}

impl TryFrom<pb::StateOutcome> for Result<qo_core::JobState> {
    type Error = Error;

    fn try_from(outcome: pb::StateOutcome) -> Result<Self> {
        match super::needed("outcome", outcome.outcome)? {
            pb::state_outcome::Outcome::State(number) => super::state("state", number).map(Ok),
            pb::state_outcome::Outcome::Error(error) => self::outcome(error),
        }
    }
}

impl From<Result<qo_core::JobState>> for pb::StateOutcome {
    fn from(outcome: Result<qo_core::JobState>) -> Self {
        use pb::state_outcome::Outcome;
        let outcome = match outcome {
            Ok(state) => Outcome::State(pb::JobState::from(state).into()),
            Err(error) => Outcome::Error(error.into()),
        };
        Self { outcome: Some(outcome) }
    }
}

impl From<Vec<Result<qo_core::JobState>>> for pb::StateOutcomes {
    fn from(outcomes: Vec<Result<qo_core::JobState>>) -> Self {
        Self { outcomes: super::messages(outcomes) }
    }
}

impl TryFrom<pb::StateOutcomes> for Vec<Result<qo_core::JobState>> {
    type Error = Error;

    fn try_from(reply: pb::StateOutcomes) -> Result<Self> {
        all(reply.outcomes, "outcomes")
    }
}
