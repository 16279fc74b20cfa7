"""Behaviours of opening, closing, restarts and failures; their rules are in
proto/vectors/behaviours.toml.
"""

import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forebay
import numpy as np
import pytest
from testing import Server, Stores, new_name


def test_second_close_changes_nothing(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    reader.close()
    reader.close()
    client = forebay.Client(server.endpoint)
    client.close()
    client.close()
    with forebay.Reader(server.endpoint, store.definition.name) as own:
        own.close()


def test_calls_after_close_are_closed(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    token = store.upsert("k", {"a": 1}).token
    plan, handle, scan = reader.plan_gather(["a"], "int64"), reader.field("a"), reader.scan()
    reader.close()
    client = forebay.Client(server.endpoint)
    stream = client.store(store.definition.name).write_stream()
    change = forebay.upsert("k", {"a": 2})
    stream.close()
    client.close()
    calls: list[Callable[[], object]] = [
        lambda: reader.get("k", handle),
        lambda: reader.get("k", "a", after=token),
        lambda: reader.get_document("k", latest=True),
        lambda: reader.get_many(["k"], "a"),
        lambda: reader.get_documents(["k"]),
        lambda: reader.gather(plan, ["k"]),
        lambda: reader.plan_gather(["a"], "int64"),
        lambda: reader.field("a"),
        lambda: next(scan),
        lambda: reader.await_ready(1),
        lambda: reader.await_token(token, 1),
        lambda: reader.is_ready,
        lambda: reader.status(),
        lambda: reader.metrics(),
        lambda: reader.definition,
        lambda: client.store("a"),
        lambda: client.list_stores(),
        lambda: client.create_store(new_name(), {}),
        lambda: client.reader(store.definition.name),
        lambda: stream.send(change),
        lambda: stream.flush(),
        lambda: stream.summary(),
    ]
    for call in calls:
        with pytest.raises(forebay.ClosedError):
            call()


def test_close_ends_concurrent_reads_with_answer_or_closed(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "s": "string"})
    store.batch(
        forebay.upsert(f"k{at}", {"a": at, "s": "x" * at}) for at in range(200)
    ).require_complete()
    keys = [f"k{at}" for at in range(200)]
    reader.get_documents(keys, latest=True)
    plan = reader.plan_gather(["a"], "int64")
    reads: list[Callable[[], object]] = [
        lambda: reader.get("k7", "a"),
        lambda: reader.get_many(keys, "s"),
        lambda: reader.gather(plan, keys),
        lambda: list(reader.scan()),
        lambda: reader.get("k7", "a", latest=True),
    ]
    running = threading.Barrier(2 * len(reads) + 1)

    def read(call: Callable[[], object]) -> str:
        has_read = False
        while True:
            try:
                call()
            except forebay.ForebayError as error:
                return error.code
            if not has_read:
                running.wait(30)
                has_read = True

    with ThreadPoolExecutor(2 * len(reads)) as pool:
        endings = [pool.submit(read, call) for call in reads * 2]
        running.wait(30)
        reader.close()
        assert [ending.result(30) for ending in endings] == ["Closed"] * len(endings)


def test_reopened_reader_answers_as_before(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    for round_ in range(3):
        token = store.upsert(f"k{round_}", {"a": round_}).token
        keys = [f"k{at}" for at in range(round_ + 1)]
        assert reader.get_many(keys, "a", after=token) == list(range(round_ + 1))
        reader.close()
        reader = forebay.Reader(server.endpoint, store.definition.name)
        reader.await_ready(30)
    reader.close()


def test_reader_restarts_from_its_checkpoints(stores: Stores, tmp_path: Path) -> None:
    store, _ = stores.create({"n": "int64"})
    name, keys = store.definition.name, [f"k{at}" for at in range(20)]

    def increment_all() -> bytes:
        changes = (forebay.upsert(key, {"n": forebay.increment(1)}) for key in keys)
        return store.batch(changes).require_complete().token

    for round_ in range(1, 4):
        token = increment_all()
        # The interval is so long that only the close writes checkpoints.
        reader = stores.client.reader(name, checkpoint_dir=tmp_path, checkpoint_interval=1e6)
        reader.await_ready(30)
        assert reader.get_many(keys, "n", after=token) == [2 * round_ - 1] * 20
        with stores.client.reader(name, checkpoint_dir=tmp_path) as second:
            second.await_ready(30)
            assert second.get_many(keys, "n") == [2 * round_ - 1] * 20
            assert second.metrics().counts.records_applied == 0
        for partition in reader.status().partitions:
            counts = partition.counts
            assert counts.checkpoints.restored == (round_ > 1)
            assert (counts.records_applied >= partition.offset_applied) == (round_ == 1)
        reader.close()
        assert len(list(tmp_path.glob("*.checkpoint"))) == 2
        increment_all()


def test_reader_survives_a_server_restart(own_server: Server) -> None:
    with forebay.Client(own_server.endpoint, deadline=30) as client:
        store = client.create_store(new_name(), {"n": "int64"}, partitions=2)
        with client.reader(store.definition.name) as reader:
            reader.await_ready(30)
            total = 0
            for round_ in range(3):
                for _ in range(20):
                    store.upsert("k", {"n": forebay.increment(1)})
                    total += 1
                own_server.kill()
                with ThreadPoolExecutor(1) as pool:
                    # The write is sent while the node is down, and resolved once the node is back.
                    change = {"n": forebay.increment(1)}
                    sending = pool.submit(store.upsert, "k", change)
                    own_server.restart()
                    token = sending.result(60).token
                total += 1
                assert reader.get("k", "n", after=token, timeout=30) == total, f"round {round_}"
            assert reader.get("k", "n", latest=True, timeout=30) == total


def test_many_threads_share_one_reader(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64", "s": "string"})
    store.upsert("k", {"a": 0, "b": 0, "s": "0"})
    reader.get("k", "a", latest=True)
    plan = reader.plan_gather(["a", "b"], "int64")
    stop = threading.Event()

    def read(_: int) -> int:
        last = reads = 0
        while not stop.is_set():
            document = reader.get_document("k")
            assert document is not None
            assert document["a"] == document["b"] == int(document["s"]) >= last
            row = reader.gather(plan, ["k"])[0]
            assert row[0] == row[1] >= document["a"]
            last, reads = int(row[0]), reads + 1
        return reads

    with ThreadPoolExecutor(6) as pool:
        readers = [pool.submit(read, thread) for thread in range(6)]
        try:
            for at in range(1, 300):
                token = store.upsert("k", {"a": at, "b": at, "s": str(at)}).token
            assert reader.get("k", "a", after=token) == 299
        finally:
            stop.set()
        assert all(reader.result(30) > 0 for reader in readers)


def test_unreachable_server_is_unavailable_in_time(own_server: Server) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(forebay.UnavailableError):
            forebay.Client(endpoint, deadline=0.3)
        with pytest.raises(forebay.UnavailableError):
            forebay.Reader(endpoint, "store", open_timeout=0.3)
    with pytest.raises(forebay.InvalidArgumentError):
        forebay.Client("no address at all", deadline=0.3)
    with forebay.Client(own_server.endpoint) as client:
        store = client.create_store(new_name(), {"a": "int64"})
        own_server.kill()
        with pytest.raises((forebay.UnavailableError, forebay.UnknownOutcomeError)) as raised:
            store.upsert("k", {"a": 1}, deadline=0.5)
        own_server.restart()
        if raised.value.pending is not None:
            outcome = store.retry(raised.value).require_complete()
            assert len(outcome.results) == 1


def test_errors_carry_class_context_and_advice(stores: Stores) -> None:
    store, reader = stores.create({"a": "int32"})
    name = store.definition.name
    secret = "do-not-show-this"
    plan = reader.plan_gather(["a"], "int32")
    other, _ = stores.create({"a": "int32"})
    failures: list[tuple[type[forebay.ForebayError], Callable[[], object], dict[str, object]]] = [
        (
            forebay.InvalidArgumentError,
            lambda: store.upsert(secret, {"a": secret}),
            {"store": name, "field": "a"},
        ),
        (forebay.NotFoundError, lambda: reader.field("none"), {"store": name, "field": "none"}),
        (
            forebay.LimitExceededError,
            lambda: store.upsert(secret * 5000, {"a": 1}),
            {"store": name, "limit": 65_536, "actual": 80_000},
        ),
        (
            forebay.InvalidArgumentError,
            lambda: reader.gather(plan, [secret], out=np.zeros((1, 2), np.int32)),
            {},
        ),
        (forebay.InvalidArgumentError, lambda: reader.get(1, "a"), {"store": name}),
        (
            forebay.ConflictError,
            lambda: stores.client.create_store(name, {}),
            {"store": name},
        ),
        (
            forebay.InvalidArgumentError,
            lambda: reader.get(secret, "a", after=other.upsert("k", {"a": 1}).token),
            {"store": name},
        ),
    ]
    for kind, call, context in failures:
        with pytest.raises(kind) as raised:
            call()
        error = raised.value
        assert type(error) is kind and isinstance(error, forebay.ForebayError)
        assert f"{error.code}Error" == kind.__name__ and str(error).startswith(f"{error.code}: ")
        assert secret not in str(error) and len(str(error)) > 30
        assert {part: getattr(error, part) for part in context} == context, str(error)
