"""Decides what to do about a shadow, from its record and from Kafka's answer about the two topics. Pure.

Kafka's brokers learn of topics one after the other: one that lags does not know a topic that was just created. So
no shadow is closed or forgotten because of a single answer (`keeper`). The topic id
distinguishes a topic from another one of its name (KIP-516).
"""

from collections.abc import Mapping
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import TopicState
from sidecar.v1 import state_pb2 as state

HALF_MADE_MS: Final = 30_000
"""A record without its topic is somebody's work that takes no longer."""


class ShadowVerdict(NamedTuple):
    """`forget`: why the shadow is none any more. `closed`: why it cannot be read, empty where it can. `partitions`: how
    many its topic has to get, 0 for none.
    """

    forget: str = ""
    closed: str = ""
    partitions: int = 0


def judged(name: str, record: state.Shadow, topics: Mapping[str, TopicState], now_ms: int) -> ShadowVerdict | None:
    """What an answer to Metadata that speaks of both topics says; None where it says nothing. `now_ms`: Unix ms."""
    if not record.topic_id:
        left = now_ms - record.created_ms > HALF_MADE_MS
        return ShadowVerdict(forget="its creation was never finished", closed=record.closed) if left else None
    own, source = topics.get(name), topics.get(record.source)
    if _is_other(own, record.topic_id):
        return ShadowVerdict(forget="its own topic was deleted in Kafka directly", closed=record.closed)
    if _is_gone(source):
        return ShadowVerdict(closed=f"its source {record.source} was deleted: delete the shadow too")
    if _is_other(source, record.source_topic_id):
        return ShadowVerdict(
            closed=f"its source {record.source} was created again: delete the shadow and create it again"
        )
    if own is None or source is None or not own.partitions or not source.partitions:
        return None
    wanted = len(source.partitions)
    return ShadowVerdict(partitions=wanted if wanted > len(own.partitions) else 0)


def _is_gone(topic: TopicState | None) -> bool:
    return topic is not None and topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _is_other(topic: TopicState | None, topic_id: bytes) -> bool:
    """Whether there is no such topic, or another one of its name."""
    return _is_gone(topic) or (topic is not None and bool(topic.partitions) and topic.topic_id != UUID(bytes=topic_id))
