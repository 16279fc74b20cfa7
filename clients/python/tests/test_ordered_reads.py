"""Ordered reads: documents by key from the node's shards, and scans in the order of the keys."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import forebay
import pytest
from testing import Server, Stores

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new loop, within a bound."""
    return asyncio.run(asyncio.wait_for(main, 60))


def filled(stores: Stores, count: int = 40) -> tuple[forebay.Store, bytes]:
    """Create a store of `key-00` and so on; return the store and the token of its documents."""
    store, _ = stores.create({"n": "int64", "name": "string"}, partitions=4)
    changes = [forebay.put(f"key-{n:02}", {"n": n, "name": f"name {n}"}) for n in range(count)]
    return store, store.batch(changes).require_complete().token


def test_ordered_reads_documents_by_key(stores: Stores) -> None:
    store, token = filled(stores)
    ordered = store.ordered()
    assert ordered.get("key-07", after=token) == {"n": 7, "name": "name 7"}
    assert ordered.get("nobody", after=token) is None
    found = ordered.get_many(["key-39", "nobody", "key-00"], after=token)
    assert found == [{"n": 39, "name": "name 39"}, None, {"n": 0, "name": "name 0"}]
    with pytest.raises(forebay.InvalidArgumentError):
        ordered.get(7)
    deleted = store.delete("key-07").token
    assert ordered.get("key-07", after=deleted) is None
    assert ordered.get("key-07", latest=True) is None


def test_scans_are_in_key_order(stores: Stores) -> None:
    store, token = filled(stores)
    ordered = store.ordered()
    everything = [(f"key-{n:02}", {"n": n, "name": f"name {n}"}) for n in range(40)]
    assert list(ordered.scan(after=token)) == everything
    assert list(ordered.scan(reverse=True)) == everything[::-1]
    assert list(ordered.scan(prefix="key-1")) == everything[10:20]
    assert list(ordered.scan(start="key-05", end="key-08")) == everything[5:8]
    within = ordered.scan(start="key-05", start_inclusive=False, end="key-08", end_inclusive=True)
    assert list(within) == everything[6:9]
    named = [(key, {"n": document["n"]}) for key, document in everything[:3]]
    assert list(ordered.scan(fields=["n"], limit=3)) == named


def test_scan_resumes_after_its_cursor(stores: Stores) -> None:
    store, token = filled(stores)
    ordered = store.ordered()
    scan = ordered.scan(limit=15, after=token)
    with pytest.raises(forebay.InvalidArgumentError):
        scan.cursor()
    first = scan.take(100)
    store.put("key-20", {"n": -1})
    rest = list(ordered.scan(cursor=scan.cursor()))
    assert [key for key, _ in first + rest] == [f"key-{n:02}" for n in range(40)]
    assert dict(rest)["key-20"]["n"] == 20, "it is as it was"
    with pytest.raises(forebay.InvalidArgumentError):
        list(ordered.scan(reverse=True, cursor=scan.cursor()))
    with pytest.raises(forebay.InvalidArgumentError):
        list(ordered.scan(prefix="a", start="a"))


def test_event_loop_awaits_ordered_reads(server: Server, stores: Stores) -> None:
    store, token = filled(stores)

    async def main() -> tuple[Any, list[Any]]:
        async with forebay.AsyncClient(server.endpoint) as client:
            ordered = (await client.store(store.definition.name)).ordered()
            found = await ordered.get("key-03", after=token)
            return found, [key async for key, _ in ordered.scan(start="key-30")]

    found, keys = run(main())
    assert found == {"n": 3, "name": "name 3"}
    assert keys == [f"key-{n:02}" for n in range(30, 40)]
