"""DescribeTopicPartitions (75): topics and partitions page by page (`DescribeTopicPartitionsRequestHandler`)."""

from __future__ import annotations

from typing import Final

from sidecar.protocol.schema import Values
from tests.sim.kafka import errors
from tests.sim.kafka.apis_topics import partition_row
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.controller import is_legal
from tests.sim.kafka.topics import INTERNAL

_LONGEST: Final = 2000
"""max.request.partition.size.limit."""
_ALL_OPERATIONS: Final = 0xDF8
"""What may be done with a topic, as bits, where there is no authorizer: `AclEntry.supportedOperations`."""


@serves(75)
def describe_topic_partitions(broker: Broker, request: Request) -> None:
    values = request.values
    named = {topic["name"] for topic in values["topics"]}
    cursor: Values | None = values["cursor"]
    if cursor is not None and ((named and cursor["topic_name"] not in named) or cursor["partition_index"] < 0):
        rows = [_row(each["name"], errors.INVALID_REQUEST, operations=-(2**31)) for each in values["topics"]]
        request.answer({"topics": rows, "next_cursor": None})
        return
    first = "" if cursor is None else cursor["topic_name"]
    left = max(1, min(_LONGEST, values["response_partition_limit"]))
    found: list[Values] = []
    further: Values | None = None
    for name in sorted(each for each in named or broker.image.topics if each >= first):
        if not left:
            further = {"topic_name": name, "partition_index": 0}
            break
        topic = broker.image.topics.get(name)
        if topic is None:
            missing = errors.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else errors.INVALID_TOPIC_EXCEPTION
            found.append(_row(name, missing))
            continue
        start = cursor["partition_index"] if cursor is not None and name == first else 0
        end = min(len(topic.partitions), start + left)
        parts = [_partition(broker, index, name) for index in range(start, end)]
        found.append(_row(name, errors.NONE) | {"topic_id": topic.id, "partitions": parts})
        left -= len(parts)
        if end < len(topic.partitions):
            further = {"topic_name": name, "partition_index": end}
            break
    request.answer({"topics": found, "next_cursor": further})


def _row(name: str, error: int, operations: int = _ALL_OPERATIONS) -> Values:
    return {
        "error_code": error, "name": name, "is_internal": name in INTERNAL and not error, "partitions": [],
        "topic_authorized_operations": operations,
    }  # fmt: skip


def _partition(broker: Broker, index: int, topic: str) -> Values:
    """A partition without a leader has no error here. Eligible leaders (KIP-966) are not kept apart from the ISR."""
    image = broker.image.topics[topic].partitions[index]
    row = partition_row(index, image, broker.image.live, broker.cluster.settings.version)
    return row | {"error_code": 0, "eligible_leader_replicas": [], "last_known_elr": []}
