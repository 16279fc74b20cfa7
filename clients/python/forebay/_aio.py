"""The client for asyncio: the same calls, awaited instead of waited for.

A native thread never touches the event loop: it leaves the answer in a list and wakes the loop
through a socket, and the loop takes all answers that have come.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from forebay import _changes as changes
from forebay import _native
from forebay._client import FieldTypes, pending_of, store_spec
from forebay._errors import Closed, Error
from forebay._model import BatchOutcome, Definition, Fields, Key, WriteOutcome

Self = TypeVar("Self", bound="AsyncClient")
T = TypeVar("T")


class _Calls:
    """The calls that one event loop awaits."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._completions = _native.Completions()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._tickets = 0
        self._is_open = True
        self._loop.add_reader(self._completions.fileno(), self._take)

    async def run(self, call: "_native.Call[T]") -> T:
        if not self._is_open:
            raise Closed("Closed: the client was closed; open another one")
        self._tickets += 1
        ticket = self._tickets
        answer: asyncio.Future[T] = self._loop.create_future()
        self._waiting[ticket] = answer
        started = call.start(self._completions, ticket)
        try:
            return await answer
        finally:
            # Nobody listens any more: answered, cancelled, or closed.
            self._waiting.pop(ticket, None)
            started.cancel()

    def _take(self) -> None:
        for ticket, answer, error in self._completions.take():
            future = self._waiting.pop(ticket, None)
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        if not self._loop.is_closed():
            self._loop.remove_reader(self._completions.fileno())
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Closed("Closed: the client was closed during the call"))


class AsyncClient:
    """Writes to stores and administers them, from one asyncio event loop.

    >>> async with forebay.AsyncClient("127.0.0.1:7070") as client:   # doctest: +SKIP
    ...     users = await client.store("users")
    ...     await users.upsert("u1", {"visits": forebay.increment(1)})

    Cancelling a call gives it up: the outcome of a write is then unknown.
    """

    def __init__(
        self, endpoint: str, *, deadline: float | None = None, attempt: float | None = None
    ) -> None:
        """Say where to connect and how long a call has; see `Client`. Connects when entered."""
        self._endpoint = endpoint
        self._deadline = deadline
        self._attempt = attempt
        self._calls: _Calls | None = None
        self._connected: _native.Client | None = None

    async def connect(self: Self) -> Self:
        """Connect, on the running event loop; `async with` does it."""
        if self._connected is None:
            calls = _Calls()
            try:
                call = _native.connect(self._endpoint, self._deadline, self._attempt)
                self._connected = await calls.run(call)
            except BaseException:
                calls.close()
                raise
            self._calls = calls
        return self

    async def __aenter__(self: Self) -> Self:
        """Connect and return the client itself."""
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
        """Close the connection; a second time changes nothing. Calls in flight raise `Closed`."""
        if self._connected is not None and self._calls is not None:
            self._connected.close()
            self._calls.close()

    def _open(self) -> tuple[_native.Client, _Calls]:
        if self._connected is None or self._calls is None:
            raise Closed("Closed: the client is not connected; use `async with`, or connect()")
        return self._connected, self._calls

    async def store(self, name: str) -> "AsyncStore":
        """Open a store; see `Client.store`."""
        native, calls = self._open()
        return AsyncStore(await calls.run(native.store(name)), calls)

    async def create_store(
        self,
        name: str,
        fields: FieldTypes = (),
        *,
        key: str = "string",
        partitions: int = 8,
        partition_key: str | None = None,
        key_value: bool = False,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
    ) -> "AsyncStore":
        """Create a store and open it; see `Client.create_store`."""
        native, calls = self._open()
        spec = store_spec(
            name,
            key=key,
            partitions=partitions,
            fields=fields,
            partition_key=partition_key,
            key_value=key_value,
            ttl=ttl,
            versioned=versioned,
            heartbeat=heartbeat,
        )
        return AsyncStore(await calls.run(native.create_store(spec)), calls)

    async def alter_store(
        self,
        name: str,
        alterations: Sequence[_native.Alteration],
        *,
        from_version: int | None = None,
    ) -> Definition:
        """Give a store its next version; see `Client.alter_store`."""
        native, calls = self._open()
        call = native.alter_store(name, list(alterations), from_version)
        return await calls.run(call)

    async def delete_store(self, name: str) -> None:
        """Delete a store and all its data; its name is free again."""
        native, calls = self._open()
        await calls.run(native.delete_store(name))

    async def describe_store(self, name: str, version: int | None = None) -> Definition:
        """Return the definition of a store, the newest unless a version is given."""
        native, calls = self._open()
        return await calls.run(native.describe_store(name, version))

    async def list_stores(self) -> list[Definition]:
        """Return the newest definitions of all stores, by name."""
        native, calls = self._open()
        return await calls.run(native.list_stores())


class AsyncStore:
    """One store of an `AsyncClient`; its methods are those of `Store`, awaited."""

    def __init__(self, native: _native.Store, calls: _Calls) -> None:
        """Wrap a native store; `AsyncClient.store` makes these."""
        self._native = native
        self._calls = calls

    @property
    def definition(self) -> Definition:
        """The definition as this client has last seen it."""
        return self._native.definition()

    async def refresh(self) -> Definition:
        """Ask for the newest definition."""
        return await self._calls.run(self._native.refresh())

    async def write(self, change: _native.Change, *, deadline: float | None = None) -> WriteOutcome:
        """Send a change until what became of it is known; see `Store.write`."""
        return await self._calls.run(self._native.write(change, deadline))

    async def upsert(
        self,
        key: Key,
        fields: Fields,
        *,
        ttl: float | None = None,
        field_ttl: Mapping[str, float] | None = None,
        if_absent: bool = False,
        if_version: int | None = None,
        if_newer: str | None = None,
        deadline: float | None = None,
    ) -> WriteOutcome:
        """Write `forebay.upsert` of these arguments."""
        change = changes.upsert(
            key,
            fields,
            ttl=ttl,
            field_ttl=field_ttl,
            if_absent=if_absent,
            if_version=if_version,
            if_newer=if_newer,
        )
        return await self.write(change, deadline=deadline)

    async def put(
        self,
        key: Key,
        fields: Fields,
        *,
        ttl: float | None = None,
        field_ttl: Mapping[str, float] | None = None,
        if_absent: bool = False,
        if_version: int | None = None,
        if_newer: str | None = None,
        deadline: float | None = None,
    ) -> WriteOutcome:
        """Write `forebay.put` of these arguments."""
        change = changes.put(
            key,
            fields,
            ttl=ttl,
            field_ttl=field_ttl,
            if_absent=if_absent,
            if_version=if_version,
            if_newer=if_newer,
        )
        return await self.write(change, deadline=deadline)

    async def delete(
        self, key: Key, *, if_version: int | None = None, deadline: float | None = None
    ) -> WriteOutcome:
        """Write `forebay.delete` of these arguments."""
        return await self.write(changes.delete(key, if_version=if_version), deadline=deadline)

    async def batch(
        self, batch: Iterable[_native.Change], *, deadline: float | None = None
    ) -> BatchOutcome:
        """Send many changes together; see `Store.batch`."""
        return await self._calls.run(self._native.batch(batch, deadline))

    async def retry(self, error: Error) -> BatchOutcome:
        """Settle the write of an `UnknownOutcome`; see `Store.retry`."""
        return await self._calls.run(pending_of(error).retry())
