"""The host process may fork, interrupt, run threads, close and forget objects of the client."""

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import forebay
import pytest
from testing import Server, Stores, new_name


def test_handles_inherited_by_a_fork_are_closed(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    name = store.definition.name
    token = store.upsert("k", {"a": 1}).token
    assert reader.get("k", "a", after=token) == 1
    dropped = stores.client.reader(name)
    answers, child_end = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if child == 0:
        # In the child no call may wait for threads that exist only in the parent; only `_exit` may
        # end the child.
        codes = []
        for call in (
            lambda: reader.get("k", "a"),
            lambda: reader.await_ready(5),
            lambda: reader.status(),
            lambda: store.upsert("k", {"a": 2}),
            lambda: stores.client.list_stores(),
        ):
            try:
                call()
                codes.append("no error")
            except forebay.ForebayError as error:
                says_the_fix = "open another one in the child" in str(error)
                codes.append(error.code if says_the_fix else str(error))
        reader.close()
        del dropped
        try:
            with forebay.Reader(server.endpoint, name) as own:
                own.await_ready(20)
                codes.append(str(own.get("k", "a")))
        except BaseException as error:
            codes.append(repr(error))
        child_end.send(codes)
        os._exit(0)
    assert answers.poll(60), "the child hangs"
    assert answers.recv() == ["Closed"] * 5 + ["1"]
    assert os.waitpid(child, 0)[1] == 0
    dropped.close()
    assert reader.get("k", "a") == 1
    assert store.upsert("k", {"a": 3}).result == "appended"


@pytest.fixture
def heard_ctrl_c() -> Iterator[None]:
    """Install Python's own handler: a suite that a shell runs in the background ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_ctrl_c")
def test_ctrl_c_ends_a_wait(own_server: Server) -> None:
    client = forebay.Client(own_server.endpoint, deadline=60)
    store = client.create_store(new_name(), {"a": "int64"}, partitions=1)
    reader = client.reader(store.definition.name)
    reader.await_ready(30)
    own_server.freeze()
    for wait in (
        lambda: store.upsert("k", {"a": 1}),
        lambda: reader.get("k", "a", latest=True, timeout=60),
        lambda: client.list_stores(),
    ):
        timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            wait()
        timer.join()
    own_server.thaw()
    assert store.upsert("k", {"a": 2}).result == "appended"
    reader.close()
    client.close()


def test_waits_let_other_threads_run(own_server: Server) -> None:
    client = forebay.Client(own_server.endpoint, deadline=60)
    store = client.create_store(new_name(), {"a": "int64"}, partitions=1)
    own_server.freeze()
    done = threading.Event()

    def write() -> None:
        store.upsert("k", {"a": 1})
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    for _ in range(1000):
        time.sleep(0)
    assert not done.is_set()
    own_server.thaw()
    assert done.wait(60)
    thread.join()
    client.close()


def test_dropped_readers_release_their_memory(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"s": "string"}, partitions=1)
    store.batch(
        forebay.upsert(f"k{at}", {"s": "x" * 10_000}) for at in range(1000)
    ).require_complete()
    reader.close()

    def rounds(count: int) -> int:
        for _ in range(count):
            with forebay.Reader(server.endpoint, store.definition.name) as again:
                again.await_ready(30)
                assert len(again.get_many([f"k{at}" for at in range(1000)], "s")) == 1000
        gc.collect()
        # The allocator's retained memory, an arena for each thread, does not count.
        ctypes.CDLL(None).malloc_trim(0)
        status = Path("/proc/self/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) // 1024

    warm = rounds(8)
    # Each reader holds 10 MB: readers that stayed would show as 320 MB more.
    assert rounds(32) < warm + 160


def test_process_ends_while_calls_wait(own_server: Server) -> None:
    program = f"""
import threading, time, forebay
client = forebay.Client({own_server.endpoint!r}, deadline=60)
store = client.create_store("ends", {{"a": "int64"}}, partitions=1)
reader = client.reader("ends")
reader.await_ready(30)
wait = lambda: reader.get("k", "a", latest=True, timeout=60)
print("waits", flush=True)
input()
threading.Thread(target=wait, daemon=True).start()
time.sleep(0.2)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"waits\n"
    own_server.freeze()
    out, err = child.communicate(b"\n", timeout=60)
    assert (child.returncode, out, err) == (0, b"", b"")
