"""A forked child can use a reader that shares a copy, and maintains the copy if it must."""

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import forebay
import numpy as np
import pytest
from testing import WAIT_SECONDS, Server, Stores, eventually, owners

FIELDS = {"n": "int64", "s": "string"}

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")


class Child:
    """A fork of this process that runs a program and sends its results."""

    def __init__(self, program: Callable[[Connection], object]) -> None:
        """Fork, and run the program in the child; the child sends an exception of it last."""
        self._answers, child_end = multiprocessing.Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            # Only `_exit` may end the child: everything else of this process belongs to the parent.
            try:
                program(child_end)
            except BaseException as error:
                child_end.send(repr(error))
            os._exit(0)

    def send(self, what: object) -> None:
        """Send something to the child."""
        self._answers.send(what)

    def answer(self) -> object:
        """Return the next result of the child."""
        assert self._answers.poll(WAIT_SECONDS), "the child hangs"
        return self._answers.recv()

    def end(self) -> None:
        """Wait for the end of the child."""
        assert os.waitpid(self.pid, 0)[1] == 0


def test_reader_with_a_directory_continues_in_a_child(stores: Stores, tmp_path: Path) -> None:
    store, alone = stores.create(FIELDS)
    name = store.definition.name
    reader = stores.client.reader(name, checkpoint_dir=tmp_path)
    reader.await_ready(30)
    written = store.upsert("k", {"n": 1, "s": "text"}).token
    assert reader.get("k", "n", after=written) == 1
    handle, plan = reader.field("n"), reader.plan_gather(["n"], "int64")

    def program(parent: Connection) -> None:
        parent.send(reader.get("k", handle))
        parent.send(reader.gather(plan, ["k", "none"]).tolist())
        parent.send(reader.get_document("k"))
        parent.send([key for key, _ in reader.scan()])
        parent.send(reader.metrics().counts.records_applied)
        parent.send("written?")
        token = parent.recv()
        parent.send(reader.get("k", "n", after=token))
        for refused in (
            lambda: alone.get("k", "n"),
            lambda: store.upsert("k", {"n": 3}),
            lambda: stores.client.list_stores(),
        ):
            try:
                parent.send(repr(refused()))
            except forebay.ClosedError as error:
                parent.send("open another one in the child" in str(error))
        reader.close()
        try:
            parent.send(reader.get("k", "n"))
        except forebay.ClosedError:
            parent.send("closed")

    child = Child(program)
    assert child.answer() == 1
    assert child.answer() == [[1], [0]]
    assert child.answer() == {"n": 1, "s": "text"}
    assert child.answer() == ["k"]
    assert child.answer() == 0, "the parent owns the copy, and the child only reads it"
    assert child.answer() == "written?"
    child.send(store.upsert("k", {"n": 2}).token)
    assert child.answer() == 2
    assert [child.answer() for _ in range(3)] == [True] * 3
    assert child.answer() == "closed"
    child.end()
    assert reader.get("k", "n", latest=True) == 2
    reader.close()


def test_reader_closed_in_a_child_stays_closed(stores: Stores, tmp_path: Path) -> None:
    store, _ = stores.create(FIELDS)
    reader = stores.client.reader(store.definition.name, checkpoint_dir=tmp_path)

    def program(parent: Connection) -> None:
        reader.close()
        try:
            parent.send(reader.get("k", "n"))
        except forebay.ClosedError:
            parent.send("closed")

    child = Child(program)
    assert child.answer() == "closed"
    child.end()
    reader.await_ready(30)
    reader.close()


def test_every_descendant_opens_the_reader_once(stores: Stores, tmp_path: Path) -> None:
    store, _ = stores.create(FIELDS)
    reader = stores.client.reader(store.definition.name, checkpoint_dir=tmp_path)
    reader.await_ready(30)
    token = store.upsert("k", {"n": 1}).token

    def grandchild(parent: Connection) -> None:
        parent.send(reader.get("k", "n", after=token))

    def program(parent: Connection) -> None:
        parent.send(reader.get("k", "n", after=token))
        below = Child(grandchild)
        parent.send(below.answer())
        below.end()
        parent.send(reader.get("k", "n"))

    child = Child(program)
    assert [child.answer() for _ in range(3)] == [1, 1, 1]
    child.end()
    assert reader.get("k", "n", after=token) == 1
    reader.close()


def test_child_opens_the_reader_on_its_event_loop(stores: Stores, tmp_path: Path) -> None:
    store, _ = stores.create(FIELDS)
    reader = stores.client.reader(store.definition.name, checkpoint_dir=tmp_path)
    reader.await_ready(30)
    token = store.upsert("k", {"n": 1}).token

    async def reads(parent: Connection) -> None:
        users = forebay.AsyncReader(reader)
        parent.send(await users.get("k", "n", after=token, timeout=30))
        await users.await_ready(30)
        parent.send(await users.get("k", "n", latest=True))
        await users.close()

    child = Child(lambda parent: asyncio.run(reads(parent)))
    assert [child.answer() for _ in range(2)] == [1, 1]
    child.end()
    reader.close()


def test_child_that_cannot_open_the_reader_raises_the_cause(
    own_server: Server, tmp_path: Path
) -> None:
    client = forebay.Client(own_server.endpoint)
    store = client.create_store("cut_off", FIELDS, partitions=1)
    token = store.upsert("k", {"n": 1}).token
    reader = client.reader("cut_off", checkpoint_dir=tmp_path)
    assert reader.get("k", "n", after=token) == 1
    own_server.kill()

    def program(parent: Connection) -> None:
        try:
            parent.send(reader.get("k", "n", timeout=0.2))
        except forebay.UnavailableError:
            parent.send("unavailable")
        assert parent.recv() == "restarted"
        parent.send(reader.get("k", "n", timeout=30))

    child = Child(program)
    assert child.answer() == "unavailable"
    assert reader.get("k", "n") == 1
    own_server.restart()
    child.send("restarted")
    assert child.answer() == 1
    child.end()
    reader.close()
    client.close()


def test_child_of_a_killed_owner_takes_over_the_copy(
    server: Server, stores: Stores, tmp_path: Path
) -> None:
    store, _ = stores.create(FIELDS)
    name = store.definition.name
    before = (
        store.batch(forebay.upsert(f"k{at}", {"n": 1, "s": "x" * at}) for at in range(100))
        .require_complete()
        .token
    )

    def in_child(parent: Connection, reader: forebay.Reader) -> None:
        parent.send((os.getpid(), reader.get_many([f"k{at}" for at in range(100)], "n")))
        while (token := parent.recv()) is not None:
            parent.send(reader.get_many([f"k{at}" for at in range(100)], "n", after=token))
        parent.send(reader.metrics().counts.records_applied)
        reader.close()

    def owner(parent: Connection) -> None:
        # The program is a fork itself, so that it can be killed; it opens its own reader.
        reader = forebay.Reader(server.endpoint, name, checkpoint_dir=tmp_path)
        reader.await_ready(30)
        reader.get_many(["k0"], "n", after=before)
        assert reader.gather(reader.plan_gather(["n"], "int64"), ["k1"], after=before) == np.array(
            [[1]]
        )
        if os.fork() == 0:
            try:
                in_child(parent, reader)
            except BaseException as error:
                parent.send(repr(error))
            os._exit(0)
        signal.pause()

    parent = Child(owner)
    answered = parent.answer()
    assert isinstance(answered, tuple), answered
    child, values = answered
    assert values == [1] * 100
    assert set(owners(tmp_path)) == {parent.pid}
    os.kill(parent.pid, signal.SIGKILL)
    os.waitpid(parent.pid, 0)
    for round_ in range(2, 6):
        changes = (forebay.upsert(f"k{at}", {"n": forebay.increment(1)}) for at in range(100))
        parent.send(store.batch(changes).require_complete().token)
        assert parent.answer() == [round_] * 100
    assert set(owners(tmp_path)) == {child}
    parent.send(None)
    applied = parent.answer()
    assert isinstance(applied, int) and applied > 0
    eventually("nobody owns the copy", lambda: set(owners(tmp_path)) == {None})
