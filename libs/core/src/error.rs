//! The one error type of Forebay's public surface. An error has a code of the table in
//! `proto/forebay/v1/error.proto`, a message that says what happened and what to do next, and a
//! context. An error never contains a stored value.

use std::any::Any;
use std::fmt;
use std::io;

use crate::id::PartitionId;

/// Result type of this crate and its callers.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Kind of failure; the table is the same in every language (`tools/docs/src/semantics.md`, section
/// 10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The request can never succeed in its present form.
    InvalidArgument,
    /// The named store or field does not exist. An absent key is not an error.
    NotFound,
    /// Another definition came first.
    Conflict,
    /// The service is not ready or not reachable yet; the same call may succeed later.
    Unavailable,
    /// The caller's deadline passed before anything was sent.
    DeadlineExceeded,
    /// The write may or may not be in the log; retrying the same call resolves it.
    UnknownOutcome,
    /// A limit was exceeded; the message names the limit and the actual value.
    LimitExceeded,
    /// The data is older than the caller's bound.
    Stale,
    /// The token belongs to a log that is no longer served.
    TokenLost,
    /// The bytes fail their checksum or contradict their format.
    Corrupt,
    /// This build, mode or implementation does not offer the operation.
    Unsupported,
    /// This build does not know the format, change kind or fold version.
    UpgradeNeeded,
    /// The reader or client was closed.
    Closed,
    /// The call has no valid credentials.
    Unauthenticated,
    /// The credentials are valid, but lack the required role.
    PermissionDenied,
    /// An invariant is broken; the log records contain evidence.
    Internal,
}

impl ErrorCode {
    /// Every code, in the order of the table.
    pub const ALL: [ErrorCode; 16] = [
        Self::InvalidArgument,
        Self::NotFound,
        Self::Conflict,
        Self::Unavailable,
        Self::DeadlineExceeded,
        Self::UnknownOutcome,
        Self::LimitExceeded,
        Self::Stale,
        Self::TokenLost,
        Self::Corrupt,
        Self::Unsupported,
        Self::UpgradeNeeded,
        Self::Closed,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::Internal,
    ];

    /// Returns the code's number on the wire and in the C ABI; 0 means "no error".
    pub fn number(self) -> i32 {
        Self::ALL.iter().position(|code| *code == self).map_or(0, |place| place as i32 + 1)
    }

    /// Returns the code with this number, or `None` for 0 and unknown numbers.
    pub fn from_number(number: i32) -> Option<Self> {
        usize::try_from(number).ok()?.checked_sub(1).and_then(|place| Self::ALL.get(place)).copied()
    }

    /// Returns the code's name, as every language spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidArgument => "InvalidArgument",
            Self::NotFound => "NotFound",
            Self::Conflict => "Conflict",
            Self::Unavailable => "Unavailable",
            Self::DeadlineExceeded => "DeadlineExceeded",
            Self::UnknownOutcome => "UnknownOutcome",
            Self::LimitExceeded => "LimitExceeded",
            Self::Stale => "Stale",
            Self::TokenLost => "TokenLost",
            Self::Corrupt => "Corrupt",
            Self::Unsupported => "Unsupported",
            Self::UpgradeNeeded => "UpgradeNeeded",
            Self::Closed => "Closed",
            Self::Unauthenticated => "Unauthenticated",
            Self::PermissionDenied => "PermissionDenied",
            Self::Internal => "Internal",
        }
    }

    /// Returns whether a retry of the same call may succeed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::UnknownOutcome | Self::Stale)
    }
}

/// Context of a failure; fields that do not apply are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorContext {
    /// Name of the store.
    pub store: Option<String>,
    /// Partition of the store.
    pub partition: Option<PartitionId>,
    /// Name of the field.
    pub field: Option<String>,
    /// xxh3 digest of the key's bytes; the key itself is never shown.
    pub key_digest: Option<u64>,
    /// Limit that was exceeded.
    pub limit: Option<u64>,
    /// Actual value.
    pub actual: Option<u64>,
}

/// A failure with its code, its message and its context.
///
/// ```
/// use forebay_core::{Error, ErrorCode};
/// let error = Error::limit_exceeded("shorten the key", 65_536, 70_000).with_store("users");
/// assert_eq!(error.code(), ErrorCode::LimitExceeded);
/// assert_eq!(
///     error.to_string(),
///     "LimitExceeded: shorten the key (store users, limit 65536, actual 70000)"
/// );
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Failure>);

/// Content of an error, boxed so that a successful result stays small.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Failure {
    code: ErrorCode,
    message: String,
    context: ErrorContext,
}

macro_rules! constructors {
    ($($name:ident => $code:ident),* $(,)?) => {
        $(
            #[doc = concat!("An error with code [`ErrorCode::", stringify!($code), "`].")]
            pub fn $name(message: impl Into<String>) -> Self {
                Self::new(ErrorCode::$code, message)
            }
        )*
    };
}

impl Error {
    /// Creates an error with this code and message, and no context yet.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let (message, context) = (message.into(), ErrorContext::default());
        Self(Box::new(Failure { code, message, context }))
    }

    constructors! {
        invalid_argument => InvalidArgument,
        not_found => NotFound,
        conflict => Conflict,
        unavailable => Unavailable,
        deadline_exceeded => DeadlineExceeded,
        unknown_outcome => UnknownOutcome,
        stale => Stale,
        token_lost => TokenLost,
        corrupt => Corrupt,
        unsupported => Unsupported,
        upgrade_needed => UpgradeNeeded,
        closed => Closed,
        internal => Internal,
    }

    /// Creates an error for an exceeded limit. The message says what to do; the numbers give the
    /// limit and the actual value.
    pub fn limit_exceeded(message: impl Into<String>, limit: u64, actual: u64) -> Self {
        let mut error = Self::new(ErrorCode::LimitExceeded, message);
        error.0.context.limit = Some(limit);
        error.0.context.actual = Some(actual);
        error
    }

    /// Converts a caught panic to `Internal`, with the message of the panic.
    pub fn of_panic(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("no message");
        Self::internal(format!("a broken invariant ({text}); report it"))
    }

    /// Converts an error of the disk to `LimitExceeded` if the disk is full, else to `Unavailable`.
    /// `failed` says what failed; the message adds the cause and the advice.
    pub fn of_disk(failure: &str, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::LimitExceeded,
            _ => ErrorCode::Unavailable,
        };
        Self::new(code, format!("{failure}: {error}; look at the disk"))
    }

    /// Returns the error with the name of its store.
    #[must_use]
    pub fn with_store(mut self, store: impl Into<String>) -> Self {
        self.0.context.store = Some(store.into());
        self
    }

    /// Returns the error with its partition.
    #[must_use]
    pub fn with_partition(mut self, partition: PartitionId) -> Self {
        self.0.context.partition = Some(partition);
        self
    }

    /// Returns the error with the name of its field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.0.context.field = Some(field.into());
        self
    }

    /// Returns the error with the digest of its key.
    #[must_use]
    pub fn with_key_digest(mut self, digest: u64) -> Self {
        self.0.context.key_digest = Some(digest);
        self
    }

    /// Returns the error with this context in place of the present one.
    #[must_use]
    pub fn with_context(mut self, context: ErrorContext) -> Self {
        self.0.context = context;
        self
    }

    /// Returns the error with `doing: ` before its message: an action, or the place of the failure.
    #[must_use]
    pub fn while_doing(mut self, doing: &str) -> Self {
        self.0.message = format!("{doing}: {}", self.0.message);
        self
    }

    /// Returns the code.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the message, without code and context.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the context of the failure.
    pub fn context(&self) -> &ErrorContext {
        &self.0.context
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.0.code.name(), self.0.message)?;
        let context = &self.0.context;
        let mut parts = Vec::new();
        if let Some(store) = &context.store {
            parts.push(format!("store {store}"));
        }
        if let Some(partition) = context.partition {
            parts.push(format!("partition {partition}"));
        }
        if let Some(field) = &context.field {
            parts.push(format!("field {field}"));
        }
        if let Some(digest) = context.key_digest {
            parts.push(format!("key digest {digest:016x}"));
        }
        if let Some(limit) = context.limit {
            parts.push(format!("limit {limit}"));
        }
        if let Some(actual) = context.actual {
            parts.push(format!("actual {actual}"));
        }
        if parts.is_empty() { Ok(()) } else { write!(f, " ({})", parts.join(", ")) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_unique_number_and_name() {
        for (place, code) in ErrorCode::ALL.into_iter().enumerate() {
            assert_eq!(code.number(), place as i32 + 1);
            assert_eq!(ErrorCode::from_number(code.number()), Some(code));
        }
        assert_eq!(ErrorCode::from_number(0), None);
        assert_eq!(ErrorCode::from_number(-3), None);
        assert_eq!(ErrorCode::from_number(99), None);
        let names: std::collections::BTreeSet<_> =
            ErrorCode::ALL.iter().map(|code| code.name()).collect();
        assert_eq!(names.len(), ErrorCode::ALL.len());
    }

    #[test]
    fn panic_error_contains_its_message() {
        let panics: [(Box<dyn Any + Send>, &str); 3] = [
            (Box::new("a text"), "a text"),
            (Box::new("a string".to_owned()), "a string"),
            (Box::new(7), "no message"),
        ];
        for (panic, text) in panics {
            let error = Error::of_panic(&*panic);
            assert_eq!(error.code(), ErrorCode::Internal);
            assert!(error.message().contains(text), "{error}");
        }
    }

    #[test]
    fn disk_error_is_an_exceeded_limit_only_if_the_disk_is_full() {
        use io::ErrorKind::{PermissionDenied, QuotaExceeded, StorageFull};
        for (kind, code) in [
            (StorageFull, ErrorCode::LimitExceeded),
            (QuotaExceeded, ErrorCode::LimitExceeded),
            (PermissionDenied, ErrorCode::Unavailable),
        ] {
            let error = Error::of_disk("a file could not be stored", &io::Error::new(kind, "why"));
            assert_eq!(error.code(), code);
            assert_eq!(error.message(), "a file could not be stored: why; look at the disk");
        }
    }
}
