"""What the client for asyncio can do, store by store and write by write.

This file is the one source of both clients: `_verbs.py` is made of it by `sync_verbs.py`, which
takes the awaiting out. So a docstring here speaks of either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from forebay import _changes as changes
from forebay import _native
from forebay._await import Calls
from forebay._definition import FieldTypes, store_spec, stream_spec
from forebay._errors import Error, pending_of

if TYPE_CHECKING:
    from datetime import datetime

    from forebay._answers import BatchOutcome, Definition, Selected, StreamSummary, WriteOutcome
    from forebay._types import Document, Fields, Key, Keys, Value

Self = TypeVar("Self", bound="AsyncWriteStream")


class AsyncClientVerbs:
    """Administration of stores."""

    def _open(self) -> tuple[_native.Client, Calls]:
        """Return the native client and what makes its calls. Raises `Closed`."""
        raise NotImplementedError

    async def store(self, name: str) -> AsyncStore:
        """Open a store. Raises `NotFound` when there is none of this name."""
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
        log_window: float | None = None,
    ) -> AsyncStore:
        """Create a store and open it.

        `fields` are types by name, or `FieldSpec`s where a field has a default or a time to live.
        The number of `partitions` is fixed. Times are in seconds. `ttl` is that of documents whose
        put carries none; `heartbeat` the silence after which one is appended.

        `log_window` is how much of the store's logs is kept behind its newest snapshot; what is
        older is trimmed. Unless set all is kept, and so it is where nobody makes snapshots.

        Raises `InvalidArgument` or `LimitExceeded` for a store that cannot be (a `log_window`
        below 0, or above 100 years), `Conflict` when the name is taken, `UnknownOutcome` when it
        may have happened: the same call settles it.
        """
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
            log_window=log_window,
        )
        return AsyncStore(await calls.run(native.create_store(spec)), calls)

    async def create_stream(
        self,
        name: str,
        columns: FieldTypes,
        *,
        key: str = "string",
        partitions: int = 8,
        event_time: str | None = None,
        heartbeat: float = 1.0,
        log_window: float | None = None,
        log_bytes: int | None = None,
    ) -> AsyncStore:
        """Create a stream of events and open it.

        `columns` are types by name, or `FieldSpec`s: with `default` that value is stored where an
        event has none, with `required` such an event is refused, and so is one whose value is none
        of those `allowed`. `event_time` names the timestamp column that says when an event
        happened; without one that is when it was inserted. An event's key says which of the
        `partitions` it goes to.

        Events are retained for `log_window` seconds, and by each partition up to about `log_bytes`
        bytes; unless set all are. Retained ones are found by a column with the `index` `"exact"`
        (those of one value) or `"range"` (between two as well). The rest is as for `create_store`.
        """
        native, calls = self._open()
        spec = stream_spec(
            name,
            key=key,
            partitions=partitions,
            columns=columns,
            event_time=event_time,
            heartbeat=heartbeat,
            log_window=log_window,
            log_bytes=log_bytes,
        )
        return AsyncStore(await calls.run(native.create_store(spec)), calls)

    async def alter_store(
        self,
        name: str,
        alterations: Sequence[_native.Alteration],
        *,
        from_version: int | None = None,
    ) -> Definition:
        """Give a store its next version; all alterations happen, or none.

        With `from_version` another writer's alteration in between is a `Conflict`. Raises
        `InvalidArgument` with the reason why old data would become unreadable, `UnknownOutcome`
        when it may have happened: the same call settles it, and alters nothing twice.
        """
        native, calls = self._open()
        return await calls.run(native.alter_store(name, list(alterations), from_version))

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
    """One store of a client. It is bound to the store, not to its name."""

    def __init__(self, native: _native.Store, calls: Calls) -> None:
        """Wrap a native store; the client makes these."""
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
        """Send a change, again where needed, until what became of it is known.

        Raises `NotFound`, `InvalidArgument` or `LimitExceeded` for what cannot be, with nothing
        written. At the deadline `UnknownOutcome`: `retry` settles the same write.
        """
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

    async def insert(
        self, key: Key, columns: Fields, *, deadline: float | None = None
    ) -> WriteOutcome:
        """Write `forebay.insert` of these arguments."""
        return await self.write(changes.insert(key, columns), deadline=deadline)

    async def batch(
        self, batch: Iterable[_native.Change], *, deadline: float | None = None
    ) -> BatchOutcome:
        """Send many changes together; those of one partition are in order, and atomic up to 1,024.

        A change that cannot be ends the batch before anything is sent. One that the writer refuses
        is an error among the results: see `BatchOutcome.complete`.
        """
        return await self._calls.run(self._native.batch(batch, deadline))

    async def retry(self, error: Error) -> BatchOutcome:
        """Settle the write of an `UnknownOutcome`: send the same one again.

        What is in the log already happens no second time. Raises the error when it holds no write.
        """
        return await self._calls.run(pending_of(error).retry())

    async def select(
        self,
        *,
        key: Key | None = None,
        equal: tuple[str, Value] | None = None,
        between: tuple[str, Value | None, Value | None] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        columns: Sequence[str] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Selected:
        """Return retained events of a stream, ordered by when they happened, unless by a column.

        They are those of a `key`, of `equal=(column, value)` in a column that has an index, or of
        `between=(column, least, behind)` in one with an index of ranges, where None is no bound;
        without any of these all. `start` and `end` bound when they happened, as datetimes with a
        time zone: that one or later, and before that one.

        Of each event only `columns` are answered, unless set all. `order_by` is a scalar column;
        events without a value of it come last. With `descending` the last ones come first. The
        first of them are answered, at most `limit`: 1,000 unless set, and up to 10,000.

        The read takes `after` (a token: wait until that write is there), `latest` (wait until all
        that was acknowledged before is there), both at most `timeout` seconds (10 unless set), and
        `max_age` (raise `Stale` for data older than so many seconds).

        Raises `InvalidArgument` for a store of documents, a key or value of another type, a column
        without the index that it takes, and events that are to be found in two ways; `NotFound`
        for a column that the stream does not have; `LimitExceeded` for more events or bytes than
        are answered, or more than are looked at to find them; `Unsupported` in memory.

        >>> dear = orders.select(  # doctest: +SKIP
        ...     equal=("city", "Rome"), order_by="price", descending=True, limit=10
        ... )
        >>> [event.columns["price"] for event in dear.events]  # doctest: +SKIP
        [180, 160]
        """
        call = self._native.select(
            key=key,
            equal=equal,
            between=between,
            start=start,
            end=end,
            columns=None if columns is None else list(columns),
            order_by=order_by,
            descending=descending,
            limit=limit,
            after=after,
            latest=latest,
            max_age=max_age,
            timeout=timeout,
        )
        return await self._calls.run(call)

    def ordered(self) -> AsyncOrderedReads:
        """Return reads of this store in the order of its keys, from the shards of the node.

        Each costs a round trip, where a `Reader` answers from this process's memory; for that,
        nothing is held here, and scans are ordered.
        """
        return AsyncOrderedReads(self._native.ordered(), self._calls)

    def write_stream(
        self,
        *,
        changes_max: int | None = None,
        bytes_max: int | None = None,
        deadline: float | None = None,
    ) -> AsyncWriteStream:
        """Open a stream for many changes.

        At most `changes_max` changes (16,384 unless set) of `bytes_max` bytes (64 MiB unless set)
        are not settled at a time; a further one waits. Each wait has `deadline` seconds, the
        client's unless set.
        """
        native = self._native.write_stream(changes_max, bytes_max, deadline)
        return AsyncWriteStream(native, self._calls)


class AsyncOrderedReads:
    """Documents by key, and scans in the order of the keys: bytes and str by bytes, int by value.

    Every read takes `after` (a token: wait until that write is there), `latest` (wait until all
    that was acknowledged before is there), both at most `timeout` seconds (10 unless set), and
    `max_age` (raise `Stale` for data older than so many seconds).
    """

    def __init__(self, native: _native.OrderedReads, calls: Calls) -> None:
        """Wrap native reads; the store makes these."""
        self._native = native
        self._calls = calls

    async def get(
        self,
        key: Key,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Document | None:
        """Return a document, or None."""
        return await self._calls.run(self._native.get(key, after, latest, max_age, timeout))

    async def get_many(
        self,
        keys: Keys,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> list[Document | Error | None]:
        """Return documents in the order of the keys; an error where one cannot be said.

        Those of one partition are of one position.
        """
        return await self._calls.run(self._native.get_many(keys, after, latest, max_age, timeout))

    def scan(
        self,
        *,
        partition_key: str | bytes | int | None = None,
        start: str | bytes | int | None = None,
        after_start: bool = False,
        end: str | bytes | int | None = None,
        with_end: bool = False,
        prefix: str | bytes | None = None,
        fields: Sequence[str] | None = None,
        backward: bool = False,
        limit: int | None = None,
        cursor: bytes | None = None,
        may_move: bool = False,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> AsyncOrderedScan:
        """Return a scan of all documents, or of a range or a prefix of their primary keys.

        It begins at `start` (behind it with `after_start`) and ends before `end` (behind it with
        `with_end`), or the other way with `backward`. Each partition is read at one position while
        the store changes. A store with a declared partition key needs `partition_key` for a range.
        With the `cursor` of another scan of the same documents it goes on behind that one's last
        document: at its position, which nodes hold for a minute, else with `may_move` at a later
        one, and without it `TokenLost` is raised.
        """
        native = self._native.scan(
            partition_key=partition_key,
            start=start,
            after_start=after_start,
            end=end,
            with_end=with_end,
            prefix=prefix,
            fields=None if fields is None else list(fields),
            backward=backward,
            limit=limit,
            cursor=cursor,
            may_move=may_move,
            after=after,
            latest=latest,
            max_age=max_age,
            timeout=timeout,
        )
        return AsyncOrderedScan(native, self._calls)


class AsyncOrderedScan:
    """Keys and documents in order; iterate over it."""

    _TOGETHER = 512

    def __init__(self, native: _native.OrderedScan, calls: Calls) -> None:
        """Wrap a native scan; the reads make these."""
        self._native = native
        self._calls = calls

    async def take(self, documents_max: int) -> list[tuple[Key, Document]]:
        """Return the next keys and documents, at most so many; an empty list at the end."""
        return await self._calls.run(self._native.next(documents_max))

    async def __aiter__(self) -> AsyncIterator[tuple[Key, Document]]:
        """Yield all that is left."""
        found = await self.take(self._TOGETHER)
        while found:
            for each in found:
                yield each
            found = await self.take(self._TOGETHER)

    def cursor(self) -> bytes:
        """Return where a later scan goes on: behind what was taken, not what was yielded."""
        return self._native.cursor()


class AsyncWriteStream:
    """Many writes on their way at once; those of one partition reach the log in their order.

    Order and count survive failures and restarts of the server. Use it as a context manager, whose
    end waits for all writes and raises the first error among them.
    """

    def __init__(self, native: _native.WriteStream, calls: Calls) -> None:
        """Wrap a native stream; the store makes these."""
        self._native = native
        self._calls = calls
        self._is_open = True

    async def __aenter__(self: Self) -> Self:
        """Return the stream itself."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the stream; what the block has raised goes before an error of a write."""
        try:
            await self.close()
        except Error:
            if error is None:
                raise

    async def send(self, change: _native.Change) -> AsyncAcknowledgement:
        """Take a change in, once there is room, and return before it is sent.

        The acknowledgement may be dropped: the stream counts the write all the same. Raises
        `NotFound`, `InvalidArgument` or `LimitExceeded` for a change that cannot be, `Unavailable`
        when there was no room before the deadline; this change was not taken in then.
        """
        native = self._native.try_send(change)
        if native is None:
            native = await self._calls.run(self._native.send(change))
        return AsyncAcknowledgement(native, self._calls)

    async def outcomes(
        self, batch: Iterable[_native.Change]
    ) -> AsyncIterator[WriteOutcome | Error]:
        """Send changes, and yield what became of each, in their order, as it is known.

        Sending goes on ahead of what is yielded, as far as the stream has room. Raises what `send`
        raises; a write that failed later is yielded as its error.
        """
        waiting: deque[AsyncAcknowledgement] = deque()
        for change in batch:
            waiting.append(await self.send(change))
            while waiting[0].is_known or len(waiting) > self._native.room:
                yield await waiting.popleft().settled()
                if not waiting:
                    break
        while waiting:
            yield await waiting.popleft().settled()

    async def flush(self) -> StreamSummary:
        """Wait until every write that was sent is settled.

        Raises the first error of a write since the last flush, and `UnknownOutcome` when writes are
        still on their way at the deadline: flush again, and the same writes settle.
        """
        return await self._calls.run(self._native.flush())

    async def summary(self) -> StreamSummary:
        """Return what became of the writes so far."""
        return await self._calls.run(self._native.summary())

    async def close(self) -> None:
        """Flush, then end the stream; a second time changes nothing.

        Raises what `flush` raises. What is on its way at the deadline is given up: flush first, if
        you want to wait again.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self.flush()
        finally:
            self._native.close()


class AsyncAcknowledgement:
    """What becomes of one write of a stream."""

    def __init__(self, native: _native.Acknowledgement, calls: Calls) -> None:
        """Wrap a native acknowledgement; the stream makes these."""
        self._native = native
        self._calls = calls

    @property
    def is_known(self) -> bool:
        """Whether the outcome is known; does not wait."""
        return self._native.is_known

    async def outcome(self, timeout: float | None = None) -> WriteOutcome:
        """Wait for the outcome, at most `timeout` seconds, and return or raise it.

        Raises `DeadlineExceeded` when it is not known by then: the stream goes on with the write.
        """
        known = self._native.known()
        return known if known is not None else await self._calls.run(self._native.outcome(timeout))

    async def settled(self) -> WriteOutcome | Error:
        """Wait for the outcome, and return it, or the error that it is."""
        try:
            return await self.outcome()
        except Error as error:
            return error
