"""Changes and operations: the effect of a write on a document and on its fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from forebay._native import Change, Operation

if TYPE_CHECKING:
    from forebay._types import Fields, Key, Value


def put(
    key: Key,
    fields: Fields,
    *,
    ttl: float | None = None,
    field_ttl: Mapping[str, float] | None = None,
    if_absent: bool = False,
    if_version: int | None = None,
    if_newer: str | None = None,
) -> Change:
    """Replace the whole document by these fields; all other fields become absent.

    `ttl` is the document's time to live and `field_ttl` that of single fields, in seconds. With a
    condition the change happens only if there is no document (`if_absent`), if the document has
    exactly this version (`if_version`), or if this field grows (`if_newer`).
    """
    return Change(
        "put",
        key,
        dict(fields),
        ttl=ttl,
        field_ttl=None if field_ttl is None else dict(field_ttl),
        if_absent=if_absent,
        if_version=if_version,
        if_newer=if_newer,
    )


def upsert(
    key: Key,
    fields: Fields,
    *,
    ttl: float | None = None,
    field_ttl: Mapping[str, float] | None = None,
    if_absent: bool = False,
    if_version: int | None = None,
    if_newer: str | None = None,
) -> Change:
    """Change these fields and keep the others; create the document if it does not exist.

    Upsert is the default verb: an older program that upserts keeps fields that it does not know.
    Time to live and conditions are those of `put`.
    """
    return Change(
        "upsert",
        key,
        dict(fields),
        ttl=ttl,
        field_ttl=None if field_ttl is None else dict(field_ttl),
        if_absent=if_absent,
        if_version=if_version,
        if_newer=if_newer,
    )


def delete(key: Key, *, if_version: int | None = None) -> Change:
    """Delete the document; if a version is given, only if the document has it."""
    return Change("delete", key, if_version=if_version)


def insert(key: Key, columns: Fields) -> Change:
    """Add an event to a stream; columns that are not named take their defaults.

    Events never change. Any number of events may have the same key. A change that is sent again
    adds its event once.
    """
    return Change("insert", key, dict(columns))


def increment(by: float) -> Operation:
    """Add to a number; absent and null count as 0, and integers saturate at their bounds."""
    return Operation.increment(by)


def minimum(value: Value) -> Operation:
    """Keep the smaller of the field's value and this one."""
    return Operation.minimum(value)


def maximum(value: Value) -> Operation:
    """Keep the larger of the field's value and this one."""
    return Operation.maximum(value)


def list_append(items: Iterable[Value], bound: int) -> Operation:
    """Append components to a list; the last `bound` components stay."""
    return Operation.list_append(items, bound)


def set_add(items: Iterable[Value], bound: int) -> Operation:
    """Add the components that a list does not contain yet; the last `bound` components stay."""
    return Operation.set_add(items, bound)


def set_remove(items: Iterable[Value]) -> Operation:
    """Remove components from a list."""
    return Operation.set_remove(items)
