"""Definitions of stores that are to be created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from forebay import _native

FieldTypes = Union[Mapping[str, str], Sequence[_native.FieldSpec]]


def store_spec(
    name: str,
    *,
    key: str,
    partitions: int,
    fields: FieldTypes,
    partition_key: str | None,
    key_value: bool,
    ttl: float | None,
    versioned: bool,
    heartbeat: float,
    log_window: float | None,
) -> _native.StoreSpec:
    """Make the native form of a store that is to be created."""
    if isinstance(fields, Mapping):
        specs = [_native.FieldSpec(name, type) for name, type in fields.items()]
    else:
        specs = list(fields)
    return _native.StoreSpec(
        name,
        key=key,
        partitions=partitions,
        fields=specs,
        partition_key=partition_key,
        key_value=key_value,
        ttl=ttl,
        versioned=versioned,
        heartbeat=heartbeat,
        log_window=log_window,
    )
