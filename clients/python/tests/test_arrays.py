"""NumPy arrays as input and output: a gather checks its output before it writes anything."""

import forebay
import numpy as np
import numpy.typing as npt
import pytest
from forebay import KeyStatus, Presence
from testing import Stores

KEYS = ["k", "none", "k"]


@pytest.fixture
def reader(stores: Stores) -> forebay.Reader:
    """Provide a reader of a store with one document."""
    store, reader = stores.create({"a": "float32", "v": "f32[2]", "i": "int64"})
    store.upsert("k", {"a": 1, "v": np.array([2, 3], np.float32), "i": 4})
    reader.get("k", "a", latest=True)
    return reader


def test_reused_array_receives_the_matrix_in_its_first_rows(reader: forebay.Reader) -> None:
    plan = reader.plan_gather(["a", "v"])
    out = np.full((5, 3), 9, np.float32)
    matrix = reader.gather(plan, KEYS, out=out)
    assert np.shares_memory(matrix, out)
    assert matrix.tolist() == [[1, 2, 3], [0, 0, 0], [1, 2, 3]]
    assert out[3:].tolist() == [[9] * 3] * 2


def test_misfitting_arrays_are_refused_untouched(reader: forebay.Reader) -> None:
    plan = reader.plan_gather(["a", "v"])
    frozen = np.full((3, 3), 9, np.float32)
    frozen.flags.writeable = False
    unaligned = np.full(37, 9, np.uint8)[1:].view(np.float32).reshape(3, 3)
    wrong: list[npt.NDArray[np.generic]] = [
        np.full((3, 3), 9, np.float64),
        np.full((3, 3), 9, np.int32),
        np.full((3, 3), 9, ">f4"),
        np.full((3, 4), 9, np.float32),
        np.full((2, 3), 9, np.float32),
        np.full(9, 9, np.float32),
        np.full((1, 3, 3), 9, np.float32),
        np.full((3, 3), 9, np.float32, order="F"),
        np.full((6, 3), 9, np.float32)[::2],
        np.full((3, 6), 9, np.float32)[:, :3],
        frozen,
        unaligned,
    ]
    for out in wrong:
        before = out.copy()
        with pytest.raises(forebay.InvalidArgumentError, match="^InvalidArgument: out "):
            reader.gather(plan, KEYS, out=out)
        assert (out == before).all()
    for mask in (np.full((3, 3), 9, np.int8), np.full((3, 3), True), np.full(3, 9, np.uint8)):
        values = np.full((3, 3), 9, np.float32)
        with pytest.raises(forebay.InvalidArgumentError, match="^InvalidArgument: mask "):
            reader.gather(plan, KEYS, out=values, mask=mask)  # type: ignore[arg-type]
        assert (values == 9).all()
    with pytest.raises(forebay.InvalidArgumentError, match="not an array"):
        reader.gather(plan, KEYS, out=[[0.0] * 3] * 3)  # type: ignore[arg-type]


def test_gather_fills_every_matrix_type(reader: forebay.Reader) -> None:
    assert reader.gather(reader.plan_gather(["i"], "int64"), KEYS).tolist() == [[4], [0], [4]]
    for dtype in ("float32", "float64", "int32", "int64"):
        plan = reader.plan_gather(["a", "i"], dtype, lossy=True)
        matrix = reader.gather(plan, KEYS)
        assert matrix.dtype == dtype and matrix.tolist() == [[1, 4], [0, 0], [1, 4]]
    with pytest.raises(forebay.InvalidArgumentError, match="float16"):
        reader.plan_gather(["a"], "float16")  # type: ignore[arg-type]


def test_int64_keys_are_accepted_as_arrays(stores: Stores) -> None:
    store, reader = stores.create({"a": "int64"}, key_type="int64")
    store.batch(forebay.upsert(key, {"a": key * 2}) for key in range(1000)).require_complete()
    keys = np.arange(-10, 1000, dtype=np.int64)
    expected = [None] * 10 + [key * 2 for key in range(1000)]
    assert reader.get_many(keys, "a", None, latest=True) == expected
    assert reader.get_many(keys[::-1], "a", None) == expected[::-1]
    plan = reader.plan_gather(["a"], "int64")
    assert reader.gather(plan, keys)[10:, 0].tolist() == expected[10:]
    for wrong in (keys.astype(np.float64), keys.reshape(2, -1)):
        with pytest.raises(forebay.InvalidArgumentError):
            reader.get_many(wrong, "a")  # type: ignore[arg-type]


def test_returned_vector_is_a_copy(reader: forebay.Reader) -> None:
    vector = reader.get("k", "v")
    assert isinstance(vector, np.ndarray) and not vector.flags.writeable
    reader.close()
    assert vector.tolist() == [2, 3]


def test_plans_and_handles_of_another_store_are_refused(
    reader: forebay.Reader, stores: Stores
) -> None:
    _, other = stores.create({"a": "float32"})
    out = np.full((1, 1), 9, np.float32)
    with pytest.raises(forebay.InvalidArgumentError):
        reader.gather(other.plan_gather(["a"]), ["k"], out=out)
    with pytest.raises(forebay.InvalidArgumentError):
        reader.get("none", other.field("a"))
    assert out.tolist() == [[9]]


def test_packed_batch_has_four_buffers_and_no_object_per_value() -> None:
    rows: dict[str, forebay.Fields] = {
        "one": {"s": "h\u00e9llo", "b": b""},
        "null": {"s": None},
        "none": {},
    }
    types = {"s": "string", "b": "bytes", "i": "int64"}
    with forebay.Reader.in_memory(types, rows) as users:
        keys = ["one", "missing", "null", "one"]
        packed = users.get_packed(keys, "s")
        text = "h\u00e9llo".encode()
        assert len(packed) == 4
        assert packed.values == text * 2
        assert packed.ends.tolist() == [6, 6, 6, 12]
        assert packed.statuses.tolist() == [
            KeyStatus.FOUND,
            KeyStatus.ABSENT,
            KeyStatus.FOUND,
            KeyStatus.FOUND,
        ]
        assert packed.presences.tolist() == [
            Presence.VALUE,
            Presence.ABSENT,
            Presence.NULL,
            Presence.VALUE,
        ]
        assert [None if value is None else bytes(value) for value in packed] == [
            text,
            None,
            None,
            text,
        ]
        assert bytes(packed[-1] or b"") == text
        with pytest.raises(IndexError):
            packed[4]
        empty = users.get_packed(["one", "none"], users.field("b"))
        assert empty.values == b""
        assert list(empty) == [memoryview(b""), None]
        assert len(users.get_packed([], "s")) == 0
        with pytest.raises(forebay.InvalidArgumentError):
            users.get_packed(keys, "i")
        users.simulate("not_ready")
        assert users.get_packed(keys, "s").statuses.tolist() == [KeyStatus.UNAVAILABLE] * 4


def test_value_is_copied_into_the_callers_buffer() -> None:
    text = "h\u00e9llo"
    rows: dict[str, forebay.Fields] = {
        "one": {"s": text, "b": b"\0\1\2"},
        "null": {"s": None, "b": b""},
    }
    types = {"s": "string", "b": "bytes", "i": "int64"}
    with forebay.Reader.in_memory(types, rows) as users:
        array = np.full(8, 9, np.uint8)
        assert users.get_into("one", "s", array) == 6
        assert array.tobytes() == text.encode() + b"\t\t"
        block = bytearray(b"x" * 8)
        assert users.get_into("one", users.field("b"), block) == 3
        assert block == b"\0\1\2xxxxx"
        assert users.get_into("one", "b", memoryview(block)[5:]) == 3
        assert block == b"\0\1\2xx\0\1\2"
        # The buffer is unchanged for absent, null and empty values, and for a value that does not
        # fit.
        for key, field, answer in (
            ("none", "b", forebay.ABSENT),
            ("null", "s", None),
            ("null", "b", 0),
        ):
            assert users.get_into(key, field, block) == answer
        assert users.get_into("one", "s", memoryview(block)[:5]) == 6
        assert users.get_into("one", "b", bytearray()) == 3
        assert block == b"\0\1\2xx\0\1\2"
        # The buffer is released: a remaining export would forbid this.
        block.clear()


def test_misfitting_buffers_are_refused_untouched() -> None:
    with forebay.Reader.in_memory({"b": "bytes", "i": "int64"}, {"k": {"b": b"123"}}) as users:
        frozen = np.full(8, 9, np.uint8)
        frozen.flags.writeable = False
        block = bytearray(b"x" * 8)
        wrong: list[tuple[object, str]] = [
            (b"x" * 8, "read-only"),
            (memoryview(block).toreadonly(), "read-only"),
            (frozen, "read-only"),
            (memoryview(block)[::2], "C-contiguous"),
            (np.full(8, 9, np.uint8)[::-1], "C-contiguous"),
            (np.full((4, 4), 9, np.uint8)[:, :2], "C-contiguous"),
            (np.full(8, 9, np.float32), "another type"),
            (np.full(8, None, object), "another type"),
            ([0] * 8, "bytearray"),
            (None, "bytearray"),
        ]
        for buffer, why in wrong:
            before = np.array(buffer)
            with pytest.raises(
                forebay.InvalidArgumentError, match=f"^InvalidArgument: buffer .*{why}"
            ):
                users.get_into("k", "b", buffer)  # type: ignore[arg-type]
            assert (np.array(buffer) == before).all()
        for key in ("k", "none"):
            with pytest.raises(forebay.InvalidArgumentError, match="int64 is neither a string"):
                users.get_into(key, "i", block)
        with pytest.raises(forebay.InvalidArgumentError):
            users.get_into(7, "b", block)
        users.simulate("not_ready")
        with pytest.raises(forebay.UnavailableError):
            users.get_into("k", "b", block)
        assert block == b"x" * 8
