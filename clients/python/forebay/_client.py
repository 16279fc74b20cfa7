"""The client that waits: writes to stores and administers them, from any number of threads."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import TypeVar

from forebay import _changes as changes
from forebay import _native
from forebay._errors import Error
from forebay._model import BatchOutcome, Definition, Fields, Key, WriteOutcome
from forebay._reader import Reader

Self = TypeVar("Self", bound="Client")

FieldTypes = Mapping[str, str] | Sequence[_native.FieldSpec]


def store_spec(
    name: str,
    *,
    key: str,
    partitions: int,
    fields: FieldTypes,
    partition_key: str | None,
    key_value: bool,
    ttl: float | None,
    versioned: bool,
    heartbeat: float,
) -> _native.StoreSpec:
    """Make the native form of a store that is to be created."""
    if isinstance(fields, Mapping):
        specs = [_native.FieldSpec(name, type) for name, type in fields.items()]
    else:
        specs = list(fields)
    return _native.StoreSpec(
        name,
        key=key,
        partitions=partitions,
        fields=specs,
        partition_key=partition_key,
        key_value=key_value,
        ttl=ttl,
        versioned=versioned,
        heartbeat=heartbeat,
    )


def pending_of(error: Error) -> _native.PendingWrite:
    """Return the write of an error, or raise the error that none is left."""
    if error.pending is None:
        raise error
    return error.pending


class Client:
    """Writes to stores and administers them; one per process is enough, for all its threads.

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

        A call has `deadline` seconds, its retries included (10 unless set), and one attempt of it
        `attempt` seconds (4 unless set). Raises `Unavailable` when nobody answers there.
        """
        self._native = _native.connect(endpoint, deadline, attempt).wait()

    def __enter__(self: Self) -> Self:
        """Return the client itself."""
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
        """Close the connection; a second time changes nothing. Later calls raise `Closed`."""
        self._native.close()

    def store(self, name: str) -> "Store":
        """Open a store. Raises `NotFound` when there is none of this name."""
        return Store(self._native.store(name).wait())

    def create_store(
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
    ) -> "Store":
        """Create a store and open it.

        `fields` are types by name, or `FieldSpec`s where a field has a default or a time to live.
        The number of `partitions` is fixed. Times are in seconds. Raises `Conflict` when the name
        is taken, `UnknownOutcome` when it may have happened: open the store to see.
        """
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
        return Store(self._native.create_store(spec).wait())

    def alter_store(
        self,
        name: str,
        alterations: Sequence[_native.Alteration],
        *,
        from_version: int | None = None,
    ) -> Definition:
        """Give a store its next version; all alterations happen, or none.

        With `from_version` another writer's alteration in between is a `Conflict`. Raises
        `InvalidArgument` with the reason why old data would become unreadable.
        """
        call = self._native.alter_store(name, list(alterations), from_version)
        return call.wait()

    def delete_store(self, name: str) -> None:
        """Delete a store and all its data; its name is free again."""
        self._native.delete_store(name).wait()

    def describe_store(self, name: str, version: int | None = None) -> Definition:
        """Return the definition of a store, the newest unless a version is given."""
        return self._native.describe_store(name, version).wait()

    def list_stores(self) -> list[Definition]:
        """Return the newest definitions of all stores, by name."""
        return self._native.list_stores().wait()

    def reader(
        self,
        store: str,
        *,
        partitions: Sequence[int] | None = None,
        serve_partial: bool = False,
        ready_age_max: float | None = None,
        open_timeout: float | None = None,
    ) -> Reader:
        """Open an embedded reader over this client's connection; see `Reader`."""
        return Reader(
            self._native,
            store,
            partitions=None if partitions is None else list(partitions),
            serve_partial=serve_partial,
            ready_age_max=ready_age_max,
            open_timeout=open_timeout,
        )


class Store:
    """One store of a client. It is bound to the store, not to its name."""

    def __init__(self, native: _native.Store) -> None:
        """Wrap a native store; `Client.store` makes these."""
        self._native = native

    @property
    def definition(self) -> Definition:
        """The definition as this client has last seen it."""
        return self._native.definition()

    def refresh(self) -> Definition:
        """Ask for the newest definition."""
        return self._native.refresh().wait()

    def write(self, change: _native.Change, *, deadline: float | None = None) -> WriteOutcome:
        """Send a change, again where needed, until what became of it is known.

        Raises `NotFound`, `InvalidArgument` or `LimitExceeded` for what cannot be, with nothing
        written. At the deadline `UnknownOutcome`: `retry` settles the same write.
        """
        return self._native.write(change, deadline).wait()

    def upsert(
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
        return self.write(change, deadline=deadline)

    def put(
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
        return self.write(change, deadline=deadline)

    def delete(
        self, key: Key, *, if_version: int | None = None, deadline: float | None = None
    ) -> WriteOutcome:
        """Write `forebay.delete` of these arguments."""
        return self.write(changes.delete(key, if_version=if_version), deadline=deadline)

    def batch(
        self, batch: Iterable[_native.Change], *, deadline: float | None = None
    ) -> BatchOutcome:
        """Send many changes together; those of one partition are in order, and atomic up to 1,024.

        A change that cannot be ends the batch before anything is sent. One that the writer refuses
        is an error among the results: see `BatchOutcome.complete`.
        """
        return self._native.batch(batch, deadline).wait()

    def retry(self, error: Error) -> BatchOutcome:
        """Settle the write of an `UnknownOutcome`: send the same one again.

        What is in the log already happens no second time. Raises the error when it holds no write.
        """
        return pending_of(error).retry().wait()
