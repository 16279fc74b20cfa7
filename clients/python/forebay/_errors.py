"""Generated from error.proto by python3 clients/bindings/generate_bindings.py.

The exceptions, a class for each error code.
"""

from __future__ import annotations

from forebay._error import Error, pending_of

__all__ = [
    "Closed",
    "Conflict",
    "Corrupt",
    "DeadlineExceeded",
    "Error",
    "Internal",
    "InvalidArgument",
    "LimitExceeded",
    "NotFound",
    "PermissionDenied",
    "Stale",
    "TokenLost",
    "Unauthenticated",
    "Unavailable",
    "UnknownOutcome",
    "Unsupported",
    "UpgradeNeeded",
    "pending_of",
]


class InvalidArgument(Error):
    """The request can never succeed in its present form."""

    code = "InvalidArgument"


class NotFound(Error):
    """The named store or field does not exist; an absent key is no error."""

    code = "NotFound"


class Conflict(Error):
    """Another definition came first."""

    code = "Conflict"


class Unavailable(Error):
    """The service is not ready or not reachable yet."""

    code = "Unavailable"
    is_retryable = True


class DeadlineExceeded(Error):
    """The deadline passed before anything was sent."""

    code = "DeadlineExceeded"


class UnknownOutcome(Error):
    """The write may or may not be in the log; the same retry settles it."""

    code = "UnknownOutcome"
    is_retryable = True


class LimitExceeded(Error):
    """A limit was exceeded.

    `limit` and `actual` say by how much.
    """

    code = "LimitExceeded"


class Stale(Error):
    """The data is older than the caller's bound."""

    code = "Stale"
    is_retryable = True


class TokenLost(Error):
    """The token's log is no longer served."""

    code = "TokenLost"


class Corrupt(Error):
    """The bytes fail their checksum or contradict their format."""

    code = "Corrupt"


class Unsupported(Error):
    """This build, mode or implementation does not offer it."""

    code = "Unsupported"


class UpgradeNeeded(Error):
    """The format, change kind or fold version is newer than this build."""

    code = "UpgradeNeeded"


class Closed(Error):
    """The reader or client was closed.

    An object that was opened before a fork is closed in the child.
    """

    code = "Closed"


class Unauthenticated(Error):
    """The call has no valid credentials."""

    code = "Unauthenticated"


class PermissionDenied(Error):
    """The credentials are valid, but lack the required role."""

    code = "PermissionDenied"


class Internal(Error):
    """An invariant is broken; the service's log records contain evidence."""

    code = "Internal"
