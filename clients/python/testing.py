"""A real forebayd for the tests, and code that several tests share."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import select
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import forebay
from install_native import programs

WAIT_SECONDS = 30.0
"""Bound of every wait of the tests."""

_names = itertools.count()


def new_name(what: str = "store") -> str:
    """Return a name that no other test has."""
    return f"{what}_{os.getpid()}_{next(_names)}"


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Wait until a condition holds, within the bound."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_SECONDS:.0f} s: {what}"
        time.sleep(0.02)


def forget_copies(folder: Path) -> None:
    """Remove the shared copies of the readers of a folder, as a restart of the machine does.

    The documents are in shared memory; each file there names the path of its header.
    """
    for space in Path("/dev/shm").glob("forebay-*"):
        with contextlib.suppress(FileNotFoundError), space.open("rb") as opened:
            header = os.pread(opened.fileno(), 1024, 1024).split(b"\0")[0]
            if folder in Path(os.fsdecode(header)).parents:
                space.unlink()
    for left in folder.rglob("live-*"):
        left.unlink()


def owners(folder: Path) -> list[int | None]:
    """Return the process that maintains each copy of a folder, by its lock; None for no process.

    Must not be called in a process that maintains a copy: closing a lock's file releases the lock.
    """
    return [_holder(lock) for lock in sorted(folder.glob("*.lock"))]


def _holder(lock: Path) -> int | None:
    # `struct flock`: kind, origin, start, length and process.
    layout = "hhqqi4x"
    with lock.open("r+b") as opened:
        asked = struct.pack(layout, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answered = fcntl.fcntl(opened, fcntl.F_GETLK, asked)
    kind, _, _, _, pid = struct.unpack(layout, answered)
    return None if kind == fcntl.F_UNLCK else pid


class Server:
    """A forebayd on loopback, started and stopped by the test."""

    def __init__(self, folder: Path, *, keeps_snapshots: bool = False) -> None:
        """Start the process on a free port; the folder contains its data and its snapshots.

        `keeps_snapshots` enables snapshots, a new one each second.
        """
        self.folder = folder
        self.snapshots = (folder / "snapshots").as_uri()
        self.keeps_snapshots = keeps_snapshots
        self.endpoint = "127.0.0.1:0"
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [str(programs() / "forebayd"), "dev", "--listen", self.endpoint]
        command += ["--data-dir", str(self.folder / "data"), "--durability", "buffered"]
        if self.keeps_snapshots:
            command += ["--snapshots", self.snapshots, "--snapshot-interval", "1s"]
        with (self.folder / "forebayd.log").open("ab") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], WAIT_SECONDS)
        line = process.stdout.readline().decode() if ready else ""
        if not line.startswith("forebayd ready http://"):
            process.kill()
            process.wait(WAIT_SECONDS)
            raise AssertionError(f"forebayd is not ready; see {self.folder}/forebayd.log: {line}")
        self.endpoint = line.split("http://")[1].strip()
        return process

    def run(self, *command: str) -> None:
        """Run a command of forebayd against the server."""
        words = [str(programs() / "forebayd"), *command, "--node", self.endpoint]
        subprocess.run(words, check=True, capture_output=True, timeout=WAIT_SECONDS)

    def kill(self) -> None:
        """Kill the process, as a crash would."""
        self._process.kill()
        self._process.wait(WAIT_SECONDS)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def restart(self) -> None:
        """Restart the process, on its address and its data."""
        self._process = self._start()

    def freeze(self) -> None:
        """Stop the process; it neither answers nor sends heartbeats until `thaw`.

        Waits until the process is stopped: on a busy machine some threads run on for a moment.
        """
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        """Continue the process."""
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End the process, in any state."""
        if self._process.poll() is None:
            self.thaw()
            self.kill()


class Stores:
    """Stores of one server, each with a reader that is ready; closed at the end of the test."""

    def __init__(self, client: forebay.Client) -> None:
        """Create stores through this client."""
        self.client = client
        self._readers: list[forebay.Reader] = []

    def create(
        self, fields: dict[str, str] | list[forebay.FieldSpec], **options: object
    ) -> tuple[forebay.Store, forebay.Reader]:
        """Create a store of 2 partitions, unless set otherwise, and open a reader of it."""
        options.setdefault("partitions", 2)
        store = self.client.create_store(new_name(), fields, **options)  # type: ignore[arg-type]
        return store, self.reader(store)

    def reader(self, store: forebay.Store) -> forebay.Reader:
        """Open a reader of a store, and wait until it is ready."""
        reader = self.client.reader(store.definition.name)
        self._readers.append(reader)
        reader.await_ready(WAIT_SECONDS)
        return reader

    def alter(self, store: forebay.Store, *alterations: forebay.Alteration) -> None:
        """Alter a store, and wait for the alteration."""
        self.client.alter_store(store.definition.name, alterations)

    def close(self) -> None:
        """Close every reader."""
        for reader in self._readers:
            reader.close()
