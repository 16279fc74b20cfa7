"""Worker processes that share one copy of a store: killed at any moment, and counted in memory."""

from __future__ import annotations

import contextlib
import json
import random
import re
import select
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest
from testing import WAIT_SECONDS, Server, Stores, eventually, owners

WORKERS = 4
PARTITIONS = 2
KEYS = [f"k{at}" for at in range(64)]
VICTIMS = ("owner", "owner", "other", "owner", "owner", "other", "owner")
DOCUMENTS = 50_000
TEXT_BYTES = 200

READER = """
import json, select, sys
import forebay

KEYS = [f"k{at}" for at in range(64)]
reader = forebay.Reader(sys.argv[1], sys.argv[2], checkpoint_dir=sys.argv[3])
reader.await_ready(30)
seen = dict.fromkeys(KEYS, 0)

def look(key, document):
    # Each write sets all three by the same number, and counts once.
    n = document["n"] if document else 0
    if document:
        assert document["times"] == n, (key, document)
        assert document["text"] == str(n) * (n % 50), (key, document)
    assert n >= seen[key], (key, n, seen[key])
    seen[key] = n

print("ready", flush=True)
while True:
    for key in KEYS:
        look(key, reader.get_document(key))
    for key, document in zip(KEYS, reader.get_documents(KEYS)):
        look(key, document)
    # Lets the others have the processor, until there is an order.
    if select.select([sys.stdin], [], [], 0.001)[0]:
        token = sys.stdin.readline().strip()
        if not token:
            break
        for key in KEYS:
            look(key, reader.get_document(key, after=bytes.fromhex(token), timeout=20))
        print(json.dumps(seen), flush=True)
reader.close()
"""

WHOLE_READER = """
import sys
import forebay

reader = forebay.Reader(sys.argv[1], sys.argv[2], checkpoint_dir=sys.argv[3])
reader.await_ready(30)
token = bytes.fromhex(sys.argv[4])
count = int(sys.argv[5])
handle = reader.field("text")
found = reader.get_many([f"k{at}" for at in range(count)], handle, after=token, timeout=30)
assert all(isinstance(text, str) for text in found)
print("ready", flush=True)
sys.stdin.readline()
reader.close()
"""


class Worker:
    """A process with a reader; a wrong read ends the process."""

    def __init__(self, program: str, *arguments: str) -> None:
        """Start the process."""
        command = [sys.executable, "-c", program, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """Return the next line that the process prints."""
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], WAIT_SECONDS)
        line = self._process.stdout.readline().decode().strip() if ready else ""
        assert line, f"the worker says nothing: {self._errors()}"
        return line

    def ask(self, text: str) -> None:
        """Send a line to the process; the missing answer reveals a process that has ended."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{text}\n".encode())
            self._process.stdin.flush()

    def kill(self) -> None:
        """Kill the process in the middle of its work; it must have been running."""
        assert self._process.poll() is None, self._errors()
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        self.forget()

    def end(self) -> None:
        """Let the process end by itself."""
        self.ask("")
        assert self._process.wait(WAIT_SECONDS) == 0, self._errors()
        self.forget()

    def forget(self) -> None:
        """End the process in any case, and release its resources."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(WAIT_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _errors(self) -> str:
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        assert self._process.stderr is not None
        return self._process.stderr.read().decode()


class Writer:
    """Writes all keys of a store again and again, from a thread, until stopped."""

    def __init__(self, store: forebay.Store) -> None:
        """Start; the first round is written when this returns."""
        self.name = store.definition.name
        self._store = store
        self._is_over = threading.Event()
        self.written = (0, b"")
        self._write()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _write(self) -> None:
        n = self.written[0] + 1
        times = forebay.increment(1)
        text = str(n) * (n % 50)
        changes = (forebay.upsert(key, {"n": n, "times": times, "text": text}) for key in KEYS)
        self.written = (n, self._store.batch(changes).require_complete().token)

    def _run(self) -> None:
        while not self._is_over.is_set():
            self._write()

    def next(self) -> tuple[int, bytes]:
        """Return number and token of a round that started after this call."""
        later = self.written[0] + 2
        eventually("two rounds more", lambda: self.written[0] >= later)
        return self.written

    def stop(self) -> None:
        """Stop, once the round in flight is acknowledged."""
        self._is_over.set()
        self._thread.join()


@pytest.fixture
def writer(stores: Stores) -> Iterator[Writer]:
    """Write to the test's own store during the test."""
    fields: dict[str, str] = {"n": "int64", "times": "int64", "text": "string"}
    writer = Writer(stores.create(fields, partitions=PARTITIONS)[0])
    yield writer
    writer.stop()


@pytest.fixture
def workers() -> Iterator[list[Worker]]:
    """Provide processes that end with the test, whatever its result."""
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.forget()


def stable_owners(folder: Path) -> list[int]:
    """Wait until every copy has a maintainer; return their processes."""
    eventually("an owner of each copy", lambda: None not in owners(folder))
    return [pid for pid in owners(folder) if pid is not None]


def all_see(workers: list[Worker], number: int, token: bytes) -> None:
    """Have every worker see this round: no read failed before, and none was wrong."""
    for worker in workers:
        worker.ask(token.hex())
    for worker in workers:
        seen = json.loads(worker.line())
        assert set(seen) == set(KEYS)
        assert min(seen.values()) >= number


def test_readers_continue_when_another_reader_is_killed(
    server: Server, writer: Writer, workers: list[Worker], tmp_path: Path
) -> None:
    delays = random.Random()

    def start() -> Worker:
        workers.append(Worker(READER, server.endpoint, writer.name, str(tmp_path)))
        return workers[-1]

    def kill(pids: set[int]) -> None:
        # The moment is the test's input, not a wait for anything: the maintainer is usually inside
        # an apply then, because rounds follow rounds.
        time.sleep(delays.uniform(0, 0.05))
        victim = next(worker for worker in workers if worker.pid in pids)
        workers.remove(victim)
        victim.kill()

    for worker in [start() for _ in range(WORKERS)]:
        assert worker.line() == "ready"
    kept = set()
    for round_, victim in enumerate(VICTIMS):
        keeping = stable_owners(tmp_path)
        assert len(keeping) == PARTITIONS
        kept.update(keeping)
        if victim == "owner":
            kill({keeping[round_ % PARTITIONS]})
        else:
            kill({worker.pid for worker in workers} - set(keeping))
        all_see(workers, *writer.next())
        assert start().line() == "ready"
    assert len(kept) >= VICTIMS.count("owner") / PARTITIONS, "who is killed is followed by another"
    writer.stop()
    all_see(workers, *writer.written)
    for worker in workers:
        worker.end()
    assert set(owners(tmp_path)) == {None}


def mapped(pid: int, access: str) -> Counter[str]:
    """Return the KiB by category of the mappings of a copy's documents with this access."""
    sizes: Counter[str] = Counter()
    is_asked = False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_asked = bool(re.search(rf" {access}s .*/forebay-[0-9a-f]{{16}}-[^/]*$", line))
        elif is_asked and line.endswith(" kB"):
            name, size, _ = line.split()
            sizes[name.rstrip(":")] += int(size)
    return sizes


def test_workers_share_one_copy(
    server: Server, stores: Stores, workers: list[Worker], tmp_path: Path
) -> None:
    store, _ = stores.create({"text": "string"}, partitions=1)
    with store.write_stream() as stream:
        for at in range(DOCUMENTS):
            stream.send(forebay.put(f"k{at}", {"text": f"{at:0{TEXT_BYTES}}"}))
        token = stream.flush().token
    arguments = (server.endpoint, store.definition.name, str(tmp_path), token.hex())
    for _ in range(WORKERS):
        # The processes start one after the other, so that the first of them maintains the copy.
        workers.append(Worker(WHOLE_READER, *arguments, str(DOCUMENTS)))
        assert workers[-1].line() == "ready"
    owner, *followers = workers
    assert owners(tmp_path) == [owner.pid]
    # The maintainer maps the copy twice: to write it, and to read it as all others do.
    one_copy = mapped(owner.pid, "rw-")["Rss"]
    assert one_copy * 1024 > DOCUMENTS * TEXT_BYTES
    for follower in followers:
        read = mapped(follower.pid, "r--")
        assert read["Rss"] > 0.9 * one_copy, "each of them has read every document"
        assert read["Private_Dirty"] == 0
        assert not mapped(follower.pid, "rw-")
    pss = sum(mapped(worker.pid, access)["Pss"] for worker in workers for access in ("rw-", "r--"))
    # The maintainer may have allocated or released space since.
    one_copy = max(one_copy, mapped(owner.pid, "rw-")["Rss"])
    assert pss <= 1.05 * one_copy, f"{pss} KiB, where one copy is {one_copy} KiB"
    for worker in workers:
        worker.end()
