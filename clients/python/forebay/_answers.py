"""Results of calls, as data classes, which the native side creates.

The first result imports this file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from forebay._errors import ForebayError
from forebay._model import Presence

if TYPE_CHECKING:
    from datetime import datetime

    import numpy as np
    import numpy.typing as npt

    from forebay._types import Document, Key, Value


@dataclass(frozen=True, eq=False)
class PackedValues:
    """Strings or bytes of many documents, concatenated in the order of the keys.

    The arrays are read-only views of the result; a value becomes an object only on access.
    """

    values: bytes
    """All values; a string's are UTF-8."""
    ends: npt.NDArray[np.uint64]
    """The end of each key's value in `values`; a value starts at the end of the previous one."""
    statuses: npt.NDArray[np.uint8]
    """A `KeyStatus` per key."""
    presences: npt.NDArray[np.uint8]
    """A `Presence` per key: whether the key's field is absent, null or a value."""

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self.statuses)

    def __iter__(self) -> Iterator[memoryview | None]:
        """Yield each key's value."""
        return (self[place] for place in range(len(self)))

    def __getitem__(self, place: int) -> memoryview | None:
        """Return a key's value as a view, or None if absent or null."""
        place = range(len(self))[place]
        if self.presences[place] != Presence.VALUE:
            return None
        start = int(self.ends[place - 1]) if place else 0
        return memoryview(self.values)[start : int(self.ends[place])]


@dataclass(frozen=True)
class WriteOutcome:
    """The outcome of one write that is in the log."""

    token: bytes
    """Position of the write in the log; a read `after` this token sees the write."""
    result: Literal["appended", "applied", "condition_failed"]
    """`appended`: the write had no condition. `applied`: the condition held.
    `condition_failed`: the condition did not hold, and nothing happened.
    """
    version: int | None
    """The document's version if the condition failed, in a store that keeps versions."""


@dataclass(frozen=True)
class BatchOutcome:
    """The outcome of a batch."""

    token: bytes
    """Positions in the log of every change that is in the log."""
    results: list[WriteOutcome | ForebayError]
    """The outcome of each change, in order. An error here is final."""

    def require_complete(self) -> BatchOutcome:
        """Return the outcome if every change is in the log; else raise the first error."""
        for result in self.results:
            if isinstance(result, ForebayError):
                raise result
        return self


@dataclass(frozen=True)
class Field:
    """A field of a definition."""

    id: int
    """Permanent id, never reused."""
    name: str
    type: str
    """`bool`, `int32`, `int64`, `float32`, `float64`, `string`, `bytes`, `timestamp`,
    `list<TYPE>`, `f32[N]`, `f16[N]` or `i8[N]`."""
    aliases: tuple[str, ...]
    """Earlier names, which stay valid until the field is dropped."""
    default: Value | None
    """Value that a gather writes for absent or null, if the call gives no default."""
    ttl: float | None
    """Time to live of each write without its own, in seconds."""
    required: bool
    """Whether a stream refuses events without a value."""
    allowed: tuple[Value, ...]
    """The values that a stream accepts; empty for all."""
    index: Literal["exact", "range"] | None
    """Index of a stream's column: by one value, or also between two values."""


@dataclass(frozen=True)
class Definition:
    """A store's definition at one version: complete, never a delta."""

    store_id: int
    name: str
    version: int
    key_type: str
    """Type of the primary key: `string`, `bytes` or `int64`."""
    partition_key: str | None
    """The field that partitions the store, if not the primary key."""
    partitions: int
    fields: tuple[Field, ...]
    key_value: bool
    stream: bool
    """Whether the store holds events, not documents."""
    event_time: str | None
    """A stream's column with the event time."""
    ttl: float | None
    """Time to live of documents whose put has none, in seconds."""
    versioned: bool
    heartbeat: float
    """Silence after which a partition's replicator appends a heartbeat, in seconds."""
    log_retention: float | None
    """Span of the store's logs that is retained after the newest snapshot, in seconds; None retains
    all. For a stream, the time for which its events are retained.
    """
    log_retention_bytes: int | None
    """Approximate bytes of events that each partition of a stream retains; None retains all."""

    def field(self, name: str) -> Field | None:
        """Return the field with this name or, if no field has it, with this alias."""
        named = (field for field in self.fields if field.name == name)
        called = (field for field in self.fields if name in field.aliases)
        return next(named, None) or next(called, None)


@dataclass(frozen=True)
class EventColumn:
    """A column of a select, as the newest definition has it."""

    id: int
    """Permanent id, never reused."""
    name: str
    type: str
    """Type, spelled as in a `Field`."""


@dataclass(frozen=True)
class Event:
    """A retained event of a stream."""

    key: Key
    time: datetime
    """Event time, in UTC."""
    append_time: datetime
    """Time at which the log appended the event, in UTC."""
    partition: int
    offset: int
    """Offset of the event's entry in the partition."""
    index_in_entry: int
    """Index of the event in its entry, from 0."""
    columns: Document
    """The selected columns by name: an absent column is missing, a null column is None."""


@dataclass(frozen=True)
class EventQueryResult:
    """The result of a select."""

    columns: tuple[EventColumn, ...]
    """The selected columns."""
    events: list[Event]
    """The events, in the requested order."""
    token: bytes
    """The positions that were read; a select `after` this token reads no older state."""


@dataclass(frozen=True)
class StreamSummary:
    """Counts and token of a stream's writes so far."""

    token: bytes
    """Positions in the log of every write that is in the log."""
    resolved: int
    """Writes whose outcome is known."""
    condition_failed: int
    """Resolved writes whose condition did not hold."""
    failed: int
    """Resolved writes that were refused, or whose outcome stays unknown."""
    first_error: ForebayError | None
    """The first error since the last flush."""


@dataclass(frozen=True)
class CheckpointCounts:
    """Counts of a reader's checkpoints since it was opened."""

    written: int
    failed: int
    """Not written: the disk refused, or the partition is too large."""
    restored: int
    """Used to continue after a restart: 0 or 1 for each partition."""
    damaged: int
    """Ignored at open because they are damaged, or given up later because damage was found."""
    ignored: int
    """Ignored at open for another reason."""
    blocks_repaired: int
    """Damaged blocks of restored checkpoints that were repaired: reads are right, and the disk
    deserves a check.
    """


@dataclass(frozen=True)
class Counts:
    """Counts of records since the reader was opened."""

    records_applied: int
    log_bytes_read: int
    records_skipped: int
    """Records skipped, as all replicas skip them."""
    duplicates_skipped: int
    """Changes skipped because their client had sent them before."""
    oversized_skipped: int
    log_errors: int
    rebuilds: int
    bootstraps: int
    """Copies that were started from a snapshot."""
    bootstraps_failed: int
    """Snapshots that were unavailable or unusable."""
    checkpoints: CheckpointCounts


@dataclass(frozen=True)
class CatchUp:
    """Part of a log that a copy reads before it has caught up."""

    start: int
    """Offset at which the copy started."""
    offset_applied: int
    """First offset that is not applied yet."""
    target: int
    """The log's end when the copy was opened."""
    percent: int
    """The completed part, 0 to 100; below 100 until the copy has caught up."""


@dataclass(frozen=True)
class RebuildProgress:
    """Progress of a new copy that is built in addition to the served copy."""

    generation: int
    """Number of the new copy."""
    log_id: int | None
    """Id of the log that the new copy follows."""
    catch_up: CatchUp
    reason: ForebayError
    """Reason for the rebuild."""


@dataclass(frozen=True)
class SnapshotDownload:
    """Progress of a snapshot download."""

    bytes: int
    bytes_in_all: int


@dataclass(frozen=True)
class PartitionStatus:
    """The status of one partition of a reader."""

    partition: int
    phase: Literal["bootstrapping", "serving", "poisoned"]
    generation: int
    log_id: int | None
    position: str | None
    offset_applied: int
    """First offset that is not applied yet."""
    end_offset: int
    """The log's end, as last reported."""
    lag_records: int
    age: float | None
    """Possible age of the served data, in seconds, clock error included; None while unknown."""
    clock_error: float | None
    schema_version: int
    documents: int
    document_bytes: int
    catch_up: CatchUp
    """Catch-up of the first copy; complete once the partition serves."""
    snapshot_download: SnapshotDownload | None
    """Progress of the snapshot that the copy starts from, while it is fetched or waits for its
    turn.
    """
    rebuild: RebuildProgress | None
    """The copy that is built in addition to the served copy, if any."""
    fatal_error: ForebayError | None
    """Reason why nothing is applied until this process is upgraded or restarted."""
    last_error: ForebayError | None
    """Reason why nothing is applied at the moment."""
    counts: Counts


@dataclass(frozen=True)
class ReaderStatus:
    """The status of a reader at one moment."""

    store: str
    is_ready: bool
    """Whether the process should get traffic."""
    phase: Literal["bootstrapping", "serving", "poisoned"]
    """The phase of the partition that is furthest from serving."""
    bootstrap_percent: int
    bootstrap_remaining: float | None
    """Seconds until all partitions have caught up; None before there is a rate."""
    age: float | None
    """The highest age of the partitions, in seconds; None while one is unknown."""
    schema_version: int
    partitions: tuple[PartitionStatus, ...]


@dataclass(frozen=True)
class Verification:
    """The result of comparing a reader's copy of a partition with its node's, at one position."""

    partition: int
    documents_here: int
    """Live documents of the reader."""
    documents_there: int
    """Live documents of the node's shard."""
    differences: tuple[tuple[Key, Literal["only_here", "only_there", "contents"]], ...]
    """The documents that differ, the first ones: each key, and the kind of the difference."""
    more: int
    """Number of further differences."""
    ranges_left: int
    """Ranges of 4,096 that differ in too many documents to compare them one by one."""

    @property
    def is_same(self) -> bool:
        """Whether both have the same documents."""
        return not self.differences and self.ranges_left == 0


@dataclass(frozen=True)
class ReadCounts:
    """Counts of reads since the reader was opened."""

    hits: int
    """Reads that found a document."""
    misses: int
    """Reads that found no document, or an expired one."""


@dataclass(frozen=True)
class MemoryUse:
    """The memory of the partitions that a reader maintains."""

    used: int
    """Bytes of documents, their index and free space."""
    limit: int | None
    """The bound of `used`: the memory limit; None without a bound."""
    spilled: int
    """Bytes on disk of the documents that exceed the memory limit."""
    spill_limit: int
    """The bound of `spilled`; 0 if nothing is spilled."""


@dataclass(frozen=True)
class ReaderMetrics:
    """Counts and sizes of a reader since it was opened."""

    reads: ReadCounts
    memory_bytes: int
    """Estimated bytes of memory of all documents."""
    memory: MemoryUse
    counts: Counts
    """Counts of all partitions together."""
    status: ReaderStatus
