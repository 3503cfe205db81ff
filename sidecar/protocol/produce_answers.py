"""Answers to Produce for clients, field by field: with messages, new leaders (KIP-951), or long lists."""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from sidecar.protocol.leaders import Leader, endpoint_tags, leader_tags
from sidecar.protocol.primitives import I32, Writer
from sidecar.protocol.topic_ids import Ids

FIRST_FLEXIBLE: Final = 9
FIRST_WITH_START: Final = 5
"""Since then an answer says where the log begins."""
FIRST_WITH_LEADERS: Final = 10
LEADER_TAG: Final = 0
FIRST_BY_ID: Final = 13
ANSWER: Final = Struct(">ihqqq")
ANSWER_V4: Final = Struct(">ihqq")
NO_OFFSET: Final = -1
_NO_LEADERS: Final[dict[tuple[bytes, int], Leader]] = {}


class ProduceResult(NamedTuple):
    """What one partition is answered. Offsets and times are -1 where there are none; `message` needs version 8."""

    topic: bytes
    partition: int
    error: int
    base_offset: int = NO_OFFSET
    log_append_time: int = -1
    log_start_offset: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()


def encode(
    correlation_id: int,
    version: int,
    results: list[ProduceResult],
    throttle_ms: int,
    ids: Ids | None,
    leaders: Mapping[tuple[bytes, int], Leader] | None,
) -> bytes:
    """A whole answer frame: see `produce.encode_answer`."""
    flexible = version >= FIRST_FLEXIBLE
    known = _NO_LEADERS if leaders is None or version < FIRST_WITH_LEADERS else leaders
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    writer.tags(flexible)
    by_topic: dict[bytes, list[ProduceResult]] = {}
    for result in results:
        by_topic.setdefault(result.topic, []).append(result)
    writer.array(len(by_topic), flexible)
    for topic, of_topic in by_topic.items():
        write_topic(writer, topic, flexible, ids)
        writer.array(len(of_topic), flexible)
        for result in of_topic:
            _write_result(writer, version, result, known.get((topic, result.partition)))
        writer.tags(flexible)
    writer.i32(throttle_ms)
    if flexible:
        writer.raw(endpoint_tags(known.values()))
    I32.pack_into(writer.out, 0, len(writer.out) - 4)
    return bytes(writer.out)


def write_topic(writer: Writer, topic: bytes, flexible: bool, ids: Ids | None) -> None:
    """A topic in the form of the version: its name, or its id where there are `ids`."""
    if ids is None:
        writer.name(topic, flexible)
    else:
        writer.raw(ids[topic])


def _write_result(writer: Writer, version: int, result: ProduceResult, leader: Leader | None) -> None:
    flexible = version >= FIRST_FLEXIBLE
    if version >= FIRST_WITH_START:
        writer.raw(
            ANSWER.pack(
                result.partition, result.error, result.base_offset, result.log_append_time, result.log_start_offset
            )
        )
    else:
        writer.raw(ANSWER_V4.pack(result.partition, result.error, result.base_offset, result.log_append_time))
    if version >= 8:
        writer.array(len(result.record_errors), flexible)
        for index, message in result.record_errors:
            writer.i32(index)
            writer.text(message, flexible)
            writer.tags(flexible)
        writer.text(result.message, flexible)
    if flexible:
        writer.raw(leader_tags(LEADER_TAG, leader))
