"""The verbs of the client for asyncio, store by store and write by write.

This file is the source of both clients: `sync_verbs.py` generates `_verbs.py` from it by removing
the awaits. A docstring here therefore describes both clients.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from forebay import _changes as changes
from forebay import _native
from forebay._async_call import AsyncCalls
from forebay._definition import FieldTypes, store_spec, stream_spec
from forebay._errors import ForebayError, pending_of

if TYPE_CHECKING:
    from datetime import datetime

    from forebay._answers import (
        BatchOutcome,
        Definition,
        EventQueryResult,
        StreamSummary,
        WriteOutcome,
    )
    from forebay._types import Document, Fields, Key, Keys, Value

Self = TypeVar("Self", bound="AsyncWriteStream")


class AsyncClientVerbs:
    """Administration of stores."""

    def _open(self) -> tuple[_native.Client, AsyncCalls]:
        """Return the native client and the runner of its calls. Raises `ClosedError`."""
        raise NotImplementedError

    async def store(self, name: str) -> AsyncStore:
        """Open a store. Raises `NotFoundError` if there is no store of this name."""
        native, calls = self._open()
        return AsyncStore(await calls.run(native.store(name)), calls)

    async def create_store(
        self,
        name: str,
        fields: FieldTypes = (),
        *,
        key_type: str = "string",
        partitions: int = 8,
        partition_key: str | None = None,
        key_value: bool = False,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
        log_retention: float | None = None,
    ) -> AsyncStore:
        """Create a store and open it.

        `fields` are types by name, or `FieldSpec`s for fields with a default or a time to live.
        `partitions` is the number of partitions. Times are in seconds. `ttl` is the time to live of
        documents whose put has none; `heartbeat` is the silence after which a heartbeat is
        appended.

        `log_retention` is how much of the store's logs is retained after its newest snapshot; older
        entries are trimmed. If it is not set, or no service creates snapshots, all entries are
        retained.

        Raises `InvalidArgumentError` or `LimitExceededError` for an invalid store (for example, a
        `log_retention` below 0 or above 100 years), `ConflictError` if the name is taken,
        `UnknownOutcomeError` if the store may have been created: the same call resolves the
        creation.
        """
        native, calls = self._open()
        spec = store_spec(
            name,
            key_type=key_type,
            partitions=partitions,
            fields=fields,
            partition_key=partition_key,
            key_value=key_value,
            ttl=ttl,
            versioned=versioned,
            heartbeat=heartbeat,
            log_retention=log_retention,
        )
        return AsyncStore(await calls.run(native.create_store(spec)), calls)

    async def create_stream(
        self,
        name: str,
        columns: FieldTypes,
        *,
        key_type: str = "string",
        partitions: int = 8,
        event_time: str | None = None,
        heartbeat: float = 1.0,
        log_retention: float | None = None,
        log_retention_bytes: int | None = None,
    ) -> AsyncStore:
        """Create a stream of events and open it.

        `columns` are types by name, or `FieldSpec`s. `default` is stored for an event without a
        value; a `required` column refuses such an event; `allowed` refuses all other values.
        `event_time` names the timestamp column with the event time; without such a column an event
        happens when the log appends it. An event's key selects one of the `partitions`.

        Events are retained for `log_retention` seconds, and each partition retains up to about
        `log_retention_bytes` bytes; all events are retained unless these are set. A column with the
        `index` `"exact"` finds retained events by one value, a column with `"range"` also between
        two values. The other parameters are those of `create_store`.
        """
        native, calls = self._open()
        spec = stream_spec(
            name,
            key_type=key_type,
            partitions=partitions,
            columns=columns,
            event_time=event_time,
            heartbeat=heartbeat,
            log_retention=log_retention,
            log_retention_bytes=log_retention_bytes,
        )
        return AsyncStore(await calls.run(native.create_store(spec)), calls)

    async def alter_store(
        self,
        name: str,
        alterations: Sequence[_native.Alteration],
        *,
        from_version: int | None = None,
    ) -> Definition:
        """Alter a store, which gives the store its next version. All alterations happen, or none.

        If `from_version` is given and another client has altered the store since, the call is a
        `ConflictError`. Raises `InvalidArgumentError`, with the reason, if old data would become
        unreadable, and `UnknownOutcomeError` if the alteration may have happened: the same call
        resolves it, and alters nothing twice.
        """
        native, calls = self._open()
        return await calls.run(native.alter_store(name, list(alterations), from_version))

    async def delete_store(self, name: str) -> None:
        """Delete a store and all its data; the name is free afterwards."""
        native, calls = self._open()
        await calls.run(native.delete_store(name))

    async def describe_store(self, name: str, version: int | None = None) -> Definition:
        """Return the definition of a store, the newest unless a version is given."""
        native, calls = self._open()
        return await calls.run(native.describe_store(name, version))

    async def list_stores(self) -> list[Definition]:
        """Return the newest definitions of all stores, sorted by name."""
        native, calls = self._open()
        return await calls.run(native.list_stores())


class AsyncStore:
    """A store of a client. The object is bound to the store, not to its name."""

    def __init__(self, native: _native.Store, calls: AsyncCalls) -> None:
        """Wrap a native store; the client creates stores."""
        self._native = native
        self._calls = calls

    @property
    def definition(self) -> Definition:
        """The definition as this client has last seen it."""
        return self._native.definition()

    async def refresh(self) -> Definition:
        """Fetch the newest definition."""
        return await self._calls.run(self._native.refresh())

    async def write(self, change: _native.Change, *, deadline: float | None = None) -> WriteOutcome:
        """Send a change, and retry until its outcome is known.

        Raises `NotFoundError`, `InvalidArgumentError` or `LimitExceededError` for an invalid
        change, with nothing written. Raises `UnknownOutcomeError` at the deadline: `retry` resolves
        the same write.
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

        An invalid change fails the batch before anything is sent. A change that the writer refuses
        is an error in the results: see `BatchOutcome.require_complete`.
        """
        return await self._calls.run(self._native.batch(batch, deadline))

    async def retry(self, error: ForebayError) -> BatchOutcome:
        """Resolve the write of an `UnknownOutcomeError` by sending the same write again.

        A change that is in the log already does not happen again. Raises the error if it has no
        write.
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
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> EventQueryResult:
        """Return retained events of a stream, ordered by event time unless by a column.

        The select finds the events of a `key`, of `equal=(column, value)` in an indexed column, or
        of `between=(column, start, end)` in a column with a range index, where None is no bound;
        if none of these is set, all events. `start` and `end` bound the event time, as datetimes
        with a time zone: `start` is inclusive, `end` exclusive.

        `columns` limits the columns of each event; all unless set. `order_by` is a scalar column;
        events without a value in it come last. `descending` reverses the order. The result has the
        first `limit` events: 1,000 unless set, and up to 10,000.

        Every read takes `after` (a token: wait until that write is applied), `latest` (wait until
        everything acknowledged before is applied), both at most `timeout` seconds (10 unless set),
        and `max_staleness` (raise `StaleError` for data older than this many seconds).

        Raises `InvalidArgumentError` for a store of documents, a key or value of another type, a
        column without the index that the select needs, and a select with two criteria;
        `NotFoundError` for a column that the stream does not have; `LimitExceededError` if the
        result has too many events or bytes, or the node would have to look at too many events;
        `UnsupportedError` in memory.

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
            max_staleness=max_staleness,
            timeout=timeout,
        )
        return await self._calls.run(call)

    def ordered(self) -> AsyncOrderedReads:
        """Return reads of this store in the order of its keys, from the shards of the node.

        Each read costs a round trip, while a `Reader` answers from this process's memory. In
        return, this process stores nothing, and scans are ordered.
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
        are unresolved at a time; a further change waits. Each wait has `deadline` seconds, the
        client's unless set.
        """
        native = self._native.write_stream(changes_max, bytes_max, deadline)
        return AsyncWriteStream(native, self._calls)


class AsyncOrderedReads:
    """Documents by key, and scans in the order of the keys: bytes and str by bytes, int by value.

    Every read takes `after` (a token: wait until that write is applied), `latest` (wait until
    everything acknowledged before is applied), both at most `timeout` seconds (10 unless set), and
    `max_staleness` (raise `StaleError` for data older than this many seconds).
    """

    def __init__(self, native: _native.OrderedReads, calls: AsyncCalls) -> None:
        """Wrap native reads; the store creates them."""
        self._native = native
        self._calls = calls

    async def get(
        self,
        key: Key,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Document | None:
        """Return a document, or None."""
        return await self._calls.run(self._native.get(key, after, latest, max_staleness, timeout))

    async def get_many(
        self,
        keys: Keys,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> list[Document | ForebayError | None]:
        """Return documents in the order of the keys; an error for a key that cannot be answered.

        The documents of one partition are read at one position.
        """
        return await self._calls.run(
            self._native.get_many(keys, after, latest, max_staleness, timeout)
        )

    def scan(
        self,
        *,
        partition_key: str | bytes | int | None = None,
        start: str | bytes | int | None = None,
        start_inclusive: bool = True,
        end: str | bytes | int | None = None,
        end_inclusive: bool = False,
        prefix: str | bytes | None = None,
        fields: Sequence[str] | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: bytes | None = None,
        allow_snapshot_change: bool = False,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> AsyncOrderedScan:
        """Return a scan of all documents, or of a range or a prefix of their primary keys.

        The range has the keys from `start` to `end`: `start` itself with `start_inclusive`, `end`
        itself with `end_inclusive`. `reverse` yields them from the last to the first. Each
        partition is read at one position while the store changes. A store with a declared partition
        key needs `partition_key` for a range.

        With the `cursor` of another scan of the same documents, the scan continues after that
        scan's last document, at its position, which nodes hold for a minute. If the position is no
        longer held, the scan continues at a later position with `allow_snapshot_change`, and raises
        `TokenLostError` without it.
        """
        native = self._native.scan(
            partition_key=partition_key,
            start=start,
            start_inclusive=start_inclusive,
            end=end,
            end_inclusive=end_inclusive,
            prefix=prefix,
            fields=None if fields is None else list(fields),
            reverse=reverse,
            limit=limit,
            cursor=cursor,
            allow_snapshot_change=allow_snapshot_change,
            after=after,
            latest=latest,
            max_staleness=max_staleness,
            timeout=timeout,
        )
        return AsyncOrderedScan(native, self._calls)


class AsyncOrderedScan:
    """Keys and documents in order; iterate over it."""

    _BATCH = 512

    def __init__(self, native: _native.OrderedScan, calls: AsyncCalls) -> None:
        """Wrap a native scan; the reads create scans."""
        self._native = native
        self._calls = calls

    async def take(self, documents_max: int) -> list[tuple[Key, Document]]:
        """Return the next keys and documents, at most `documents_max`; an empty list at the end."""
        return await self._calls.run(self._native.next(documents_max))

    async def __aiter__(self) -> AsyncIterator[tuple[Key, Document]]:
        """Yield all remaining keys and documents."""
        found = await self.take(self._BATCH)
        while found:
            for each in found:
                yield each
            found = await self.take(self._BATCH)

    def cursor(self) -> bytes:
        """Return the cursor after the last document taken, which may be after the last yielded."""
        return self._native.cursor()


class AsyncWriteStream:
    """Many writes in flight at once; those of one partition reach the log in their order.

    Order and count survive failures and restarts of the server. Use it as a context manager, whose
    end waits for all writes and raises the first error among them.
    """

    def __init__(self, native: _native.WriteStream, calls: AsyncCalls) -> None:
        """Wrap a native stream; the store creates streams."""
        self._native = native
        self._calls = calls
        self._is_open = True

    async def __aenter__(self: Self) -> Self:
        """Return the stream."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the stream; an exception of the block takes precedence over an error of a write."""
        try:
            await self.close()
        except ForebayError:
            if error is None:
                raise

    async def send(self, change: _native.Change) -> AsyncAcknowledgement:
        """Queue a change once there is space, and return before the change is sent.

        The acknowledgement may be dropped, because the stream still counts the write. Raises
        `NotFoundError`, `InvalidArgumentError` or `LimitExceededError` for an invalid change, and
        `UnavailableError` if there is no space before the deadline; then the stream has not taken
        the change.
        """
        native = self._native.try_send(change)
        if native is None:
            native = await self._calls.run(self._native.send(change))
        return AsyncAcknowledgement(native, self._calls)

    async def outcomes(
        self, batch: Iterable[_native.Change]
    ) -> AsyncIterator[WriteOutcome | ForebayError]:
        """Send changes, and yield the outcome of each, in order, once it is known.

        The stream sends ahead of the yielded outcomes, as far as it has space. Raises the errors of
        `send`; a write that fails later is yielded as its error.
        """
        waiting: deque[AsyncAcknowledgement] = deque()
        for change in batch:
            waiting.append(await self.send(change))
            while waiting[0].is_known or len(waiting) > self._native.room:
                yield await waiting.popleft().outcome_or_error()
                if not waiting:
                    break
        while waiting:
            yield await waiting.popleft().outcome_or_error()

    async def flush(self) -> StreamSummary:
        """Wait until every write that was sent is resolved.

        Raises the first error of a write since the last flush, and `UnknownOutcomeError` if writes
        are still in flight at the deadline: flush again, and the same writes are resolved.
        """
        return await self._calls.run(self._native.flush())

    async def summary(self) -> StreamSummary:
        """Return the outcome of the writes so far."""
        return await self._calls.run(self._native.summary())

    async def close(self) -> None:
        """Flush, then end the stream; a second call changes nothing.

        Raises the errors of `flush`. Writes in flight at the deadline are given up: to be able to
        wait again, flush first.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self.flush()
        finally:
            self._native.close()


class AsyncAcknowledgement:
    """The future outcome of one write of a stream."""

    def __init__(self, native: _native.Acknowledgement, calls: AsyncCalls) -> None:
        """Wrap a native acknowledgement; the stream creates them."""
        self._native = native
        self._calls = calls

    @property
    def is_known(self) -> bool:
        """Whether the outcome is known; does not wait."""
        return self._native.is_known

    async def outcome(self, timeout: float | None = None) -> WriteOutcome:
        """Wait for the outcome, at most `timeout` seconds, and return or raise it.

        Raises `DeadlineExceededError` if the outcome is not known by then: the stream continues
        with the write.
        """
        known = self._native.known()
        return known if known is not None else await self._calls.run(self._native.outcome(timeout))

    async def outcome_or_error(self) -> WriteOutcome | ForebayError:
        """Wait for the outcome, and return it, or return its error."""
        try:
            return await self.outcome()
        except ForebayError as error:
            return error
