"""A point in time of a log: offsets per partition, given as offsets, as a time, or as now. Reads no record.

The offsets are pinned: a job that reads up to them has the same result whatever is written meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sidecar.pipeline.errors import OffsetRangeError, PointError
from sidecar.pipeline.kafka import Kafka

NOW = "now"


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a log: from the start of each partition to the end of what is committed (last stable offset)."""

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]


def extent(kafka: Kafka, topic: str) -> Extent:
    """The present extent. Raises `UnknownTopicError`."""
    ends = kafka.stable_ends(topic)
    starts = kafka.starts(topic)
    return Extent(topic, {partition: starts.get(partition, 0) for partition in ends}, ends)


def resolve(text: str, kafka: Kafka, log: Extent) -> dict[int, int]:
    """The offset of each partition before which a point is.

    `text` is `now`, offsets as JSON (`{"0": 5}`: below 5) or a time of ISO 8601, UTC if it has no zone: that means the
    first offset whose timestamp is not earlier. Raises `PointError` for anything else and `OffsetRangeError` for
    offsets that the log does not have.
    """
    if text == NOW:
        return dict(log.ends)
    if text.lstrip().startswith("{"):
        return _checked(_offsets(text), log)
    found = kafka.offsets_at(log.topic, _milliseconds(text))
    return {partition: min(max(found[partition], log.starts[partition]), end) for partition, end in log.ends.items()}


def listed(offsets: Mapping[int, int]) -> str:
    """Offsets of partitions as one line of text."""
    return " ".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def _offsets(text: str) -> dict[int, int]:
    try:
        found = {int(partition): offset for partition, offset in json.loads(text).items()}
    except ValueError:
        found = {}
    if not found or not all(type(offset) is int for offset in found.values()):
        raise PointError(f'{text} are no offsets: give them as {{"0": 5, "1": 7}}, one for each partition')
    return found


def _milliseconds(text: str) -> int:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PointError(
            f"{text!r} is no point in time: give {NOW}, a time such as 2026-01-31T12:00:00Z, or offsets as"
            ' {"0": 5, "1": 7}'
        ) from None
    found = round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
    if found < 0:
        raise PointError(f"{text} lies in front of 1970, from where Kafka counts: give a later time, or offsets")
    return found


def _checked(offsets: dict[int, int], log: Extent) -> dict[int, int]:
    for partition in dict.fromkeys([*offsets, *log.ends]):
        if partition not in log.ends:
            raise OffsetRangeError(f"{log.topic} has no partition {partition}: it has 0 to {max(log.ends)}")
        if partition not in offsets:
            raise OffsetRangeError(f"no offset is given for partition {partition} of {log.topic}: name all of them")
        start, end = log.starts[partition], log.ends[partition]
        if not start <= offsets[partition] <= end:
            raise OffsetRangeError(
                f"offset {offsets[partition]} of partition {partition} of {log.topic} is not in its log: that holds"
                f" committed records from {start} to {end}"
            )
    return offsets


def check_order(topic: str, before: Mapping[int, int], until: Mapping[int, int]) -> None:
    """Raise `OffsetRangeError` if the first of two points is after the second: a diff would read nothing after it, and
    would report no change.
    """
    for partition, offset in sorted(before.items()):
        if offset > until[partition]:
            raise OffsetRangeError(
                f"partition {partition} of {topic} would be compared at offset {offset} with {until[partition]}, which"
                " is earlier: name the earlier point by --diff and the later one by --as-of"
            )
