"""Generated from clients/python/src by python3 clients/bindings/generate_bindings.py.

The native module that implements the package. Use the names of `forebay`.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from forebay._answers import (
    BatchOutcome,
    Definition,
    EventQueryResult,
    ReaderMetrics,
    ReaderStatus,
    StreamSummary,
    Verification,
    WriteOutcome,
)
from forebay._errors import ForebayError
from forebay._model import Absent, Presence
from forebay._types import Document, Fields, FieldValue, Key, Keys, Value

_Default = TypeVar("_Default")
_Answer = TypeVar("_Answer")

def connect(
    endpoint: str, deadline: float | None = None, attempt: float | None = None
) -> Call[Client]:
    """Returns the call that connects a client."""

def close_log() -> None:
    """Closes the records: remaining records can still be taken."""

def next_records(
    timeout: float,
) -> tuple[list[tuple[int, str, str, int, str | None, int]], int] | None:
    """Waits for records, at most the given seconds; returns the records and the number of lost
    ones, or None once `close_log` was called and all are taken.
    """

def set_log_level(level: int) -> None:
    """Sets the recorded level from now on: 0 nothing, 1 errors, 2 warnings, 3, 4, 5 everything."""

def open_reader(
    source: str | Client,
    store: str,
    *,
    partitions: list[int] | None = None,
    allow_incomplete_reads: bool = False,
    ready_max_staleness: float | None = None,
    open_timeout: float | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_interval: float | None = None,
    memory_limit: int | None = None,
    spill_limit: int = 0,
    snapshots: str | None = None,
) -> Call[OpenedReader]:
    """Returns the call that opens a reader, for an event loop."""

def after_fork_in_child() -> None:
    """Notes that this process is a forked child; `forebay` registers this function with `os`."""

@final
class Call(Generic[_Answer]):
    """A call that is not started yet."""

    def wait(self) -> _Answer:
        """Starts the call and waits for its result; Ctrl-C ends the wait."""
    def start(self, completions: Completions, ticket: int) -> StartedCall:
        """Starts the call; its result goes to `completions` under the ticket."""

@final
class Completions:
    """The results for one event loop."""

    def __new__(cls) -> Completions: ...
    def fileno(self) -> int:
        """Returns the file descriptor that is readable while results are available."""
    def take(self) -> list[tuple[int, Any, ForebayError | None]]:
        """Takes the results so far."""

@final
class StartedCall:
    """A call that an event loop awaits."""

    def cancel(self) -> None:
        """Gives the call up; its outcome stays unknown."""

@final
class Change:
    """A change of one document, checked against the store's definition when it is sent."""

    def __new__(
        cls,
        verb: str,
        key: Key,
        fields: Fields | None = None,
        *,
        ttl: float | None = None,
        field_ttl: Mapping[str, float] | None = None,
        if_absent: bool = False,
        if_version: int | None = None,
        if_newer: str | None = None,
    ) -> Change: ...

@final
class Operation:
    """An operation on one field, other than setting it."""

    @staticmethod
    def increment(by: float) -> Operation: ...
    @staticmethod
    def minimum(value: Value) -> Operation: ...
    @staticmethod
    def maximum(value: Value) -> Operation: ...
    @staticmethod
    def list_append(items: Iterable[Value], bound: int) -> Operation: ...
    @staticmethod
    def set_add(items: Iterable[Value], bound: int) -> Operation: ...
    @staticmethod
    def set_remove(items: Iterable[Value]) -> Operation: ...

@final
class Client:
    """A connection to a writer."""

    def store(self, name: str) -> Call[Store]: ...
    def create_store(self, spec: StoreSpec) -> Call[Store]: ...
    def alter_store(
        self, name: str, alterations: list[Alteration], from_version: int | None = None
    ) -> Call[Definition]: ...
    def delete_store(self, name: str) -> Call[None]: ...
    def describe_store(self, name: str, version: int | None = None) -> Call[Definition]: ...
    def list_stores(self) -> Call[list[Definition]]: ...
    def close(self) -> None: ...

@final
class Store:
    """A store of a client."""

    def definition(self) -> Definition: ...
    def refresh(self) -> Call[Definition]: ...
    def write(self, change: Change, deadline: float | None = None) -> Call[WriteOutcome]: ...
    def batch(
        self, changes: Iterable[Change], deadline: float | None = None
    ) -> Call[BatchOutcome]: ...
    def select(
        self,
        *,
        key: Key | None = None,
        equal: tuple[str, Value] | None = None,
        between: tuple[str, Value | None, Value | None] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        columns: list[str] | None = None,
        order_by: str | None = None,
        descending: bool = False,
        limit: int | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Call[EventQueryResult]:
        """Creates a select of retained events, without sending anything."""
    def ordered(self) -> OrderedReads: ...
    def write_stream(
        self,
        changes_max: int | None = None,
        bytes_max: int | None = None,
        deadline: float | None = None,
    ) -> WriteStream: ...

@final
class FieldHandle:
    """A field of a reader: resolved once by name, then bound to its id and type.

    A handle survives renames and, while values fit, a wider type; after a drop, reads return
    absent.
    """

    @property
    def name(self) -> str:
        """Name that the handle was resolved by."""
    @property
    def type(self) -> str:
        """Type that the field is read as."""

@final
class GatherPlan:
    """Fields resolved to the columns of a matrix; any thread may use a plan, repeatedly."""

    @property
    def width(self) -> int:
        """Number of columns of a row."""
    @property
    def dtype(self) -> str:
        """Name of the matrix's NumPy type."""
    @property
    def columns(self) -> list[tuple[str, int, int]]:
        """Field, first column and number of columns, in the order of the fields."""

@final
class Memory:
    """A store in this process's memory, with its reader, its clock and its states."""

    def __new__(cls, spec: StoreSpec, changes: Iterable[Change]) -> Memory:
        """Opens a store and its reader, with the documents of these changes."""
    def store(self) -> Store:
        """Returns the store, for writes."""
    def clock(self) -> int:
        """Returns the time of the reader's clock, in microseconds since the Unix epoch."""
    def set_clock(self, micros: int) -> None: ...
    def simulate(self, state: str, age: float | None = None) -> None:
        """Simulates the state of this name; `age` is the age of stale data, in seconds."""
    def alter(self, alterations: list[Alteration]) -> Definition: ...

@final
class OpenedReader:
    """A reader that an event loop has opened; `Reader` takes it as its source."""

@final
class OrderedReads:
    """Ordered reads of one store."""

    def get(
        self,
        key: Key,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Call[Document | None]: ...
    def get_many(
        self,
        keys: Keys,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Call[list[Document | ForebayError | None]]: ...
    def scan(
        self,
        *,
        partition_key: str | bytes | int | None = None,
        start: str | bytes | int | None = None,
        start_inclusive: bool = True,
        end: str | bytes | int | None = None,
        end_inclusive: bool = False,
        prefix: str | bytes | None = None,
        fields: list[str] | None = None,
        reverse: bool = False,
        limit: int | None = None,
        cursor: bytes | None = None,
        allow_snapshot_change: bool = False,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> OrderedScan:
        """Creates a scan, without sending anything."""

@final
class OrderedScan:
    """The state of a scan: before or after its first document."""

    def next(self, documents_max: int) -> Call[list[tuple[Key, Document]]]:
        """Returns the call for the next documents, at most `documents_max`; none at the end."""
    def cursor(self) -> bytes:
        """Returns the cursor at which the scan continues."""

@final
class PendingWrite:
    """A write that was sent and is unresolved, from `ForebayError.pending`."""

    def retry(self) -> Call[BatchOutcome]:
        """Returns the call that sends the same write again under the same sequence; can be used
        once.
        """

class Reader:
    """A full copy of a store in this process."""

    def __new__(
        cls,
        source: str | Client | Memory | OpenedReader,
        store: str,
        *,
        partitions: list[int] | None = None,
        allow_incomplete_reads: bool = False,
        ready_max_staleness: float | None = None,
        open_timeout: float | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_interval: float | None = None,
        memory_limit: int | None = None,
        spill_limit: int = 0,
        snapshots: str | None = None,
    ) -> Reader: ...
    @property
    def store(self) -> str:
        """Name of the reader's store."""
    @overload
    def get(
        self,
        key: Key,
        field: str | FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | Absent:
        """Returns a field of a document: its value, None for null, and `default` (`ABSENT`
        unless given) if the document does not exist or does not have the field. `field` is a
        name or, faster, a handle. See the class for the keywords.
        """
    @overload
    def get(
        self,
        key: Key,
        field: str | FieldHandle,
        default: _Default,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | _Default:
        """Returns a field of a document: its value, None for null, and `default` (`ABSENT`
        unless given) if the document does not exist or does not have the field. `field` is a
        name or, faster, a handle. See the class for the keywords.
        """
    def get_into(
        self,
        key: Key,
        field: str | FieldHandle,
        buffer: bytearray | memoryview | npt.NDArray[np.uint8],
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> int | None | Absent:
        """Copies a string (as UTF-8) or bytes field to the start of a writable buffer and
        returns its length in bytes; None for null, `ABSENT` for absent. A length above the
        buffer's is the size that the value needs: nothing was copied.
        """
    def presence(
        self,
        key: Key,
        field: str | FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Presence:
        """Returns whether a field of a document is absent, null or a value."""
    def get_document(
        self,
        key: Key,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> Document | None:
        """Returns a whole document as a dict, or None if it does not exist. Copies every field:
        read single fields by `get`.
        """
    def get_many(
        self,
        keys: Keys,
        field: str | FieldHandle,
        default: object = ...,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> list[FieldValue]:
        """Returns one field of many documents, in the order of the keys. `statuses`, an array of
        uint8, takes a `KeyStatus` per key; without `statuses`, a key whose partition does not
        answer raises an error.
        """
    def packed(
        self,
        keys: Keys,
        field: str | FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, bytes, bytes, bytes]:
        """Reads a string or bytes field of many documents as four buffers; `Reader.get_packed`
        is the convenient form.
        """
    def get_documents(
        self,
        keys: Keys,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> list[Document | None]:
        """Returns many documents, None for each that does not exist. `statuses` is as for
        `get_many`.
        """
    def field(self, name: str, type: str | None = None) -> FieldHandle:
        """Resolves a field by name or earlier name, to be read as a type: its own unless given,
        a type that widens to it, or a type that it widens to. Raises `NotFoundError` and
        `InvalidArgumentError`.
        """
    def make_plan(
        self, fields: list[str | tuple[str, Value]], dtype: str, lossy: bool
    ) -> GatherPlan:
        """Plans a gather; `Reader.plan_gather` is the convenient form."""
    def gather_into(
        self,
        plan: GatherPlan,
        keys: Keys,
        out: npt.NDArray[Any],
        *,
        mask: npt.NDArray[np.uint8] | None = None,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> None:
        """Fills arrays; `Reader.gather` is the convenient form."""
    def open_scan(self) -> Scan:
        """Opens a scan; `Reader.scan` is the convenient form."""
    def scan_next(
        self, scan: Scan, documents_max: int, max_staleness: float | None = None
    ) -> list[tuple[Any, Document]]:
        """Returns up to `documents_max` more keys and documents of a scan; none at its end."""
    def await_ready(self, timeout: float) -> None:
        """Waits until every followed partition serves fresh data, at most `timeout` seconds.
        Raises `UnavailableError` with phase, percent and remaining time.
        """
    def await_token(self, token: bytes, timeout: float) -> None:
        """Waits until everything that the token covers is applied, at most `timeout` seconds."""
    def calls(self) -> ReaderCalls:
        """Returns the calls that an event loop awaits."""
    @property
    def is_ready(self) -> bool:
        """Whether the process should get traffic."""
    @property
    def schema_version(self) -> int:
        """Newest schema version that any partition has seen; 0 before the first entry."""
    @property
    def definition(self) -> Definition:
        """Definition at the schema version `schema_version`."""
    def status(self) -> ReaderStatus:
        """Returns the current status of the reader and of each of its partitions."""
    def metrics(self) -> ReaderMetrics:
        """Returns counts and sizes since the reader was opened."""
    def verify(self, partition: int, timeout: float = 60.0) -> Verification:
        """Compares the reader's copy of a partition with the shard of the connected node, at one
        position, and names the documents that differ. Waits at most `timeout` seconds for the
        shard, and then until the reader has reached the same position. Reads both completely,
        the shard over the network; while the reader's copy is read, the partition applies no
        entries but still answers reads. Raises `UnsupportedError` for an in-memory reader, and
        if another reader of the directory maintains the copy.
        """
    def on_schema_change(self, callback: Callable[[Definition], object]) -> None:
        """Calls back with the definition of each schema version that the reader reaches from now
        on, in order, on a separate thread. Exceptions of the callback go to
        `sys.unraisablehook`.
        """
    def close(self, timeout: float = 10.0) -> None:
        """Closes the reader: reads in flight end, later ones raise `ClosedError`, and the memory
        is freed after the last of them. A reader with checkpoints writes a last checkpoint of
        each partition, and this call waits for them, at most `timeout` seconds. A second close
        changes nothing.
        """

@final
class ReaderCalls:
    """Waits of a reader, for an event loop."""

    def reopen(self, timeout: float | None = None) -> Call[None] | None:
        """Returns the call that reopens the reader in a forked child; None if nothing is to be
        done.
        """
    def await_ready(self, timeout: float) -> Call[None]:
        """Returns the call of `Reader.await_ready`."""
    def await_token(self, token: bytes, timeout: float) -> Call[None]:
        """Returns the call of `Reader.await_token`."""
    def wait(
        self,
        keys: Keys,
        *,
        after: bytes | None = None,
        latest: bool = False,
        timeout: float | None = None,
    ) -> Call[None]:
        """Returns the call of the wait of a read of these keys."""
    def verify(self, partition: int, timeout: float) -> Call[Verification]:
        """Returns the call of `Reader.verify`."""
    def close(self, timeout: float) -> Call[None]:
        """Closes the reader, and returns the call that waits for the last checkpoints."""

@final
class Scan:
    """A cursor over all documents of a reader."""

@final
class Alteration:
    """An alteration of a store's definition."""

    @staticmethod
    def add_field(
        name: str,
        type: str,
        *,
        default: Value | None = None,
        ttl: float | None = None,
        required: bool = False,
        allowed: Sequence[Value] = (),
        index: Literal["exact", "range"] | None = None,
    ) -> Alteration:
        """Adds a field under a new id."""
    @staticmethod
    def set_rules(
        name: str,
        *,
        required: bool = False,
        allowed: Sequence[Value] = (),
        index: Literal["exact", "range"] | None = None,
    ) -> Alteration:
        """Replaces the rules of a stream's column by those of `FieldSpec`. Refusals apply to
        future events; an index covers all retained events.
        """
    @staticmethod
    def drop_field(name: str) -> Alteration:
        """Drops a field's id: its values are absent, also if a new field takes the name."""
    @staticmethod
    def drop_fields_by_prefix(prefix: str) -> Alteration:
        """Drops all fields whose current name has this prefix."""
    @staticmethod
    def rename_field(name: str, to: str) -> Alteration:
        """Renames a field; the old name stays an alias."""
    @staticmethod
    def widen_field(name: str, to: str) -> Alteration:
        """Widens a field's type: int32 to int64 or float64, float32 to float64."""
    @staticmethod
    def drop_all() -> Alteration:
        """Deletes every document of the store."""
    @staticmethod
    def set_options(
        *,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
        log_retention: float | None = None,
        log_retention_bytes: int | None = None,
    ) -> Alteration:
        """Replaces all options, by those of `create_store` and `create_stream`; times in
        seconds. An omitted option is unset: to change one, take the others from the definition.
        """

@final
class FieldSpec:
    """A field of a new store: its name, its type, and the default and time to live in seconds."""

    def __new__(
        cls,
        name: str,
        type: str,
        *,
        default: Value | None = None,
        ttl: float | None = None,
        required: bool = False,
        allowed: Sequence[Value] = (),
        index: Literal["exact", "range"] | None = None,
    ) -> FieldSpec: ...

@final
class StoreSpec:
    """A store specification."""

    def __new__(
        cls,
        name: str,
        *,
        key_type: str,
        partitions: int,
        fields: list[FieldSpec],
        partition_key: str | None,
        key_value: bool,
        ttl: float | None,
        versioned: bool,
        heartbeat: float,
        log_retention: float | None,
        log_retention_bytes: int | None = None,
        stream: bool = False,
        event_time: str | None = None,
    ) -> StoreSpec: ...

@final
class Acknowledgement:
    """The outcome of one write, as soon as it is known."""

    @property
    def is_known(self) -> bool:
        """Returns whether the outcome is known; does not wait."""
    def known(self) -> WriteOutcome | None:
        """Returns the outcome if it is known, else None."""
    def outcome(self, timeout: float | None = None) -> Call[WriteOutcome]:
        """Returns the call that waits for the outcome, at most `timeout` seconds."""

@final
class WriteStream:
    """A stream of writes to one store."""

    @property
    def room(self) -> int:
        """Most unresolved changes."""
    def try_send(self, change: Change) -> Acknowledgement | None:
        """Queues a change if that needs no wait; otherwise returns None, and the change is not
        queued.
        """
    def send(self, change: Change) -> Call[Acknowledgement]:
        """Returns the call that queues a change once there is space."""
    def flush(self) -> Call[StreamSummary]:
        """Returns the call that waits until every write that was sent is resolved."""
    def summary(self) -> Call[StreamSummary]:
        """Returns the call for the outcome of the writes so far."""
    def close(self) -> None:
        """Ends the stream; unresolved writes are given up."""
