"""Behaviours of selects of retained events; their rules are in proto/vectors/behaviours.toml."""

from datetime import datetime, timedelta, timezone
from typing import Any

import forebay
import pytest
from forebay import FieldSpec
from testing import new_name

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _second(n: int) -> datetime:
    return _EPOCH + timedelta(seconds=n)


def _orders(client: forebay.Client) -> tuple[forebay.Store, bytes]:
    """Write twelve orders of three users, one a second; return the token of their insert.

    The even orders are in Rome with a null note, the others in Oslo; the last one has no price.
    """
    columns = [
        FieldSpec("at", "timestamp"),
        FieldSpec("city", "string", index="exact"),
        FieldSpec("class", "int32", index="exact"),
        FieldSpec("price", "int64", index="range"),
        FieldSpec("note", "string"),
        FieldSpec("tags", "list<string>"),
    ]
    orders = client.create_stream(new_name(), columns, partitions=3, event_time="at")
    changes = []
    for n in range(12):
        event: dict[str, Any] = {"at": _second(n), "class": n % 4}
        event.update({"city": "Oslo"} if n % 2 else {"city": "Rome", "note": None})
        if n < 11:
            event["price"] = n * 7 % 12 * 10  # 0, 10 to 110, in a different order.
        changes.append(forebay.insert(f"user-{n % 3}", event))
    return orders, orders.batch(changes).require_complete().token


def _seconds(selected: forebay.EventQueryResult) -> list[int]:
    """Return the seconds of the events' times."""
    return [int((event.time - _EPOCH).total_seconds()) for event in selected.events]


def test_select_by_key_returns_the_events_of_the_key(client: forebay.Client) -> None:
    orders, token = _orders(client)
    selected = orders.select(key="user-1", after=token)
    names = [column.name for column in selected.columns]
    assert names == ["at", "city", "class", "price", "note", "tags"]
    assert selected.columns[2].type == "int32"
    assert _seconds(selected) == [1, 4, 7, 10]
    first, second, *_ = selected.events
    for event, n in zip(selected.events, [1, 4, 7, 10]):
        assert (event.key, event.time, event.partition) == ("user-1", _second(n), first.partition)
        assert event.append_time > event.time
        assert (event.columns["at"], event.columns["class"]) == (event.time, n % 4)
        assert event.columns["price"] == n * 7 % 12 * 10
    assert (first.offset, first.index_in_entry) != (second.offset, second.index_in_entry)
    assert first.columns["city"] == "Oslo" and "note" not in first.columns
    assert second.columns["note"] is None and "tags" not in second.columns
    assert orders.select(key="nobody").events == []


def test_select_by_value_returns_events_with_the_value(client: forebay.Client) -> None:
    orders, token = _orders(client)
    assert _seconds(orders.select(equal=("class", 2), after=token)) == [2, 6, 10]
    assert orders.select(equal=("city", "Bern")).events == []
    rome = orders.select(equal=("city", "Rome"), columns=["price"])
    assert [column.name for column in rome.columns] == ["price"]
    prices = [event.columns for event in rome.events]
    assert prices == [{"price": n * 7 % 12 * 10} for n in range(0, 12, 2)]


def test_select_by_range_returns_events_between_two_values(client: forebay.Client) -> None:
    orders, token = _orders(client)
    assert _seconds(orders.select(between=("price", 20, 70), after=token)) == [2, 4, 6, 9]
    assert _seconds(orders.select(between=("price", None, 20))) == [0, 7]
    assert _seconds(orders.select(between=("price", 100, None))) == [5, 10]
    assert _seconds(orders.select(between=("price", None, None))) == list(range(11))
    assert orders.select(between=("price", 41, 60)).events == []


def test_ordered_select_returns_the_first_events(client: forebay.Client) -> None:
    orders, token = _orders(client)
    rising = [0, 7, 2, 9, 4, 6, 1, 8, 3, 10, 5]
    assert _seconds(orders.select(order_by="price", after=token)) == [*rising, 11]
    falling = orders.select(order_by="price", descending=True)
    assert _seconds(falling) == [*reversed(rising), 11]
    assert _seconds(orders.select(order_by="price", descending=True, limit=3)) == [5, 10, 3]
    of_one = orders.select(key="user-1", order_by="price", columns=["city"])
    assert _seconds(of_one) == [7, 4, 1, 10]
    assert of_one.events[0].columns == {"city": "Oslo"}


def test_select_by_time_returns_the_events_of_the_span(client: forebay.Client) -> None:
    orders, token = _orders(client)
    assert _seconds(orders.select(start=_second(3), end=_second(6), after=token)) == [3, 4, 5]
    turned = orders.select(start=_second(3), end=_second(6), descending=True)
    assert _seconds(turned) == [5, 4, 3]
    assert _seconds(orders.select(start=_second(10))) == [10, 11]
    assert _seconds(orders.select(end=_second(2))) == [0, 1]
    assert _seconds(orders.select(key="user-1", start=_second(4), end=_second(10))) == [4, 7]
    assert _seconds(orders.select(descending=True, limit=2)) == [11, 10]
    assert _seconds(orders.select()) == list(range(12))
    with pytest.raises(forebay.InvalidArgumentError):
        orders.select(start=datetime(1970, 1, 1))


def test_invalid_selects_are_refused(client: forebay.Client) -> None:
    orders, _ = _orders(client)
    unknown: list[dict[str, Any]] = [
        {"columns": ["price", "colour"]},
        {"equal": ("colour", "red")},
        {"between": ("colour", 1, 2)},
        {"order_by": "colour"},
    ]
    for asked in unknown:
        with pytest.raises(forebay.NotFoundError) as missing:
            orders.select(**asked)
        assert (missing.value.store, missing.value.field) == (orders.definition.name, "colour")
    invalid: list[tuple[dict[str, Any], str | None]] = [
        ({"equal": ("note", "fast")}, "note"),
        ({"between": ("note", "a", "b")}, "note"),
        ({"between": ("city", "A", "B")}, "city"),
        ({"equal": ("city", 5)}, "city"),
        ({"equal": ("class", 1 << 40)}, "class"),
        ({"order_by": "tags"}, "tags"),
        ({"key": 7}, None),
        ({"key": ("a", "b")}, None),
        ({"key": "user-1", "equal": ("city", "Rome")}, None),
    ]
    for asked, column in invalid:
        with pytest.raises(forebay.InvalidArgumentError) as refused:
            orders.select(**asked)
        assert (refused.value.store, refused.value.field) == (orders.definition.name, column)
    with pytest.raises(forebay.LimitExceededError) as limited:
        orders.select(limit=10_001)
    assert (limited.value.limit, limited.value.actual) == (10_000, 10_001)
    documents = client.create_store(new_name(), {"n": "int64"})
    with pytest.raises(forebay.InvalidArgumentError) as refused:
        documents.select()
    assert refused.value.store == documents.definition.name


def test_select_after_a_token_finds_its_event(client: forebay.Client) -> None:
    orders, _ = _orders(client)
    for written in range(1, 4):
        token = orders.insert("own", {"at": _EPOCH}).token
        own = orders.select(key="own", after=token)
        assert len(own.events) == written
        assert orders.select(key="own", after=own.token).events == own.events
    orders.insert("own", {"at": _EPOCH})
    assert len(orders.select(key="own", latest=True).events) == 4
