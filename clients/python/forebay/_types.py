"""Types of arguments and results, for annotations.

These types name NumPy's arrays. The package therefore imports this file only to check types, and
when a program accesses `forebay.Value` or another of its names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Union

import numpy as np
import numpy.typing as npt

from forebay._model import Absent, PartitionedKey
from forebay._native import Change, Operation

if TYPE_CHECKING:
    from typing_extensions import TypeAlias  # In `typing` since Python 3.10.

_Part = Union[str, bytes, int]

Key: TypeAlias = Union[_Part, PartitionedKey, tuple[_Part, _Part]]
"""A document's key: of the store's key type, never converted."""

Keys: TypeAlias = Union[Sequence[Any], npt.NDArray[np.int64]]
"""Keys of a batch, in any order and with duplicates; int64 keys also as an array."""

Vector: TypeAlias = Union[npt.NDArray[np.float32], npt.NDArray[np.float16], npt.NDArray[np.int8]]

Value: TypeAlias = Union[bool, int, float, str, bytes, datetime, list[Any], Vector, np.generic]
"""A field's value. A timestamp is a datetime with a time zone, exact to the microsecond; a vector
is a NumPy array of float32, float16 or int8. NumPy's scalars are treated as numbers.
"""

FieldValue: TypeAlias = Any
"""A `Value` that was read: of the field's type, which only the caller knows."""

Fields: TypeAlias = Mapping[str, Union[Value, Absent, Operation, None]]
"""Fields of a write by name: a value, None for null, `ABSENT` to remove it, or an operation."""

Document: TypeAlias = dict[str, FieldValue]
"""A document by field name: an absent field is missing, a null field is None."""

GatherFields: TypeAlias = Sequence[Union[str, tuple[str, Value]]]
"""Fields of a gather: names, or names with a default."""

Rows: TypeAlias = Union[Mapping[Any, Fields], Iterable[Change]]
"""Documents of a store in memory: fields by key, of exactly one of the key types, or changes."""
