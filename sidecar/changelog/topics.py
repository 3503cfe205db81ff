"""The three internal topics of a cluster of nodes: created once, checked at every start, never created again silently.
This module also defines and checks their configuration.

The ownership topic is created last: if only it is missing and another one has records, it was deleted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from sidecar.changelog.errors import ChangelogError, ChangelogLostError, MisconfiguredError
from sidecar.network.backoff import Retry
from sidecar.protocol.caller import Upstream, UpstreamError
from sidecar.protocol.calls.admin import (
    ClusterDescription,
    ConfigResource,
    CreateTopics,
    DescribeConfigs,
    DescribeTopics,
    NewTopic,
    Resource,
    TopicDescription,
)
from sidecar.protocol.calls.logs import ListOffsets, OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.protocol.ids import TopicPartition

_DAY_MS: Final = 24 * 3600 * 1000
_WEEK_MS: Final = 7 * _DAY_MS
EVENTS_RETENTION_MS: Final = 90 * _DAY_MS
_LARGEST_BATCH: Final = 8 * 1024 * 1024
_SEGMENT_BYTES: Final = 32 * 1024 * 1024

_COMMON: Final = {
    # A partition's state of a producer expires by the timestamps of its records: the broker must set them.
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
    "compression.type": "uncompressed",
    "max.message.bytes": str(_LARGEST_BATCH),
}
_COMPACTED: Final = {
    # Compaction keeps a marker for at least seven days. Segments are closed by size too, as only closed ones are
    # compacted.
    "cleanup.policy": "compact",
    "delete.retention.ms": str(_WEEK_MS),
    "segment.bytes": str(_SEGMENT_BYTES),
    "segment.ms": str(_WEEK_MS),
}
_BY_ROLE: Final = {
    "ownership": _COMPACTED,
    "snapshots": _COMPACTED,
    "events": {"cleanup.policy": "delete", "retention.ms": str(EVENTS_RETENTION_MS), "retention.bytes": "-1"},
}


def wanted_configs(role: str, replicas: int) -> dict[str, str]:
    """Return the configuration of a new topic of a role (`ownership`, `snapshots`, `events`)."""
    return {**_COMMON, **_BY_ROLE[role], "min.insync.replicas": str(_in_sync(replicas))}


def _in_sync(replicas: int) -> int:
    """Return min.insync.replicas: one replica may be missing; acknowledged records are then on all others."""
    return max(1, replicas - 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """A defect of a topic or its configuration. `fatal`: it endangers safety, not only convenience."""

    topic: str
    what: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}"


_EXACT: Final = ("cleanup.policy", "message.timestamp.type", "unclean.leader.election.enable", "compression.type")
_LEAST: Final = ("min.insync.replicas", "delete.retention.ms", "max.message.bytes")
_LEAST_OF_EVENTS: Final = ("min.insync.replicas", "retention.ms")
"""Settings that have a minimum; a negative value means no limit."""
_COSTS_COMFORT: Final = frozenset({"max.message.bytes", "retention.ms"})


def check(role: str, values: Mapping[str, str | None], topic: TopicDescription, brokers: int) -> list[Finding]:
    """Compare a topic and its configuration with what its role needs, in a cluster of `brokers` live brokers."""
    replicas = min(len(part.replicas) for part in topic.partitions)
    wanted, found = wanted_configs(role, replicas), list[Finding]()
    for name in _EXACT:
        if (value := values.get(name)) != wanted[name]:
            found.append(Finding(topic.name, f"{name} is {value}, must be {wanted[name]}", fatal=True))
    for name in _LEAST_OF_EVENTS if role == "events" else _LEAST:
        value = values.get(name)
        if value is None or 0 <= int(value) < int(wanted[name]):
            what = f"{name} is {value}, must be {wanted[name]} at least"
            found.append(Finding(topic.name, what, fatal=name not in _COSTS_COMFORT))
    if role != "snapshots" and len(topic.partitions) != 1:
        found.append(Finding(topic.name, f"{len(topic.partitions)} partitions, must be 1", fatal=True))
    if replicas < min(3, brokers):
        what = f"{replicas} of {brokers} brokers hold it; {min(3, brokers)} should (kafka-reassign-partitions)"
        found.append(Finding(topic.name, what, fatal=False))
    return found


_OPEN_S: Final = 60.0
_CREATE_TIMEOUT_MS: Final = 30_000
_MOST_REPLICAS: Final = 3
SNAPSHOT_PARTITIONS: Final = 8


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The internal topics of one cluster of nodes."""

    ownership: str
    snapshots: str
    events: str

    @classmethod
    def of(cls, cluster: str) -> TopicNames:
        """`__sidecar_<cluster>` and the two names derived from it."""
        base = f"__sidecar_{cluster}"
        return cls(base, f"{base}_snapshots", f"{base}_events")

    @property
    def all(self) -> tuple[str, str, str]:
        """The names in the order of creation: ownership last."""
        return self.snapshots, self.events, self.ownership


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """The internal topics, which exist and have no fatal defect; `warnings` are for an operator."""

    names: TopicNames
    ids: Mapping[str, UUID]
    warnings: tuple[Finding, ...]
    snapshot_partitions: int = SNAPSHOT_PARTITIONS

    @property
    def ownership(self) -> TopicPartition:
        """The one partition that every fence covers."""
        return TopicPartition(self.names.ownership, 0)

    def snapshots_of(self, topic: str) -> TopicPartition:
        """Return the partition of a topic's snapshots. It must never change, so partitions added later are not used."""
        count = min(self.snapshot_partitions, SNAPSHOT_PARTITIONS)
        return TopicPartition(self.names.snapshots, crc32(topic.encode()) % count)


async def open_topics(upstream: Upstream, cluster: str) -> InternalTopics:
    """Find the internal topics, or create them if the cluster of nodes is new, and check their configuration.

    Raises `ChangelogLostError`, `MisconfiguredError`, `ChangelogError` if a broker refuses, `RetryTimeoutError` after a
    minute.
    """
    names = TopicNames.of(cluster)
    retry = Retry(f"internal topics of {cluster}", _OPEN_S)
    while True:
        try:
            described = await upstream.call(None, DescribeTopics(names.all))
            found = {topic.name: topic for topic in described.topics}
            for name, topic in found.items():
                if topic.error not in _NOT_YET:
                    raise ChangelogError(f"topic {name}: {error_name(topic.error)}")
            missing = [name for name in names.all if found[name].error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            if missing:
                await _refuse_loss(upstream, found, missing, names)
                await _create(upstream, described, missing, names)
                waiting: object = f"{', '.join(missing)} to appear"
            elif leaderless := [topic.name for topic in found.values() if not _is_led(topic)]:
                waiting = f"leaders of {', '.join(leaderless)}"
            else:
                return await _checked(upstream, described, names)
        except (UpstreamError, KafkaError) as error:  # another broker may not know yet what one has shown
            waiting = error
        await retry.pause(waiting)


def _is_led(topic: TopicDescription) -> bool:
    return not topic.error and bool(topic.partitions) and all(part.leader >= 0 for part in topic.partitions)


_NOT_YET: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE})


async def _refuse_loss(
    upstream: Upstream, found: Mapping[str, TopicDescription], missing: list[str], names: TopicNames
) -> None:
    """Raises `ChangelogLostError` if a topic was deleted, rather than never created."""
    present = [topic for name, topic in found.items() if name not in missing]
    if names.ownership not in missing:
        raise ChangelogLostError(f"deleted while {names.ownership} is there: {', '.join(missing)}")
    for topic in present:
        for index, leader in (await upstream.layout(topic.name, refresh=True)).leaders.items():
            partition = TopicPartition(topic.name, index)
            listed = await upstream.call(leader, ListOffsets({partition: OffsetAt.LATEST}))
            if listed[partition].error:
                raise UpstreamError(f"latest offset of {partition}: {error_name(listed[partition].error)}")
            if listed[partition].offset > 0:
                raise ChangelogLostError(f"{names.ownership} was deleted: {topic.name} still holds what came after it")


def replicas_of(brokers: int) -> int:
    """Return the number of replicas of an internal topic in a cluster of `brokers` live brokers."""
    return max(1, min(_MOST_REPLICAS, brokers))


async def _create(upstream: Upstream, described: ClusterDescription, missing: list[str], names: TopicNames) -> None:
    replicas = replicas_of(len(described.brokers))
    for name in missing:
        partitions = SNAPSHOT_PARTITIONS if name == names.snapshots else 1
        topic = NewTopic(name, partitions, replicas, wanted_configs(_role(name, names), replicas))
        request = CreateTopics((topic,), _CREATE_TIMEOUT_MS)
        broker = described.controller if described.controller in await upstream.brokers() else None
        outcome = (await upstream.call(broker, request, timeout=_CREATE_TIMEOUT_MS / 1000 + 5))[name]
        if outcome.error not in _CREATION_GOES_ON:
            raise ChangelogError(
                f"topic {name} cannot be created: {error_name(outcome.error)} {outcome.message or ''}".rstrip()
            )
        if outcome.error not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return


_CREATION_GOES_ON: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.TOPIC_ALREADY_EXISTS,  # another node created it first
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # a broker stopped after it was counted
    }
)


def _role(name: str, names: TopicNames) -> str:
    return {names.ownership: "ownership", names.snapshots: "snapshots", names.events: "events"}[name]


async def _checked(upstream: Upstream, described: ClusterDescription, names: TopicNames) -> InternalTopics:
    resources = {name: Resource(ConfigResource.TOPIC, name) for name in names.all}
    answers = await upstream.call(None, DescribeConfigs(tuple(resources.values())))
    findings: list[Finding] = []
    for topic in described.topics:
        answer = answers.get(resources[topic.name])
        if answer is None or answer.error:
            code = error_name(answer.error) if answer else "no answer"
            raise UpstreamError(f"configuration of {topic.name}: {code}")
        findings += check(_role(topic.name, names), answer.values, topic, len(described.brokers))
    fatal = [str(finding) for finding in findings if finding.fatal]
    if fatal:
        raise MisconfiguredError("; ".join(fatal))
    count = next(len(topic.partitions) for topic in described.topics if topic.name == names.snapshots)
    return InternalTopics(names, {topic.name: topic.topic_id for topic in described.topics}, tuple(findings), count)
