"""What calls answer, as data classes; the native side makes them. Imported with the first one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from forebay._errors import Error
from forebay._model import Presence

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt

    from forebay._types import Document, Key, Value


@dataclass(frozen=True, eq=False)
class PackedValues:
    """Strings or bytes of many documents, one behind another, in the order of the keys.

    Its arrays are read-only views of the answer; no value is an object until it is asked for.
    """

    values: bytes
    """All values; a string's are UTF-8."""
    ends: npt.NDArray[np.uint64]
    """Where each key's value ends in `values`; it begins where the one before ends."""
    statuses: npt.NDArray[np.uint8]
    """A `KeyStatus` per key."""
    presences: npt.NDArray[np.uint8]
    """A `Presence` per key: whether its field is absent, null or a value."""

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.statuses)

    def __iter__(self) -> Iterator[memoryview | None]:
        """Yield each key's value."""
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> memoryview | None:
        """Return a key's value in place, or None when it is absent or null."""
        place = range(len(self))[place]
        if self.presences[place] != Presence.VALUE:
            return None
        start = int(self.ends[place - 1]) if place else 0
        return memoryview(self.values)[start : int(self.ends[place])]


@dataclass(frozen=True)
class WriteOutcome:
    """What became of one write that is in the log."""

    token: bytes
    """Says where the log holds it; a read `after` this token sees it."""
    result: Literal["appended", "applied", "not_met"]
    """`appended`: it had no condition. `applied`: its condition held. `not_met`: it did not, and
    nothing happened."""
    version: int | None
    """The document's version when the condition was not met, in a store that keeps versions."""


@dataclass(frozen=True)
class BatchOutcome:
    """What became of a batch."""

    token: bytes
    """Says where the log holds every change that it holds."""
    results: list[WriteOutcome | Error]
    """What became of each change, in their order. An error here is final."""

    def complete(self) -> BatchOutcome:
        """Return the outcome if every change is in the log; else raise the first error."""
        for result in self.results:
            if isinstance(result, Error):
                raise result
        return self


@dataclass(frozen=True)
class Field:
    """One field of a definition."""

    id: int
    """Its lasting id, never used again."""
    name: str
    type: str
    """`bool`, `int32`, `int64`, `float32`, `float64`, `string`, `bytes`, `timestamp`,
    `list<TYPE>`, `f32[N]`, `f16[N]` or `i8[N]`."""
    aliases: tuple[str, ...]
    """Earlier names, which go on working until the field is dropped."""
    default: Value | None
    """What a gather writes for absent or null, where the call gives no default."""
    ttl: float | None
    """Time to live of each write that carries none, in seconds."""
    required: bool
    """Whether a stream refuses events without a value of it."""
    allowed: tuple[Value, ...]
    """The values that a stream lets in; empty for all."""
    index: Literal["exact", "range"] | None
    """How a stream's events are found by it: those of one value, or between two as well."""


@dataclass(frozen=True)
class Definition:
    """A store's definition at one version: complete, never a delta."""

    store_id: int
    name: str
    version: int
    key: str
    """Type of its primary key: `string`, `bytes` or `int64`."""
    partition_key: str | None
    """The field that partitions it, if not the primary key."""
    partitions: int
    fields: tuple[Field, ...]
    key_value: bool
    stream: bool
    """Whether it holds events, not documents."""
    event_time: str | None
    """A stream's column that says when an event happened."""
    ttl: float | None
    """Time to live of documents whose put carries none, in seconds."""
    versioned: bool
    heartbeat: float
    """Silence after which a partition's replicator appends a heartbeat, in seconds."""
    log_window: float | None
    """How much of its logs is kept behind the newest snapshot, in seconds; None keeps all. Of a
    stream how long its events are retained."""
    log_bytes: int | None
    """How many bytes of events each partition of a stream retains, about; None keeps all."""

    def field(self, name: str) -> Field | None:
        """Return the field with this name or, after those, this alias."""
        named = (field for field in self.fields if field.name == name)
        called = (field for field in self.fields if name in field.aliases)
        return next(named, None) or next(called, None)


@dataclass(frozen=True)
class SelectedColumn:
    """A column of a select, as the newest definition has it."""

    id: int
    """Its lasting id, never used again."""
    name: str
    type: str
    """As that of a `Field`."""


@dataclass(frozen=True)
class SelectedEvent:
    """A retained event of a stream."""

    key: Key
    time: datetime
    """When it happened, in UTC."""
    append_time: datetime
    """When the log took it, in UTC."""
    partition: int
    offset: int
    """Offset of its entry in the partition."""
    place: int
    """Its place in the entry, from 0."""
    columns: Document
    """Its selected columns by name: one that it does not have is missing, a null one None."""


@dataclass(frozen=True)
class Selected:
    """The events that a select has found."""

    columns: tuple[SelectedColumn, ...]
    """The columns that were asked for."""
    events: list[SelectedEvent]
    """The events, in the order that was asked for."""
    token: bytes
    """The positions that were read; a select `after` it finds no older state."""


@dataclass(frozen=True)
class StreamSummary:
    """What became of the writes of a stream so far."""

    token: bytes
    """Says where the log holds every write that it holds."""
    settled: int
    """Writes of which it is known what became of them."""
    not_met: int
    """Settled ones whose condition did not hold."""
    failed: int
    """Settled ones that were refused, or whose outcome nobody will know."""
    first_error: Error | None
    """The first error since the last flush."""


@dataclass(frozen=True)
class CheckpointCounts:
    """What has happened to a reader's checkpoints since it was opened."""

    written: int
    failed: int
    """Not written: the disk refused, or the partition is too large."""
    restored: int
    """Gone on from: 0 or 1 for each partition."""
    damaged: int
    """Ignored at open because they are damaged, or given up because they were found so later."""
    ignored: int
    """Ignored at open for another reason."""
    blocks_mended: int
    """Blocks of those gone on from that were damaged and mended: what is read is right, and the
    disk is worth a look."""


@dataclass(frozen=True)
class Counts:
    """What has happened to records since the reader was opened."""

    applied: int
    read_bytes: int
    skipped: int
    """Records skipped, as all replicas skip them."""
    repeats: int
    """Changes skipped because their client sent them before."""
    too_large: int
    log_errors: int
    rebuilds: int
    bootstraps: int
    """Copies that were begun with a snapshot."""
    bootstraps_failed: int
    """Snapshots that could not be had, or not be used."""
    checkpoints: CheckpointCounts


@dataclass(frozen=True)
class Fetching:
    """How much of a snapshot's image is there."""

    bytes: int
    bytes_in_all: int


@dataclass(frozen=True)
class PartitionStatus:
    """One partition of a reader at one moment."""

    partition: int
    phase: Literal["bootstrapping", "serving", "poisoned"]
    generation: int
    log_id: int | None
    position: str | None
    offset_applied: int
    """First offset not yet applied."""
    end: int
    """The log's end, as last heard."""
    lag_records: int
    age: float | None
    """How old the served data may be, in seconds, clock error included; None while unknown."""
    clock_error: float | None
    schema_version: int
    documents: int
    bytes: int
    percent: int
    fetching: Fetching | None
    """How far the snapshot is that the copy is to begin with, while it is fetched or waits for its
    turn."""
    rebuilding: Error | None
    """Why another copy is built beside the one that is served, if so."""
    halted: Error | None
    """Why it applies nothing until this process is upgraded or restarted."""
    trouble: Error | None
    """Why it applies nothing at the moment."""
    counts: Counts


@dataclass(frozen=True)
class ReaderStatus:
    """A reader at one moment."""

    store: str
    is_ready: bool
    """Whether the process should get traffic."""
    phase: Literal["bootstrapping", "serving", "poisoned"]
    """The phase of the partition that is furthest from serving."""
    percent: int
    remaining: float | None
    """Seconds until all partitions have caught up; None before there is a rate."""
    age: float | None
    """The highest age of its partitions, in seconds; None while one is unknown."""
    schema_version: int
    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True)
class Verified:
    """What came of comparing a reader's copy of a partition with its node's, at one position."""

    partition: int
    documents_here: int
    """Live documents of the reader."""
    documents_there: int
    """Live documents of the node's shard."""
    differences: tuple[tuple[Key, Literal["only_here", "only_there", "contents"]], ...]
    """The documents that are not the same, the first ones: each key, and how it differs."""
    more: int
    """How many more were found."""
    ranges_left: int
    """Ranges of 4,096 that differ, in which too many documents are to be compared one by one."""

    @property
    def is_same(self) -> bool:
        """Whether both hold the same documents."""
        return not self.differences and self.ranges_left == 0


@dataclass(frozen=True)
class ReaderMetrics:
    """Counts and sizes of a reader since it was opened."""

    hits: int
    misses: int
    memory_bytes: int
    """Estimated bytes of memory of all documents."""
    memory_used: int
    """What the partitions that this reader keeps take: documents, their index and free space."""
    memory_budget: int | None
    """What they may take; None without a bound."""
    spilled_bytes: int
    """What documents take on disk that have no room in memory."""
    spill_limit: int
    """What they may take there; 0 where nothing is spilled."""
    records: Counts
    status: ReaderStatus
