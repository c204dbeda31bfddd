//! Errors of qo as statuses of gRPC and HTTP, and back: the one table.
//!
//! | kind | gRPC | HTTP |
//! |---|---|---|
//! | `Invalid` | `INVALID_ARGUMENT` | 400 |
//! | `Invalid`, because of [`Cause::NoToken`] | `UNAUTHENTICATED` | 401 |
//! | `Invalid`, because of [`Cause::NotAllowed`] | `PERMISSION_DENIED` | 403 |
//! | `NotFound` | `NOT_FOUND` | 404 |
//! | `Conflict` | `ABORTED` | 409 |
//! | `LimitReached` | `RESOURCE_EXHAUSTED` | 429 |
//! | `Fenced` | `FAILED_PRECONDITION` | 412 |
//! | `Unavailable` | `UNAVAILABLE` | 503 |
//! | `Unknown` | `UNKNOWN` | 504 |
//! | `Data` | `DATA_LOSS` | 500 |
//! | `Internal` | `INTERNAL` | 500 |
//!
//! A status of qo carries the whole error as a detail. A status without it comes from the network, a proxy or the HTTP/2
//! library, and does not say whether the call happened.

use crate::{limits, pb};
use prost::Message;
use qo_core::{Cause, Error, ErrorKind};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// The status code of gRPC for a kind of error without a cause.
pub fn code(kind: ErrorKind) -> Code {
    row(kind, None).0
}

/// The status code of HTTP for a kind of error without a cause.
pub fn http(kind: ErrorKind) -> u16 {
    row(kind, None).1
}

/// The status code of HTTP for an error.
pub fn http_of(error: &Error) -> u16 {
    row(error.kind(), error.cause()).1
}

fn row(kind: ErrorKind, cause: Option<Cause>) -> (Code, u16) {
    match kind {
        ErrorKind::Invalid if cause == Some(Cause::NoToken) => (Code::Unauthenticated, 401),
        ErrorKind::Invalid if cause == Some(Cause::NotAllowed) => (Code::PermissionDenied, 403),
        ErrorKind::Invalid => (Code::InvalidArgument, 400),
        ErrorKind::NotFound => (Code::NotFound, 404),
        ErrorKind::Conflict => (Code::Aborted, 409),
        ErrorKind::LimitReached => (Code::ResourceExhausted, 429),
        ErrorKind::Fenced => (Code::FailedPrecondition, 412),
        ErrorKind::Unavailable => (Code::Unavailable, 503),
        ErrorKind::Unknown => (Code::Unknown, 504),
        ErrorKind::Data => (Code::DataLoss, 500),
        ErrorKind::Internal => (Code::Internal, 500),
    }
}

/// What `grpc-status-details-bin` holds: `google.rpc.Status`.
#[derive(Clone, PartialEq, Message)]
struct Detailed {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<prost_types::Any>,
}

const TYPE: &str = "type.googleapis.com/qo.v1.Error";
/// Longest text of a status beside its detail, in bytes.
const MESSAGE_BYTES: usize = 512;

/// Says that the server is about to end and did nothing, so that a client with another address asks there at once.
const ENDING: &str = "qo-ending";

/// An error as a status. Of a long list of mistakes only as many go along as fit into `most` bytes.
pub fn status(error: &Error, most: usize) -> Status {
    let code = row(error.kind(), error.cause()).0;
    let text = &error.message()[..error.message().floor_char_boundary(MESSAGE_BYTES)];
    let value = fitting(pb::Error::from(error), most.saturating_sub(MESSAGE_BYTES)).encode_to_vec();
    let any = prost_types::Any { type_url: TYPE.into(), value };
    let detailed = Detailed { code: code.into(), message: String::new(), details: vec![any] };
    Status::with_details(code, text, detailed.encode_to_vec().into())
}

/// The status of a call that a server refuses because it is about to end. Nothing happened.
pub fn ending() -> Status {
    let error = Error::new(ErrorKind::Unavailable, "the server is about to end: ask again, or another one");
    let mut status = status(&error, limits::ERROR_BYTES);
    status.metadata_mut().insert(ENDING, MetadataValue::from_static("1"));
    status
}

/// Whether a server refused a call because it is about to end.
pub fn is_ending(status: &Status) -> bool {
    status.metadata().contains_key(ENDING)
}

/// The error of qo in a status; none if the status does not come from qo.
pub fn error(status: &Status) -> Option<Error> {
    let detailed = Detailed::decode(status.details()).ok()?;
    let any = detailed.details.into_iter().find(|any| any.type_url == TYPE)?;
    pb::Error::decode(any.value.as_slice()).ok().map(Error::from)
}

fn fitting(mut error: pb::Error, most: usize) -> pb::Error {
    while error.encoded_len() > most && error.mistakes.pop().is_some() {}
    if error.encoded_len() > most {
        for text in
            [Some(&mut error.message), error.rule.as_mut(), error.origin.as_mut(), error.path.as_mut()]
        {
            text.into_iter().for_each(|text| text.truncate(text.floor_char_boundary(most / 5)));
        }
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistakes(count: usize) -> Error {
        let mistake = |n| Error::invalid(format!("limits[api-{n}]"), n, "must be 0 to 1000000, and is more");
        Error::all((0..count).map(mistake).collect()).expect_err("mistakes")
    }

    #[test]
    fn an_error_comes_back_from_its_status_with_all_its_parts() {
        let errors = [
            Error::invalid("cost", 0, "must be 1 to 1000000").at_item("jobs", 3).found_in("a.toml:7"),
            Error::new(ErrorKind::Data, "no namespace").with_cause(Cause::NoNamespace),
            Error::new(ErrorKind::Invalid, "no token").with_cause(Cause::NoToken),
            Error::new(ErrorKind::Invalid, "not allowed").with_cause(Cause::NotAllowed),
            mistakes(100).at("configuration"),
        ];
        for sent in errors {
            let read = error(&status(&sent, limits::ERROR_BYTES_MOST)).expect("it is an error of qo");
            assert_eq!((&read, read.path(), read.value()), (&sent, sent.path(), sent.value()));
            assert_eq!((read.rule(), read.origin()), (sent.rule(), sent.origin()));
            assert_eq!((read.cause(), read.mistakes()), (sent.cause(), sent.mistakes()));
        }
    }

    #[test]
    fn a_caller_without_a_right_gets_the_status_of_the_field() {
        let refused = |cause| Error::new(ErrorKind::Invalid, "no").with_cause(cause);
        for (error, code, http) in [
            (refused(Cause::NoToken), Code::Unauthenticated, 401),
            (refused(Cause::NotAllowed), Code::PermissionDenied, 403),
            (refused(Cause::Refused), Code::InvalidArgument, 400),
        ] {
            assert_eq!((status(&error, limits::ERROR_BYTES).code(), http_of(&error)), (code, http));
        }
    }

    #[test]
    fn an_error_for_any_client_fits_into_small_trailers() {
        let status = status(&mistakes(100), limits::ERROR_BYTES);
        assert!(status.details().len() <= limits::ERROR_BYTES, "{}", status.details().len());
        assert_eq!(error(&status).map(|error| error.kind()), Some(ErrorKind::Invalid));
    }

    #[test]
    fn a_status_of_a_proxy_is_no_error_of_qo() {
        assert_eq!(error(&Status::unavailable("upstream connect error")), None);
        assert!(is_ending(&ending()) && error(&ending()).is_some_and(|error| error.is_transient()));
    }
}
