"""The blocking client: writes to stores and administers them, from any number of threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from forebay import _native
from forebay._reader import Reader
from forebay._sync_call import Calls
from forebay._verbs import ClientVerbs

Self = TypeVar("Self", bound="Client")

_CALLS = Calls()


class Client(ClientVerbs):
    """Writes to stores and administers them; one client per process is enough for all its threads.

    A client numbers its writes, so that a write that is sent twice happens once. Use it as a
    context manager, or close it. Ctrl-C ends every wait; the outcome of a write is then unknown.

    >>> with forebay.Client("127.0.0.1:7070") as client:            # doctest: +SKIP
    ...     users = client.store("users")
    ...     users.upsert("u1", {"age": 41, "visits": forebay.increment(1)})
    """

    def __init__(
        self, endpoint: str, *, deadline: float | None = None, attempt: float | None = None
    ) -> None:
        """Connect to a node, such as `forebayd dev`, at `host:port`.

        A call has `deadline` seconds, retries included (10 unless set), and one attempt `attempt`
        seconds (4 unless set). Raises `UnavailableError` if no node answers there.
        """
        self._native = _native.connect(endpoint, deadline, attempt).wait()

    def __enter__(self: Self) -> Self:
        """Return the client."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connection; a second call changes nothing. Later calls raise `ClosedError`."""
        self._native.close()

    def _open(self) -> tuple[_native.Client, Calls]:
        return self._native, _CALLS

    def reader(
        self,
        store: str,
        *,
        partitions: Sequence[int] | None = None,
        allow_incomplete_reads: bool = False,
        ready_max_staleness: float | None = None,
        open_timeout: float | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_interval: float | None = None,
        memory_limit: int | None = None,
        spill_limit: int = 0,
        snapshots: str | None = None,
    ) -> Reader:
        """Open an embedded reader over this client's connection; see `Reader`."""
        return Reader(
            self._native,
            store,
            partitions=None if partitions is None else list(partitions),
            allow_incomplete_reads=allow_incomplete_reads,
            ready_max_staleness=ready_max_staleness,
            open_timeout=open_timeout,
            checkpoint_dir=checkpoint_dir,
            checkpoint_interval=checkpoint_interval,
            memory_limit=memory_limit,
            spill_limit=spill_limit,
            snapshots=snapshots,
        )
