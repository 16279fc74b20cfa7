//! Errors as gRPC statuses. An error of ours stands encoded in the status details; the status code
//! is the one that the table of `error.proto` names. A status without details was made by a
//! transport or a proxy, and is read by its code.
//!
//! | gRPC code | read without details as |
//! |---|---|
//! | `OK` | `Internal`: a success is no error |
//! | `CANCELLED` | `Unavailable`: the stream was cut; `DeadlineExceeded` when a time limit cut it |
//! | `UNKNOWN` | `Unavailable`: the transport failed |
//! | `INVALID_ARGUMENT` | `InvalidArgument` |
//! | `DEADLINE_EXCEEDED` | `DeadlineExceeded` |
//! | `NOT_FOUND` | `NotFound` |
//! | `ALREADY_EXISTS` | `Conflict` |
//! | `PERMISSION_DENIED` | `PermissionDenied` |
//! | `RESOURCE_EXHAUSTED` | `LimitExceeded` |
//! | `FAILED_PRECONDITION` | `Internal`: ours carry details, so nobody knows which one it is |
//! | `ABORTED` | `Conflict` |
//! | `OUT_OF_RANGE` | `LimitExceeded`: a message over the limit of the transport |
//! | `UNIMPLEMENTED` | `Unsupported` |
//! | `INTERNAL` | `Internal`; `Unavailable` when this side's transport made it |
//! | `UNAVAILABLE` | `Unavailable` |
//! | `DATA_LOSS` | `Corrupt` |
//! | `UNAUTHENTICATED` | `Unauthenticated` |
//!
//! A write is different: where the request may have reached the log, the outcome is unknown and
//! only [`write_error_of_status`] may be asked.

use forebay_core::{Error, ErrorCode};
use prost::Message;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use crate::error::{ERROR_MESSAGE_BYTES_MAX, cut, known_error};
use crate::v1;

/// The gRPC code of an error code.
pub fn grpc_code(code: ErrorCode) -> Code {
    match code {
        ErrorCode::InvalidArgument => Code::InvalidArgument,
        ErrorCode::NotFound => Code::NotFound,
        ErrorCode::Conflict => Code::Aborted,
        ErrorCode::Unavailable => Code::Unavailable,
        ErrorCode::DeadlineExceeded => Code::DeadlineExceeded,
        ErrorCode::UnknownOutcome => Code::Unknown,
        ErrorCode::LimitExceeded => Code::ResourceExhausted,
        ErrorCode::Stale | ErrorCode::TokenLost => Code::FailedPrecondition,
        ErrorCode::Corrupt => Code::DataLoss,
        ErrorCode::Unsupported | ErrorCode::UpgradeNeeded => Code::Unimplemented,
        ErrorCode::Closed => Code::Cancelled,
        ErrorCode::Unauthenticated => Code::Unauthenticated,
        ErrorCode::PermissionDenied => Code::PermissionDenied,
        ErrorCode::Internal => Code::Internal,
    }
}

/// The status that tells this error.
pub fn status_of_error(error: &Error) -> Status {
    let details = v1::Error::from(error).encode_to_vec();
    let message = cut(error.message(), ERROR_MESSAGE_BYTES_MAX);
    Status::with_details(grpc_code(error.code()), message, details.into())
}

/// The error that a status tells, for calls that change nothing.
///
/// Details of ours win; then the table of this module holds.
pub fn error_of_status(status: &Status) -> Error {
    error_in_details(status).unwrap_or_else(|| {
        let code = code_without_details(status);
        Error::new(code, told(status, code))
    })
}

/// The error that a status tells, for calls that append to a log.
///
/// Where the service itself answers, it says whether the outcome is known. Without its word only a
/// failed connect and a refusal made before any handler ran are certain to have appended nothing;
/// all else is `UnknownOutcome`, and the same retry settles it.
pub fn write_error_of_status(status: &Status) -> Error {
    error_in_details(status).unwrap_or_else(|| {
        let read = code_without_details(status);
        let code = if nothing_was_appended(status) { read } else { ErrorCode::UnknownOutcome };
        Error::new(code, told(status, code))
    })
}

fn error_in_details(status: &Status) -> Option<Error> {
    if status.details().is_empty() {
        return None;
    }
    known_error(v1::Error::decode(status.details()).ok()?)
}

fn code_without_details(status: &Status) -> ErrorCode {
    match status.code() {
        // Both sides of a call keep its time limit and say so in these words.
        Code::Cancelled if status.message() == TimeoutExpired(()).to_string() => {
            ErrorCode::DeadlineExceeded
        }
        // A source stays on the side that made the status: this is our transport speaking.
        Code::Internal if std::error::Error::source(status).is_some() => ErrorCode::Unavailable,
        Code::Cancelled | Code::Unknown | Code::Unavailable => ErrorCode::Unavailable,
        Code::InvalidArgument => ErrorCode::InvalidArgument,
        Code::DeadlineExceeded => ErrorCode::DeadlineExceeded,
        Code::NotFound => ErrorCode::NotFound,
        Code::AlreadyExists | Code::Aborted => ErrorCode::Conflict,
        Code::PermissionDenied => ErrorCode::PermissionDenied,
        Code::ResourceExhausted | Code::OutOfRange => ErrorCode::LimitExceeded,
        Code::Unimplemented => ErrorCode::Unsupported,
        Code::DataLoss => ErrorCode::Corrupt,
        Code::Unauthenticated => ErrorCode::Unauthenticated,
        Code::Ok | Code::FailedPrecondition | Code::Internal => ErrorCode::Internal,
    }
}

fn nothing_was_appended(status: &Status) -> bool {
    never_connected(status)
        || matches!(
            status.code(),
            Code::InvalidArgument
                | Code::PermissionDenied
                | Code::Unauthenticated
                | Code::Unimplemented
        )
}

fn never_connected(status: &Status) -> bool {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source()).any(|error| error.is::<ConnectError>())
}

/// What the status said, and what to do about it.
fn told(status: &Status, code: ErrorCode) -> String {
    let advice = match code {
        ErrorCode::Unavailable => "the service cannot be reached; try again",
        ErrorCode::UnknownOutcome => "the write may be in the log; send the same write again",
        ErrorCode::DeadlineExceeded => "the call took too long; allow it more time",
        ErrorCode::LimitExceeded => "send less at once",
        ErrorCode::Unauthenticated => "send valid credentials",
        ErrorCode::PermissionDenied => "ask for the role that this call needs",
        _ => "check that the address is that of a Forebay service of this version",
    };
    let message = cut(status.message(), ERROR_MESSAGE_BYTES_MAX);
    format!("{advice} ({}: {message})", status.code().description())
}
