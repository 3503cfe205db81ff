"""What the controller says of topics, and a broker's own image of it, which lags (KIP-500: `MetadataImage`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.sim.kafka import configs

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
INTERNAL = frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS})


class PartitionImage(NamedTuple):
    """`PartitionRegistration`; `leader` is -1 while there is none. `version` is Kafka's partition epoch."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    version: int
    replicas: tuple[int, ...]


class TopicConfig:
    """A topic's configuration with the numbers read once. Never changed: another configuration is another object."""

    __slots__ = (
        "after_max_ms", "before_max_ms", "compacted", "delete_retention_ms", "deleted", "log_append_time",
        "max_compaction_lag_ms", "max_message_bytes", "min_cleanable_ratio", "min_compaction_lag_ms", "min_isr", "own",
        "retention_bytes", "retention_ms", "segment_bytes", "segment_ms", "unclean", "values",
    )  # fmt: skip

    def __init__(self, defaults: Mapping[str, str], own: Mapping[str, str]) -> None:
        self.own = dict(own)
        self.values = {**defaults, **own}
        values = self.values
        policies = configs.items(values["cleanup.policy"])
        self.compacted = "compact" in policies
        self.deleted = "delete" in policies
        self.log_append_time = values["message.timestamp.type"] == "LogAppendTime"
        self.unclean = values["unclean.leader.election.enable"].lower() == "true"
        self.min_isr = int(values["min.insync.replicas"])
        self.max_message_bytes = int(values["max.message.bytes"])
        self.min_compaction_lag_ms = int(values["min.compaction.lag.ms"])
        self.max_compaction_lag_ms = int(values["max.compaction.lag.ms"])
        self.min_cleanable_ratio = float(values["min.cleanable.dirty.ratio"])
        self.segment_bytes = int(values["segment.bytes"])
        self.segment_ms = int(values["segment.ms"])
        if self.compacted:  # `LogConfig.maxSegmentMs`
            self.segment_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        self.retention_ms = int(values["retention.ms"])
        self.retention_bytes = int(values["retention.bytes"])
        self.delete_retention_ms = int(values["delete.retention.ms"])
        self.before_max_ms = int(values["message.timestamp.before.max.ms"])
        self.after_max_ms = int(values["message.timestamp.after.max.ms"])


class TopicImage(NamedTuple):
    """`id` are the 16 bytes of the topic id (KIP-516)."""

    name: str
    id: bytes
    config: TopicConfig
    partitions: tuple[PartitionImage, ...]


class Image:
    """One broker's picture of the cluster. `version` rises with every change that it has heard of."""

    __slots__ = ("answers", "by_id", "live", "topics", "version")

    def __init__(self, topics: Mapping[str, TopicImage], live: frozenset[int], version: int) -> None:
        self.topics: dict[str, TopicImage] = dict(topics)
        self.by_id = {topic.id: topic for topic in self.topics.values()}
        self.live = live
        """Brokers that are not fenced."""
        self.version = version
        self.answers: dict[tuple[int, bytes], dict[int, bytes]] = {}
        """To Metadata, by its version and body, then by the controller that they name."""

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        found = self.topics.get(topic)
        return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None
