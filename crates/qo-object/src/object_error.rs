//! What an error of an object store means to a caller, and what it says to people.

use crate::directory::{self, NEEDS_RIGHTS};
use object_store::path::Path;
use qo_core::{Error, ErrorKind};

/// An object cannot be reached: `Unavailable`, or `Invalid` if the operating system refuses, which only other rights
/// change.
pub(crate) fn unavailable(path: &Path, error: object_store::Error) -> Error {
    let told = match is_denied(&error) {
        true => Error::new(ErrorKind::Invalid, format!("{path}: {}: {NEEDS_RIGHTS}", said(&error))),
        false => Error::new(ErrorKind::Unavailable, format!("{path}: {}", said(&error))),
    };
    told.with_source(error)
}

/// Whether the operating system refused, and will again.
pub(crate) fn is_denied(error: &object_store::Error) -> bool {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.downcast_ref::<std::io::Error>().is_some_and(directory::is_denied) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether an error says that an object is not there. A bucket that is not there does not count: it must not look like
/// a log that has ended.
pub(crate) fn is_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { .. }) && !said(error).contains("NoSuchBucket")
}

/// Whether a store refused a request, and neither this try nor an earlier one of the same request can have written.
pub(crate) fn is_refused(error: &object_store::Error) -> bool {
    matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    ) && !in_full(error).contains(" retries, max_retries")
}

/// Codes of S3 that say that credentials are wrong or have expired. The next rotation brings others.
const BAD_CREDENTIALS: [&str; 7] = [
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "ExpiredToken",
    "InvalidToken",
    "TokenRefreshRequired",
    "RequestTimeTooSkewed",
    "RequestExpired",
];

/// Whether an error says that credentials are not accepted.
pub(crate) fn are_credentials_bad(error: &object_store::Error) -> bool {
    let (code, _) = code_and_message(&in_full(error)).unwrap_or_default();
    BAD_CREDENTIALS.contains(&code.as_str())
}

/// The error of a write that a store refused. Nothing was written: `Invalid` if the right to write is missing, which
/// only other rights change; `Unavailable` if the credentials are not accepted, which passes.
pub(crate) fn refused(place: &str, error: &object_store::Error) -> Error {
    let why = said(error);
    match are_credentials_bad(error) {
        true => {
            Error::new(ErrorKind::Unavailable, format!("{place}: the credentials are not accepted: {why}"))
        }
        false => {
            let what = format!(
                "{place}: the credentials may not write there, and nothing was written: they need s3:PutObject on {place}/*: {why}"
            );
            Error::new(ErrorKind::Invalid, what)
        }
    }
}

/// The code and the message in an answer of S3.
fn code_and_message(said: &str) -> Option<(String, String)> {
    let between = |before: &str, after: &str| {
        said.split_once(before)?.1.split_once(after).map(|(found, _)| found.trim().to_owned())
    };
    Some((between("<Code>", "</Code>")?, between("<Message>", "</Message>").unwrap_or_default()))
}

/// What an error says to people: of an answer of S3 its status, code and message, not the XML around them.
pub(crate) fn said(error: &object_store::Error) -> String {
    let said = in_full(error);
    let Some((code, message)) = code_and_message(&said) else {
        // Some servers refuse without a message.
        return said.trim_end_matches([' ', ':']).to_owned();
    };
    let status = ["status code: ", "error response: "].into_iter().find_map(|before| said.split_once(before));
    let status = status.and_then(|(_, rest)| rest.split_once(':')).map_or("", |(status, _)| status);
    let status = if status.contains('<') { "" } else { status };
    let parts = [status, code.as_str(), message.as_str()];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

/// An error with all its causes: "no space left on device" is never the outermost.
pub(crate) fn in_full(error: &object_store::Error) -> String {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let why = error.to_string();
        if !said.contains(&why) {
            said = format!("{said}: {why}");
        }
        cause = error.source();
    }
    said
}
