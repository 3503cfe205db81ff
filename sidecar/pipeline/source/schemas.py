"""The columns of both views, as Spark's DDL and as Arrow takes them."""

from __future__ import annotations

from typing import Final

from sidecar.pipeline.source.options import RECORDS, RUNS

_RECORDS: Final = {
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "key": "binary",
    "value": "binary",
    "headers": "array<struct<key:string,value:binary>>",
    "producer_id": "long",
    "producer_epoch": "int",
    "base_offset": "long",
    "base_sequence": "int",
    "sequence": "int",
    "is_transactional": "boolean",
    "control": "string",
    "sequence_id": "long",
    "producer_name": "string",
    "id_problem": "string",
}
_RUNS: Final = {
    "partition": "int",
    "first_offset": "long",
    "last_offset": "long",
    "batches": "int",
    "records": "long",
    "bytes": "long",
    "producer_id": "long",
    "producer_epoch": "int",
    "first_sequence": "int",
    "last_sequence": "int",
    "is_transactional": "boolean",
    "control": "string",
    "producer_name": "string",
    "first_id": "long",
    "last_id": "long",
    "ids": "long",
    "malformed": "long",
    "id_gaps": "long",
    "first_timestamp_ms": "long",
    "last_timestamp_ms": "long",
}

COLUMNS: Final = {RECORDS: tuple(_RECORDS), RUNS: tuple(_RUNS)}


def ddl(view: str) -> str:
    """The schema of a view."""
    columns = _RUNS if view == RUNS else _RECORDS
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())
