"""The asyncio client: many writes in flight on one loop, cancellation, errors, close."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import forebay
import pytest
from testing import Server, Stores, new_name

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop, within a bound."""
    return asyncio.run(asyncio.wait_for(main, 60))


def test_many_writes_in_flight_add_up(server: Server, stores: Stores) -> None:
    store, reader = stores.create({"n": "int64"})

    async def main() -> list[bytes]:
        async with forebay.AsyncClient(server.endpoint) as client:
            users = await client.store(store.definition.name)
            change = {"n": forebay.increment(1)}
            writes = (users.upsert(f"k{at % 5}", change) for at in range(500))
            return [outcome.token for outcome in await asyncio.gather(*writes)]

    for token in run(main()):
        reader.await_token(token, 30)
    assert reader.get_many([f"k{at}" for at in range(5)], "n") == [100] * 5


def test_async_client_administers_stores_and_sends_every_write(server: Server) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            name = new_name()
            store = await client.create_store(name, {"a": "int64"}, partitions=1, versioned=True)
            assert store.definition == await client.describe_store(name)
            assert store.definition in await client.list_stores()
            assert (await store.put("k", {"a": 1})).result == "appended"
            assert (await store.upsert("k", {"a": 2}, if_absent=True)).result == "condition_failed"
            assert (await store.upsert("k", {"a": 2}, if_newer="a")).result == "applied"
            batch = [forebay.upsert(f"k{at}", {"a": at}) for at in range(100)]
            assert len((await store.batch(batch)).require_complete().results) == 100
            assert (await store.delete("k")).result == "appended"
            added = [forebay.Alteration.add_field("b", "string")]
            assert (await client.alter_store(name, added)).version == 2
            assert (await store.refresh()).version == 2
            await client.delete_store(name)
            with pytest.raises(forebay.NotFoundError):
                await client.store(name)

    run(main())


def test_async_client_selects_events(server: Server) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            orders = await client.create_stream(new_name(), {"n": "int64"}, partitions=2)
            inserts = [forebay.insert("u", {"n": n}) for n in range(3)]
            token = (await orders.batch(inserts)).require_complete().token
            selected = await orders.select(key="u", columns=["n"], limit=2, after=token)
            assert [event.columns for event in selected.events] == [{"n": 0}, {"n": 1}]
            with pytest.raises(forebay.InvalidArgumentError) as raised:
                await orders.select(equal=("n", 1))
            assert raised.value.field == "n"

    run(main())


def test_async_client_raises_the_errors_of_the_sync_client(server: Server, stores: Stores) -> None:
    store, _ = stores.create({"a": "int64"})

    async def main() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            users = await client.store(store.definition.name)
            with pytest.raises(forebay.NotFoundError) as raised:
                await users.upsert("k", {"b": 1})
            assert raised.value.field == "b"
            with pytest.raises(forebay.InvalidArgumentError):
                await users.upsert("k", {"a": "x"})

    run(main())


def test_loop_runs_while_a_call_waits(own_server: Server) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(own_server.endpoint, deadline=30) as client:
            store = await client.create_store(new_name(), {"a": "int64"}, partitions=1)
            own_server.freeze()
            write = asyncio.create_task(store.upsert("k", {"a": 1}))
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not write.done()
            own_server.thaw()
            assert (await write).result == "appended"

    run(main())


def test_cancelled_call_is_abandoned(own_server: Server) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(own_server.endpoint, deadline=30) as client:
            store = await client.create_store(new_name(), {"a": "int64"}, partitions=1)
            own_server.freeze()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(store.upsert("k", {"a": 1}), 0.2)
            own_server.thaw()
            assert (await store.upsert("k", {"a": 2})).result == "appended"

    run(main())


def test_close_ends_calls_in_flight(own_server: Server) -> None:
    async def main() -> None:
        client = forebay.AsyncClient(own_server.endpoint, deadline=30)
        with pytest.raises(forebay.ClosedError):
            await client.list_stores()
        await client.connect()
        store = await client.create_store(new_name(), {"a": "int64"}, partitions=1)
        own_server.freeze()
        write = asyncio.create_task(store.upsert("k", {"a": 1}))
        await asyncio.sleep(0.1)
        client.close()
        client.close()
        for call in (write, store.upsert("k", {"a": 1}), client.list_stores()):
            with pytest.raises(forebay.ClosedError):
                await call

    run(main())
