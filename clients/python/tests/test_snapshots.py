"""Readers that start from a snapshot: progress, a damaged snapshot, asyncio, forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import forebay
import pytest
from testing import WAIT_SECONDS, Server, eventually, new_name

VALUE_BYTES = 64 << 10
DOCUMENTS = 96
CHUNK_BYTES = 4 << 20
"""Bytes of an image's chunk, except for the last one."""


@dataclass
class SnapshotFixture:
    """A store of some MiB, all in one snapshot; its node creates no further ones."""

    client: forebay.Client
    name: str
    snapshots: str
    documents: dict[str, bytes]
    chunks: list[Path]
    """Chunks of the snapshot's image, whose documents are random, and so incompressible."""

    def is_right(self, reader: forebay.Reader) -> bool:
        """Return whether every document is present."""
        found = {key: document["b"] for key, document in reader.scan()}
        return found == self.documents


def _keep_snapshots(server: Server, keeps_snapshots: bool) -> None:
    """Restart the server, with or without its snapshot service."""
    server.kill()
    server.keeps_snapshots = keeps_snapshots
    server.restart()


@pytest.fixture
def kept(snapshot_server: Server, request: pytest.FixtureRequest) -> Iterator[SnapshotFixture]:
    """Write the documents, which a snapshot covers; a test may set their number."""
    name, snapshots = new_name(), snapshot_server.snapshots
    count = getattr(request, "param", DOCUMENTS)
    documents = {f"k{at}": os.urandom(VALUE_BYTES) for at in range(count)}
    # The first snapshot's image has all documents, and only heartbeats come later.
    _keep_snapshots(snapshot_server, False)
    with forebay.Client(snapshot_server.endpoint) as client:
        store = client.create_store(name, {"b": "bytes"}, partitions=1, log_retention=0)
        store.batch(
            forebay.put(key, {"b": value}) for key, value in documents.items()
        ).require_complete()
    _keep_snapshots(snapshot_server, True)
    with forebay.Client(snapshot_server.endpoint) as client:

        def is_whole() -> bool:
            with client.reader(name, snapshots=snapshots) as reader:
                reader.await_ready(WAIT_SECONDS)
                counts = reader.metrics().counts
                return counts.bootstraps > 0 and counts.log_bytes_read < VALUE_BYTES

        eventually("a snapshot has the documents", is_whole)
    _keep_snapshots(snapshot_server, False)
    found = (snapshot_server.folder / "snapshots").rglob("chunks/*")
    chunks = [path for path in found if path.stat().st_size > CHUNK_BYTES // 4]
    with forebay.Client(snapshot_server.endpoint) as client:
        yield SnapshotFixture(client, name, snapshots, documents, chunks)


def test_status_reports_the_progress_of_a_snapshot(kept: SnapshotFixture) -> None:
    assert len(kept.chunks) > 1
    withheld = kept.chunks[0]
    fifo, whole = withheld.with_name("fifo"), withheld.with_name("whole")
    withheld.rename(whole)
    # An open for reading waits until another process opens the file for writing.
    os.mkfifo(fifo)
    os.link(fifo, withheld)
    try:
        with kept.client.reader(kept.name, snapshots=kept.snapshots) as reader:

            def download() -> forebay.SnapshotDownload | None:
                return reader.status().partitions[0].snapshot_download

            def has_come() -> bool:
                told = download()
                return told is not None and told.bytes > 0

            eventually("some of it is fetched", has_come)
            told, status = download(), reader.status()
            assert told is not None and 0 < told.bytes < told.bytes_in_all
            assert told.bytes_in_all > DOCUMENTS * VALUE_BYTES
            assert status.phase == "bootstrapping" and not status.is_ready
            assert status.bootstrap_percent < 100
            whole.rename(withheld)
            with fifo.open("wb"):
                pass
            reader.await_ready(WAIT_SECONDS)
            counts = reader.status().partitions[0].counts
            assert (download(), counts.bootstraps, counts.bootstraps_failed) == (
                None,
                1,
                1,
            )
            assert kept.is_right(reader)
    finally:
        # This open releases a waiting reader.
        os.close(os.open(fifo, os.O_RDWR))


FETCH = """
import sys; sys.path[:] = {path!r}
import time, forebay
with forebay.Client({endpoint!r}) as client:
    reader = client.reader({name!r}, snapshots={snapshots!r}, checkpoint_dir={folder!r})
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        told = reader.status().partitions[0].snapshot_download
        print(told.bytes_in_all - told.bytes if told else -1, flush=True)
        time.sleep(0.02)
"""


@pytest.mark.parametrize("kept", [320], indirect=True)
@pytest.mark.parametrize("share", [0.25, 0.5, 0.75])
def test_killed_reader_resumes_with_its_fetched_chunks(
    kept: SnapshotFixture, snapshot_server: Server, tmp_path: Path, share: float
) -> None:
    full = [path for path in kept.chunks if path.stat().st_size > CHUNK_BYTES]
    fetched, withheld = (
        full[: round(len(full) * share)],
        full[round(len(full) * share) :],
    )
    assert fetched and withheld
    fifo, folder = tmp_path / "fifo", tmp_path / "kept"
    os.mkfifo(fifo)
    for chunk in withheld:
        # An open for reading waits until another process opens the file for writing, or until a
        # kill.
        chunk.rename(chunk.with_name(f"{chunk.name}.whole"))
        os.link(fifo, chunk)
    script = FETCH.format(
        path=sys.path,
        endpoint=snapshot_server.endpoint,
        name=kept.name,
        snapshots=kept.snapshots,
        folder=str(folder),
        seconds=WAIT_SECONDS,
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        # The compressible rest of the image is fetched too. A line that is not a number ends the
        # wait: the child gives up in time.
        while int(child.stdout.readline()) != len(withheld) * CHUNK_BYTES:
            pass
        child.kill()
    for chunk in withheld:
        chunk.with_name(f"{chunk.name}.whole").replace(chunk)
    for chunk in fetched:
        chunk.write_bytes(b"what nobody asks for again")
    with kept.client.reader(kept.name, snapshots=kept.snapshots, checkpoint_dir=folder) as reader:
        reader.await_ready(WAIT_SECONDS)
        counts = reader.metrics().counts
        assert (counts.bootstraps, counts.bootstraps_failed) == (1, 0)
        assert kept.is_right(reader)


def test_damaged_snapshot_is_counted_and_the_log_is_read_instead(kept: SnapshotFixture) -> None:
    damaged = kept.chunks[0]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with kept.client.reader(kept.name, snapshots=kept.snapshots) as reader:
        reader.await_ready(WAIT_SECONDS)
        counts = reader.metrics().counts
        assert counts.bootstraps == 0 and counts.bootstraps_failed > 0
        assert counts.log_bytes_read > DOCUMENTS * VALUE_BYTES
        assert kept.is_right(reader)


def test_environment_that_is_no_text_is_ignored() -> None:
    script = f"""
import sys; sys.path[:] = {sys.path!r}
import forebay
try:
    forebay.Reader("127.0.0.1:1", "store", snapshots="s3://bucket/folder", open_timeout=0.2)
except forebay.UnavailableError:
    print("nobody listens")
"""
    environment = {**os.environb, b"NO_TEXT": b"\xff"}
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "nobody listens\n"


def test_async_reader_bootstraps_from_a_snapshot(
    kept: SnapshotFixture, snapshot_server: Server
) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(snapshot_server.endpoint) as client:
            with pytest.raises(forebay.InvalidArgumentError, match="names no folder for snapshots"):
                await client.reader(kept.name, snapshots="http://localhost/")
            async with await client.reader(kept.name, snapshots=kept.snapshots) as reader:
                await reader.await_ready(WAIT_SECONDS)
                assert reader.reader.metrics().counts.bootstraps == 1
                assert kept.is_right(reader.reader)

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_reader_with_snapshots_continues_in_a_child(kept: SnapshotFixture, tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    reader = kept.client.reader(kept.name, checkpoint_dir=folder, snapshots=kept.snapshots)
    with reader:
        reader.await_ready(WAIT_SECONDS)
        assert reader.metrics().counts.bootstraps == 1
        child = os.fork()
        if child == 0:
            # Only `_exit` may end the child: everything else of this process belongs to the parent.
            try:
                os._exit(0 if kept.is_right(reader) else 1)
            except BaseException:
                os._exit(2)
        ends: list[tuple[int, int]] = []

        def has_ended() -> bool:
            ends.append(os.waitpid(child, os.WNOHANG))
            return ends[-1][0] == child

        eventually("the child ends", has_ended)
        assert ends[-1][1] == 0
        assert kept.is_right(reader)
