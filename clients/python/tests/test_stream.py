"""Write streams: back-pressure, outcomes in order, failures, threads, the event loop."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import forebay
import pytest
from testing import WAIT_SECONDS, Server, Stores, new_name

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop, within a bound."""
    return asyncio.run(asyncio.wait_for(main, 60))


def count(key: str) -> forebay.Change:
    """Return a change that increments a counter."""
    return forebay.upsert(key, {"n": forebay.increment(1)})


def test_outcomes_arrive_in_the_order_of_the_changes(stores: Stores) -> None:
    store, reader = stores.create({"n": "int64"}, partitions=4)
    taken = forebay.put("k0", {"n": 0}, if_absent=True)
    changes = [count("k0"), *(count(f"k{at % 50}") for at in range(999)), taken]
    with store.write_stream(changes_max=64) as stream:
        outcomes = list(stream.outcomes(iter(changes)))
        summary = stream.flush()
    results = [outcome.result for outcome in outcomes if isinstance(outcome, forebay.WriteOutcome)]
    assert results == ["appended"] * 1000 + ["condition_failed"]
    assert (summary.resolved, summary.condition_failed, summary.failed) == (1001, 1, 0)
    assert sum(reader.get_many([f"k{at}" for at in range(50)], "n", after=summary.token)) == 1000


def test_full_stream_waits_until_its_deadline(own_server: Server) -> None:
    with forebay.Client(own_server.endpoint, deadline=30) as client:
        store = client.create_store(new_name(), {"n": "int64"}, partitions=1)
        stream = store.write_stream(changes_max=3, deadline=0.3)
        own_server.freeze()
        acknowledgements = [stream.send(count("k")) for _ in range(3)]
        with pytest.raises(forebay.UnavailableError):
            stream.send(count("k"))
        with pytest.raises(forebay.UnknownOutcomeError):
            stream.flush()
        assert not any(acknowledgement.is_known for acknowledgement in acknowledgements)
        with pytest.raises(forebay.DeadlineExceededError):
            acknowledgements[0].outcome(0.1)
        own_server.thaw()
        # The same writes are resolved, each once.
        assert [one.outcome(30).result for one in acknowledgements] == ["appended"] * 3
        stream.close()
        stream.close()
        with client.reader(store.definition.name) as reader:
            reader.await_ready(30)
            assert reader.get("k", "n", latest=True) == 3


def test_stream_survives_a_restart_of_the_server(own_server: Server) -> None:
    with forebay.Client(own_server.endpoint, deadline=WAIT_SECONDS) as client:
        store = client.create_store(new_name(), {"n": "int64"}, partitions=2)
        with store.write_stream() as stream:
            for at in range(3000):
                if at == 1500:
                    own_server.kill()
                if at == 2500:
                    own_server.restart()
                stream.send(count(f"k{at % 10}"))
        with client.reader(store.definition.name) as reader:
            reader.await_ready(WAIT_SECONDS)
            keys = [f"k{at}" for at in range(10)]
            assert reader.get_many(keys, "n", latest=True) == [300] * 10


def test_failed_write_fails_alone_and_the_end_raises_its_error(stores: Stores) -> None:
    store, _ = stores.create({"n": "int64"})
    stores.client.delete_store(store.definition.name)
    with pytest.raises(forebay.NotFoundError), store.write_stream() as stream:
        outcomes = list(stream.outcomes([count("k")]))
        assert [type(outcome) for outcome in outcomes] == [forebay.NotFoundError]
        summary = stream.summary()
        assert (summary.resolved, summary.failed) == (1, 1)
        assert type(summary.first_error) is forebay.NotFoundError
    # An exception of the block takes precedence.
    with pytest.raises(ZeroDivisionError), store.write_stream() as stream:
        stream.send(count("k"))
        raise ZeroDivisionError
    with pytest.raises(forebay.InvalidArgumentError):
        store.write_stream(changes_max=0)


def test_many_threads_share_a_stream(stores: Stores) -> None:
    store, reader = stores.create({"n": "int64"})
    with store.write_stream(changes_max=50) as stream, ThreadPoolExecutor(8) as pool:
        ready = threading.Barrier(8)

        def send(_: int) -> None:
            ready.wait(30)
            for _ in range(200):
                stream.send(count("k"))

        list(pool.map(send, range(8)))
    assert reader.get("k", "n", latest=True) == 1600


def test_stream_runs_on_an_event_loop(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"n": "int64"})

    async def main() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            users = await client.store(store.definition.name)
            async with users.write_stream(changes_max=20) as stream:
                changes = (count(f"k{at % 5}") for at in range(500))
                outcomes = [outcome async for outcome in stream.outcomes(changes)]
                assert len(outcomes) == 500
                acknowledgement = await stream.send(count("k0"))
                assert (await acknowledgement.outcome()).result == "appended"
                assert acknowledgement.is_known
                # Tasks share the stream, and wait for space without blocking the loop.
                sends = (stream.send(count("k1")) for _ in range(100))
                await asyncio.gather(*sends)
                assert (await stream.flush()).resolved == 601
                with pytest.raises(forebay.NotFoundError):
                    await stream.send(forebay.upsert("k", {"none": 1}))
            with pytest.raises(forebay.ClosedError):
                await stream.send(count("k"))

    run(main())
    keys = [f"k{at}" for at in range(5)]
    assert reader.get_many(keys, "n", latest=True) == [101, 200, 100, 100, 100]
