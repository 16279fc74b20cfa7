"""A reader's memory: the bound of the option, spilling, and the limit of a control group."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

import forebay
import pytest
from testing import WAIT_SECONDS, Server, Stores, eventually, new_name

KIB, MIB = 1 << 10, 1 << 20
MEMORY_LIMIT = 512 * KIB
GROUP_BYTES = 96 * MIB
GROUP_LIMIT = 32 * MIB
"""Limit of a reader of one partition: 64 MiB are left to the process and its tail."""
VALUE = os.urandom(64 * KIB)
DOCUMENTS = 3_000
"""Documents of twice the group's memory."""

READER = """
import json, os, select, sys
endpoint, name, folder, group = sys.argv[1:]
if group:
    with open(os.path.join(group, "cgroup.procs"), "w") as processes:
        processes.write(str(os.getpid()))
import forebay

def told(error):
    return None if error is None else [error.code, str(error)]

def read():
    try:
        return len(reader.get("steady", "raw"))
    except forebay.ForebayError as error:
        return told(error)

reader = forebay.Reader(endpoint, name, checkpoint_dir=folder or None)
print("open", flush=True)
while True:
    assert read() is not None
    order = sys.stdin.readline().strip() if select.select([sys.stdin], [], [], 0.001)[0] else None
    if order == "await":
        reader.await_ready(60)
        print("ready", flush=True)
    elif order == "tell":
        metrics = reader.metrics()
        partition = metrics.status.partitions[0]
        print(json.dumps({
            "last_error": told(partition.last_error), "answered": read(),
            "used": metrics.memory.used, "limit": metrics.memory.limit,
            "documents": partition.documents,
        }), flush=True)
    elif order is not None:
        break
reader.close()
print("closed", flush=True)
"""


class ReaderReport(TypedDict):
    """The report of a process of a group."""

    last_error: list[str] | None
    answered: int | list[str]
    used: int
    limit: int
    documents: int


def test_reader_over_its_memory_limit_stops_applying_and_keeps_answering(stores: Stores) -> None:
    store = stores.client.create_store(new_name(), {"raw": "bytes"}, key_type="int64", partitions=1)
    with stores.client.reader(store.definition.name, memory_limit=MEMORY_LIMIT) as reader:
        reader.await_ready(WAIT_SECONDS)
        before = reader.metrics().memory
        assert before.limit == MEMORY_LIMIT and before.used <= MEMORY_LIMIT
        written = [store.put(n, {"raw": VALUE[:KIB]}).token for n in range(1_000)]
        with pytest.raises(forebay.DeadlineExceededError):
            reader.get(999, "raw", after=written[-1], timeout=1)
        eventually("it says why", lambda: reader.status().partitions[0].last_error is not None)
        partition = reader.status().partitions[0]
        assert isinstance(partition.last_error, forebay.LimitExceededError), partition
        assert "raise the reader's memory limit" in str(partition.last_error)
        assert partition.last_error.limit == MEMORY_LIMIT
        # The applied documents are visible, as of one position, and nothing after it.
        applied = partition.documents
        assert 100 < applied < 900 and partition.phase == "serving"
        expected = [VALUE[:KIB]] * applied + [None] * (1_000 - applied)
        assert reader.get_many(range(1_000), "raw", None) == expected
        eventually("it is stale", lambda: is_stale(reader))
        assert reader.metrics().memory.used <= MEMORY_LIMIT


def test_reader_spills_documents_beyond_its_memory_limit(stores: Stores, tmp_path: Path) -> None:
    store = stores.client.create_store(new_name(), {"raw": "bytes"}, key_type="int64", partitions=1)
    values = [n.to_bytes(8, "little") + VALUE[8:KIB] for n in range(4_000)]
    for first in range(0, len(values), 40):
        some = enumerate(values[first : first + 40], first)
        store.batch(forebay.put(n, {"raw": value}) for n, value in some).require_complete()
    name, room = store.definition.name, 64 * MIB
    with stores.client.reader(
        name, checkpoint_dir=tmp_path, memory_limit=MEMORY_LIMIT, spill_limit=room
    ) as reader:
        reader.await_ready(WAIT_SECONDS)
        assert reader.get(0, "raw", latest=True, timeout=WAIT_SECONDS) == values[0]
        assert [reader.get(n, "raw") for n in range(len(values))] == values
        assert reader.get_many(range(len(values)), "raw") == values
        buffer = bytearray(KIB)
        assert reader.get_into(1, "raw", buffer) == KIB and buffer == values[1]
        memory = reader.metrics().memory
        assert memory.used <= MEMORY_LIMIT and memory.spill_limit == room
        assert 0 < memory.spilled <= room


def test_spilling_needs_a_directory(stores: Stores, server: Server) -> None:
    store = stores.client.create_store(new_name(), {"raw": "bytes"})
    name = store.definition.name

    async def open_later() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            await client.reader(name, spill_limit=1)

    with pytest.raises(forebay.InvalidArgumentError, match="directory of the checkpoints"):
        stores.client.reader(name, spill_limit=1)
    with pytest.raises(forebay.InvalidArgumentError, match="directory of the checkpoints"):
        asyncio.run(open_later())
    with pytest.raises(OverflowError):
        stores.client.reader(name, spill_limit=-1)
    with stores.client.reader(name) as reader:
        assert reader.metrics().memory.spill_limit == 0


def is_stale(reader: forebay.Reader) -> bool:
    """Return whether the reader's data is older than a bound."""
    with contextlib.suppress(forebay.StaleError):
        reader.get(0, "raw", max_staleness=2)
        return False
    return True


class Group:
    """A control group with a memory limit, below this process's own."""

    def __init__(self, path: Path, names: tuple[str, str]) -> None:
        """Create the group, with a limit; raises OSError if that is not allowed."""
        limit, self._events = names
        self.path = path
        path.mkdir()
        try:
            # The file is opened, not created: the folder may not be in a file system of control
            # groups.
            with (path / limit).open("r+") as file:
                file.write(str(GROUP_BYTES))
        except OSError:
            path.rmdir()
            raise

    def kills(self) -> int:
        """Return the number of the group's processes that the system has killed for memory."""
        lines = (self.path / self._events).read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def remove(self) -> None:
        """Remove the group, once its last process is gone."""

        def removed() -> bool:
            with contextlib.suppress(OSError):
                self.path.rmdir()
            return not self.path.exists()

        eventually("the control group is removed", removed)


@pytest.fixture
def group() -> Iterator[Group | None]:
    """Provide a control group, of either version; None if the system allows no memory limit."""
    made, tried = None, []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, own = line.split(":", 2)
        if controllers == "memory":
            root, names = "/sys/fs/cgroup/memory", ("memory.limit_in_bytes", "memory.oom_control")
        elif controllers == "":
            root, names = "/sys/fs/cgroup", ("memory.max", "memory.events")
        else:
            continue
        # In a container the path may be the host's, and the container's group is at the top.
        for above in (own, "/"):
            path = Path(root + above) / f"forebay-test-{os.getpid()}"
            try:
                made = made or Group(path, names)
            except OSError as error:
                tried.append(f"{path}: {error}")
    if made is None:
        print("no control group may limit memory here:", *tried, sep="\n  ")
    yield made
    if made is not None:
        made.remove()


class Member:
    """A process of a group that reads continuously, and reports its state."""

    def __init__(self, server: Server, name: str, folder: str, group: Group | None) -> None:
        """Start the process, and wait until its reader is open."""
        place = "" if group is None else str(group.path)
        command = [sys.executable, "-c", READER, server.endpoint, name, folder, place]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._line() == "open"

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        code = self._process.wait(WAIT_SECONDS) if not line else None
        assert line, f"it has ended with {code}: -9 is a kill"
        return line

    def order(self, order: str) -> str:
        """Give an order and return the answer."""
        assert self._process.stdin is not None
        # The missing answer reveals a process that has ended.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(order + "\n")
            self._process.stdin.flush()
        return self._line()

    def tell(self) -> ReaderReport:
        """Return the process's report."""
        told: ReaderReport = json.loads(self.order("tell"))
        return told

    def is_halted(self) -> bool:
        """Return whether the process applies nothing because of its memory."""
        last_error = self.tell()["last_error"]
        return last_error is not None and last_error[0] == "LimitExceeded"

    def end(self) -> None:
        """Close the process's reader, and wait for the end of the process."""
        assert self.order("close") == "closed"
        assert self._process.wait(WAIT_SECONDS) == 0

    def kill(self) -> None:
        """End the process in any case."""
        self._process.kill()
        self._process.communicate()


@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "shared"])
def test_reader_in_a_control_group_is_never_killed_for_memory(
    server: Server, client: forebay.Client, tmp_path: Path, group: Group | None, is_shared: bool
) -> None:
    if group is None:
        return
    store = client.create_store(new_name(), {"raw": "bytes"}, partitions=1)
    name, folder = store.definition.name, str(tmp_path) if is_shared else ""
    store.put("steady", {"raw": VALUE})
    with contextlib.ExitStack() as members:
        early = Member(server, name, folder, group)
        members.callback(early.kill)
        assert early.order("await") == "ready"
        told = early.tell()
        assert told["limit"] == GROUP_LIMIT and told["used"] < told["limit"]
        with store.write_stream() as stream:
            for n in range(DOCUMENTS):
                stream.send(forebay.put(f"k{n}", {"raw": VALUE}))
        eventually("it stops applying", early.is_halted)
        told = early.tell()
        last_error = told["last_error"]
        assert last_error is not None and "raise the reader's memory limit" in last_error[1]
        assert told["answered"] == len(VALUE) and told["used"] <= told["limit"]
        assert 1 < told["documents"] < DOCUMENTS
        early.end()
        # A reader that starts now cannot hold the documents: it says so, and answers nothing wrong.
        late = Member(server, name, folder, group)
        members.callback(late.kill)
        eventually("it stops applying too", late.is_halted)
        told = late.tell()
        assert told["used"] <= told["limit"] and told["documents"] < DOCUMENTS
        assert (
            is_shared or isinstance(told["answered"], list) and told["answered"][0] == "Unavailable"
        )
        late.end()
    assert group.kills() == 0


def test_control_group_kills_a_process_without_a_memory_limit(group: Group | None) -> None:
    if group is None:
        return
    program = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid()))\n"
    program += "bytes = bytearray(os.urandom(1)) * int(sys.argv[2])"
    command = [
        sys.executable,
        "-c",
        program,
        str(group.path / "cgroup.procs"),
        str(2 * GROUP_BYTES),
    ]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert group.kills() == 1
