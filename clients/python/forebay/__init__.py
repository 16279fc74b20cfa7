"""Forebay's Python client: write once through a durable log, read from this process's memory.

A `Client` (or, on asyncio, an `AsyncClient`) writes to stores and administers them. A `Reader`
holds a full copy of a store in this process and answers from its own memory. All errors are
`ForebayError`; each code has its class. Log records go to the logger `forebay`.
"""

import importlib
import os
from typing import TYPE_CHECKING

from forebay import _native
from forebay._changes import (
    delete,
    increment,
    insert,
    list_append,
    maximum,
    minimum,
    put,
    set_add,
    set_remove,
    upsert,
)
from forebay._client import Client
from forebay._errors import (
    ClosedError,
    ConflictError,
    CorruptError,
    DeadlineExceededError,
    ForebayError,
    InternalError,
    InvalidArgumentError,
    LimitExceededError,
    NotFoundError,
    PermissionDeniedError,
    StaleError,
    TokenLostError,
    UnauthenticatedError,
    UnavailableError,
    UnknownOutcomeError,
    UnsupportedError,
    UpgradeNeededError,
)
from forebay._model import ABSENT, Absent, KeyStatus, PartitionedKey, Presence
from forebay._native import (
    Alteration,
    Change,
    FieldHandle,
    FieldSpec,
    GatherPlan,
    Operation,
    PendingWrite,
)
from forebay._reader import Reader
from forebay._verbs import Acknowledgement, OrderedReads, OrderedScan, Store, WriteStream

if TYPE_CHECKING:
    from forebay._aio import AsyncClient
    from forebay._aio_reader import AsyncReader
    from forebay._answers import (
        BatchOutcome,
        CatchUp,
        CheckpointCounts,
        Counts,
        Definition,
        Event,
        EventColumn,
        EventQueryResult,
        Field,
        MemoryUse,
        PackedValues,
        PartitionStatus,
        ReadCounts,
        ReaderMetrics,
        ReaderStatus,
        RebuildProgress,
        SnapshotDownload,
        StreamSummary,
        Verification,
        WriteOutcome,
    )
    from forebay._async_verbs import (
        AsyncAcknowledgement,
        AsyncOrderedReads,
        AsyncOrderedScan,
        AsyncStore,
        AsyncWriteStream,
    )
    from forebay._memory import InMemoryReader
    from forebay._types import Document, Fields, FieldValue, Key, Keys, Value, Vector

# A fork copies no threads: objects that the parent has opened raise `ClosedError` in the child.
os.register_at_fork(after_in_child=_native.after_fork_in_child)

__all__ = [
    "ABSENT",
    "Absent",
    "Acknowledgement",
    "Alteration",
    "AsyncAcknowledgement",
    "AsyncClient",
    "AsyncOrderedReads",
    "AsyncOrderedScan",
    "AsyncReader",
    "AsyncStore",
    "AsyncWriteStream",
    "BatchOutcome",
    "CatchUp",
    "Change",
    "CheckpointCounts",
    "Client",
    "ClosedError",
    "ConflictError",
    "CorruptError",
    "Counts",
    "DeadlineExceededError",
    "Definition",
    "Document",
    "Event",
    "EventColumn",
    "EventQueryResult",
    "Field",
    "FieldHandle",
    "FieldSpec",
    "FieldValue",
    "Fields",
    "ForebayError",
    "GatherPlan",
    "InMemoryReader",
    "InternalError",
    "InvalidArgumentError",
    "Key",
    "KeyStatus",
    "Keys",
    "LimitExceededError",
    "MemoryUse",
    "NotFoundError",
    "Operation",
    "OrderedReads",
    "OrderedScan",
    "PackedValues",
    "PartitionStatus",
    "PartitionedKey",
    "PendingWrite",
    "PermissionDeniedError",
    "Presence",
    "ReadCounts",
    "Reader",
    "ReaderMetrics",
    "ReaderStatus",
    "RebuildProgress",
    "SnapshotDownload",
    "StaleError",
    "Store",
    "StreamSummary",
    "TokenLostError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnknownOutcomeError",
    "UnsupportedError",
    "UpgradeNeededError",
    "Value",
    "Vector",
    "Verification",
    "WriteOutcome",
    "WriteStream",
    "delete",
    "increment",
    "insert",
    "list_append",
    "maximum",
    "minimum",
    "put",
    "set_add",
    "set_remove",
    "upsert",
]

# Names that need asyncio, NumPy or data classes are imported on their first use: with all of them
# `import forebay` would take five times as long.
_LAZY = {
    "_aio": "AsyncClient",
    "_aio_reader": "AsyncReader",
    "_answers": "BatchOutcome CatchUp CheckpointCounts Counts Definition Event EventColumn "
    "EventQueryResult Field MemoryUse PackedValues PartitionStatus ReadCounts ReaderMetrics "
    "ReaderStatus RebuildProgress SnapshotDownload StreamSummary Verification WriteOutcome",
    "_async_verbs": "AsyncAcknowledgement AsyncOrderedReads AsyncOrderedScan AsyncStore "
    "AsyncWriteStream",
    "_memory": "InMemoryReader",
    "_types": "Document Fields FieldValue Key Keys Value Vector",
}
_MODULES = {name: module for module, names in _LAZY.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a name of the package with the first use of it."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module 'forebay' has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"forebay.{module}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Return all names, imported or not."""
    return sorted({*globals(), *__all__})
