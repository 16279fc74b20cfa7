"""The embedded reader: a full copy of a store in this process."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from forebay import _native
from forebay._definition import FieldTypes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from forebay._answers import PackedValues
    from forebay._memory import InMemoryReader
    from forebay._types import Document, GatherFields, Keys, Rows

Self = TypeVar("Self", bound="Reader")


class Reader(_native.Reader):
    """A full copy of a store in this process: reads are local and take no lock.

    `source` is `host:port`; `Client.reader` opens a reader over a client's connection. Opening
    returns at once; wait with `await_ready`. `partitions` limits the followed partitions;
    `allow_incomplete_reads` answers before a partition has caught up, when absent may mean "not
    yet". Safe to share between threads.

    With a `checkpoint_dir` the reader writes checkpoints there, every `checkpoint_interval` seconds
    (10 unless set) and when it is closed, and the next open starts from them instead of from the
    log's start. Readers of one host with the same directory share one copy of each partition: one
    reader maintains the copy, and when it ends, for whatever reason, another one takes over while
    all others continue to read.

    `memory_limit` is the most bytes of the documents and their index. The default is half of the
    control group's limit or of the host's memory, whichever is less, and less than half if half
    would leave less than 56 MiB and 8 MiB for each partition. If an entry needs more memory, the
    reader spills documents, if it may. Otherwise the reader stops applying entries, and `status`
    says so; it still answers reads, which turn stale by their bounds. Readers that share a copy
    count it once, in the limit of the reader that maintains it.

    `spill_limit` is the most bytes of disk, in `checkpoint_dir`, for documents that exceed the
    memory limit; 0 spills nothing, and more than 0 needs the directory (`InvalidArgumentError`).
    The reader spills the least recently written documents, and a read of a spilled document waits
    for the disk; the index stays in memory.

    `snapshots` is the URL of the folder of snapshots from which a reader without a checkpoint
    starts (`file:///folder`, `s3://bucket/folder`, `az://container/folder`, `gs://bucket/folder`).
    A snapshot avoids reading the whole log, and replaces the trimmed part of the log. Images are
    fetched into `checkpoint_dir`. Credentials come from the environment, by the names that the
    object stores' own tools use. Raises `InvalidArgumentError` for a URL that names no such folder.

    After a fork a reader with a directory is usable in the child: its first use there reopens it,
    over a connection of the child's own to the same node, within the time of that call (its
    `timeout`, else `open_timeout`). A scan that the parent started raises `ClosedError` in the
    child, and callbacks are registered again. A reader without a directory raises `ClosedError` in
    a child.

    Every read takes `after` (a token: wait until that write is applied), `latest` (wait until
    everything acknowledged before is applied), both at most `timeout` seconds (10 unless set), and
    `max_staleness` (raise `StaleError` for data older than this many seconds). A read looks up a
    field's name after its wait, so it finds a field that was added before the token's write.

    >>> with forebay.Reader("127.0.0.1:7070", "users") as users:     # doctest: +SKIP
    ...     users.await_ready(30)
    ...     users.get("u1", "age")
    """

    @staticmethod
    def in_memory(
        fields: FieldTypes = (),
        rows: Rows = (),
        *,
        name: str = "memory",
        key_type: str = "string",
        partitions: int = 8,
        partition_key: str | None = None,
        key_value: bool = False,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
        log_retention: float | None = None,
    ) -> InMemoryReader:
        """Open a reader of a store in this process's memory, for tests of programs that read.

        The reader is ready at once and contains these rows: fields by key, or changes. No file,
        thread, port or server is involved. The other parameters are those of `Client.create_store`.
        """
        from forebay._memory import open_in_memory

        return open_in_memory(
            fields,
            rows,
            name=name,
            key_type=key_type,
            partitions=partitions,
            partition_key=partition_key,
            key_value=key_value,
            ttl=ttl,
            versioned=versioned,
            heartbeat=heartbeat,
            log_retention=log_retention,
        )

    def __enter__(self: Self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the reader."""
        self.close()

    def get_packed(
        self,
        keys: Keys,
        field: str | _native.FieldHandle,
        *,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> PackedValues:
        """Return a string or bytes field of many documents as buffers, with no object per value.

        The status of a key says if its partition does not answer.
        """
        import numpy as np

        from forebay._answers import PackedValues

        values, ends, statuses, presences = self.packed(
            keys, field, after=after, latest=latest, max_staleness=max_staleness, timeout=timeout
        )
        return PackedValues(
            values,
            np.frombuffer(ends, np.dtype("<u8")),
            np.frombuffer(statuses, np.uint8),
            np.frombuffer(presences, np.uint8),
        )

    def plan_gather(
        self,
        fields: GatherFields,
        dtype: Literal["float32", "float64", "int32", "int64"] = "float32",
        *,
        lossy: bool = False,
    ) -> _native.GatherPlan:
        """Plan a gather of these fields into a matrix of this type.

        A field is a name, or a name with a default for null and absent (else the schema's, or 0). A
        vector takes a column per component. A type that does not hold every value of a field
        exactly is refused, unless `lossy`.
        """
        return self.make_plan(list(fields), dtype, lossy)

    def gather(
        self,
        plan: _native.GatherPlan,
        keys: Keys,
        *,
        out: npt.NDArray[Any] | None = None,
        mask: npt.NDArray[np.uint8] | None = None,
        statuses: npt.NDArray[np.uint8] | None = None,
        after: bytes | None = None,
        latest: bool = False,
        max_staleness: float | None = None,
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """Fill a matrix with a row per key and the plan's columns, and return it.

        `out` takes the values: C-contiguous, writable, of the plan's type, with the plan's width
        and a row per key or more; its first rows are returned. `mask`, of the same shape, takes a
        `Presence` per cell, and `statuses` a `KeyStatus` per key, both as uint8. An array that does
        not fit is refused before anything is written. Do not use the arrays during the call.

        If `statuses` is not given, a key whose partition does not answer raises an error, because
        its defaults would look like values.
        """
        rows = len(keys)
        if out is None:
            import numpy as np

            out = np.empty((rows, plan.width), plan.dtype)
        self.gather_into(
            plan,
            keys,
            out,
            mask=mask,
            statuses=statuses,
            after=after,
            latest=latest,
            max_staleness=max_staleness,
            timeout=timeout,
        )
        return out[:rows]

    def scan(
        self, *, max_staleness: float | None = None, batch: int = 1024
    ) -> Iterator[tuple[Any, Document]]:
        """Yield the key and the document of every live document, in no order.

        A document that lives throughout the scan is seen exactly once, as it is at that
        moment; a document that is created or deleted during the scan may be seen or not. Keys
        of a store that is partitioned by a field are `PartitionedKey`s.
        """
        scan = self.open_scan()
        while found := self.scan_next(scan, batch, max_staleness):
            yield from found
