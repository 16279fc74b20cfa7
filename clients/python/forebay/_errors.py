"""The exceptions: one class per code of Forebay's one code table, all of them `Error`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from forebay._native import PendingWrite


class Error(Exception):
    """A failure: the event, its context, and what to do next. Never contains a value.

    `code` is the name of the code, which is also the name of the class.
    """

    code: ClassVar[str] = ""
    is_retryable: ClassVar[bool] = False
    """Whether a plain retry of the same call may succeed."""

    def __init__(
        self,
        message: str,
        *,
        store: str | None = None,
        partition: int | None = None,
        field: str | None = None,
        key_digest: int | None = None,
        limit: int | None = None,
        actual: int | None = None,
        pending: PendingWrite | None = None,
    ) -> None:
        """Create the exception of a failure; attributes that do not apply are None."""
        super().__init__(message)
        self.store = store
        self.partition = partition
        self.field = field
        self.key_digest = key_digest
        self.limit = limit
        self.actual = actual
        self.pending = pending
        """The write itself, if it is unsettled: `Store.retry` settles the same write."""


class InvalidArgument(Error):
    """The request can never succeed as it stands."""

    code = "InvalidArgument"


class NotFound(Error):
    """The store or field that was named does not exist. An absent key is no error."""

    code = "NotFound"


class Conflict(Error):
    """Another definition came first."""

    code = "Conflict"


class Unavailable(Error):
    """Not ready or not reachable yet; the same call may succeed later."""

    code = "Unavailable"
    is_retryable = True


class DeadlineExceeded(Error):
    """The deadline passed before anything was sent, or before a wait ended."""

    code = "DeadlineExceeded"


class UnknownOutcome(Error):
    """The write may or may not be in the log; retrying the same write settles it."""

    code = "UnknownOutcome"
    is_retryable = True


class LimitExceeded(Error):
    """A limit was passed; `limit` and `actual` say by how much."""

    code = "LimitExceeded"


class Stale(Error):
    """The data is older than the requested bound."""

    code = "Stale"
    is_retryable = True


class TokenLost(Error):
    """The token belongs to a log that is no longer served."""

    code = "TokenLost"


class Corrupt(Error):
    """Bytes that fail their checksum or contradict their format."""

    code = "Corrupt"


class Unsupported(Error):
    """This build, mode or implementation does not offer the operation."""

    code = "Unsupported"


class UpgradeNeeded(Error):
    """A format, change kind or fold version that this build does not know."""

    code = "UpgradeNeeded"


class Closed(Error):
    """The object was closed, or was opened before this process was forked."""

    code = "Closed"


class Unauthenticated(Error):
    """No valid credentials."""

    code = "Unauthenticated"


class PermissionDenied(Error):
    """Valid credentials without the needed role."""

    code = "PermissionDenied"


class Internal(Error):
    """A broken invariant."""

    code = "Internal"


def pending_of(error: Error) -> PendingWrite:
    """Return the write of an error, or raise the error if it has none."""
    if error.pending is None:
        raise error
    return error.pending
