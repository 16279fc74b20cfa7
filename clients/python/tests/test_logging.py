"""Records of the native side, on the logger `forebay`."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from testing import Server, Stores, eventually, forget_copies

LOGGER = logging.getLogger("forebay")


class RecordingHandler(logging.Handler):
    """Stores records; may block the thread that delivers them."""

    def __init__(self) -> None:
        """Create a handler without records."""
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.gate = threading.Event()
        self.gate.set()

    def emit(self, record: logging.LogRecord) -> None:
        """Store a record."""
        self.gate.wait(60)
        self.records.append(record)

    def has(self, text: str) -> bool:
        """Return whether a record contains this text."""
        return any(text in record.getMessage() for record in self.records)


@pytest.fixture
def kept() -> Iterator[RecordingHandler]:
    """Provide a handler on the logger."""
    kept = RecordingHandler()
    LOGGER.addHandler(kept)
    yield kept
    kept.gate.set()
    LOGGER.removeHandler(kept)
    LOGGER.setLevel(logging.NOTSET)


def damaged(stores: Stores, folder: Path) -> str:
    """Leave a damaged checkpoint in the folder; opening a reader over it causes a warning."""
    store, _ = stores.create({"a": "int64"}, partitions=1)
    store.upsert("k", {"a": 1})
    with stores.client.reader(store.definition.name, checkpoint_dir=folder) as reader:
        reader.await_ready(30)
    (checkpoint,) = folder.glob("*.checkpoint")
    checkpoint.write_bytes(checkpoint.read_bytes()[:-1])
    forget_copies(folder)
    return store.definition.name


def test_warnings_carry_their_context(
    kept: RecordingHandler, stores: Stores, tmp_path: Path
) -> None:
    name = damaged(stores, tmp_path)
    with stores.client.reader(name, checkpoint_dir=tmp_path):
        eventually("a warning", lambda: kept.has("checkpoint ignored"))
    (record,) = [record for record in kept.records if name in record.getMessage()]
    assert (record.name, record.levelno) == ("forebay", logging.WARNING)
    assert f"(store={name}, partition=0, error=Corrupt: " in record.getMessage()
    assert record.target.startswith("forebay_replica")  # type: ignore[attr-defined]
    assert record.pathname.endswith(".rs") and record.lineno > 0


def test_records_below_the_level_are_not_delivered(
    kept: RecordingHandler, stores: Stores, tmp_path: Path
) -> None:
    name = damaged(stores, tmp_path)
    LOGGER.setLevel(logging.ERROR)
    with stores.client.reader(name, checkpoint_dir=tmp_path) as reader:
        reader.await_ready(30)
        assert reader.metrics().counts.checkpoints.damaged == 1
    # A later warning has arrived by then, and this one would have arrived before it.
    LOGGER.setLevel(logging.WARNING)
    (tmp_path / "other").mkdir()
    other = damaged(stores, tmp_path / "other")
    with stores.client.reader(other, checkpoint_dir=tmp_path / "other"):
        eventually("the later warning", lambda: kept.has(other))
    assert not kept.has(name)


def test_slow_handler_does_not_delay_reads(
    kept: RecordingHandler, stores: Stores, tmp_path: Path
) -> None:
    name = damaged(stores, tmp_path)
    kept.gate.clear()
    with stores.client.reader(name, checkpoint_dir=tmp_path) as reader:
        reader.await_ready(30)
        store = stores.client.store(name)
        assert reader.get("k", "a", after=store.upsert("k", {"a": 2}).token) == 2
    assert not kept.records
    kept.gate.set()
    eventually("the warning", lambda: kept.has("checkpoint ignored"))


def test_application_without_logging_prints_no_records(
    stores: Stores, server: Server, tmp_path: Path
) -> None:
    name = damaged(stores, tmp_path)
    program = f"""
import forebay
with forebay.Reader({server.endpoint!r}, {name!r}, checkpoint_dir={str(tmp_path)!r}) as reader:
    reader.await_ready(30)
    assert reader.metrics().counts.checkpoints.damaged == 1
"""
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60
    )
    assert (child.returncode, child.stdout, child.stderr) == (0, b"", b"")


def test_last_records_are_delivered_before_the_process_ends(
    stores: Stores, server: Server, tmp_path: Path
) -> None:
    name = damaged(stores, tmp_path)
    program = f"""
import logging, sys, threading
logging.basicConfig(level=5, stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
import forebay
reader = forebay.Reader({server.endpoint!r}, {name!r}, checkpoint_dir={str(tmp_path)!r})
reader.await_ready(30)
def log_for_ever():
    while True:
        logging.getLogger("forebay").debug("noise")
threading.Thread(target=log_for_ever, daemon=True).start()
"""
    for _ in range(3):
        child = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, check=False, timeout=60
        )
        assert (child.returncode, child.stderr) == (0, b"")
    (tmp_path / "fresh").mkdir()
    name = damaged(stores, tmp_path / "fresh")
    program = f"""
import logging, sys
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(name)s %(message)s")
import forebay
folder = {str(tmp_path / "fresh")!r}
forebay.Reader({server.endpoint!r}, {name!r}, checkpoint_dir=folder).await_ready(30)
"""
    child = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=False, timeout=60
    )
    assert b"WARNING forebay checkpoint ignored" in child.stdout, child
    assert (child.returncode, child.stderr) == (0, b"")


def test_child_process_has_its_own_records(stores: Stores, server: Server, tmp_path: Path) -> None:
    name = damaged(stores, tmp_path)
    program = f"""
import logging, os, sys
logging.basicConfig(stream=sys.stdout, format="%(process)d %(message)s")
import forebay
client = forebay.Client({server.endpoint!r})
child = os.fork()
if child == 0:
    reader = forebay.Reader({server.endpoint!r}, {name!r}, checkpoint_dir={str(tmp_path)!r})
    reader.await_ready(30)
    reader.close()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
print(child)
"""
    child = subprocess.run(
        # From 3.12 on Python warns of every fork in a process with threads.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (child.returncode, child.stderr) == (0, b""), child
    *records, pid = child.stdout.decode().split("\n")[:-1]
    assert any(record.startswith(f"{pid} checkpoint ignored") for record in records), records
