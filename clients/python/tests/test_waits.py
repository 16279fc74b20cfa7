"""A read that waits resolves its field after the wait, not when it starts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator

import forebay
import pytest
from forebay import ABSENT
from testing import WAIT_SECONDS

Get = Callable[[forebay.Reader, str, bytes], object]


def get(reader: forebay.Reader, field: str, token: bytes) -> object:
    return reader.get("k", field, after=token, timeout=WAIT_SECONDS)


def get_into(reader: forebay.Reader, field: str, token: bytes) -> object:
    return reader.get_into("k", field, bytearray(3), after=token, timeout=WAIT_SECONDS)


def presence(reader: forebay.Reader, field: str, token: bytes) -> object:
    return reader.presence("k", field, after=token, timeout=WAIT_SECONDS)


def get_many(reader: forebay.Reader, field: str, token: bytes) -> object:
    return reader.get_many(["k"], field, after=token, timeout=WAIT_SECONDS)


def get_packed(reader: forebay.Reader, field: str, token: bytes) -> object:
    return reader.get_packed(["k"], field, after=token, timeout=WAIT_SECONDS).values


@pytest.fixture
def runs_until_it_waits() -> Iterator[None]:
    """Prevent threads from taking the interpreter from a thread that has not released it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(WAIT_SECONDS)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("runs_until_it_waits")
@pytest.mark.parametrize(
    ("read", "absent"),
    [
        (get, ABSENT),
        (get_into, ABSENT),
        (presence, forebay.Presence.ABSENT),
        (get_many, [ABSENT]),
        (get_packed, b""),
    ],
)
def test_field_added_during_a_wait_is_found(read: Get, absent: object) -> None:
    with forebay.Reader.in_memory({"a": "string"}) as reader:
        # The imports of a first call release the interpreter too.
        read(reader, "a", reader.upsert("k", {"a": "old"}).token)
        reader.simulate("not_ready")
        token = reader.upsert("k", {"a": "new"}).token
        begins = threading.Event()
        answers: list[object] = []

        def run() -> None:
            begins.set()
            answers.append(read(reader, "s", token))

        reads = threading.Thread(target=run)
        reads.start()
        assert begins.wait(WAIT_SECONDS)
        assert not answers
        reader.alter([forebay.Alteration.add_field("s", "string")])
        reader.simulate("none")
        reads.join(WAIT_SECONDS)
        assert answers == [absent]


@pytest.mark.parametrize("read", [get, get_into, presence, get_many, get_packed])
def test_field_missing_after_the_wait_is_named(read: Get) -> None:
    with forebay.Reader.in_memory({"a": "int64"}) as reader:
        token = reader.upsert("k", {"a": 1}).token
        with pytest.raises(forebay.NotFoundError) as unknown:
            read(reader, "s", token)
        assert unknown.value.field == "s"
