"""The three internal topics of a cluster of nodes: created once, checked at every start, never created again in
silence.

Ownership is created last: where it is missing beside others that hold records, it was deleted, not forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID
from zlib import crc32

from sidecar.changelog.configuration import Finding, NamedConfigs, check, wanted_configs
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
from sidecar.protocol.errors import ErrorCode, error_name
from sidecar.protocol.ids import TopicPartition

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
        """In the order of creation: ownership last."""
        return self.snapshots, self.events, self.ownership


@dataclass(frozen=True, slots=True)
class InternalTopics:
    """Topics that exist and are configured well enough; `warnings` are for an operator."""

    names: TopicNames
    ids: Mapping[str, UUID]
    warnings: tuple[Finding, ...]
    snapshot_partitions: int = SNAPSHOT_PARTITIONS

    @property
    def ownership(self) -> TopicPartition:
        """The one partition that every fence covers."""
        return TopicPartition(self.names.ownership, 0)

    def snapshots_of(self, topic: str) -> TopicPartition:
        """Where the snapshots of a topic are. Partitions that somebody added later are not used: it must not move."""
        count = min(self.snapshot_partitions, SNAPSHOT_PARTITIONS)
        return TopicPartition(self.names.snapshots, crc32(topic.encode()) % count)


async def open_topics(upstream: Upstream, cluster: str) -> InternalTopics:
    """Find the internal topics, or create them where the cluster of nodes is new, and check how they are configured.

    Raises `ChangelogLostError`, `MisconfiguredError`, `ChangelogError` where a broker refuses, `RetryTimeoutError`
    after a minute.
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
        except UpstreamError as error:
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
    """How many replicas an internal topic gets in a cluster of so many live brokers."""
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
        ErrorCode.TOPIC_ALREADY_EXISTS,  # another node was quicker
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.INVALID_REPLICATION_FACTOR,  # a broker went away since it was counted
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
        configs = NamedConfigs(topic.name, _role(topic.name, names), answer.values)
        findings += check(configs, topic, len(described.brokers))
    fatal = [str(finding) for finding in findings if finding.fatal]
    if fatal:
        raise MisconfiguredError("; ".join(fatal))
    count = next(len(topic.partitions) for topic in described.topics if topic.name == names.snapshots)
    return InternalTopics(names, {topic.name: topic.topic_id for topic in described.topics}, tuple(findings), count)
