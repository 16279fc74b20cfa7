"""Behaviours of streams; their rules are in proto/vectors/behaviours.toml."""

from typing import Any

import forebay
import pytest
from forebay import Alteration, FieldSpec
from testing import new_name


def _orders(client: forebay.Client) -> forebay.Store:
    """Create a stream: a time, a required city, one of two devices, a class of one to three."""
    columns = [
        FieldSpec("at", "timestamp"),
        FieldSpec("city", "string", required=True, index="exact"),
        FieldSpec("device", "string", default="phone", allowed=["phone", "desktop"]),
        FieldSpec("class", "int32", allowed=[1, 2, 3]),
    ]
    return client.create_stream(
        new_name(),
        columns,
        partitions=3,
        event_time="at",
        log_retention=3600,
        log_retention_bytes=1 << 40,
    )


def _column(definition: forebay.Definition, name: str) -> forebay.Field:
    column = definition.field(name)
    assert column is not None
    return column


def test_stream_is_described_as_created_and_altered(client: forebay.Client) -> None:
    definition = _orders(client).definition
    name = definition.name
    assert definition.stream and definition.event_time == "at" and not definition.key_value
    assert (definition.log_retention, definition.log_retention_bytes) == (3600, 1 << 40)
    city = _column(definition, "city")
    assert city.required and city.index == "exact"
    device = _column(definition, "device")
    assert (device.default, device.allowed, device.index) == ("phone", ("phone", "desktop"), None)
    assert _column(definition, "class").allowed == (1, 2, 3)
    assert client.describe_store(name) == definition
    assert definition in client.list_stores()
    set_rules = Alteration.set_rules("class", required=True, allowed=[4], index="range")
    altered = client.alter_store(name, [set_rules, Alteration.set_options(log_retention_bytes=1)])
    column = _column(altered, "class")
    assert (column.type, column.required, column.allowed) == ("int32", True, (4,))
    assert (column.index, altered.log_retention_bytes, altered.log_retention) == ("range", 1, None)
    assert client.describe_store(name) == altered
    with pytest.raises(forebay.InvalidArgumentError) as refused:
        client.alter_store(name, [Alteration.set_rules("class", allowed=["four"])])
    assert refused.value.field == "class"
    with pytest.raises(forebay.InvalidArgumentError):
        Alteration.set_rules("class", index="text")  # type: ignore[arg-type]
    with pytest.raises(forebay.InvalidArgumentError):
        client.create_stream(new_name(), {"n": "int64"}, event_time="at")


def test_stream_appends_every_event_with_its_own_token(client: forebay.Client) -> None:
    orders = _orders(client)
    event: dict[str, Any] = {"city": "Rome", "class": 2}
    first, second = orders.insert("user-1", event), orders.insert("user-1", event)
    assert first.result == second.result == "appended" and first.token != second.token
    batch = orders.batch(forebay.insert(f"user-{number % 7}", event) for number in range(100))
    complete = batch.require_complete().results
    results = [result.result for result in complete]  # type: ignore[union-attr]
    assert results == ["appended"] * 100
    with orders.write_stream() as stream:
        for _ in range(100):
            stream.send(forebay.insert("user-1", event))
        summary = stream.flush()
    assert (summary.resolved, summary.condition_failed, summary.failed) == (100, 0, 0)


def test_stream_refuses_events_against_its_rules(client: forebay.Client) -> None:
    orders = _orders(client)
    event = {"city": "Rome"}
    refused = [
        (forebay.insert("u", {}), "city"),
        (forebay.insert("u", {"city": None}), "city"),
        (forebay.insert("u", {"city": 5}), "city"),
        (forebay.insert("u", {**event, "device": "tv"}), "device"),
        (forebay.insert("u", {**event, "class": 4}), "class"),
        (forebay.insert("u", {**event, "class": forebay.increment(1)}), None),
        (forebay.upsert("u", event), None),
        (forebay.put("u", event), None),
        (forebay.delete("u"), None),
    ]
    for change, column in refused:
        with pytest.raises(forebay.InvalidArgumentError) as raised:
            orders.write(change)
        assert raised.value.field == column
    name = orders.definition.name
    client.alter_store(name, [Alteration.set_rules("device")])
    orders.insert("u", {**event, "device": "tv"})
    with pytest.raises(forebay.InvalidArgumentError) as raised:
        client.reader(name)
    assert raised.value.store == name
    documents = client.create_store(new_name(), {"n": "int64"})
    with pytest.raises(forebay.InvalidArgumentError):
        documents.insert("u", {"n": 1})
