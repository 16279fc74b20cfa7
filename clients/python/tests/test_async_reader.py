"""Awaited reads that wait never block the loop, and end as those of `Reader` do."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import forebay
import numpy as np
import pytest
from testing import Server, Stores

T = TypeVar("T")
FIELDS = {"a": "int64", "s": "string"}


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop, within a bound."""
    return asyncio.run(asyncio.wait_for(main, 60))


def test_loop_runs_while_reads_wait() -> None:
    memory = forebay.Reader.in_memory(FIELDS, {"k": {"a": 1}})
    plan = memory.plan_gather(["a"], "int64")

    async def main() -> None:
        async with forebay.AsyncReader(memory) as users:
            memory.simulate("not_ready")
            token = memory.upsert("k", {"a": 2, "s": "new"}).token
            block = bytearray(3)
            waits: list[asyncio.Future[Any]] = [
                asyncio.ensure_future(users.await_ready(30)),
                asyncio.ensure_future(users.await_token(token, 30)),
                asyncio.ensure_future(users.get("k", "a", after=token, timeout=30)),
                asyncio.ensure_future(users.get_document("k", latest=True, timeout=30)),
                asyncio.ensure_future(users.get_many(["k", "l"], "a", after=token, timeout=30)),
                asyncio.ensure_future(users.get_documents(["l", "k"], latest=True, timeout=30)),
                asyncio.ensure_future(users.gather(plan, ["k"], latest=True, timeout=30)),
                asyncio.ensure_future(users.get_into("k", "s", block, after=token, timeout=30)),
                asyncio.ensure_future(users.get_packed(["k"], "s", after=token, timeout=30)),
            ]
            # A blocked loop would run none of these.
            for _ in range(100):
                await asyncio.sleep(0)
            assert not any(wait.done() for wait in waits)
            memory.simulate("none")
            answers = await asyncio.gather(*waits)
            assert answers[:4] == [None, None, 2, {"a": 2, "s": "new"}]
            assert answers[4:6] == [[2, forebay.ABSENT], [None, {"a": 2, "s": "new"}]]
            assert answers[6].tolist() == [[2]]
            assert answers[7] == 3 and block == b"new"
            assert answers[8].values == b"new"
        with pytest.raises(forebay.ClosedError):
            memory.get("k", "a")

    run(main())


def test_async_reader_is_verified_with_its_node(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, partitions=1)

    async def main() -> None:
        users = forebay.AsyncReader(reader)
        await users.await_token(store.put("k", {"a": 1}).token, 30)
        verified = await users.verify(0)
        assert verified.is_same and (verified.documents_here, verified.documents_there) == (1, 1)
        with pytest.raises(forebay.InvalidArgumentError):
            await users.verify(1)

    run(main())


def test_waits_raise_the_errors_of_the_reader() -> None:
    memory = forebay.Reader.in_memory(FIELDS, {"k": {"a": 1}})

    async def main() -> None:
        users = forebay.AsyncReader(memory)
        token = memory.upsert("k", {"a": 2}).token
        assert await users.get("l", "a", None, after=token) is None
        assert await users.get("k", "a") == 2
        with pytest.raises(forebay.InvalidArgumentError):
            await users.get(7, "a", after=token)
        with pytest.raises(forebay.InvalidArgumentError):
            await users.get("k", "a", after=token, latest=True)
        memory.simulate("not_ready")
        for wait in (
            users.await_ready(0.01),
            users.await_token(token, 0.01),
            users.get("k", "a", latest=True, timeout=0.01),
        ):
            with pytest.raises(forebay.UnavailableError):
                await wait
        statuses = np.zeros(1, np.uint8)
        await users.get_many(["k"], "a", statuses=statuses)
        assert statuses.tolist() == [forebay.KeyStatus.UNAVAILABLE]
        given_up = asyncio.ensure_future(users.await_ready(30))
        await asyncio.sleep(0)
        given_up.cancel()
        with pytest.raises(asyncio.CancelledError):
            await given_up
        in_flight = asyncio.ensure_future(users.await_ready(30))
        await asyncio.sleep(0)
        await users.close()
        with pytest.raises(forebay.ClosedError):
            await in_flight
        await asyncio.sleep(0)
        with pytest.raises(forebay.ClosedError):
            await users.await_ready(30)

    run(main())


def test_reader_is_opened_read_and_closed_on_a_loop(
    server: Server, stores: Stores, tmp_path: Path
) -> None:
    store, _ = stores.create(FIELDS)
    name = store.definition.name

    async def main() -> int:
        async with forebay.AsyncClient(server.endpoint) as client:
            users = await client.store(name)
            async with await client.reader(name, checkpoint_dir=tmp_path) as reader:
                await reader.await_ready(30)
                token = (await users.upsert("k", {"a": 1})).token
                assert await reader.get("k", "a", after=token) == 1
                await users.upsert("k", {"a": 2})
                assert await reader.get("k", "a", latest=True) == 2
                assert reader.reader.presence("k", "a") is forebay.Presence.VALUE
            async with await client.reader(name, checkpoint_dir=tmp_path) as reader:
                await reader.await_ready(30)
                assert await reader.get("k", "a", latest=True) == 2
                return reader.reader.metrics().counts.checkpoints.restored

    assert run(main()) > 0


def test_async_open_fails_like_a_sync_open(server: Server) -> None:
    async def main() -> None:
        async with forebay.AsyncClient(server.endpoint) as client:
            with pytest.raises(forebay.NotFoundError):
                await client.reader("no_such_store")

    run(main())


def test_presence_distinguishes_value_null_and_absent() -> None:
    rows: dict[str, forebay.Fields] = {"k": {"a": 1}, "n": {"a": None}, "e": {}}
    with forebay.Reader.in_memory(FIELDS, rows) as users:
        handle = users.field("a")
        presences = [users.presence(key, handle) for key in ("k", "n", "e", "none")]
        assert presences == [
            forebay.Presence.VALUE,
            forebay.Presence.NULL,
            forebay.Presence.ABSENT,
            forebay.Presence.ABSENT,
        ]
