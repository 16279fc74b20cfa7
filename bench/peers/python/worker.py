"""The worker of bench-index in Python: the released wheel compared with dict, lmdb and NumPy.

`worker.py ROLE ENTRIES VALUE_BYTES FOLDER` loads the data of its role and answers orders on its
standard input; the protocol is that of bench/index/src/serve.rs, the data that of its data.rs.
"""

from __future__ import annotations

import gc
import json
import os
import re
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forebay
import numpy as np

CORE = 1
STEP_BY, STEP_MORE = 618_033_981, 7_309_231
WORD = (1 << 64) - 1
CHUNK, CHUNKS, BATCH, BATCHES = 512, 100, 500, 100
WRITTEN_TOGETHER = 2_000
VECTOR = (
    "ac3c0500000000004d1697d0f350a3451e61397408ab415ec3868d6df4028ab15649eed9dd9581e2e5c8bef8"
    "1a3d8c346c26"
)

Contender = Callable[[], dict[str, float]]


def mix(number: int) -> int:
    """Hash a number."""
    value = (number + 0x9E37_79B9_7F4A_7C15) & WORD
    value = (value ^ value >> 30) * 0xBF58_476D_1CE4_E5B9 & WORD
    value = (value ^ value >> 27) * 0x94D0_49BB_1331_11EB & WORD
    return value ^ value >> 31


class Data:
    """Documents that name each other: the value of one begins with the key of the next."""

    def __init__(self, entries: int, value_bytes: int) -> None:
        """Store the shape alone; nothing is generated yet."""
        self.entries = entries
        self.value_bytes = value_bytes

    def next(self, number: int) -> int:
        """Return the document whose key is in this one."""
        return (number * STEP_BY + STEP_MORE) % self.entries

    def after(self, number: int, steps: int) -> int:
        """Return the document that a chain reaches after `steps` steps."""
        for _ in range(steps):
            number = self.next(number)
        return number

    def key(self, number: int) -> bytes:
        """Return the key of a document."""
        return struct.pack("<QQ", number, mix(number))

    def value(self, number: int) -> bytes:
        """Return the value of a document."""
        words, state = [], mix(number)
        for _ in range(-(-(self.value_bytes - 16) // 8)):
            state = mix(state)
            words.append(state)
        tail = struct.pack(f"<{len(words)}Q", *words)
        return (self.key(self.next(number)) + tail)[: self.value_bytes]


def median_chunk(run: Callable[[], Any], chunks: int, each: int) -> float:
    """Return nanoseconds of one of `each`: the median over chunks."""
    times = []
    for _ in range(chunks):
        began = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - began)
    return statistics.median(times) / each


def use_all_cores() -> None:
    """Let this thread run on all cores."""
    os.sched_setaffinity(0, range(os.cpu_count() or 1))


class PipelinedFill:
    """Batches that a thread sends while the next ones are built.

    A send releases the interpreter, and its thread may run on any core: later measurements have no
    such thread.
    """

    def __init__(self) -> None:
        """Create the pool without a thread."""
        # The sender takes longest, so it must get the interpreter soon.
        self.switch_interval = sys.getswitchinterval()
        sys.setswitchinterval(self.switch_interval / 50)
        self.pool = ThreadPoolExecutor(1, initializer=use_all_cores)
        self.sent: Future[None] | None = None

    def send(self, *batches: tuple[forebay.InMemoryReader, list[forebay.Change]]) -> None:
        """Send a batch to each reader, once the previous batches are applied."""
        if self.sent is not None:
            self.sent.result()
        self.sent = self.pool.submit(self.send_here, batches)

    @staticmethod
    def send_here(batches: tuple[tuple[forebay.InMemoryReader, list[forebay.Change]], ...]) -> None:
        """Send the batches; each change must succeed."""
        for reader, changes in batches:
            reader.batch(changes).require_complete()

    def end(self) -> None:
        """Wait for the sent batches, and end the thread."""
        if self.sent is not None:
            self.sent.result()
        self.pool.shutdown()
        sys.setswitchinterval(self.switch_interval)


class Gets:
    """Single reads and batches of one bytes field, of Forebay, of a dict and of lmdb."""

    def __init__(self, data: Data, folder: str) -> None:
        """Fill all three with the same data."""
        import lmdb

        self.data = data
        self.at: dict[str, int] = {}
        self.reader = forebay.Reader.in_memory(key_type="bytes", key_value=True, partitions=4)
        self.dict: dict[bytes, bytes] = {}
        size = 2 * data.entries * (data.value_bytes + 64)
        self.lmdb = lmdb.open(os.path.join(folder, "lmdb"), map_size=size, sync=False)
        filling = PipelinedFill()
        for first in range(0, data.entries, WRITTEN_TOGETHER):
            last = min(data.entries, first + WRITTEN_TOGETHER)
            rows = [(data.key(number), data.value(number)) for number in range(first, last)]
            changes = [forebay.put(key, {"value": value}) for key, value in rows]
            filling.send((self.reader, changes))
            self.dict.update(rows)
            with self.lmdb.begin(write=True) as transaction:
                transaction.cursor().putmulti(rows)
        filling.end()
        self.handle = self.reader.field("value", "bytes")
        self.read = self.lmdb.begin()

    def contenders(self) -> dict[str, Contender]:
        """Return the contenders, by name."""
        reader, handle, held, read = self.reader, self.handle, self.dict, self.read
        get, dict_get, lmdb_get = reader.get, held.get, read.get

        def ours(key: bytes) -> bytes:
            for _ in range(CHUNK):
                key = get(key, handle)[:16]  # type: ignore[index]
            return key

        def of_dict(key: bytes) -> bytes:
            for _ in range(CHUNK):
                key = dict_get(key)[:16]  # type: ignore[index]
            return key

        def of_lmdb(key: bytes) -> bytes:
            for _ in range(CHUNK):
                key = lmdb_get(key)[:16]
            return key

        return {
            "python get": lambda: self.chain("python get", ours),
            "dict get": lambda: self.chain("dict get", of_dict),
            "lmdb get": lambda: self.chain("lmdb get", of_lmdb),
            "python get_many 500": lambda: self.batch(
                "python get_many 500", lambda keys: reader.get_many(keys, handle)
            ),
            "python get_packed 500": lambda: self.batch(
                "python get_packed 500", lambda keys: reader.get_packed(keys, handle)
            ),
            "dict comprehension 500": lambda: self.batch(
                "dict comprehension 500", lambda keys: [held[key] for key in keys]
            ),
            "lmdb getmulti 500": lambda: self.batch(
                "lmdb getmulti 500", lambda keys: read.cursor().getmulti(keys)
            ),
        }

    def chain(self, name: str, follow: Callable[[bytes], bytes]) -> dict[str, float]:
        """Measure dependent gets, and check the end of the chain."""
        from_ = self.at.get(name, 0)
        key, times = self.data.key(from_), []
        for _ in range(CHUNKS):
            began = time.perf_counter_ns()
            key = follow(key)
            times.append(time.perf_counter_ns() - began)
        self.at[name] = self.data.after(from_, CHUNK * CHUNKS)
        if key != self.data.key(self.at[name]):
            raise AssertionError(f"{name}: the chain ended elsewhere")
        return {name: statistics.median(times) / CHUNK}

    def batch(self, name: str, read: Callable[[list[bytes]], Any]) -> dict[str, float]:
        """Measure batches of known keys, per key."""
        at, times = self.at.get(name, 1), []
        for _ in range(BATCHES):
            keys = []
            for _ in range(BATCH):
                keys.append(self.data.key(at))
                at = self.data.next(at)
            began = time.perf_counter_ns()
            found = read(keys)
            times.append(time.perf_counter_ns() - began)
        if isinstance(found, list) and "get_many" in name and found[-1][:16] != self.data.key(at):
            raise AssertionError(f"{name}: the last value is another's")
        self.at[name] = at
        return {name: statistics.median(times) / BATCH}


class Gather:
    """Rows of 50 numbers of 500 documents, as a matrix."""

    FIELDS, VALUES = 50, 65_536

    def __init__(self, data: Data, _folder: str) -> None:
        """Fill Forebay, a matrix with a dict of its rows, and a dict of tuples."""
        count, names = data.entries, [f"f{number}" for number in range(self.FIELDS)]
        self.count = count
        # A dict of tuples of as many objects would not fit: the tuples share the objects of these
        # values.
        values = np.random.default_rng(1).random(self.VALUES, np.float32)
        pool = np.array(values.tolist(), object)
        self.matrix = np.empty((count, self.FIELDS), np.float32)
        picks = np.random.default_rng(4)
        self.rows: dict[str, int] = {}
        gc.disable()
        self.tuples: dict[str, tuple[float, ...]] = {}
        self.reader = forebay.Reader.in_memory(
            dict.fromkeys(names, "float32"), key_type="string", partitions=4
        )
        self.bytes = forebay.Reader.in_memory(key_type="string", key_value=True, partitions=4)
        filling = PipelinedFill()
        # A put copies the given dict.
        fields = dict.fromkeys(names, 0.0)
        for first in range(0, count, WRITTEN_TOGETHER):
            rows = self.matrix[first : first + WRITTEN_TOGETHER]
            picked = picks.integers(0, self.VALUES, rows.shape)
            rows[:] = values[picked]
            # The dicts share their keys.
            keys = [f"document-{first + place}" for place in range(len(rows))]
            self.rows.update(zip(keys, range(first, first + len(rows)), strict=True))
            tuples = list(map(tuple, pool[picked].tolist()))
            self.tuples.update(zip(keys, tuples, strict=True))
            changes = []
            for key, row in zip(keys, tuples, strict=True):
                fields.update(zip(names, row, strict=True))
                changes.append(forebay.put(key, fields))
            raw = zip(keys, rows, strict=True)
            raw_changes = [forebay.put(key, {"value": row.tobytes()}) for key, row in raw]
            filling.send((self.reader, changes), (self.bytes, raw_changes))
        filling.end()
        # The filled data is exempt from garbage collection; garbage of measured code is collected
        # as usual.
        gc.freeze()
        gc.enable()
        self.handle = self.bytes.field("value", "bytes")
        self.plan = self.reader.plan_gather(names, "float32")
        self.out = np.empty((BATCH, self.FIELDS), np.float32)
        self.random = np.random.default_rng(2)

    def contenders(self) -> dict[str, Contender]:
        """Return the contenders, by name."""
        reader, plan, out, rows = self.reader, self.plan, self.out, self.rows
        matrix, tuples, held, handle = self.matrix, self.tuples, self.bytes, self.handle

        def of_tuples(keys: list[str]) -> np.ndarray:
            return np.array([tuples[key] for key in keys], np.float32)

        ways = {
            "gather 500 x 50": lambda keys: reader.gather(plan, keys, out=out),
            "batch copy 500": lambda keys: held.get_packed(keys, handle),
            "matrix rows 500 x 50": lambda keys: matrix[[rows[key] for key in keys]],
            "tuples 500 x 50": of_tuples,
        }
        for way in ways.values():
            self.read_all(way)
        return {name: self.measured(name, way) for name, way in ways.items()}

    def read_all(self, way: Callable[[list[str]], Any]) -> None:
        """Read every document once, before any measurement.

        A host of virtual machines may make the first read of a page slow if the page was not read
        for minutes, and filling takes minutes: the first rounds took four times the last ones.
        """
        for first in range(0, self.count, BATCH):
            last = min(self.count, first + BATCH)
            way([f"document-{number}" for number in range(first, last)])

    def measured(self, name: str, way: Callable[[list[str]], Any]) -> Contender:
        """Measure a way to build the matrix, in microseconds, and check its result."""

        def run() -> dict[str, float]:
            times = []
            for _ in range(BATCHES):
                numbers = self.random.integers(0, self.count, BATCH)
                keys = [f"document-{number}" for number in numbers]
                began = time.perf_counter_ns()
                found = way(keys)
                times.append(time.perf_counter_ns() - began)
            if isinstance(found, np.ndarray) and not np.array_equal(found, self.matrix[numbers]):
                raise AssertionError(f"{name}: another matrix")
            return {name: statistics.median(times) / 1e3}

        return run


class MixedReads:
    """Gathers of 50 of 200 fields of several types, shuffled, with a tenth of the values absent."""

    FIELDS, ASKED = 200, 50
    TYPES = ("float32", "float64", "int32", "bool")

    def __init__(self, data: Data, _folder: str) -> None:
        """Fill Forebay; a document has all fields except every tenth."""
        self.count = data.entries
        types = {f"f{n}": self.TYPES[n % len(self.TYPES)] for n in range(self.FIELDS)}
        self.reader = forebay.Reader.in_memory(types, key_type="string", partitions=4)
        # The fields of each type that a document has, by the tenth that it lacks.
        held = [
            [
                [f"f{n}" for n in range(first, self.FIELDS, len(self.TYPES)) if n % 10 != absent]
                for first in range(len(self.TYPES))
            ]
            for absent in range(10)
        ]
        filling = PipelinedFill()
        for first in range(0, self.count, WRITTEN_TOGETHER):
            last = min(self.count, first + WRITTEN_TOGETHER)
            changes = [
                forebay.put(f"document-{number}", self.document(number, held[number % 10]))
                for number in range(first, last)
            ]
            filling.send((self.reader, changes))
        filling.end()
        self.random = np.random.default_rng(3)
        self.asked = [f"f{n}" for n in self.random.permutation(self.FIELDS)[: self.ASKED]]
        self.plan = self.reader.plan_gather(self.asked, "float64")
        self.out = np.empty((BATCH, self.ASKED), np.float64)
        self.mask = np.empty((BATCH, self.ASKED), np.uint8)

    @staticmethod
    def document(number: int, held: list[list[str]]) -> dict[str, Any]:
        """Return the fields of a document; the fields of one type have one value."""
        values = (number % 1_000 / 8, number / 2, number, number % 2 == 0)
        fields: dict[str, Any] = {}
        for names, value in zip(held, values, strict=True):
            fields |= dict.fromkeys(names, value)
        return fields

    def contenders(self) -> dict[str, Contender]:
        """Return the contenders, by name."""
        return {"gather 500 x 50 of 200": self.measure}

    def measure(self) -> dict[str, float]:
        """Measure gathers with their masks, in microseconds."""
        times = []
        for _ in range(BATCHES):
            keys = [f"document-{n}" for n in self.random.integers(0, self.count, BATCH)]
            began = time.perf_counter_ns()
            self.reader.gather(self.plan, keys, out=self.out, mask=self.mask)
            times.append(time.perf_counter_ns() - began)
        absent = float((self.mask == forebay.Presence.ABSENT).mean())
        if not 0.05 < absent < 0.15:
            raise AssertionError(f"a tenth should be absent, and {absent} is")
        name = "gather 500 x 50 of 200"
        return {name: statistics.median(times) / 1e3, f"{name}, absent, %": 100 * absent}


READER = """
import json, sys, time
import forebay
import worker

address, directory, entries, value_bytes, reads = sys.argv[1:6]
data = worker.Data(int(entries), int(value_bytes))
began = time.perf_counter_ns()
reader = forebay.Reader(address, "read", checkpoint_dir=directory)
opened = time.perf_counter_ns()
number = began % data.entries
while True:
    try:
        found = reader.get(data.key(number), reader.field("value", "bytes"))
        break
    except forebay.UnavailableError:
        if time.perf_counter_ns() - opened > 60_000_000_000:
            raise
        time.sleep(0.001)
got = time.perf_counter_ns()
assert found == data.value(number), "another document"
if reads == "all":
    reader.await_ready(1200)
    handle = reader.field("value", "bytes")
    for first in range(0, data.entries, 500):
        numbers = range(first, min(data.entries, first + 500))
        found = reader.get_many([data.key(number) for number in numbers], handle)
        assert all(value is not None for value in found), "a document is missing"
    assert found[-1] == data.value(data.entries - 1), "another document"
print(json.dumps({"opened": opened - began, "got": got - began}), flush=True)
sys.stdin.readline()
"""


class Workers:
    """Processes that read one copy of a store of more than a gigabyte together."""

    WORKERS = 16
    LEFT = re.compile(r"[0-9a-f]+-[0-9a-f]+ (\S+) .*/forebay-[0-9a-f]{16}-[^/]*$")

    def __init__(self, data: Data, _folder: str) -> None:
        """Start all of them; each reads every document, and the first one follows the log."""
        use_all_cores()
        self.data = data
        self.held = [self.start("all")]
        self.said(self.held[0])
        self.held += [self.start("all") for _ in range(self.WORKERS - 1)]
        for held in self.held[1:]:
            self.said(held)

    def start(self, reads: str) -> subprocess.Popen[str]:
        """Start a process that reads all documents, or one."""
        place = [os.environ["FOREBAY_NODE"], os.environ["FOREBAY_COPY"]]
        sizes = [str(self.data.entries), str(self.data.value_bytes)]
        command = [sys.executable, "-c", READER, *place, *sizes, reads]
        folder = str(Path(__file__).parent)
        environment = {**os.environ, "PYTHONPATH": folder}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    @staticmethod
    def said(worker: subprocess.Popen[str]) -> dict[str, float]:
        """Return a worker's output, once it has finished its reads."""
        assert worker.stdout is not None
        line = worker.stdout.readline()
        if not line:
            raise AssertionError(f"a worker ended with {worker.wait()}")
        said: dict[str, float] = json.loads(line)
        return said

    def contenders(self) -> dict[str, Contender]:
        """Return the contenders, by name."""
        return {"workers": self.together, "opens": self.opens}

    def mapped(self, pid: int) -> dict[str, dict[str, int]]:
        """Return a process's memory of the documents' mappings in KiB, by their rights."""
        sizes: dict[str, dict[str, int]] = {}
        here: dict[str, int] | None = None
        with open(f"/proc/{pid}/smaps") as lines:
            for line in lines:
                if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                    found = self.LEFT.match(line.rstrip("\n"))
                    here = sizes.setdefault(found[1], {}) if found else None
                elif here is not None and line.endswith(" kB\n"):
                    name, size, _ = line.split()
                    here[name.rstrip(":")] = here.get(name.rstrip(":"), 0) + int(size)
        return sizes

    def together(self) -> dict[str, float]:
        """Measure the memory of all processes, against the one copy that the maintainer maps."""
        all_of = [self.mapped(held.pid) for held in self.held]
        total = {"Pss": 0, "Private_Dirty": 0}
        copy, followers_dirty, least = 0, 0, None
        for sizes in all_of:
            for rights, fields in sizes.items():
                for name in total:
                    total[name] += fields[name]
                if rights.startswith("rw"):
                    copy += fields["Rss"]
                else:
                    followers_dirty += fields["Private_Dirty"]
                    least = min(fields["Rss"], fields["Rss"] if least is None else least)
        payload = self.data.entries * (16 + self.data.value_bytes)
        if copy * 1024 < payload or payload < 1e9 or least is None or least < 0.9 * copy:
            raise AssertionError(f"one copy is {copy} KiB, and a worker maps {least} KiB of it")
        return {
            "one copy, MB": copy * 1024 / 1e6,
            "sum of PSS, MB": total["Pss"] * 1024 / 1e6,
            "private dirty, B": followers_dirty * 1024,
            "private dirty, where the owner writes, B": (
                (total["Private_Dirty"] - followers_dirty) * 1024
            ),
        }

    def opens(self) -> dict[str, float]:
        """Measure openings next to all of them, each in a new process."""
        said = []
        for _ in range(self.WORKERS):
            worker = self.start("one")
            said.append(self.said(worker))
            worker.communicate("\n")
        middle = {name: statistics.median(each[name] for each in said) / 1e6 for name in said[0]}
        return {"open to first get p50, ms": middle["got"], "open p50, ms": middle["opened"]}


class Weight:
    """Sizes of the released artifacts, and the cost of loading them."""

    IMPORTS = 5
    EMPTY = """
import json, os, sys
import forebay

def taken():
    fields = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return float(fields["VmRSS"].split()[0]) / 1e3, int(fields["Threads"])

before = taken()
name = f"empty_{os.getpid()}"
forebay.Client(sys.argv[1]).create_store(name, {"score": "float32"}, partitions=4)
reader = forebay.Reader(sys.argv[1], name)
reader.await_ready(60)
after = taken()
print(json.dumps([after[0] - before[0], after[1] - before[1], after[0]]))
"""

    def __init__(self, _data: Data, _folder: str) -> None:
        """Find the jar and the wheel that the setup has built."""
        self.peers = Path(os.environ["FOREBAY_PEERS"])

    def contenders(self) -> dict[str, Contender]:
        """Return the contenders, by name."""
        return {"weight": self.measure}

    def measure(self) -> dict[str, float]:
        """Measure sizes in megabytes, and imports in new processes in milliseconds."""
        wheel = next((self.peers / "wheel").glob("*.whl"))
        return {
            "wheel, MB": wheel.stat().st_size / 1e6,
            "jar, MB": (self.peers / "client.jar").stat().st_size / 1e6,
            "import, ms": self.imported("import forebay"),
            "import of numpy alone, ms": self.imported("import numpy"),
            **self.empty_reader(),
        }

    def empty_reader(self) -> dict[str, float]:
        """Measure the memory that client and reader of an empty store add to an interpreter."""
        command = [sys.executable, "-c", self.EMPTY, os.environ["FOREBAY_NODE"]]
        megabytes, threads, process = json.loads(subprocess.check_output(command))
        return {
            "empty reader, RSS, MB": megabytes,
            "empty reader, threads": threads,
            "process with an empty reader, RSS, MB": process,
        }

    def imported(self, statement: str) -> float:
        """Return the cost of a statement in a fresh interpreter: the median of several."""
        script = (
            "import time; began = time.perf_counter_ns(); "
            f"{statement}; print(time.perf_counter_ns() - began)"
        )
        command = [sys.executable, "-c", script]
        times = [int(subprocess.check_output(command)) for _ in range(self.IMPORTS)]
        return statistics.median(times) / 1e6


def about(entries: int) -> dict[str, float]:
    """Describe this process."""
    fields: dict[str, float] = {}
    with open("/proc/self/smaps_rollup") as lines:
        for line in lines:
            words = line.split()
            if words[0] in ("Rss:", "AnonHugePages:"):
                fields[words[0]] = float(words[1])
    huge = 100 * fields["AnonHugePages:"] / fields["Rss:"]
    return {"entries": entries, "resident MB": fields["Rss:"] / 1e3, "in huge pages, %": huge}


def main() -> None:
    """Fill, then answer orders until the input ends."""
    role, entries, value_bytes, folder = sys.argv[1:5]
    os.sched_setaffinity(0, {CORE})
    if Data(1_000_000, 50).value(1).hex() != VECTOR:
        raise AssertionError("the data differs from the other programs' data")
    data = Data(int(entries), int(value_bytes))
    roles: dict[str, Callable[[Data, str], Gets | Gather | MixedReads | Workers | Weight]] = {
        "gets": Gets,
        "gather": Gather,
        "mixed": MixedReads,
        "workers": Workers,
        "weight": Weight,
    }
    held = roles[role](data, folder)
    contenders = held.contenders()
    print("ready", json.dumps(about(data.entries)), flush=True)
    for order in sys.stdin:
        name = order.strip().removeprefix("run ")
        if name == "quit":
            return
        try:
            print("done", json.dumps(contenders[name]()), flush=True)
        except Exception as error:
            words = f"{type(error).__name__}: {error}".replace("\n", " ")
            print("failed", words, flush=True)


if __name__ == "__main__":
    main()
