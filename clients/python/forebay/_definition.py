"""Specifications of new stores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Union

from forebay import _native

FieldTypes = Union[Mapping[str, str], Sequence[_native.FieldSpec]]


def store_spec(
    name: str,
    *,
    key_type: str,
    partitions: int,
    fields: FieldTypes,
    partition_key: str | None,
    key_value: bool,
    ttl: float | None,
    versioned: bool,
    heartbeat: float,
    log_retention: float | None,
) -> _native.StoreSpec:
    """Return the native specification of a new store."""
    return _native.StoreSpec(
        name,
        key_type=key_type,
        partitions=partitions,
        fields=_field_specs(fields),
        partition_key=partition_key,
        key_value=key_value,
        ttl=ttl,
        versioned=versioned,
        heartbeat=heartbeat,
        log_retention=log_retention,
    )


def stream_spec(
    name: str,
    *,
    key_type: str,
    partitions: int,
    columns: FieldTypes,
    event_time: str | None,
    heartbeat: float,
    log_retention: float | None,
    log_retention_bytes: int | None,
) -> _native.StoreSpec:
    """Return the native specification of a new stream."""
    return _native.StoreSpec(
        name,
        key_type=key_type,
        partitions=partitions,
        fields=_field_specs(columns),
        partition_key=None,
        key_value=False,
        ttl=None,
        versioned=False,
        heartbeat=heartbeat,
        log_retention=log_retention,
        log_retention_bytes=log_retention_bytes,
        stream=True,
        event_time=event_time,
    )


def _field_specs(fields: FieldTypes) -> list[_native.FieldSpec]:
    if isinstance(fields, Mapping):
        return [_native.FieldSpec(name, type) for name, type in fields.items()]
    return list(fields)
