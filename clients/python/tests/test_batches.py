"""Batches: keys are read, and values become objects, without a copy in between."""

import datetime
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import forebay
import numpy as np
import pytest
from testing import Stores

COUNT = 10_000
"""More keys than a batch reads without releasing the interpreter."""

TIME = datetime.datetime(2024, 2, 29, 12, 30, 15, 123456, tzinfo=datetime.timezone.utc)
VALUES: dict[str, tuple[str, list[Any]]] = {
    "flag": ("bool", [True, False]),
    "int": ("int32", [-(2**31), 7]),
    "long": ("int64", [-(2**63), 2**63 - 1]),
    "single": ("float32", [0.5, -1.25]),
    "double": ("float64", [0.1, -1e300]),
    "text": ("string", ["", "plain", "smørrebrød ☃"]),
    "raw": ("bytes", [b"", b"\0\xff" * 300]),
    "time": ("timestamp", [TIME]),
    "list": ("list<string>", [["a", "ä"], []]),
}


@pytest.mark.parametrize("name", VALUES)
def test_large_batch_reads_every_type(name: str) -> None:
    kind, values = VALUES[name]
    rows = {f"k{n}": {name: values[n % len(values)]} for n in range(0, COUNT, 3)}
    rows.update({f"k{n}": {name: None} for n in range(1, COUNT, 3)})
    reader = forebay.Reader.in_memory({name: kind}, rows)
    expected = [rows[f"k{n}"][name] if n % 3 < 2 else "absent" for n in range(COUNT)]
    keys = [f"k{n}" for n in range(COUNT)]
    assert reader.get_many(keys, name, "absent") == expected
    assert [type(value) for value in reader.get_many(keys, reader.field(name), "absent")] == [
        type(value) for value in expected
    ]
    assert [reader.get(key, name, "absent") for key in keys[:100]] == expected[:100]


def test_batch_reads_vectors() -> None:
    vectors = np.arange(12, dtype=np.float32).reshape(6, 2)
    rows = {n: {"v": vector} for n, vector in enumerate(vectors)}
    reader = forebay.Reader.in_memory({"v": "f32[2]"}, rows, key_type="int64")
    assert np.array_equal(np.array(reader.get_many(range(6), "v")), vectors)


class Text(str):
    """A subclass of str."""


class Number(int):
    """A subclass of int."""


def test_batch_accepts_every_key_type_in_any_container() -> None:
    kinds: dict[str, tuple[list[Any], list[Any]]] = {
        "string": (["", "plain", "smørrebrød ☃", Text("own")], [b"plain", 1, "\udc80"]),
        "bytes": ([b"", b"plain", b"\0\xff" * 40], ["plain", 1, bytearray(b"plain")]),
        "int64": ([0, -(2**63), 2**63 - 1, Number(5)], ["0", b"0", 2**63, 1.5, None]),
    }
    for kind, (keys, others) in kinds.items():
        rows = {key: {"n": place} for place, key in enumerate(keys)}
        reader = forebay.Reader.in_memory({"n": "int64"}, rows, key_type=kind)
        containers: list[Callable[[list[Any]], Any]] = [list, tuple, iter, dict.fromkeys]
        for container in containers:
            assert reader.get_many(container(keys), "n") == list(range(len(keys)))
        for other in others:
            with pytest.raises(forebay.InvalidArgumentError):
                reader.get_many([*keys, other], "n")
            with pytest.raises(forebay.InvalidArgumentError):
                reader.get(other, "n")
    with pytest.raises(forebay.InvalidArgumentError, match="is a single key"):
        reader.get_many("plain", "n")


def test_batch_accepts_keys_of_two_parts() -> None:
    reader = forebay.Reader.in_memory(
        {"tenant": "int64", "n": "int64"}, key_type="string", partition_key="tenant"
    )
    keys = [(n % 7, f"k{n}") for n in range(50)]
    reader.batch([forebay.put(key, {"n": n}) for n, key in enumerate(keys)])
    assert reader.get_many(keys, "n") == list(range(50))
    assert reader.get_many([forebay.PartitionedKey(*key) for key in keys], "n") == list(range(50))
    for wrong in ((1, "k1", 2), (1,), (1, 2.5), "k1"):
        with pytest.raises(forebay.InvalidArgumentError):
            reader.get_many([*keys, wrong], "n")


def test_list_changed_during_a_batch_is_read_in_its_first_state(stores: Stores) -> None:
    store, reader = stores.create({"n": "int64"})
    store.batch(forebay.upsert(f"k{n}", {"n": n}) for n in range(COUNT // 10)).require_complete()
    keys: list[str] = []
    is_over = threading.Event()

    def change() -> None:
        while not is_over.is_set():
            keys.clear()
            keys.extend(f"k{n}" for n in range(COUNT // 10))

    changer = threading.Thread(target=change)
    changer.start()
    try:
        for _ in range(20):
            found = reader.get_many(keys, "n", latest=True)
            assert found == list(range(len(found)))
    finally:
        is_over.set()
        changer.join()


def test_threads_read_large_batches_concurrently() -> None:
    reader = forebay.Reader.in_memory(
        {"n": "int64"}, {n: {"n": n} for n in range(100)}, key_type="int64"
    )
    keys = [n % 100 for n in range(20 * COUNT)]
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: reader.get_many(keys, "n"), range(8))
        assert all(values == keys for values in found)
