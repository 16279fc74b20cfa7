"""Behaviours of reads, batches, gathers and schemas; their rules are in
proto/vectors/behaviours.toml.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import forebay
import numpy as np
import pytest
from forebay import ABSENT, Alteration, KeyStatus, Presence
from testing import Server, Stores, eventually, new_name


def test_absent_null_and_empty_differ(stores: Stores) -> None:
    types = {"s": "string", "b": "bytes", "l": "list<int64>", "i": "int64"}
    store, reader = stores.create(types)
    store.put("empty", {"s": "", "b": b"", "l": [], "i": 0})
    store.put("null", dict.fromkeys(types))
    store.put("absent", {})
    assert reader.get_document("empty", latest=True) == {"s": "", "b": b"", "l": [], "i": 0}
    assert reader.get_document("null", latest=True) == dict.fromkeys(types)
    assert reader.get_document("absent", latest=True) == {}
    assert reader.get_document("none", latest=True) is None
    for field in types:
        assert reader.get("null", field) is None
        assert reader.get("null", field, "default") is None
        assert reader.get("absent", field) is ABSENT
        assert reader.get("absent", field, None) is None
        assert reader.get("none", field, "default") == "default"


def test_get_copies_a_value_into_the_callers_buffer(stores: Stores) -> None:
    store, reader = stores.create({"s": "string", "b": "bytes"})
    store.put("k", {"s": "h\u00e9llo", "b": b""})
    store.put("null", {"s": None})
    assert reader.get_document("null", latest=True) == {"s": None}
    left = "h\u00e9llo..".encode()
    for room, expected in ((8, left), (6, left[:6]), (5, b"....."), (0, b"")):
        buffer = bytearray(b"." * room)
        assert reader.get_into("k", "s", buffer, latest=True) == 6
        assert buffer == expected
    buffer = bytearray(b"..")
    assert reader.get_into("k", "b", buffer) == 0
    assert reader.get_into("null", "s", buffer) is None
    assert reader.get_into("null", "b", buffer) is ABSENT
    assert reader.get_into("none", "s", buffer) is ABSENT
    assert buffer == b".."


def test_document_expires_exactly_at_its_time(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    # If the machine stalls for longer than the document lives, the test tries a longer life.
    assert any(_lives_exactly(store, reader, ttl) for ttl in (0.5, 4.0, 32.0)), "never read alive"
    store.put("stays", {"a": 1})
    assert reader.get_many(["k", "stays"], "a", None, latest=True) == [None, 1]
    assert [key for key, _ in reader.scan()] == ["stays"]
    default, reader = stores.create({"a": "int64"}, ttl=0.2)
    default.put("k", {"a": 1})
    eventually("the store's time to live", lambda: reader.get_document("k", latest=True) is None)


def _lives_exactly(store: forebay.Store, reader: forebay.Reader, ttl: float) -> bool:
    """Read a document until it is gone; return whether it was ever read."""
    sent = time.time()
    token = store.put("k", {"a": 1}, ttl=ttl).token
    acknowledged = time.time()
    reader.await_token(store.upsert("k", {"b": 2}).token, 30)
    reads = 0
    while True:
        # The document expires one life after its append, which was between the two times.
        began = time.time()
        document = reader.get_document("k", after=token)
        if document is None:
            assert time.time() >= sent + ttl, "expired too early"
            return reads > 0
        assert document == {"a": 1, "b": 2}
        assert began < acknowledged + ttl, "read after it had expired"
        reads += 1
        time.sleep(0.002)


def test_field_expires_at_its_own_time(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    token = store.put("k", {"a": 1, "b": 2}, field_ttl={"b": 0.5}).token
    assert reader.get("k", "a", after=token) == 1
    eventually("the field expires", lambda: reader.get("k", "b") is ABSENT)
    assert reader.get_document("k") == {"a": 1}


def test_field_added_under_an_open_reader_is_readable(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    store.upsert("old", {"a": 1})
    version = reader.schema_version
    told: list[forebay.Definition] = []
    reader.on_schema_change(told.append)
    stores.alter(store, Alteration.add_field("b", "string", default=None))
    token = store.upsert("new", {"a": 2, "b": "x"}).token
    assert reader.get("new", "b", after=token) == "x"
    assert reader.get("old", "b", latest=True) is ABSENT
    eventually("the reader knows the version", lambda: reader.schema_version > version)
    eventually("the callback was told", lambda: told == [reader.definition])
    assert reader.definition.version == reader.schema_version
    assert reader.definition.field("b") is not None


def test_dropped_field_is_absent_in_every_document(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    store.upsert("k", {"a": 1, "b": 2})
    handle = reader.field("b", "int64")
    assert reader.get("k", handle, latest=True) == 2
    stores.alter(store, Alteration.drop_field("b"))
    eventually("the drop is seen", lambda: reader.get("k", handle) is ABSENT)
    assert reader.get_document("k", latest=True) == {"a": 1}
    stores.alter(store, Alteration.add_field("b", "string"))
    token = store.upsert("k", {"b": "new"}).token
    assert reader.get("k", handle, after=token) is ABSENT
    assert reader.get("k", "b") == "new"
    assert reader.get_document("k") == {"a": 1, "b": "new"}


def test_drop_by_prefix_drops_only_matching_fields(stores: Stores) -> None:
    store, reader = stores.create({"x_a": "int64", "x_b": "int64", "xc": "int64", "y": "int64"})
    store.upsert("k", {"x_a": 1, "x_b": 2, "xc": 3, "y": 4})
    stores.alter(store, Alteration.drop_fields_by_prefix("x_"))
    dropped = {"xc": 3, "y": 4}
    eventually("the drop is seen", lambda: reader.get_document("k", latest=True) == dropped)
    assert [field.name for field in store.refresh().fields] == ["xc", "y"]


def test_drop_all_makes_every_document_absent(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    store.batch(forebay.upsert(f"k{at}", {"a": at}) for at in range(100)).require_complete()
    stores.alter(store, Alteration.drop_all())
    store.upsert("new", {"a": forebay.increment(1)})
    keys = [f"k{at}" for at in range(100)]
    eventually("all is dropped", lambda: reader.get_documents(keys, latest=True) == [None] * 100)
    assert list(reader.scan()) == [("new", {"a": 1})]


def test_handle_survives_a_rename_of_its_field(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    store.upsert("k", {"a": 1})
    handle = reader.field("a", "int64")
    plan = reader.plan_gather(["a"], "int64")
    stores.alter(store, Alteration.rename_field("a", "b"))
    token = store.upsert("k", {"b": 2}).token
    assert reader.get("k", handle, after=token) == 2
    assert reader.gather(plan, ["k"]).tolist() == [[2]]
    token = store.upsert("k", {"a": 3}).token
    assert reader.get("k", "b", after=token) == 3
    assert reader.get("k", "a") == 3
    assert reader.get_document("k") == {"b": 3}


def test_handle_survives_a_widening_of_its_field(stores: Stores) -> None:
    store, reader = stores.create({"a": "int32"})
    store.upsert("old", {"a": 1})
    narrow = reader.field("a", "int32")
    stores.alter(store, Alteration.widen_field("a", "int64"))
    store.upsert("fits", {"a": 2})
    store.upsert("wide", {"a": 2**40})
    assert [reader.get(key, narrow, latest=True) for key in ("old", "fits")] == [1, 2]
    with pytest.raises(forebay.InvalidArgumentError, match="int64.*int32"):
        reader.get("wide", narrow, latest=True)
    wide = reader.field("a", "int64")
    assert reader.get_many(["old", "fits", "wide"], wide) == [1, 2, 2**40]


def test_read_after_a_token_waits_for_its_write(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    for at in range(50):
        token = store.upsert("k", {"a": at}).token
        assert reader.get("k", "a", after=token) == at
    other, _ = stores.create({"a": "int64"})
    foreign = other.upsert("k", {"a": 1}).token
    forged = bytes([token[0], *(byte ^ 1 for byte in token[1:])])
    for wrong in (b"", b"token", forged, token[:-1], foreign):
        with pytest.raises(forebay.InvalidArgumentError):
            reader.get("k", "a", after=wrong)
    with pytest.raises(forebay.InvalidArgumentError):
        reader.get("k", "a", after=token, latest=True)


def test_latest_read_sees_every_acknowledged_write(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    keys = [f"k{at}" for at in range(8)]
    for at in range(20):
        store.upsert(keys[at % 8], {"a": at})
        assert reader.get(keys[at % 8], "a", latest=True) == at
    assert sorted(reader.get_many(keys, "a", latest=True)) == list(range(12, 20))


def test_read_beyond_its_staleness_bound_is_stale(own_server: Server) -> None:
    with forebay.Client(own_server.endpoint) as client:
        store = client.create_store(new_name(), {"a": "int64"}, partitions=1, heartbeat=0.2)
        with client.reader(store.definition.name) as reader:
            reader.await_ready(30)
            store.upsert("k", {"a": 1})
            assert reader.get("k", "a", latest=True, max_staleness=30) == 1
            with pytest.raises(forebay.InvalidArgumentError):
                reader.get("k", "a", max_staleness=0.1)
            own_server.freeze()
            statuses = np.zeros(1, np.uint8)

            def is_stale() -> bool:
                reader.get_many(["k"], "a", statuses=statuses, max_staleness=1.0)
                return bool(statuses[0] == KeyStatus.STALE)

            eventually("the reader is stale", is_stale)
            plan = reader.plan_gather(["a"], "int64")
            for call in (
                lambda: reader.get("k", "a", max_staleness=1.0),
                lambda: reader.get_document("k", max_staleness=1.0),
                lambda: reader.get_many(["k"], "a", max_staleness=1.0),
                lambda: reader.gather(plan, ["k"], max_staleness=1.0),
                lambda: list(reader.scan(max_staleness=1.0)),
            ):
                with pytest.raises(forebay.StaleError):
                    call()
            assert reader.get("k", "a") == 1
            own_server.thaw()
            eventually("the reader is fresh again", lambda: not is_stale())


def test_ready_reader_reports_status_and_metrics(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, partitions=3)
    token = store.batch(forebay.upsert(f"k{at}", {"a": at}) for at in range(30)).token
    reader.await_token(token, 30)
    assert reader.is_ready
    before = reader.metrics().reads
    reader.get_many(["k1", "k2", "none"], "a")
    after = reader.metrics()
    assert (after.reads.hits - before.hits, after.reads.misses - before.misses) == (2, 1)
    assert after.memory_bytes > 0 and after.counts.records_applied >= 3
    status = reader.status()
    assert (status.store, status.phase, status.bootstrap_percent) == (reader.store, "serving", 100)
    assert status.is_ready and status.age is not None and status.age < 30
    assert [partition.partition for partition in status.partitions] == [0, 1, 2]
    assert sum(partition.documents for partition in status.partitions) == 30
    for partition in status.partitions:
        assert partition.phase == "serving" and partition.position is not None
        assert partition.lag_records == partition.end_offset - partition.offset_applied
        assert partition.catch_up.percent == 100 and partition.rebuild is None
        assert partition.fatal_error is None


def test_filtered_reader_answers_only_its_partitions(stores: Stores) -> None:
    store, whole = stores.create({"a": "int64"}, partitions=2)
    keys = [f"k{at}" for at in range(20)]
    store.batch(forebay.upsert(key, {"a": 1}) for key in keys).require_complete()
    with stores.client.reader(store.definition.name, partitions=[1]) as reader:
        reader.await_ready(30)
        statuses = np.full(20, 9, np.uint8)
        values = reader.get_many(keys, "a", None, statuses=statuses)
        followed = [key for key, status in zip(keys, statuses) if status == 1]
        assert set(statuses) == {KeyStatus.FOUND, KeyStatus.NOT_FOLLOWED}
        assert values == [1 if key in followed else None for key in keys]
        assert {key for key, _ in reader.scan()} == set(followed)
        other = next(key for key in keys if key not in followed)
        plan = reader.plan_gather(["a"], "int64")
        for call in (
            lambda: reader.get(other, "a"),
            lambda: reader.get_many([other], "a"),
            lambda: reader.gather(plan, [other]),
        ):
            with pytest.raises(forebay.InvalidArgumentError) as raised:
                call()
            assert raised.value.partition == 0
    assert whole.get_many(keys, "a", latest=True) == [1] * 20
    with pytest.raises(forebay.InvalidArgumentError):
        stores.client.reader(store.definition.name, partitions=[2])


def test_reader_is_verified_with_its_node(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, key_type="int64", partitions=2)
    token = store.batch(forebay.upsert(at, {"a": at}) for at in range(200)).token
    reader.await_token(token, 30)
    store.delete(0)
    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(store.upsert, 200, {"a": 200})
        verified = [reader.verify(partition) for partition in (0, 1)]
        writing.result()
    assert all(one.is_same and one.documents_here == one.documents_there for one in verified)
    assert [one.partition for one in verified] == [0, 1]
    assert sum(one.documents_here for one in verified) in (199, 200)
    with pytest.raises(forebay.InvalidArgumentError):
        reader.verify(2)
    with (
        forebay.Reader.in_memory({"a": "int64"}) as memory,
        pytest.raises(forebay.UnsupportedError),
    ):
        memory.verify(0)


def test_reader_opened_later_finds_earlier_writes(stores: Stores) -> None:
    store, _ = stores.create({"a": "int64"}, partitions=4)
    for part in range(4):
        numbers = range(part * 500, part * 500 + 500)
        changes = (forebay.upsert(f"k{at}", {"a": at}) for at in numbers)
        store.batch(changes).require_complete()
    store.delete("k0")
    reader = stores.reader(store)
    keys = [f"k{at}" for at in range(2000)]
    assert reader.get_many(keys, "a", None) == [None, *range(1, 2000)]


def test_reader_bootstraps_from_a_snapshot(snapshot_server: Server) -> None:
    with forebay.Client(snapshot_server.endpoint) as client:
        name, written = new_name(), range(100)
        store = client.create_store(
            name, {"a": "int64"}, key_type="int64", partitions=2, log_retention=0
        )
        for at in written:
            store.upsert(at, {"a": at})
        store.delete(0)
        rounds = itertools.count(1)

        def begins() -> bool:
            with client.reader(name, snapshots=snapshot_server.snapshots) as reader:
                reader.await_ready(30)
                assert reader.get_many(written, "a", None) == [None, *written[1:]]
                token = store.upsert(100, {"a": forebay.increment(1)}).token
                assert reader.get(100, "a", after=token, timeout=30) == next(rounds)
                have_begun = all(at.counts.bootstraps > 0 for at in reader.status().partitions)
                return have_begun and reader.metrics().counts.records_applied < len(written)

        eventually("a reader begins with snapshots", begins)
        with pytest.raises(forebay.InvalidArgumentError, match="names no folder for snapshots"):
            client.reader(name, snapshots="nowhere")


def test_reader_answers_from_the_live_version(snapshot_server: Server) -> None:
    rows = snapshot_server.folder / "pushed.csv"
    rows.write_text("id,a\n" + "".join(f"{at},{1000 + at}\n" for at in range(50, 150)))
    before = [*range(100), *[None] * 50]
    pushed = [*[None] * 50, *range(1050, 1150)]
    with forebay.Client(snapshot_server.endpoint) as client:
        name = new_name()
        store = client.create_store(name, {"a": "int64"}, key_type="int64", partitions=2)
        store.batch(forebay.upsert(at, {"a": at}) for at in range(100)).require_complete()
        push = ("push", "--store", name, "--key", "id", str(rows))
        with client.reader(name) as reader:
            reader.await_ready(30)
            for command, answers, written in (
                (push, pushed, 200),
                (("version", "activate", "--store", name, "1"), before, 201),
                ((*push, "--partitions", "3"), pushed, 202),
            ):
                snapshot_server.run(*command)
                token = store.upsert(written, {"a": written}).token
                eventually("it is live", partial(_begins_with, reader, answers[0]))
                assert reader.get_many(range(150), "a", None) == answers
                assert reader.get(written, "a", after=token, timeout=30) == written
            assert len(reader.status().partitions) == 3


def _begins_with(reader: forebay.Reader, first: int | None) -> bool:
    return reader.get(0, "a", None) == first


def test_batch_answers_duplicate_keys_twice(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, key_type="int64")
    store.batch(forebay.upsert(at, {"a": at * 10}) for at in range(3)).require_complete()
    keys = [2, 0, 2, 1, 2]
    assert reader.get_many(keys, "a", latest=True) == [20, 0, 20, 10, 20]
    assert reader.get_many(np.array(keys), "a") == [20, 0, 20, 10, 20]
    assert reader.get_documents(keys) == [{"a": value} for value in (20, 0, 20, 10, 20)]


def test_batch_reports_missing_keys_as_absent(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    store.upsert("k", {"a": 1})
    store.upsert("null", {"a": None})
    keys = ["x", "k", "y", "null", "k"]
    statuses = np.full(6, 9, np.uint8)
    values = reader.get_many(keys, "a", -1, statuses=statuses, latest=True)
    assert values == [-1, 1, -1, None, 1]
    assert statuses.tolist() == [0, 1, 0, 1, 1, 9]
    assert reader.get_documents(keys) == [None, {"a": 1}, None, {"a": None}, {"a": 1}]


def test_empty_batch_answers_nothing(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    assert reader.get_many([], "a") == [] and reader.get_documents([]) == []
    assert reader.gather(reader.plan_gather(["a"], "int64"), []).shape == (0, 1)
    assert store.batch([]).require_complete().results == []


def test_gather_fills_defaults(stores: Stores) -> None:
    fields = [
        forebay.FieldSpec("a", "float32", default=-1),
        forebay.FieldSpec("b", "float32", default=-2),
        forebay.FieldSpec("c", "float32"),
    ]
    store, reader = stores.create(fields)
    store.upsert("k", {"a": 1, "b": 2, "c": 3})
    store.upsert("null", {"a": None, "b": None, "c": None})
    plan = reader.plan_gather(["a", ("b", 7.5), "c"])
    matrix = reader.gather(plan, ["k", "null", "none"], latest=True)
    assert matrix.dtype == np.float32
    assert matrix.tolist() == [[1, 2, 3], [-1, 7.5, 0], [-1, 7.5, 0]]


def test_gather_mask_distinguishes_absent_null_and_value(stores: Stores) -> None:
    store, reader = stores.create({"a": "int32", "b": "int32"})
    store.upsert("k", {"a": 1, "b": None})
    store.upsert("l", {"b": 2})
    mask, statuses = np.full((3, 2), 9, np.uint8), np.full(3, 9, np.uint8)
    plan = reader.plan_gather(["a", "b"], "int32")
    reader.gather(plan, ["k", "none", "l"], mask=mask, statuses=statuses, latest=True)
    absent, null, value = Presence.ABSENT, Presence.NULL, Presence.VALUE
    assert mask.tolist() == [[value, null], [absent, absent], [absent, value]]
    assert statuses.tolist() == [KeyStatus.FOUND, KeyStatus.ABSENT, KeyStatus.FOUND]


def test_gather_spreads_vectors_over_columns(stores: Stores) -> None:
    types = {"a": "float32", "e": "f32[3]", "h": "f16[2]", "i": "i8[1]"}
    store, reader = stores.create(types)
    store.upsert(
        "k",
        {
            "a": 9,
            "e": np.array([1, 2, 3], np.float32),
            "h": np.array([4, 5], np.float16),
            "i": np.array([6], np.int8),
        },
    )
    plan = reader.plan_gather(["e", "a", ("h", np.array([7, 8], np.float16)), "i"])
    assert plan.width == 7 and plan.dtype == "float32"
    assert plan.columns == [("e", 0, 3), ("a", 3, 1), ("h", 4, 2), ("i", 6, 1)]
    matrix = reader.gather(plan, ["k", "none"], latest=True)
    assert matrix.tolist() == [[1, 2, 3, 9, 4, 5, 6], [0, 0, 0, 0, 7, 8, 0]]


def test_gather_repeats_duplicate_keys(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"})
    store.upsert("k", {"a": 1})
    store.upsert("l", {"a": 2})
    plan = reader.plan_gather(["a"], "int64")
    matrix = reader.gather(plan, ["l", "k", "l", "l"], latest=True)
    assert matrix.tolist() == [[2], [1], [2], [2]]


def test_gather_refuses_too_small_arrays_untouched(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "b": "int64"})
    store.upsert("k", {"a": 1, "b": 2})
    plan = reader.plan_gather(["a", "b"], "int64")
    keys = ["k", "k", "k"]

    def arrays() -> dict[str, np.ndarray]:
        return {
            "out": np.full((3, 2), 9),
            "mask": np.full((3, 2), 9, np.uint8),
            "statuses": np.full(3, 9, np.uint8),
        }

    for name in arrays():
        given = arrays()
        given[name] = given[name][:2].copy()
        with pytest.raises(forebay.InvalidArgumentError, match=name):
            reader.gather(plan, keys, latest=True, **given)  # type: ignore[arg-type]
        assert all((array == 9).all() for array in given.values())
    assert reader.gather(plan, keys, **arrays()).tolist() == [[1, 2]] * 3  # type: ignore[arg-type]


def test_gather_plan_refuses_inexact_conversions(stores: Stores) -> None:
    types = {"i": "int64", "f": "float64", "s": "string", "l": "list<int64>", "b": "bytes"}
    store, reader = stores.create(types)
    store.upsert("k", {"i": 2**53 + 1, "f": 0.1})
    for field, dtype in (("i", "float32"), ("i", "float64"), ("f", "float32"), ("f", "int64")):
        with pytest.raises(forebay.InvalidArgumentError) as raised:
            reader.plan_gather([field], dtype)  # type: ignore[arg-type]
        assert raised.value.field == field
    for field in ("s", "l", "b"):
        with pytest.raises(forebay.InvalidArgumentError):
            reader.plan_gather([field], "float64", lossy=True)
    matrix = reader.gather(reader.plan_gather(["i", "f"], lossy=True), ["k"], latest=True)
    assert matrix.tolist() == [[2.0**53, float(np.float32(0.1))]]


def test_scan_equals_gets(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64", "s": "string"}, partitions=4)
    changes = (forebay.put(f"k{at}", {"a": at, "s": "x" * (at % 50)}) for at in range(3000))
    store.batch(changes).require_complete()
    store.batch(forebay.delete(f"k{at}") for at in range(0, 3000, 7)).require_complete()
    assert reader.get_document("k0", latest=True) is None
    reader.get_documents([f"k{at}" for at in range(3000)], latest=True)
    seen = list(reader.scan(batch=100))
    assert len(seen) == len({key for key, _ in seen}) == 3000 - len(range(0, 3000, 7))
    assert [document for _, document in seen] == reader.get_documents([key for key, _ in seen])
