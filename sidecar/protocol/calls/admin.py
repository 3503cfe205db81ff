"""Calls about the cluster itself: versions, coordinators, topics and their configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages import admin, cluster
from sidecar.protocol.primitives import MalformedFrameError
from sidecar.protocol.schema import TAGS, Values
from sidecar.protocol.views import View


class ServedVersions(NamedTuple):
    """The versions of one API that a broker serves, both ends included."""

    lowest: int
    highest: int


class ApiVersions(View[dict[int, ServedVersions]], of=cluster.API_VERSIONS, version=0):
    """What a broker serves, by API key. Every broker answers version 0."""

    def answered(self, values: Values) -> dict[int, ServedVersions]:
        if error := values["error_code"]:
            raise MalformedFrameError(f"ApiVersions v0 answered error {error}")
        return {
            each["api_key"]: ServedVersions(each["min_version"], each["max_version"]) for each in values["api_keys"]
        }


class ClusterFeatures(View[bytes], of=cluster.API_VERSIONS, version=3):
    """The tagged fields in which a broker has the features of the cluster (KIP-584), unchanged, for clients that ask in
    the same version. In version 3 a broker leaves out features whose range begins at 0: Java clients before 3.8 cannot
    read them (KAFKA-17011, KAFKA-17492).
    """

    def asked(self) -> Values:
        return {"client_software_name": "sidecar", "client_software_version": "1"}

    def answered(self, values: Values) -> bytes:
        if error := values["error_code"]:
            raise MalformedFrameError(f"ApiVersions v{self.api_version} answered error {error}")
        tags: bytes = values[TAGS]
        return tags


class AllClusterFeatures(ClusterFeatures, of=cluster.API_VERSIONS, version=4):
    """As `ClusterFeatures`, in the version in which a broker names all features. Kafka has it from 3.9 on."""


FEATURES: Final = {call.api_version: call for call in (ClusterFeatures(), AllClusterFeatures())}
"""The request for the features, by the version of ApiVersions whose clients get the answer."""


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """Answer of FindCoordinator; `broker_id` is -1 where `error` is not 0."""

    error: int
    message: str | None
    broker_id: int
    host: str
    port: int


class FindCoordinator(View[FoundCoordinator], of=cluster.FIND_COORDINATOR, version=1):
    """Which broker coordinates a group or a transactional id."""

    key: str
    kind: CoordinatorKind

    def asked(self) -> Values:
        return {"key": self.key, "key_type": self.kind}

    def answered(self, values: Values) -> FoundCoordinator:
        error, message = values["error_code"], values["error_message"]
        return FoundCoordinator(error, message, values["node_id"], values["host"], values["port"])


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition as Metadata describes it; `leader` is -1 while there is none."""

    error: int
    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @classmethod
    def of(cls, values: Values) -> "PartitionDescription":
        return cls(
            values["error_code"],
            values["partition_index"],
            values["leader_id"],
            values["leader_epoch"],
            tuple(values["replica_nodes"]),
            tuple(values["isr_nodes"]),
        )


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Metadata describes it; `topic_id` is zero where `error` is not 0."""

    error: int
    name: str
    topic_id: UUID
    partitions: tuple[PartitionDescription, ...]

    @property
    def leaders(self) -> dict[int, int]:
        """The leader of each partition, -1 for none."""
        return {each.index: each.leader for each in self.partitions}

    @classmethod
    def of(cls, values: Values) -> "TopicDescription":
        partitions = tuple(map(PartitionDescription.of, values["partitions"]))
        return cls(values["error_code"], values["name"], UUID(bytes=values["topic_id"]), partitions)


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """Live brokers (or nodes), controller and the requested topics."""

    brokers: dict[int, tuple[str, int]]
    cluster_id: str | None
    controller: int
    topics: tuple[TopicDescription, ...]

    def topic(self, name: str) -> TopicDescription:
        """Return the topic of this name; a missing one with the error UNKNOWN_TOPIC_OR_PARTITION."""
        unknown = TopicDescription(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, UUID(int=0), ())
        return next((each for each in self.topics if each.name == name), unknown)


class DescribeTopics(View[ClusterDescription], of=cluster.METADATA, version=10):
    """Metadata of named topics, or of all (None), with their ids and replicas. Never creates a topic.

    Version 10 is the first with topic ids (KIP-516); later ones differ in how a client may ask, not in the answer
    here.
    """

    names: tuple[str, ...] | None

    def asked(self) -> Values:
        return {"topics": None if self.names is None else [{"name": name} for name in self.names]}

    def answered(self, values: Values) -> ClusterDescription:
        brokers = {each["node_id"]: (each["host"], each["port"]) for each in values["brokers"]}
        topics = tuple(map(TopicDescription.of, values["topics"]))
        return ClusterDescription(brokers, values["cluster_id"], values["controller_id"], topics)


_DEFAULT: Final = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Brokers have defaults for a number that is None (KIP-464), and for what `configs` lacks."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict[str, str])


class Outcome(NamedTuple):
    """Error code and what the broker says about it."""

    error: int
    message: str | None

    @classmethod
    def of(cls, values: Values) -> "Outcome":
        return cls(values["error_code"], values["error_message"])


def _last(outcomes: list[Values]) -> Outcome:
    return Outcome.of(outcomes[-1]) if outcomes else Outcome(0, None)


class CreateTopics(View[dict[str, Outcome]], of=admin.CREATE_TOPICS, version=4):
    """Create topics. Any KRaft broker forwards it; a ZooKeeper cluster needs its controller (41). Answered by name."""

    topics: tuple[NewTopic, ...]
    timeout_ms: int

    def asked(self) -> Values:
        topics = [
            {
                "name": topic.name,
                "num_partitions": topic.partitions or _DEFAULT,
                "replication_factor": topic.replication_factor or _DEFAULT,
                "configs": [{"name": name, "value": value} for name, value in topic.configs.items()],
            }
            for topic in self.topics
        ]
        return {"topics": topics, "timeout_ms": self.timeout_ms}

    def answered(self, values: Values) -> dict[str, Outcome]:
        return {each["name"]: Outcome.of(each) for each in values["topics"]}


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
    """A topic by name or a broker by id; a broker's configuration comes from that broker alone."""

    kind: ConfigResource
    name: str


class DescribeConfigs(View[dict[Resource, Described]], of=admin.DESCRIBE_CONFIGS, version=1):
    """Configuration of resources, `names` only (None: everything). Needs DESCRIBE_CONFIGS.

    Answered by resource; a kind that was not asked for is a malformed answer.
    """

    resources: tuple[Resource, ...]
    names: tuple[str, ...] | None = None

    def asked(self) -> Values:
        resources = [
            {"resource_type": each.kind, "resource_name": each.name, "configuration_keys": self.names}
            for each in self.resources
        ]
        return {"resources": resources}

    def answered(self, values: Values) -> dict[Resource, Described]:
        found: dict[Resource, Described] = {}
        for each in values["results"]:
            try:
                resource = Resource(ConfigResource(each["resource_type"]), each["resource_name"])
            except ValueError:
                kind = each["resource_type"]
                raise MalformedFrameError(f"DescribeConfigs answered for resource type {kind}") from None
            configs = {config["name"]: config["value"] for config in each["configs"]}
            found[resource] = Described(each["error_code"], each["error_message"], configs)
        return found


class DeleteTopic(View[int], of=admin.DELETE_TOPICS, version=6):
    """Delete a topic by its id, so that a newer topic of the same name is safe (version 6: KIP-516). Answered by the
    error code, UNKNOWN_TOPIC_ID (100) if there is no such topic.
    """

    topic_id: UUID
    timeout_ms: int

    def asked(self) -> Values:
        return {"topics": [{"topic_id": self.topic_id.bytes}], "timeout_ms": self.timeout_ms}

    def answered(self, values: Values) -> int:
        if len(values["responses"]) != 1:
            raise MalformedFrameError("one topic was to be deleted, and not one is answered for")
        return values["responses"][0]["error_code"]


class CreatePartitions(View[Outcome], of=admin.CREATE_PARTITIONS, version=1):
    """Give a topic more partitions, wherever Kafka places them."""

    topic: str
    count: int
    timeout_ms: int

    def asked(self) -> Values:
        topic = {"name": self.topic, "count": self.count, "assignments": None}
        return {"topics": [topic], "timeout_ms": self.timeout_ms}

    def answered(self, values: Values) -> Outcome:
        return _last(values["results"])


class AlterTopicConfig(View[Outcome], of=admin.INCREMENTAL_ALTER_CONFIGS, version=0):
    """Set one configuration of one topic, leaving its others as they are (KIP-339). Needs ALTER_CONFIGS."""

    topic: str
    name: str
    value: str

    def asked(self) -> Values:
        config = {"name": self.name, "config_operation": 0, "value": self.value}
        resource = {"resource_type": ConfigResource.TOPIC, "resource_name": self.topic, "configs": [config]}
        return {"resources": [resource]}

    def answered(self, values: Values) -> Outcome:
        return _last(values["responses"])


class DescribeLogDirs(View[dict[int, int]], of=admin.DESCRIBE_LOG_DIRS, version=2):
    """The bytes of some partitions of one topic on a broker, by partition. Directories with an error are left out, as
    if the node lacks DESCRIBE on the cluster.
    """

    topic: str
    partitions: tuple[int, ...]

    def asked(self) -> Values:
        return {"topics": [{"topic": self.topic, "partitions": list(self.partitions)}]}

    def answered(self, values: Values) -> dict[int, int]:
        return {
            each["partition_index"]: each["partition_size"]
            for directory in values["results"]
            if not directory["error_code"]
            for topic in directory["topics"]
            for each in topic["partitions"]
            if topic["name"] == self.topic and not each["is_future_key"]
        }
