//! Conversion of errors to and from gRPC statuses. The status details hold the encoded error of
//! Forebay; the status code is the one in the table of `error.proto`. A status without details
//! comes from a transport or a proxy and is converted by its code:
//!
//! | gRPC code | error without details |
//! |---|---|
//! | `OK` | `Internal`: a success is not an error |
//! | `CANCELLED` | `Unavailable`: the stream was cut; `DeadlineExceeded` if a time limit cut it |
//! | `UNKNOWN` | `Unavailable`: the transport failed |
//! | `INVALID_ARGUMENT` | `InvalidArgument` |
//! | `DEADLINE_EXCEEDED` | `DeadlineExceeded` |
//! | `NOT_FOUND` | `NotFound` |
//! | `ALREADY_EXISTS` | `Conflict` |
//! | `PERMISSION_DENIED` | `PermissionDenied` |
//! | `RESOURCE_EXHAUSTED` | `LimitExceeded` |
//! | `FAILED_PRECONDITION` | `Internal`: ours have details, so the cause is unknown |
//! | `ABORTED` | `Conflict` |
//! | `OUT_OF_RANGE` | `LimitExceeded`: a message over the limit of the transport |
//! | `UNIMPLEMENTED` | `Unsupported` |
//! | `INTERNAL` | `Internal`; `Unavailable` if the local transport created the status |
//! | `UNAVAILABLE` | `Unavailable` |
//! | `DATA_LOSS` | `Corrupt` |
//! | `UNAUTHENTICATED` | `Unauthenticated` |
//!
//! For a write, use only [`write_error_of_status`]: if the request may have reached the log, the
//! outcome is unknown.

use forebay_core::{Error, ErrorCode};
use prost::Message;
use tonic::{Code, ConnectError, Status, TimeoutExpired};

use crate::error::{ERROR_MESSAGE_BYTES_MAX, cut, known_error};
use crate::v1;

/// Returns the gRPC code of an error code.
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

/// Returns the status of this error.
pub fn status_of_error(error: &Error) -> Status {
    let details = v1::Error::from(error).encode_to_vec();
    let message = cut(error.message(), ERROR_MESSAGE_BYTES_MAX);
    Status::with_details(grpc_code(error.code()), message, details.into())
}

/// Returns the error of a status, for calls that change nothing.
///
/// The error in Forebay's own details has precedence; otherwise the table of this module applies.
pub fn error_of_status(status: &Status) -> Error {
    error_in_details(status).unwrap_or_else(|| {
        let code = code_without_details(status);
        Error::new(code, read_message(status, code))
    })
}

/// Returns the error of a status, for calls that append to a log.
///
/// If the service itself answered, its details say whether the outcome is known. If there are no
/// details, only a failed connect and a refusal before any handler ran are certain to have appended
/// nothing. Every other status is `UnknownOutcome`, and the same retry resolves it.
pub fn write_error_of_status(status: &Status) -> Error {
    error_in_details(status).unwrap_or_else(|| {
        let read = code_without_details(status);
        let code = if nothing_was_appended(status) { read } else { ErrorCode::UnknownOutcome };
        Error::new(code, read_message(status, code))
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
        // Both sides of a call enforce its time limit, and both report it in these words.
        Code::Cancelled if status.message() == TimeoutExpired(()).to_string() => {
            ErrorCode::DeadlineExceeded
        }
        // Only a status that was created on this side has a source: the local transport failed.
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

/// Returns the advice for a code, followed by the status's own message.
fn read_message(status: &Status, code: ErrorCode) -> String {
    let advice = match code {
        ErrorCode::Unavailable => "the service cannot be reached; try again",
        ErrorCode::UnknownOutcome => "the write may be in the log; send the same write again",
        ErrorCode::DeadlineExceeded => "the call took too long; allow it more time",
        ErrorCode::LimitExceeded => "the request is too large; send less at once",
        ErrorCode::Unauthenticated => "send valid credentials",
        ErrorCode::PermissionDenied => "ask for the role that this call needs",
        _ => "check that the address is that of a Forebay service of this version",
    };
    let message = cut(status.message(), ERROR_MESSAGE_BYTES_MAX);
    format!("{advice} ({}: {message})", status.code().description())
}
