"""Behaviours of writes; their rules are in proto/vectors/behaviours.toml."""

import math
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone

import forebay
import numpy as np
import pytest
from forebay import ABSENT
from testing import Server, Stores, new_name

KEY_BYTES_MAX = 64 * 1024
VALUE_BYTES_MAX = 16 * 1024 * 1024


def test_get_returns_exactly_the_put_fields(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    store.put("k", {"a": 1, "b": 2})
    token = store.put("k", {"a": 3}).token
    assert reader.get_document("k", after=token) == {"a": 3}


def test_get_returns_every_upserted_field(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "string"})
    outcome = store.upsert("k", {"a": 1, "b": "x"})
    assert outcome.result == "appended"
    assert reader.get("k", "a", after=outcome.token) == 1
    assert reader.get_document("k") == {"a": 1, "b": "x"}


def test_upserts_of_different_fields_add_up(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64", "c": "int64"})
    store.upsert("k", {"a": 1, "b": 1})
    token = store.upsert("k", {"b": 2, "c": 3}).token
    assert reader.get_document("k", after=token) == {"a": 1, "b": 2, "c": 3}


def test_delete_makes_the_document_absent(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    store.upsert("k", {"a": 1, "b": 1})
    assert reader.get_document("k", after=store.delete("k").token) is None
    assert reader.get("k", "a") is ABSENT
    store.delete("never")
    token = store.upsert("k", {"b": 2}).token
    assert reader.get_document("k", after=token) == {"b": 2}


def test_removed_field_is_absent_and_others_remain(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    store.upsert("k", {"a": 1, "b": 2})
    token = store.upsert("k", {"a": ABSENT}).token
    assert reader.get_document("k", after=token) == {"b": 2}


def test_every_value_type_is_read_as_written(stores: Stores) -> None:
    types = {
        "bool": "bool",
        "int32": "int32",
        "int64": "int64",
        "float32": "float32",
        "float64": "float64",
        "string": "string",
        "bytes": "bytes",
        "time": "timestamp",
        "numbers": "list<int64>",
        "texts": "list<string>",
        "flags": "list<bool>",
        "times": "list<timestamp>",
        "floats": "list<float64>",
        "f32": "f32[3]",
        "f16": "f16[2]",
        "i8": "i8[2]",
    }
    store, reader = stores.create(types)
    moment = datetime(2026, 1, 2, 3, 4, 5, 678901, timezone.utc)
    elsewhere = moment.astimezone(timezone(timedelta(hours=-7)))
    documents: list[dict[str, forebay.Value]] = [
        {
            "bool": True,
            "int32": 2**31 - 1,
            "int64": 2**63 - 1,
            "float32": 3.4028234663852886e38,
            "float64": 0.1,
            "string": "grüße 🌊",
            "bytes": bytes(range(256)),
            "time": elsewhere,
            "numbers": [1, -2, 2**63 - 1],
            "texts": ["", "a", "ß"],
            "flags": [True, False],
            "times": [moment],
            "floats": [1, 0.5],
        },
        {
            "bool": False,
            "int32": -(2**31),
            "int64": -(2**63),
            "float32": -math.inf,
            "float64": 5e-324,
            "time": datetime(1, 1, 1, tzinfo=timezone.utc),
        },
        {"time": datetime(9999, 12, 31, 23, 59, 59, 999999, timezone.utc)},
    ]
    for document in documents:
        token = store.put("k", document).token
        assert reader.get_document("k", after=token) == document
    vectors: dict[str, forebay.Vector] = {
        "f32": np.array([0.1, -0.0, np.nan], np.float32),
        "f16": np.array([0.5, 65504], np.float16),
        "i8": np.array([-128, 127], np.int8),
    }
    token = store.put("k", vectors).token
    for name, vector in vectors.items():
        read = reader.get("k", name, after=token)
        assert isinstance(read, np.ndarray)
        assert read.dtype == vector.dtype and read.tobytes() == vector.tobytes()
    fields: dict[str, forebay.Value] = {
        "float64": math.nan,
        "int32": np.int32(7),
        "float32": np.float32(0.1),
    }
    token = store.put("k", fields).token
    assert str(reader.get("k", "float64", after=token)) == "nan"
    assert reader.get("k", "int32") == 7 and reader.get("k", "float32") == np.float32(0.1)


def test_key_value_store_puts_gets_and_deletes_bytes(stores: Stores) -> None:
    store, reader = stores.create({}, key_value=True, key_type="bytes")
    store.put(b"empty", {"value": b""})
    token = store.put(b"k", {"value": b"\x00\xff"}).token
    assert reader.get(b"k", "value", after=token) == b"\x00\xff"
    assert reader.get_many([b"empty", b"none", b"k"], "value", None) == [b"", None, b"\x00\xff"]
    assert reader.get(b"k", "value", after=store.delete(b"k").token) is ABSENT


def test_documents_are_found_under_every_key_type(stores: Stores) -> None:
    keys: dict[str, list[forebay.Key]] = {
        "string": ["", "a", "ß", "1"],
        "bytes": [b"", b"a", b"\xff\x00"],
        "int64": [0, -1, 2**63 - 1, -(2**63)],
    }
    for key_type, some in keys.items():
        store, reader = stores.create({"at": "int64"}, key_type=key_type, partitions=4)
        changes = [forebay.upsert(key, {"at": at}) for at, key in enumerate(some)]
        token = store.batch(changes).require_complete().token
        assert reader.get_many(some, "at", after=token) == list(range(len(some)))
        assert {key for key, _ in reader.scan()} == set(some)


def test_partition_key_is_required_with_every_key(stores: Stores) -> None:
    fields = {"tenant": "string", "n": "int64"}
    store, reader = stores.create(fields, partition_key="tenant", partitions=4)
    one, two = forebay.PartitionedKey("t1", "k"), ("t2", "k")
    store.upsert(one, {"n": 1})
    store.upsert(two, {"n": 2})
    token = store.upsert(two, {"n": forebay.increment(1)}).token
    reader.await_token(store.upsert(one, {"n": forebay.increment(9)}).token, 30)
    assert reader.get_many([one, two], "n", after=token) == [10, 3]
    assert {key: document["n"] for key, document in reader.scan()} == {one: 10, two: 3}
    for call in (lambda: reader.get("k", "n"), lambda: store.upsert("k", {"n": 1})):
        with pytest.raises(forebay.InvalidArgumentError):
            call()


def test_empty_key_is_a_key(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    assert reader.get("", "a", after=store.upsert("", {"a": 1}).token) == 1
    store, reader = stores.create({"a": "int64"}, key_type="bytes")
    assert reader.get(b"", "a", after=store.upsert(b"", {"a": 1}).token) == 1


def test_largest_key_is_written_and_found(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    key = "k" * KEY_BYTES_MAX
    assert reader.get(key, "a", after=store.upsert(key, {"a": 1}).token) == 1
    assert reader.get(key[:-1], "a") is ABSENT


def test_largest_value_is_read_as_written(stores: Stores) -> None:
    store, reader = stores.create({"blob": "bytes"}, partitions=1)
    blob = np.random.default_rng(7).bytes(VALUE_BYTES_MAX)
    token = store.upsert("k", {"blob": blob}).token
    assert reader.get("k", "blob", after=token, timeout=30) == blob


def test_non_utf8_bytes_are_a_key(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, key_type="bytes")
    keys = [b"\xff\xfe", b"\xc3\x28", b"\x00", "é".encode(), "e\u0301".encode()]
    store.batch(forebay.upsert(key, {"a": at}) for at, key in enumerate(keys)).require_complete()
    assert reader.get_many(keys, "a", latest=True) == [0, 1, 2, 3, 4]
    assert reader.get(b"\xff", "a") is ABSENT


def test_batch_answers_one_outcome_per_change_in_order(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    batch = [forebay.upsert(f"k{at}", {"a": at}) for at in range(3000)]
    batch.append(forebay.upsert("k0", {"a": forebay.increment(5)}))
    batch.append(forebay.put("k1", {"a": 9}, if_absent=True))
    outcome = store.batch(batch).require_complete()
    results = [result.result for result in outcome.results]  # type: ignore[union-attr]
    assert results[:3001] == ["appended"] * 3001 and results[3001:] == ["condition_failed"]
    keys = [f"k{at}" for at in range(3000)]
    assert reader.get_many(keys, "a", after=outcome.token) == [5, *range(1, 3000)]


def test_stream_acknowledges_every_write_once_in_order(stores: Stores) -> None:
    store, reader = stores.create({"n": "int64", "order": "list<int64>"})
    # The stream has less space than there are writes: sending waits for space, never for its own
    # write.
    with store.write_stream(changes_max=100) as stream:
        acknowledgements = []
        for at in range(2000):
            change = {"n": forebay.increment(1), "order": forebay.list_append([at], 1000)}
            acknowledgements.append(stream.send(forebay.upsert(f"k{at % 10}", change)))
        with pytest.raises(forebay.NotFoundError):
            stream.send(forebay.upsert("k0", {"none": 1}))
        taken = stream.send(forebay.upsert("k0", {"n": 1}, if_absent=True))
        summary = stream.flush()
        last = stream.send(forebay.upsert("k1", {"n": forebay.increment(1)}))
    assert (summary.resolved, summary.condition_failed, summary.failed) == (2001, 1, 0)
    assert all(acknowledgement.is_known for acknowledgement in [*acknowledgements, taken, last])
    results = [acknowledgement.outcome().result for acknowledgement in acknowledgements]
    assert results == ["appended"] * 2000
    assert (taken.outcome().result, last.outcome().result) == ("condition_failed", "appended")
    reader.await_token(last.outcome().token, 30)
    reader.await_token(summary.token, 30)
    for at in range(10):
        count, order = 200 + (at == 1), list(range(at, 2000, 10))
        assert reader.get_document(f"k{at}") == {"n": count, "order": order}


def test_unknown_store_is_not_found(client: forebay.Client, server: Server) -> None:
    name = new_name("unknown")
    calls = (
        lambda: client.store(name),
        lambda: client.reader(name),
        lambda: forebay.Reader(server.endpoint, name),
    )
    for call in calls:
        with pytest.raises(forebay.NotFoundError) as raised:
            call()
        assert raised.value.store == name


def test_unknown_field_is_not_found(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    calls = (
        lambda: store.upsert("k", {"a": 1, "b": 1}),
        lambda: store.batch([forebay.upsert("k", {"a": 1}), forebay.put("k", {"b": 1})]),
        lambda: reader.field("b"),
        lambda: reader.get("k", "b"),
        lambda: reader.plan_gather(["a", "b"], "int64"),
    )
    for call in calls:
        with pytest.raises(forebay.NotFoundError) as raised:
            call()
        assert (raised.value.store, raised.value.field) == (store.definition.name, "b")
    assert reader.get_document("k", latest=True) is None


def test_key_of_another_type_is_refused(stores: Stores) -> None:
    keys: dict[str, list[object]] = {
        "string": [b"1", 1, True, 1.5, None],
        "bytes": ["1", 1, bytearray(b"1")],
        "int64": ["1", b"1", 1.0, 2**63],
    }
    for key_type, wrong in keys.items():
        store, reader = stores.create({"a": "int64"}, key_type=key_type)
        for key in wrong:
            calls = (
                lambda: store.upsert(key, {"a": 1}),  # type: ignore[arg-type]  # noqa: B023
                lambda: reader.get(key, "a"),  # type: ignore[call-overload]  # noqa: B023
                lambda: reader.get_many([key], "a"),  # noqa: B023
            )
            for call in calls:
                with pytest.raises(forebay.InvalidArgumentError):
                    call()
        assert list(reader.scan()) == []


def test_misfitting_value_is_refused(stores: Stores) -> None:
    types = {"b": "bool", "i": "int32", "f": "float32", "s": "string", "t": "timestamp"}
    types |= {"l": "list<int64>", "v": "f32[2]"}
    store, reader = stores.create(types)
    wrong: list[tuple[str, object]] = [
        ("b", 1),
        ("i", 2**31),
        ("i", 1.0),
        ("i", True),
        ("i", "1"),
        ("f", 0.1),
        ("s", b"x"),
        ("s", "\ud800"),
        ("t", 1),
        ("t", datetime(2026, 1, 1)),
        ("l", ["a"]),
        ("l", [1, "a"]),
        ("v", np.zeros(3, np.float32)),
        ("v", np.zeros((1, 2), np.float32)),
        ("v", [0.1, 0.2]),
        ("s", object()),
        ("i", 2**64),
    ]
    for field, value in wrong:
        with pytest.raises(forebay.InvalidArgumentError) as raised:
            store.upsert("k", {field: value})  # type: ignore[dict-item]
        assert raised.value.field == field, (field, value)
    assert reader.get_document("k", latest=True) is None


def test_oversize_key_is_refused(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    key = "k" * (KEY_BYTES_MAX + 1)
    for call in (lambda: store.upsert(key, {"a": 1}), lambda: reader.get(key, "a")):
        with pytest.raises(forebay.LimitExceededError) as raised:
            call()
        assert (raised.value.limit, raised.value.actual) == (KEY_BYTES_MAX, KEY_BYTES_MAX + 1)
    assert list(reader.scan()) == []


def test_oversize_value_is_refused(stores: Stores) -> None:
    store, reader = stores.create({"blob": "bytes"})
    with pytest.raises(forebay.LimitExceededError) as raised:
        store.upsert("k", {"blob": bytes(VALUE_BYTES_MAX + 1)})
    assert (raised.value.limit, raised.value.actual) == (VALUE_BYTES_MAX, VALUE_BYTES_MAX + 1)
    assert reader.get_document("k", latest=True) is None


def test_oversize_name_is_refused(client: forebay.Client) -> None:
    name = "n" * 256
    for store, field in ((name, "a"), (new_name(), name)):
        with pytest.raises(forebay.LimitExceededError) as raised:
            client.create_store(store, {field: "int64"})
        assert (raised.value.limit, raised.value.actual) == (255, 256)


def test_concurrent_increments_add_up_exactly(stores: Stores) -> None:
    store, reader = stores.create({"n": "int64", "f": "float64"})

    def add(thread: int) -> list[bytes]:
        fields = {"n": forebay.increment(thread), "f": forebay.increment(0.5)}
        return [store.upsert("k", fields).token for _ in range(50)]

    with ThreadPoolExecutor(8) as pool:
        tokens = [token for some in pool.map(add, range(8)) for token in some]
    for token in tokens:
        reader.await_token(token, 30)
    assert reader.get_document("k") == {"n": 50 * sum(range(8)), "f": 200.0}


def test_min_max_and_list_merges_take_effect(stores: Stores) -> None:
    types = {"low": "int64", "high": "float64", "recent": "list<int64>", "tags": "list<string>"}
    store, reader = stores.create(types)
    for low, high, items in ((5, 1.5, [1, 2]), (3, 2.5, [3]), (4, 2.0, [4, 5])):
        token = store.upsert(
            "k",
            {
                "low": forebay.minimum(low),
                "high": forebay.maximum(high),
                "recent": forebay.list_append(items, bound=4),
                "tags": forebay.set_add(["a", str(low)], bound=10),
            },
        ).token
    read = reader.get_document("k", after=token)
    assert read == {"low": 3, "high": 2.5, "recent": [2, 3, 4, 5], "tags": ["a", "5", "3", "4"]}
    token = store.upsert("k", {"tags": forebay.set_remove(["a", "3", "none"])}).token
    assert reader.get("k", "tags", after=token) == ["5", "4"]


def test_if_absent_race_has_exactly_one_winner(stores: Stores, server: Server) -> None:
    store, reader = stores.create({"who": "int64"})
    name = store.definition.name

    def write(who: int) -> forebay.WriteOutcome:
        with forebay.Client(server.endpoint) as client:
            return client.store(name).upsert("k", {"who": who}, if_absent=True)

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(write, range(8)))
    applied = [who for who, outcome in enumerate(outcomes) if outcome.result == "applied"]
    assert len(applied) == 1
    assert sorted({outcome.result for outcome in outcomes}) == ["applied", "condition_failed"]
    assert reader.get("k", "who", latest=True) == applied[0]


def test_if_version_applies_only_to_the_given_version(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, versioned=True)
    store.put("k", {"a": 1})
    first = store.upsert("k", {"a": 2}, if_version=1)
    assert first.result == "condition_failed" and first.version is not None
    assert store.upsert("k", {"a": 3}, if_version=first.version).result == "applied"
    second = store.upsert("k", {"a": 4}, if_version=first.version)
    assert second.result == "condition_failed" and second.version is not None
    assert second.version > first.version
    assert reader.get("k", "a", latest=True) == 3
    assert store.delete("k", if_version=second.version).result == "applied"


def test_if_newer_applies_only_a_larger_value(stores: Stores) -> None:
    store, reader = stores.create({"at": "int64", "a": "string"})
    assert store.upsert("k", {"at": 5, "a": "five"}, if_newer="at").result == "applied"
    assert store.upsert("k", {"at": 5, "a": "again"}, if_newer="at").result == "condition_failed"
    assert store.upsert("k", {"at": 4, "a": "four"}, if_newer="at").result == "condition_failed"
    assert reader.get_document("k", latest=True) == {"at": 5, "a": "five"}
    assert store.upsert("k", {"at": 6, "a": "six"}, if_newer="at").result == "applied"
    assert reader.get_document("k", latest=True) == {"at": 6, "a": "six"}


def _options(definition: forebay.Definition) -> tuple[object, ...]:
    ttl, versioned, heartbeat = definition.ttl, definition.versioned, definition.heartbeat
    return ttl, versioned, heartbeat, definition.log_retention


def test_stores_are_created_described_altered_and_deleted(client: forebay.Client) -> None:
    name = new_name()
    fields = [forebay.FieldSpec("a", "int32", default=7, ttl=60), forebay.FieldSpec("v", "f32[2]")]
    store = client.create_store(
        name,
        fields,
        key_type="int64",
        partitions=3,
        ttl=90,
        versioned=True,
        heartbeat=1.5,
        log_retention=3.000001,
    )
    definition = store.definition
    field = definition.field("a")
    assert (definition.version, definition.key_type, definition.partitions) == (1, "int64", 3)
    options = (90, True, 1.5, 3.000001)
    assert _options(definition) == options
    assert field is not None and (field.type, field.default, field.ttl) == ("int32", 7, 60)
    assert client.describe_store(name) == definition
    assert definition in client.list_stores()
    with pytest.raises(forebay.ConflictError):
        client.create_store(name, {})
    for retention in (-1, 101 * 365 * 86_400):
        with pytest.raises(forebay.InvalidArgumentError):
            client.create_store(new_name(), {}, log_retention=retention)
    altered = client.alter_store(name, [forebay.Alteration.drop_field("v")], from_version=1)
    assert altered.version == 2 and altered.field("v") is None
    assert client.describe_store(name, 1) == definition
    as_described = forebay.Alteration.set_options(
        ttl=altered.ttl,
        versioned=altered.versioned,
        heartbeat=altered.heartbeat,
        log_retention=altered.log_retention,
    )
    set_again = client.alter_store(name, [as_described], from_version=2)
    assert _options(set_again) == options
    with pytest.raises(forebay.ConflictError):
        client.alter_store(name, [forebay.Alteration.drop_field("a")], from_version=1)
    with pytest.raises(forebay.InvalidArgumentError):
        client.alter_store(name, [forebay.Alteration.widen_field("a", "int32")])
    client.delete_store(name)
    with pytest.raises(forebay.NotFoundError):
        client.store(name)
    with pytest.raises(forebay.NotFoundError):
        store.upsert(1, {"a": 1})


def test_refresh_returns_the_newest_definition(server: Server, stores: Stores) -> None:
    store, _ = stores.create({"a": "int64", "b": "int64"})
    name = store.definition.name
    with forebay.Client(server.endpoint) as other:
        altered = other.alter_store(name, [forebay.Alteration.drop_field("b")], from_version=1)
        assert store.definition.version == 1
        assert store.refresh() == altered
        assert store.definition == altered
        other.delete_store(name)
        with pytest.raises(forebay.NotFoundError):
            store.refresh()
        other.create_store(name, {"a": "int64"})
        with pytest.raises(forebay.NotFoundError):
            store.refresh()
