"""What a job asks besides the calls in `sidecar.protocol`: Metadata in a version that brokers and nodes serve alike.

A node shows no topic ids to clients (Metadata 9 at most); those calls of its own ask Kafka in version 10.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sidecar.protocol import api
from sidecar.protocol.caller import FixedRequest
from sidecar.protocol.primitives import Reader, Writer


@dataclass(frozen=True, slots=True)
class TopicLayout:
    """A topic's error code, and the leader of each partition (-1 for none)."""

    error: int
    leaders: dict[int, int]


@dataclass(frozen=True, slots=True)
class ClusterLayout:
    """Where brokers (or nodes) are, and the topics that were asked for."""

    cluster_id: str
    brokers: dict[int, tuple[str, int]]
    topics: dict[str, TopicLayout]


@dataclass(frozen=True, slots=True)
class DescribeCluster(FixedRequest):
    """Metadata of named topics, none of which is created; of None: all of them."""

    api_key: ClassVar[int] = api.METADATA
    api_version: ClassVar[int] = 5

    topics: tuple[str, ...] | None

    def encode(self, writer: Writer) -> None:
        writer.array(-1 if self.topics is None else len(self.topics))
        for topic in self.topics or ():
            writer.string(topic)
        writer.boolean(False)

    @classmethod
    def decode(cls, reader: Reader) -> ClusterLayout:
        reader.i32()
        brokers: dict[int, tuple[str, int]] = {}
        for _ in range(reader.array(element_bytes=12)):
            broker = reader.i32()
            brokers[broker] = reader.string(), reader.i32()
            reader.nullable_string()
        cluster_id = reader.nullable_string() or ""
        reader.i32()
        topics = dict(_read_topic(reader) for _ in range(reader.array(element_bytes=9)))
        return ClusterLayout(cluster_id, brokers, topics)


def _read_topic(reader: Reader) -> tuple[str, TopicLayout]:
    error, name, leaders = reader.i16(), reader.string(), dict[int, int]()
    reader.boolean()
    for _ in range(reader.array(element_bytes=22)):
        reader.i16()
        partition = reader.i32()
        leaders[partition] = reader.i32()
        for _ in range(3):  # replicas, those in sync, those offline
            reader.skip(4 * reader.array(element_bytes=4))
    return name, TopicLayout(error, leaders)
