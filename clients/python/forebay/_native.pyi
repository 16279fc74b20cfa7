"""The native module that implements the package. Use the names of `forebay` instead."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, final, overload

import numpy as np
import numpy.typing as npt

from forebay._answers import (
    BatchOutcome,
    Definition,
    ReaderMetrics,
    ReaderStatus,
    Selected,
    StreamSummary,
    Verified,
    WriteOutcome,
)
from forebay._errors import Error
from forebay._model import Absent, Presence
from forebay._types import Document, Fields, FieldValue, Key, Keys, Value

_Default = TypeVar("_Default")
_Answer = TypeVar("_Answer")

def after_fork_in_child() -> None: ...
def set_log_level(level: int) -> None: ...
def next_records(
    timeout: float,
) -> tuple[list[tuple[int, str, str, int, str | None, int]], int] | None: ...
def close_log() -> None: ...
def connect(
    endpoint: str, deadline: float | None = None, attempt: float | None = None
) -> Call[Client]: ...

@final
class Call(Generic[_Answer]):
    def wait(self) -> _Answer: ...
    def start(self, completions: Completions, ticket: int) -> Started: ...

@final
class Started:
    def cancel(self) -> None: ...

@final
class Completions:
    def __new__(cls) -> Completions: ...
    def fileno(self) -> int: ...
    def take(self) -> list[tuple[int, Any, Error | None]]: ...

@final
class PendingWrite:
    """A write that was sent and is unsettled, from `Error.pending`."""

    def retry(self) -> Call[BatchOutcome]: ...

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
    def __new__(
        cls,
        name: str,
        *,
        key: str,
        partitions: int,
        fields: list[FieldSpec],
        partition_key: str | None,
        key_value: bool,
        ttl: float | None,
        versioned: bool,
        heartbeat: float,
        log_window: float | None,
        log_bytes: int | None = None,
        stream: bool = False,
        event_time: str | None = None,
    ) -> StoreSpec: ...

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
        """Add a field under a new id."""
    @staticmethod
    def drop_field(name: str) -> Alteration:
        """Drop a field's id: its values are absent, also if a new field takes the name."""
    @staticmethod
    def drop_fields_by_prefix(prefix: str) -> Alteration:
        """Drop all fields whose current name has this prefix."""
    @staticmethod
    def rename_field(name: str, to: str) -> Alteration:
        """Rename a field; the old name stays an alias."""
    @staticmethod
    def widen_field(name: str, to: str) -> Alteration:
        """Widen a field's type: int32 to int64 or float64, float32 to float64."""
    @staticmethod
    def set_rules(
        name: str,
        *,
        required: bool = False,
        allowed: Sequence[Value] = (),
        index: Literal["exact", "range"] | None = None,
    ) -> Alteration:
        """Replace the rules of a stream's column by those of `FieldSpec`.

        Refusals apply to future events; an index covers all retained events.
        """
    @staticmethod
    def drop_all() -> Alteration:
        """Delete every document of the store."""
    @staticmethod
    def set_options(
        *,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
        log_window: float | None = None,
        log_bytes: int | None = None,
    ) -> Alteration:
        """Replace all options, by those of `create_store` and `create_stream`; times in seconds.

        An omitted option is unset: to change one, take the others from the definition.
        """

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
class Client:
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
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Call[Selected]: ...
    def ordered(self) -> OrderedReads: ...
    def write_stream(
        self,
        changes_max: int | None = None,
        bytes_max: int | None = None,
        deadline: float | None = None,
    ) -> WriteStream: ...

@final
class OrderedReads:
    def get(
        self,
        key: Key,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Call[Document | None]: ...
    def get_many(
        self,
        keys: Keys,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Call[list[Document | Error | None]]: ...
    def scan(
        self,
        *,
        partition_key: str | bytes | int | None = None,
        start: str | bytes | int | None = None,
        after_start: bool = False,
        end: str | bytes | int | None = None,
        with_end: bool = False,
        prefix: str | bytes | None = None,
        fields: list[str] | None = None,
        backward: bool = False,
        limit: int | None = None,
        cursor: bytes | None = None,
        may_move: bool = False,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> OrderedScan: ...

@final
class OrderedScan:
    def next(self, documents_max: int) -> Call[list[tuple[Key, Document]]]: ...
    def cursor(self) -> bytes: ...

@final
class WriteStream:
    @property
    def room(self) -> int: ...
    def try_send(self, change: Change) -> Acknowledgement | None: ...
    def send(self, change: Change) -> Call[Acknowledgement]: ...
    def flush(self) -> Call[StreamSummary]: ...
    def summary(self) -> Call[StreamSummary]: ...
    def close(self) -> None: ...

@final
class Acknowledgement:
    @property
    def is_known(self) -> bool: ...
    def known(self) -> WriteOutcome | None: ...
    def outcome(self, timeout: float | None = None) -> Call[WriteOutcome]: ...

@final
class FieldHandle:
    """A field of a reader: resolved once by name, then bound to its id and type.

    A handle survives renames and, while values fit, a wider type; after a drop, reads return
    absent.
    """

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...

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
class Scan: ...

@final
class OpenedReader: ...

def open_reader(
    source: str | Client,
    store: str,
    *,
    partitions: list[int] | None = None,
    serve_partial: bool = False,
    ready_age_max: float | None = None,
    open_timeout: float | None = None,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    checkpoint_every: float | None = None,
    memory_budget: int | None = None,
    spill_bytes_max: int = 0,
    snapshots: str | None = None,
) -> Call[OpenedReader]: ...

@final
class Memory:
    def __new__(cls, spec: StoreSpec, changes: Iterable[Change]) -> Memory: ...
    def store(self) -> Store: ...
    def clock(self) -> int: ...
    def set_clock(self, micros: int) -> None: ...
    def force(self, state: str, age: float | None = None) -> None: ...
    def alter(self, alterations: list[Alteration]) -> Definition: ...

class Reader:
    def __new__(
        cls,
        source: str | Client | Memory | OpenedReader,
        store: str,
        *,
        partitions: list[int] | None = None,
        serve_partial: bool = False,
        ready_age_max: float | None = None,
        open_timeout: float | None = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_every: float | None = None,
        memory_budget: int | None = None,
        spill_bytes_max: int = 0,
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
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | Absent: ...
    @overload
    def get(
        self,
        key: Key,
        field: str | FieldHandle,
        default: _Default,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> FieldValue | None | _Default: ...
    def get_into(
        self,
        key: Key,
        field: str | FieldHandle,
        buffer: bytearray | memoryview | npt.NDArray[np.uint8],
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> int | None | Absent: ...
    def presence(
        self,
        key: Key,
        field: str | FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Presence: ...
    def get_document(
        self,
        key: Key,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> Document | None: ...
    def get_many(
        self,
        keys: Keys,
        field: str | FieldHandle,
        default: object = ...,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> list[FieldValue]: ...
    def packed(
        self,
        keys: Keys,
        field: str | FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> tuple[bytes, bytes, bytes, bytes]: ...
    def get_documents(
        self,
        keys: Keys,
        *,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> list[Document | None]: ...
    def field(self, name: str, type: str | None = None) -> FieldHandle: ...
    def plan_gather(
        self, fields: list[str | tuple[str, Value]], dtype: str, lossy: bool
    ) -> GatherPlan: ...
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
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> None: ...
    def scan(self) -> Scan: ...
    def scan_next(
        self, scan: Scan, documents_max: int, max_age: float | None = None
    ) -> list[tuple[Any, Document]]: ...
    def await_ready(self, timeout: float) -> None: ...
    def wait_token(self, token: bytes, timeout: float) -> None: ...
    def attach_call(self, timeout: float | None = None) -> Call[None] | None: ...
    def await_ready_call(self, timeout: float) -> Call[None]: ...
    def wait_token_call(self, token: bytes, timeout: float) -> Call[None]: ...
    def wait_call(
        self,
        keys: Keys,
        *,
        after: bytes | None = None,
        latest: bool = False,
        timeout: float | None = None,
    ) -> Call[None]: ...
    def close_call(self, timeout: float) -> Call[None]: ...
    @property
    def is_ready(self) -> bool: ...
    @property
    def schema_version(self) -> int: ...
    def schema(self) -> Definition: ...
    def status(self) -> ReaderStatus: ...
    def metrics(self) -> ReaderMetrics: ...
    def verify(self, partition: int, timeout: float = 60.0) -> Verified: ...
    def verify_call(self, partition: int, timeout: float) -> Call[Verified]: ...
    def on_schema_change(self, callback: Callable[[int], object]) -> None: ...
    def close(self, timeout: float = 10.0) -> None: ...
