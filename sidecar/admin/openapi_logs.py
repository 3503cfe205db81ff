"""The logs of topics in the OpenAPI document."""

from __future__ import annotations

from typing import Final

from sidecar.admin.fields import Schema
from sidecar.admin.log_shapes import GROUPS, MOST_RECORDS, PARTITIONS, RECORDS, RECORDS_PAGE
from sidecar.admin.names import LAST_PARTITION
from sidecar.admin.openapi_parts import FAILED, TO_OPERATE, also, answer, in_query, paged, read

_LIMIT: Final = {"type": "integer", "minimum": 1, "maximum": MOST_RECORDS, "default": RECORDS}
_PARTITION: Final = {"type": "integer", "minimum": 0, "maximum": LAST_PARTITION}


def log_paths(topic: Schema) -> Schema:
    """By path. `topic`: the parameter of that name."""
    errors = {f"status_{status}": FAILED for status in (404, 409, 503)}
    partitions = read(
        "listPartitions",
        "Where the log of each partition begins and ends, and its size",
        answer(PARTITIONS),
        paged(pattern="^[0-9]{1,10}$"),
    )
    groups = read(
        "listGroups",
        "What groups have committed for a topic, and how far behind they are",
        answer(GROUPS),
        paged(pattern=None),
    )
    records = read(
        "lastRecords",
        "The last records, the newest first, cut",
        answer(RECORDS_PAGE),
        [
            in_query("limit", _LIMIT, "Of records."),
            in_query("partition", _PARTITION, "Of this partition; else of the first 16 that have records."),
        ],
    )
    return {
        "/v1/topics/{topic}/partitions": {"parameters": [topic], "get": also(partitions, **errors)},
        "/v1/topics/{topic}/groups": {"parameters": [topic], "get": also(groups, **errors)},
        "/v1/topics/{topic}/records": {
            "parameters": [topic],
            "get": {**also(records, **errors), "security": TO_OPERATE},
        },
    }
