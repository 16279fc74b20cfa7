"""Generated from error.proto by python3 clients/bindings/generate_bindings.py.

The exceptions, a class for each error code.
"""

from __future__ import annotations

from forebay._error import ForebayError, pending_of

__all__ = [
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "DeadlineExceededError",
    "ForebayError",
    "InternalError",
    "InvalidArgumentError",
    "LimitExceededError",
    "NotFoundError",
    "PermissionDeniedError",
    "StaleError",
    "TokenLostError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownOutcomeError",
    "UnsupportedError",
    "UpgradeNeededError",
    "pending_of",
]


class InvalidArgumentError(ForebayError, ValueError):
    """The request can never succeed in its present form."""

    code = "InvalidArgument"


class NotFoundError(ForebayError, LookupError):
    """The named store or field does not exist; an absent key is no error."""

    code = "NotFound"


class ConflictError(ForebayError):
    """Another definition came first."""

    code = "Conflict"


class UnavailableError(ForebayError, ConnectionError):
    """The service is not ready or not reachable yet."""

    code = "Unavailable"
    is_retryable = True


class DeadlineExceededError(ForebayError, TimeoutError):
    """The deadline passed before anything was sent."""

    code = "DeadlineExceeded"


class UnknownOutcomeError(ForebayError):
    """The write may or may not be in the log; the same retry resolves it."""

    code = "UnknownOutcome"
    is_retryable = True


class LimitExceededError(ForebayError):
    """A limit was exceeded.

    `limit` and `actual` say by how much.
    """

    code = "LimitExceeded"


class StaleError(ForebayError):
    """The data is older than the caller's bound."""

    code = "Stale"
    is_retryable = True


class TokenLostError(ForebayError):
    """The token's log is no longer served."""

    code = "TokenLost"


class CorruptError(ForebayError):
    """The bytes fail their checksum or contradict their format."""

    code = "Corrupt"


class UnsupportedError(ForebayError):
    """This build, mode or implementation does not offer it."""

    code = "Unsupported"


class UpgradeNeededError(ForebayError):
    """The format, change kind or fold version is newer than this build."""

    code = "UpgradeNeeded"


class ClosedError(ForebayError):
    """The reader or client was closed.

    An object that was opened before a fork is closed in the child.
    """

    code = "Closed"


class UnauthenticatedError(ForebayError):
    """The call has no valid credentials."""

    code = "Unauthenticated"


class PermissionDeniedError(ForebayError, PermissionError):
    """The credentials are valid, but lack the required role."""

    code = "PermissionDenied"


class InternalError(ForebayError):
    """An invariant is broken; the service's log records contain evidence."""

    code = "Internal"
