"""In-memory readers, for tests of programs that read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Literal

from forebay import _changes as changes
from forebay import _native
from forebay._definition import FieldTypes, store_spec
from forebay._reader import Reader
from forebay._sync_call import Calls
from forebay._verbs import Store

if TYPE_CHECKING:
    from forebay._answers import BatchOutcome, Definition, WriteOutcome
    from forebay._types import Fields, Key, Rows

SimulatedState = Literal["none", "not_ready", "stale", "closed"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class InMemoryReader(Reader):
    """A reader of a store in this process's memory, from `Reader.in_memory`.

    The program under test takes it as a reader; its own methods are the test's controls. Everything
    below the writes is production code: the index, merges, conditions, times to live and
    alterations. A write is visible when its call returns. The clock starts at the host's time, then
    stands still until the test moves it.

    >>> import forebay
    >>> users = forebay.Reader.in_memory({"visits": "int64"}, {"ada": {"visits": 2}})
    >>> users.get("ada", "visits")
    2
    >>> _ = users.upsert("ada", {"visits": forebay.increment(1)}, ttl=60)
    >>> users.get("ada", "visits")
    3
    >>> users.advance(60)
    >>> users.get("ada", "visits")
    forebay.ABSENT
    >>> users.simulate("stale", age=3600)
    >>> users.get("ada", "visits", max_staleness=5)
    Traceback (most recent call last):
        ...
    forebay.StaleError: Stale: ...
    """

    _memory: _native.Memory
    _store: Store

    @classmethod
    def _open(cls, spec: _native.StoreSpec, name: str, rows: Rows) -> InMemoryReader:
        if isinstance(rows, Mapping):
            rows = [changes.put(key, fields) for key, fields in rows.items()]
        memory = _native.Memory(spec, rows)
        opened = cls(memory, name)
        opened._memory = memory
        opened._store = Store(memory.store(), Calls())
        return opened

    def as_store(self) -> Store:
        """Return the store behind this reader, for programs that write; it has no write streams."""
        return self._store

    def write(self, change: _native.Change) -> WriteOutcome:
        """Apply a change; see `Store.write`."""
        return self._store.write(change)

    def upsert(
        self,
        key: Key,
        fields: Fields,
        *,
        ttl: float | None = None,
        field_ttl: Mapping[str, float] | None = None,
    ) -> WriteOutcome:
        """Change these fields of a document and keep the others; see `forebay.upsert`."""
        return self._store.upsert(key, fields, ttl=ttl, field_ttl=field_ttl)

    def put(
        self,
        key: Key,
        fields: Fields,
        *,
        ttl: float | None = None,
        field_ttl: Mapping[str, float] | None = None,
    ) -> WriteOutcome:
        """Replace a whole document by these fields; see `forebay.put`."""
        return self._store.put(key, fields, ttl=ttl, field_ttl=field_ttl)

    def delete(self, key: Key) -> WriteOutcome:
        """Delete a document."""
        return self._store.delete(key)

    def batch(self, batch: Iterable[_native.Change]) -> BatchOutcome:
        """Apply many changes together; see `Store.batch`."""
        return self._store.batch(batch)

    def alter(self, alterations: Sequence[_native.Alteration]) -> Definition:
        """Alter the store, which gives it its next version; all alterations happen, or none."""
        return self._memory.alter(list(alterations))

    @property
    def clock(self) -> datetime:
        """The time of the reader's clock, to the microsecond, in UTC."""
        return _EPOCH + self._memory.clock() * _MICROSECOND

    def set_clock(self, now: datetime) -> None:
        """Set the reader's clock to a time with a time zone. Expired documents become absent.

        Raises `InvalidArgumentError` for a time before the clock's current time.
        """
        self._memory.set_clock((now - _EPOCH) // _MICROSECOND)

    def advance(self, seconds: float) -> None:
        """Move the reader's clock forward."""
        self.set_clock(self.clock + timedelta(seconds=seconds))

    def simulate(self, state: SimulatedState, *, age: float | None = None) -> None:
        """Simulate a state, until the next call.

        - `not_ready`: the reader has not caught up, and its reads and waits raise
          `UnavailableError`.
        - `stale`: the data is `age` seconds old, and reads with a lower `max_staleness` raise
          `StaleError`.
        - `closed`: every call raises `ClosedError`, permanently.
        - `none`: the reader is ready, and as fresh as its clock.
        """
        self._memory.simulate(state, age)


def open_in_memory(
    fields: FieldTypes,
    rows: Rows,
    *,
    name: str,
    key_type: str,
    partitions: int,
    partition_key: str | None,
    key_value: bool,
    ttl: float | None,
    versioned: bool,
    heartbeat: float,
    log_retention: float | None,
) -> InMemoryReader:
    """Open an in-memory reader: `Reader.in_memory` with all its parameters."""
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
    return InMemoryReader._open(spec, name, rows)
