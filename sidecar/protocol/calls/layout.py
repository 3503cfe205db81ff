"""Metadata as clients ask it, in a version that brokers and nodes serve alike.

A node shows no topic ids to clients (Metadata 9 at most); its own calls ask Kafka in version 10.
"""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic's error code, and the leader of each partition (-1 for none)."""

    error: int
    leaders: dict[int, int]

    @classmethod
    def of(cls, values: Values) -> TopicLayout:
        return cls(values["error_code"], {each["partition_index"]: each["leader_id"] for each in values["partitions"]})


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Where brokers (or nodes) are, and the topics that were asked for."""

    cluster_id: str
    brokers: dict[int, tuple[str, int]]
    topics: dict[str, TopicLayout]

    def topic(self, name: str) -> TopicLayout:
        """One of them; one that is missing is unknown."""
        return self.topics.get(name) or TopicLayout(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, {})


@dataclass(frozen=True, slots=True)
class DescribeCluster(View[ClusterLayout], of=METADATA, version=5):
    """Metadata of named topics, none of which is created; of None: all of them."""

    topics: tuple[str, ...] | None

    def asked(self) -> Values:
        return {"topics": None if self.topics is None else [{"name": topic} for topic in self.topics]}

    def answered(self, values: Values) -> ClusterLayout:
        brokers = {each["node_id"]: (each["host"], each["port"]) for each in values["brokers"]}
        topics = {each["name"]: TopicLayout.of(each) for each in values["topics"]}
        return ClusterLayout(values["cluster_id"] or "", brokers, topics)
