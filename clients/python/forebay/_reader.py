"""The embedded reader: a live copy of a store in this process."""

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
    """A live copy of a store in this process: reads are local and take no lock.

    `source` is `host:port`, or use `Client.reader`. Opening returns at once; wait with
    `await_ready`. `partitions` follows just these; `serve_partial` answers before a partition has
    caught up, where absent may mean "not yet". Safe to share between threads.

    With a `checkpoint_dir` it writes checkpoints there, every `checkpoint_every` seconds (10 unless
    set) and when it is closed, and is opened again from them instead of from the log's start. The
    readers of a host that name the same directory share one copy of each partition: one of them
    keeps it, and when that one ends, however it ends, another goes on while all read on.

    `memory_budget` is how many bytes its documents and their index may take: unless set, half of
    the control group's limit or of the host's memory, whichever is less, and less than half where
    that would leave below 56 MiB and 8 for each partition. Where an entry needs more, the reader
    spills, if it may; else it stops applying and `status` says so; it answers on, and turns stale
    by its bounds. Readers that share a copy count it once, by the budget of the one that keeps it.

    `spill_bytes_max` is how many bytes of disk, in `checkpoint_dir`, documents may take that have
    no room in memory; 0 spills nothing, and more than 0 needs the directory (`InvalidArgument`).
    Those go there that were written longest ago, and a read of one waits for the disk; the index
    stays in memory.

    `snapshots` is the URL of the folder of snapshots that it begins with where it has no checkpoint
    (`file:///folder`, `s3://bucket/folder`, `az://container/folder`, `gs://bucket/folder`), which
    spares it reading the whole log, and takes the place of what was trimmed of it. Images are
    fetched into `checkpoint_dir`. Credentials come from the environment, by the names that the
    stores' own tools use. Raises `InvalidArgument` for a URL that names no such folder.

    After a fork a reader with a directory reads on in the child: its first use there opens it
    again, over a connection of the child's own to the same node, in the time of that call (its
    `timeout`, else `open_timeout`). A scan that the parent began raises `Closed` there, and
    callbacks are registered anew. A reader without a directory raises `Closed` in a child.

    Every read takes `after` (a token: wait until that write is here), `latest` (wait until all that
    was acknowledged before is here), both at most `timeout` seconds (10 unless set), and `max_age`
    (raise `Stale` for data older than so many seconds). A field's name is looked up behind the
    wait: one that was added before the write of the token is there.

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
        key: str = "string",
        partitions: int = 8,
        partition_key: str | None = None,
        key_value: bool = False,
        ttl: float | None = None,
        versioned: bool = False,
        heartbeat: float = 1.0,
        log_window: float | None = None,
    ) -> InMemoryReader:
        """Open a reader of a store in this process's memory, for tests of programs that read.

        It is ready at once, with these rows in it: fields by key, or changes. No file, thread, port
        or server stands behind it. The rest is that of `Client.create_store`.
        """
        from forebay._memory import open_in_memory

        return open_in_memory(
            fields,
            rows,
            name=name,
            key=key,
            partitions=partitions,
            partition_key=partition_key,
            key_value=key_value,
            ttl=ttl,
            versioned=versioned,
            heartbeat=heartbeat,
            log_window=log_window,
        )

    def __enter__(self: Self) -> Self:
        """Return the reader itself."""
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
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> PackedValues:
        """Return a string or bytes field of many documents as buffers, with no object per value.

        A key whose partition does not answer is told by its status.
        """
        import numpy as np

        from forebay._answers import PackedValues

        values, ends, statuses, presences = self.packed(
            keys, field, after=after, latest=latest, max_age=max_age, timeout=timeout
        )
        return PackedValues(
            values,
            np.frombuffer(ends, np.dtype("<u8")),
            np.frombuffer(statuses, np.uint8),
            np.frombuffer(presences, np.uint8),
        )

    def plan(
        self,
        fields: GatherFields,
        dtype: Literal["float32", "float64", "int32", "int64"] = "float32",
        *,
        lossy: bool = False,
    ) -> _native.GatherPlan:
        """Plan a gather of these fields into a matrix of this type.

        A field is a name, or a name with a default in place of null and absent (else the schema's,
        or 0). A vector takes a column per component. A type that does not hold every value of a
        field exactly is refused, unless `lossy`.
        """
        return self.plan_gather(list(fields), dtype, lossy)

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
        max_age: float | None = None,
        timeout: float | None = None,
    ) -> npt.NDArray[Any]:
        """Fill a matrix with a row per key and the plan's columns, and return it.

        `out` takes the values: C-contiguous, writable, of the plan's type, with the plan's width
        and a row per key or more; its first rows are returned. `mask`, of the same shape, takes a
        `Presence` per cell, and `statuses` a `KeyStatus` per key, both as uint8. An array that does
        not fit is refused before anything is written. Leave the arrays alone during the call.

        Without `statuses` a key whose partition does not answer raises, for its defaults would pass
        for values.
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
            max_age=max_age,
            timeout=timeout,
        )
        return out[:rows]

    def iterate(
        self, *, max_age: float | None = None, batch: int = 1024
    ) -> Iterator[tuple[Any, Document]]:
        """Yield the key and the document of every live document, in no order.

        One that lives throughout is seen exactly once, as it is at that moment; one that comes or
        goes meanwhile may be seen or not. Keys of a store that is partitioned by a field are
        `PartitionedKey`s.
        """
        scan = self.scan()
        while found := self.scan_next(scan, batch, max_age):
            yield from found
