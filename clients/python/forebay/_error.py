"""The base class of the exceptions; `_errors` has a class for each error code."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from forebay._native import PendingWrite


class ForebayError(Exception):
    """A failure: the event, its context, and what to do next. Never contains a value.

    `code` is the name of the code, as every language spells it; the class has that name and ends
    in `Error`.
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
        """The write itself, if it is unresolved: `Store.retry` resolves the same write."""


def pending_of(error: ForebayError) -> PendingWrite:
    """Return the write of an error, or raise the error if it has none."""
    if error.pending is None:
        raise error
    return error.pending
