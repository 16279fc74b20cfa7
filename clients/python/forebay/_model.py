"""Types of arguments and results that every call may need."""

from __future__ import annotations

import enum
from typing import Final, Literal, NamedTuple


class Absent(enum.Enum):
    """The type of `ABSENT`, which is neither None nor an empty value."""

    ABSENT = "ABSENT"

    def __repr__(self) -> str:
        """Return the name."""
        return "forebay.ABSENT"

    __str__ = __repr__

    def __bool__(self) -> Literal[False]:
        """Count as false."""
        return False


ABSENT: Final = Absent.ABSENT
"""Result of a read for an absent field; in a write it makes the field absent."""


class PartitionedKey(NamedTuple):
    """A key of a store that is partitioned by a field: the field's value, then the primary key."""

    partition_key: str | bytes | int
    key: str | bytes | int


class Presence(enum.IntEnum):
    """Whether a field, or a cell of a gathered matrix, is absent, null or a value."""

    ABSENT = 0
    NULL = 1
    VALUE = 2


class KeyStatus(enum.IntEnum):
    """Status of a key of a batch, in the statuses."""

    ABSENT = 0
    FOUND = 1
    UNAVAILABLE = 2
    STALE = 3
    NOT_FOLLOWED = 4
