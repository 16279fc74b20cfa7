"""Behaviours of in-memory readers; their rules are in proto/vectors/behaviours.toml."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import forebay
import numpy as np
import pytest
from forebay import ABSENT, Alteration, KeyStatus
from testing import Stores, eventually

FIELDS = {"a": "int64", "b": "int64", "l": "list<int64>"}
HOUR = 3600.0


def profile(users: forebay.Reader, keys: list[str]) -> list[object]:
    """Make the reads of a ranking, by any reader: the program under test."""
    score = users.field("score")
    return [
        (
            users.get(key, "visits", -1, max_staleness=60),
            users.get(key, score, 0.5, max_staleness=60),
            users.get(key, "city", "", max_staleness=60),
        )
        for key in keys
    ]


def written() -> Iterator[forebay.Change]:
    """Yield writes of every kind."""
    for place in range(40):
        key = f"k{place}"
        yield forebay.put(key, {"visits": place, "city": f"c{place}"})
        yield forebay.upsert(key, {"visits": forebay.increment(100), "score": place / 2})
        if place % 3 == 0:
            yield forebay.upsert(key, {"score": ABSENT, "city": None})
        if place % 7 == 0:
            yield forebay.delete(key)


def test_in_memory_reader_is_ready_with_its_rows() -> None:
    rows = {f"k{place}": {"a": place} for place in range(100)}
    with forebay.Reader.in_memory(FIELDS, rows) as reader:
        assert reader.is_ready
        reader.await_ready(0)
        assert reader.status().age == 0
        assert dict(reader.scan()) == rows
        assert reader.get("k42", "a") == 42
        assert reader.get("none", "a") is ABSENT
    with pytest.raises(forebay.NotFoundError) as unknown:
        forebay.Reader.in_memory(FIELDS, {"k": {"c": 1}})
    assert unknown.value.field == "c"
    with pytest.raises(forebay.InvalidArgumentError):
        forebay.Reader.in_memory(FIELDS, {7: {"a": 1}})


def test_in_memory_writes_have_the_meaning_of_store_writes() -> None:
    reader = forebay.Reader.in_memory(FIELDS, [forebay.put("k", {"a": 1})], versioned=True)
    store = reader.as_store()
    fields = {"a": forebay.increment(4), "l": forebay.list_append([1, 2, 3], 2)}
    token = store.upsert("k", fields).token
    expected = {"a": 5, "l": [2, 3]}
    assert reader.get_document("k") == expected
    assert reader.get_document("k", after=token) == expected
    assert reader.get_document("k", latest=True) == expected
    late = store.upsert("k", {"a": 0}, if_absent=True)
    assert late.result == "condition_failed"
    assert late.version is not None
    assert store.upsert("k", {"a": 9}, if_version=late.version).result == "applied"
    assert store.upsert("k", {"a": 8}, if_newer="a").result == "condition_failed"
    reader.put("k", {"a": 1})
    assert reader.get_document("k") == {"a": 1}
    reader.upsert("k", {"a": None})
    assert reader.get_document("k") == {"a": None}
    reader.delete("k")
    assert reader.get_document("k") is None
    keys = [f"k{place}" for place in range(3_000)]
    once = [forebay.upsert(key, {"a": forebay.increment(1)}) for key in keys]
    assert len(reader.batch(once + once).require_complete().results) == 6_000
    assert reader.get_many(keys, "a") == [2] * 3_000
    with pytest.raises(forebay.NotFoundError):
        store.upsert("k", {"c": 1})
    with pytest.raises(forebay.InvalidArgumentError):
        store.upsert("k", {"a": "x"})
    foreign = forebay.Reader.in_memory(FIELDS).upsert("k", {"a": 1}).token
    with pytest.raises(forebay.InvalidArgumentError):
        reader.get("k", "a", after=foreign)


def test_in_memory_clock_moves_only_on_request() -> None:
    row = forebay.put("k", {"a": 1}, ttl=10)
    reader = forebay.Reader.in_memory(FIELDS, [row])
    began = reader.clock
    reader.upsert("k", {"b": 2}, field_ttl={"b": 4})
    for passed_us, expected in (
        (3_999_999, {"a": 1, "b": 2}),
        (4_000_000, {"a": 1}),
        (9_999_999, {"a": 1}),
        (10_000_000, None),
    ):
        reader.set_clock(began + timedelta(microseconds=passed_us))
        assert reader.get_document("k", max_staleness=2) == expected, passed_us
    with pytest.raises(forebay.InvalidArgumentError):
        reader.set_clock(began)
    reader.upsert("k", {"a": forebay.increment(1)})
    assert reader.get_document("k") == {"a": 1}
    reader.advance(1_000_000)
    assert reader.clock == began + timedelta(seconds=1_000_010)
    assert reader.is_ready


def test_in_memory_reader_accepts_alterations() -> None:
    fields = {"x_a": "int32", "x_b": "int32", "y": "int32"}
    rows = {"k": {"x_a": 1, "x_b": 2, "y": 3}}
    reader = forebay.Reader.in_memory(fields, rows, log_retention=60)
    assert reader.definition.log_retention == 60
    narrow, dropped = reader.field("y", "int32"), reader.field("x_a")
    altered = reader.alter(
        [
            Alteration.rename_field("y", "z"),
            Alteration.widen_field("z", "int64"),
            Alteration.add_field("n", "string"),
            Alteration.drop_fields_by_prefix("x_"),
        ]
    )
    assert reader.schema_version == altered.version
    assert reader.get_document("k") == {"z": 3}
    assert reader.get("k", narrow) == 3
    assert reader.get("k", dropped) is ABSENT
    reader.upsert("k", {"y": 1 << 40, "n": "new"})
    with pytest.raises(forebay.InvalidArgumentError):
        reader.get("k", narrow)
    assert reader.get_document("k") == {"z": 1 << 40, "n": "new"}
    with pytest.raises(forebay.NotFoundError):
        reader.alter([Alteration.drop_field("y2")])
    assert reader.alter([Alteration.drop_all()]).log_retention == 60
    assert reader.alter([Alteration.set_options()]).log_retention is None
    assert reader.get_document("k") is None
    reader.upsert("k", {"z": 5})
    assert reader.get_document("k") == {"z": 5}


def gathers_nothing(
    reader: forebay.Reader, status: KeyStatus, max_staleness: float | None = None
) -> None:
    """Gather the field a with the default 5 for the keys k and l; assert that neither answers."""
    statuses, mask = np.zeros(2, np.uint8), np.full((2, 1), 9, np.uint8)
    plan = reader.plan_gather([("a", 5)], "int64")
    found = reader.gather(
        plan, ["k", "l"], statuses=statuses, mask=mask, max_staleness=max_staleness
    )
    assert statuses.tolist() == [status] * 2
    assert found.tolist() == [[5], [5]]
    assert mask.tolist() == [[0], [0]]


def test_in_memory_reader_simulates_not_ready() -> None:
    reader = forebay.Reader.in_memory(FIELDS, {"k": {"a": 1}})
    reader.simulate("not_ready")
    assert not reader.is_ready
    with pytest.raises(forebay.UnavailableError):
        reader.get("k", "a")
    statuses = np.zeros(2, np.uint8)
    reader.get_many(["k", "l"], "a", statuses=statuses)
    assert statuses.tolist() == [KeyStatus.UNAVAILABLE] * 2
    gathers_nothing(reader, KeyStatus.UNAVAILABLE)
    with pytest.raises(forebay.UnavailableError):
        reader.await_ready(0.02)
    token = reader.upsert("l", {"a": 2}).token
    with pytest.raises(forebay.UnavailableError):
        reader.get("l", "a", after=token, timeout=0.02)
    found: list[object] = []
    waits = threading.Thread(
        target=lambda: found.append(reader.get("l", "a", after=token, timeout=30))
    )
    waits.start()
    reader.simulate("none")
    waits.join(30)
    assert found == [2]
    assert reader.is_ready
    assert reader.get("k", "a") == 1


def test_in_memory_reader_simulates_staleness() -> None:
    reader = forebay.Reader.in_memory(FIELDS, {"k": {"a": 1}})
    reader.simulate("stale", age=HOUR)
    assert not reader.is_ready
    assert reader.status().age == HOUR
    with pytest.raises(forebay.StaleError):
        reader.get("k", "a", max_staleness=HOUR - 0.001)
    assert reader.get("k", "a", max_staleness=HOUR) == 1
    reader.upsert("k", {"a": 2})
    statuses = np.zeros(2, np.uint8)
    reader.get_many(["k", "l"], "a", statuses=statuses, max_staleness=HOUR / 2)
    assert statuses.tolist() == [KeyStatus.STALE] * 2
    gathers_nothing(reader, KeyStatus.STALE, max_staleness=HOUR / 2)
    assert reader.get("k", "a") == 2
    reader.advance(HOUR)
    assert reader.status().age == 2 * HOUR
    with pytest.raises(forebay.InvalidArgumentError):
        reader.simulate("stale")
    reader.simulate("none")
    assert reader.get("k", "a", max_staleness=2) == 2
    assert reader.is_ready


def test_in_memory_reader_simulates_closed() -> None:
    reader = forebay.Reader.in_memory(FIELDS, {"k": {"a": 1}})
    handle = reader.field("a")
    reader.simulate("closed")
    for call in (
        lambda: reader.get("k", handle),
        lambda: reader.field("a"),
        lambda: reader.await_ready(0.02),
        lambda: reader.upsert("k", {"a": 2}),
        lambda: reader.advance(HOUR),
        lambda: reader.alter([Alteration.drop_all()]),
        lambda: reader.simulate("none"),
    ):
        with pytest.raises(forebay.ClosedError):
            call()
    reader.close()
    with pytest.raises(forebay.ClosedError):
        reader.upsert("k", {"a": 2})


def test_in_memory_reader_answers_like_a_node(stores: Stores) -> None:
    types = {"visits": "int64", "score": "float64", "city": "string"}
    store, node = stores.create(types)
    token = store.batch(written()).require_complete().token
    node.await_token(token, 30)
    memory = forebay.Reader.in_memory(types, written(), partitions=2)
    asked = [f"k{place}" for place in range(45)]
    assert profile(memory, asked) == profile(node, asked)
    assert dict(memory.scan()) == dict(node.scan())
    with pytest.raises(forebay.LimitExceededError):
        profile(memory, ["k" * 65_537])
    stores.alter(store, Alteration.drop_field("score"))
    memory.alter([Alteration.drop_field("score")])
    version = memory.schema_version
    eventually("the drop is seen", lambda: node.schema_version == version)
    for reader in (memory, node):
        with pytest.raises(forebay.NotFoundError):
            profile(reader, asked)
