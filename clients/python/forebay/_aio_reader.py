"""Reads for asyncio: the awaitable forms of the reads of `Reader` that wait."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from forebay import _native
from forebay._async_call import AsyncCalls
from forebay._model import ABSENT, Absent
from forebay._reader import Reader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from forebay._answers import PackedValues, Verification
    from forebay._types import Document, FieldValue, Key, Keys

Self = TypeVar("Self", bound="AsyncReader")
Default = TypeVar("Default")


class AsyncReader:
    """The reads of a `Reader` that wait, for one asyncio event loop, which they never block.

    Comes from `AsyncClient.reader`, or wraps an open reader: `AsyncReader(reader)`, on the loop.
    Reads that wait for nothing (`get` without `after` and `latest`, `status`, `field`, ...) are
    local: call them on `reader`.

    >>> async with await client.reader("users") as users:            # doctest: +SKIP
    ...     await users.await_ready(30)
    ...     await users.get("u1", "age", after=written.token)
    ...     users.reader.get("u1", "age")
    """

    def __init__(self, reader: Reader) -> None:
        """Wrap this reader, for the running event loop."""
        self.reader = reader
        self._calls = AsyncCalls()

    async def __aenter__(self: Self) -> Self:
        """Return the reader."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the reader."""
        await self.close()

    async def close(self, timeout: float = 10.0) -> None:
        """Close the reader, as `Reader.close` does; waits in flight raise `ClosedError`."""
        closing = self.reader.calls().close(timeout)
        try:
            await self._calls.run(closing)
        finally:
            self._calls.close()

    async def await_ready(self, timeout: float) -> None:
        """Wait until the reader is ready; see `Reader.await_ready`."""
        left = timeout - await self._reopen(timeout)
        await self._calls.run(self.reader.calls().await_ready(left))

    async def await_token(self, token: bytes, timeout: float) -> None:
        """Wait until everything that the token covers is applied in this process."""
        left = timeout - await self._reopen(timeout)
        await self._calls.run(self.reader.calls().await_token(token, left))

    async def verify(self, partition: int, timeout: float = 60.0) -> Verification:
        """Compare a partition with the node's shard; see `Reader.verify`."""
        left = timeout - await self._reopen(timeout)
        return await self._calls.run(self.reader.calls().verify(partition, left))

    async def _reopen(self, timeout: float | None) -> float:
        """Reopen the reader if a fork requires it; return the time that this took."""
        opening = self.reader.calls().reopen(timeout)
        if opening is None:
            return 0.0
        loop = asyncio.get_running_loop()
        begun = loop.time()
        await self._calls.run(opening)
        took = loop.time() - begun
        return took if timeout is None else min(took, timeout)

    async def _wait(
        self, keys: Keys, after: bytes | None, latest: bool, timeout: float | None
    ) -> None:
        took = await self._reopen(timeout)
        timeout = None if timeout is None else timeout - took
        if after is not None or latest:
            call = self.reader.calls().wait(keys, after=after, latest=latest, timeout=timeout)
            await self._calls.run(call)

    @overload
    async def get(
        self,
        key: Key,
        field: str | _native.FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | Absent: ...

    @overload
    async def get(
        self,
        key: Key,
        field: str | _native.FieldHandle,
        default: Default,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | Default: ...

    async def get(
        self,
        key: Key,
        field: str | _native.FieldHandle,
        default: object = ABSENT,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> object:
        """Return a field of a document, after the read's wait; see `Reader.get`."""
        await self._wait([key], after, latest, timeout)
        return self.reader.get(key, field, default, max_staleness=max_staleness)

    async def get_into(
        self,
        key: Key,
        field: str | _native.FieldHandle,
        buffer: bytearray | memoryview | npt.NDArray[np.uint8],
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> int | None | Absent:
        """Copy a string or bytes field to a buffer; see `Reader.get_into`."""
        await self._wait([key], after, latest, timeout)
        return self.reader.get_into(key, field, buffer, max_staleness=max_staleness)

    async def get_document(
        self,
        key: Key,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Document | None:
        """Return a whole document, after the read's wait."""
        await self._wait([key], after, latest, timeout)
        return self.reader.get_document(key, max_staleness=max_staleness)

    async def get_many(
        self,
        keys: Keys,
        field: str | _native.FieldHandle,
        default: object = ABSENT,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> list[FieldValue]:
        """Return one field of many documents, after the read's wait."""
        await self._wait(keys, after, latest, timeout)
        return self.reader.get_many(
            keys, field, default, statuses=statuses, max_staleness=max_staleness
        )

    async def get_packed(
        self,
        keys: Keys,
        field: str | _native.FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> PackedValues:
        """Return a string or bytes field of many documents as buffers; see `Reader.get_packed`."""
        await self._wait(keys, after, latest, timeout)
        return self.reader.get_packed(keys, field, max_staleness=max_staleness)

    async def get_documents(
        self,
        keys: Keys,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> list[Document | None]:
        """Return many documents, after the read's wait."""
        await self._wait(keys, after, latest, timeout)
        return self.reader.get_documents(keys, statuses=statuses, max_staleness=max_staleness)

    async def gather(
        self,
        plan: _native.GatherPlan,
        keys: Keys,
        *,
        out: npt.NDArray[Any] | None = None,
        mask: npt.NDArray[np.uint8] | None = None,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """Fill a matrix, after the read's wait; see `Reader.gather`."""
        await self._wait(keys, after, latest, timeout)
        return self.reader.gather(
            plan, keys, out=out, mask=mask, statuses=statuses, max_staleness=max_staleness
        )
