"""The client for asyncio: the same calls as `Client`, awaited."""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import TracebackType
from typing import TypeVar

from forebay import _native
from forebay._aio_reader import AsyncReader
from forebay._async_call import AsyncCalls
from forebay._async_verbs import AsyncClientVerbs
from forebay._errors import ClosedError
from forebay._reader import Reader

Self = TypeVar("Self", bound="AsyncClient")


class AsyncClient(AsyncClientVerbs):
    """Writes to stores and administers them, from one asyncio event loop.

    >>> async with forebay.AsyncClient("127.0.0.1:7070") as client:   # doctest: +SKIP
    ...     users = await client.store("users")
    ...     await users.upsert("u1", {"visits": forebay.increment(1)})

    The methods of the client, its stores and its streams are those of `Client`, awaited. Cancelling
    a call gives it up: the outcome of a write is then unknown.
    """

    def __init__(
        self, endpoint: str, *, deadline: float | None = None, attempt: float | None = None
    ) -> None:
        """Set the address and the deadlines; see `Client`. The client connects when entered."""
        self._endpoint = endpoint
        self._deadline = deadline
        self._attempt = attempt
        self._calls: AsyncCalls | None = None
        self._connected: _native.Client | None = None

    async def connect(self: Self) -> Self:
        """Connect, on the running event loop; `async with` does it."""
        if self._connected is None:
            calls = AsyncCalls()
            try:
                call = _native.connect(self._endpoint, self._deadline, self._attempt)
                self._connected = await calls.run(call)
            except BaseException:
                calls.close()
                raise
            self._calls = calls
        return self

    async def __aenter__(self: Self) -> Self:
        """Connect and return the client."""
        return await self.connect()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the connection; a second call changes nothing.

        Calls in flight raise `ClosedError`.
        """
        if self._connected is not None and self._calls is not None:
            self._connected.close()
            self._calls.close()

    async def reader(
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
    ) -> AsyncReader:
        """Open an embedded reader over this client's connection; see `Client.reader`."""
        native, calls = self._open()
        opening = _native.open_reader(
            native,
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
        opened = await calls.run(opening)
        return AsyncReader(Reader(opened, store))

    def _open(self) -> tuple[_native.Client, AsyncCalls]:
        if self._connected is None or self._calls is None:
            raise ClosedError("Closed: the client is not connected; use `async with`, or connect()")
        return self._connected, self._calls
