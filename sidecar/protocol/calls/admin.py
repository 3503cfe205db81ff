"""Calls about the cluster itself: versions, coordinators, topics and their configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, ClassVar, NamedTuple
from uuid import UUID

from sidecar.protocol.caller import CoordinatorKind, FixedRequest
from sidecar.protocol.primitives import MalformedFrameError, Reader, Writer

if TYPE_CHECKING:
    from collections.abc import Mapping


class ServedVersions(NamedTuple):
    """The versions of one API that a broker serves, both ends included."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class ApiVersions(FixedRequest):
    """What a broker serves. Version 0 is answered by every broker and never with a flexible header."""

    api_key: ClassVar[int] = 18
    api_version: ClassVar[int] = 0

    def encode(self, writer: Writer) -> None:
        """The body is empty."""

    @classmethod
    def decode(cls, reader: Reader) -> dict[int, ServedVersions]:
        error = reader.i16()
        found = {reader.i16(): ServedVersions(reader.i16(), reader.i16()) for _ in range(reader.array(element_bytes=6))}
        if error:
            raise MalformedFrameError(f"ApiVersions v0 answered error {error}")
        return found


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """Answer of FindCoordinator; `broker_id` is -1 where `error` is not 0."""

    error: int
    message: str | None
    broker_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FindCoordinator(FixedRequest):
    """Which broker coordinates a group or a transactional id."""

    api_key: ClassVar[int] = 10
    api_version: ClassVar[int] = 1

    key: str
    kind: CoordinatorKind

    def encode(self, writer: Writer) -> None:
        writer.string(self.key)
        writer.i8(self.kind)

    @classmethod
    def decode(cls, reader: Reader) -> FoundCoordinator:
        reader.i32()
        return FoundCoordinator(reader.i16(), reader.nullable_string(), reader.i32(), reader.string(), reader.i32())


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as Metadata describes it; `leader` is -1 while there is none."""

    error: int
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Metadata describes it; `topic_id` is zero where `error` is not 0."""

    error: int
    name: str
    topic_id: UUID
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Live brokers, controller and the topics that were asked for."""

    brokers: Mapping[int, tuple[str, int]]
    cluster_id: str | None
    controller: int
    topics: tuple[TopicDescription, ...]


@dataclass(frozen=True, slots=True)
class DescribeTopics(FixedRequest):
    """Metadata of named topics with their ids and replicas. Never creates a topic.

    Version 10 is the first with topic ids (KIP-516); later ones differ in how a client may ask, not in what is told
    here.
    """

    api_key: ClassVar[int] = 3
    api_version: ClassVar[int] = 10
    flexible: ClassVar[bool] = True

    names: tuple[str, ...]

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.names), True)
        for name in self.names:
            writer.raw(bytes(16))
            writer.compact_string(name)
            writer.tags(True)
        for _ in range(3):  # create missing topics; authorized operations of the cluster, of the topics
            writer.boolean(False)
        writer.tags(True)

    @classmethod
    def decode(cls, reader: Reader) -> ClusterDescription:
        reader.i32()
        brokers: dict[int, tuple[str, int]] = {}
        for _ in range(reader.array(True, element_bytes=11)):
            broker_id = reader.i32()
            brokers[broker_id] = reader.compact_string(), reader.i32()
            reader.compact_nullable_string()
            reader.skip_tags()
        cluster_id, controller = reader.compact_nullable_string(), reader.i32()
        topics = tuple(_read_topic(reader) for _ in range(reader.array(True, element_bytes=26)))
        reader.i32()
        reader.skip_tags()
        return ClusterDescription(brokers, cluster_id, controller, topics)


def _read_topic(reader: Reader) -> TopicDescription:
    error, name, topic_id = reader.i16(), reader.compact_string(), UUID(bytes=reader.raw(16))
    reader.boolean()
    partitions = tuple(_read_partition(reader) for _ in range(reader.array(True, element_bytes=18)))
    reader.i32()
    reader.skip_tags()
    return TopicDescription(error, name, topic_id, partitions)


def _read_partition(reader: Reader) -> PartitionDescription:
    error, index, leader, epoch = reader.i16(), reader.i32(), reader.i32(), reader.i32()
    replicas, in_sync, _ = (_read_brokers(reader) for _ in range(3))
    reader.skip_tags()
    return PartitionDescription(error, index, leader, epoch, replicas, in_sync)


def _read_brokers(reader: Reader) -> tuple[int, ...]:
    return tuple(reader.i32() for _ in range(reader.array(True, element_bytes=4)))


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Where `configs` says nothing the broker's defaults hold."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


class Outcome(NamedTuple):
    """Error code and what the broker says about it."""

    error: int
    message: str | None


@dataclass(frozen=True, slots=True)
class CreateTopics(FixedRequest):
    """Create topics; any KRaft broker passes it on, a ZooKeeper cluster wants its controller (41)."""

    api_key: ClassVar[int] = 19
    api_version: ClassVar[int] = 4

    topics: tuple[NewTopic, ...]
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.topics))
        for topic in self.topics:
            writer.string(topic.name)
            writer.i32(topic.partitions)
            writer.i16(topic.replication_factor)
            writer.array(0)
            writer.array(len(topic.configs))
            for name, value in topic.configs.items():
                writer.string(name)
                writer.string(value)
        writer.i32(self.timeout_ms)
        writer.boolean(False)

    @classmethod
    def decode(cls, reader: Reader) -> dict[str, Outcome]:
        """By topic name."""
        reader.i32()
        return {
            reader.string(): Outcome(reader.i16(), reader.nullable_string())
            for _ in range(reader.array(element_bytes=6))
        }


class ConfigResource(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4


@dataclass(frozen=True, slots=True)
class Described:
    """Configuration of one resource: value per name, None where the broker keeps it secret."""

    error: int
    message: str | None
    values: Mapping[str, str | None]

    def milliseconds(self, name: str) -> int | None:
        """A duration, None where it is not set, or without a limit (negative)."""
        value = self.values.get(name)
        return None if value is None or int(value) < 0 else int(value)


class Resource(NamedTuple):
    """A topic by name or a broker by id; a broker's configuration is told by that broker alone."""

    kind: ConfigResource
    name: str


@dataclass(frozen=True, slots=True)
class DescribeConfigs(FixedRequest):
    """Configuration of resources, `names` only (None: everything). Needs DESCRIBE_CONFIGS."""

    api_key: ClassVar[int] = 32
    api_version: ClassVar[int] = 1

    resources: tuple[Resource, ...]
    names: tuple[str, ...] | None = None

    def encode(self, writer: Writer) -> None:
        writer.array(len(self.resources))
        for resource in self.resources:
            writer.i8(resource.kind)
            writer.string(resource.name)
            writer.array(-1 if self.names is None else len(self.names))
            for name in self.names or ():
                writer.string(name)
        writer.boolean(False)

    @classmethod
    def decode(cls, reader: Reader) -> dict[Resource, Described]:
        """By resource; a kind that was not asked for is a malformed answer."""
        reader.i32()
        found: dict[Resource, Described] = {}
        for _ in range(reader.array(element_bytes=11)):
            error, message = reader.i16(), reader.nullable_string()
            kind, name = reader.i8(), reader.string()
            values = dict(_read_config(reader) for _ in range(reader.array(element_bytes=11)))
            try:
                found[Resource(ConfigResource(kind), name)] = Described(error, message, values)
            except ValueError:
                raise MalformedFrameError(f"DescribeConfigs answered for resource type {kind}") from None
        return found


@dataclass(frozen=True, slots=True)
class DeleteTopic(FixedRequest):
    """Delete a topic by its id, so that no other one of its name is meant (version 6: KIP-516). Answered by the error
    code, UNKNOWN_TOPIC_ID (100) where there is none.
    """

    api_key: ClassVar[int] = 20
    api_version: ClassVar[int] = 6
    flexible: ClassVar[bool] = True

    topic_id: UUID
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.array(1, flexible=True)
        writer.compact_string(None)
        writer.raw(self.topic_id.bytes)
        writer.tags(flexible=True)
        writer.i32(self.timeout_ms)
        writer.tags(flexible=True)

    @classmethod
    def decode(cls, reader: Reader) -> int:
        reader.i32()
        if reader.array(flexible=True, element_bytes=20) != 1:
            raise MalformedFrameError("one topic was to be deleted, and not one is answered for")
        reader.compact_nullable_string()
        reader.skip(16)
        error = reader.i16()
        reader.compact_nullable_string()
        reader.skip_tags()
        reader.skip_tags()
        return error


@dataclass(frozen=True, slots=True)
class CreatePartitions(FixedRequest):
    """Give a topic more partitions, wherever Kafka places them."""

    api_key: ClassVar[int] = 37
    api_version: ClassVar[int] = 1

    topic: str
    count: int
    timeout_ms: int

    def encode(self, writer: Writer) -> None:
        writer.array(1)
        writer.string(self.topic)
        writer.i32(self.count)
        writer.array(-1)
        writer.i32(self.timeout_ms)
        writer.boolean(False)

    @classmethod
    def decode(cls, reader: Reader) -> Outcome:
        """What became of it."""
        reader.i32()
        found = Outcome(0, None)
        for _ in range(reader.array(element_bytes=6)):
            reader.string()
            found = Outcome(reader.i16(), reader.nullable_string())
        return found


@dataclass(frozen=True, slots=True)
class AlterTopicConfig(FixedRequest):
    """Set one configuration of one topic, leaving its others as they are (KIP-339). Needs ALTER_CONFIGS."""

    api_key: ClassVar[int] = 44
    api_version: ClassVar[int] = 0

    topic: str
    name: str
    value: str

    def encode(self, writer: Writer) -> None:
        writer.array(1)
        writer.i8(ConfigResource.TOPIC)
        writer.string(self.topic)
        writer.array(1)
        writer.string(self.name)
        writer.i8(0)  # set
        writer.string(self.value)
        writer.boolean(False)

    @classmethod
    def decode(cls, reader: Reader) -> Outcome:
        """What became of it."""
        reader.i32()
        found = Outcome(0, None)
        for _ in range(reader.array(element_bytes=7)):
            found = Outcome(reader.i16(), reader.nullable_string())
            reader.skip(1)
            reader.string()
        return found


def _read_config(reader: Reader) -> tuple[str, str | None]:
    name, value = reader.string(), reader.nullable_string()
    reader.skip(3)  # read-only, source, sensitive
    for _ in range(reader.array(element_bytes=5)):
        reader.string()
        reader.nullable_string()
        reader.i8()
    return name, value
