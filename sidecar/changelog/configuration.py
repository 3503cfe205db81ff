"""How the internal topics must be configured, and whether they are. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.protocol.calls.admin import TopicDescription

_DAY_MS: Final = 24 * 3600 * 1000
_WEEK_MS: Final = 7 * _DAY_MS
EVENTS_RETENTION_MS: Final = 90 * _DAY_MS
_LARGEST_BATCH: Final = 8 * 1024 * 1024
_SEGMENT_BYTES: Final = 32 * 1024 * 1024

_COMMON: Final = {
    # What a partition remembers of a producer expires by its records' timestamps: they must be the broker's.
    "message.timestamp.type": "LogAppendTime",
    "unclean.leader.election.enable": "false",
    "compression.type": "uncompressed",
    "max.message.bytes": str(_LARGEST_BATCH),
}
_COMPACTED: Final = {
    # Seven days in which a marker that compaction may take still stands; rolled by size, as only closed segments are
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
    """What a new topic of a role (`ownership`, `snapshots`, `events`) is created with."""
    return {**_COMMON, **_BY_ROLE[role], "min.insync.replicas": str(_in_sync(replicas))}


def _in_sync(replicas: int) -> int:
    """One replica may be away; the acknowledged record then lies on all others."""
    return max(1, replicas - 1)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about a topic that is not as it should be. A fatal one would cost safety, not comfort."""

    topic: str
    what: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.topic}: {self.what}"


class NamedConfigs(NamedTuple):
    """A topic's configuration as a broker answered it."""

    topic: str
    role: str
    values: Mapping[str, str | None]


def check(configs: NamedConfigs, topic: TopicDescription, brokers: int) -> list[Finding]:
    """Compare a topic with what its role needs, in a cluster of so many live brokers."""
    replicas = min(len(part.replicas) for part in topic.partitions)
    return [
        *_check_exact(configs),
        *_check_least(configs, replicas),
        *_check_shape(configs, topic, replicas, brokers),
    ]


_EXACT: Final = ("cleanup.policy", "message.timestamp.type", "unclean.leader.election.enable", "compression.type")


def _check_exact(configs: NamedConfigs) -> list[Finding]:
    wanted = wanted_configs(configs.role, 1)
    return [
        Finding(configs.topic, f"{name} is {configs.values.get(name)}, must be {wanted[name]}", fatal=True)
        for name in _EXACT
        if configs.values.get(name) != wanted[name]
    ]


def _check_least(configs: NamedConfigs, replicas: int) -> list[Finding]:
    """Settings with a least value; a negative retention is no limit at all."""
    least = {"min.insync.replicas": _in_sync(replicas)}
    if configs.role == "events":
        least["retention.ms"] = EVENTS_RETENTION_MS
    else:
        least |= {"delete.retention.ms": _WEEK_MS, "max.message.bytes": _LARGEST_BATCH}
    found: list[Finding] = []
    for name, bound in least.items():
        value = configs.values.get(name)
        if value is None or 0 <= int(value) < bound:
            fatal = name in ("min.insync.replicas", "delete.retention.ms")
            found.append(Finding(configs.topic, f"{name} is {value}, must be {bound} at least", fatal=fatal))
    return found


def _check_shape(configs: NamedConfigs, topic: TopicDescription, replicas: int, brokers: int) -> list[Finding]:
    found: list[Finding] = []
    if configs.role != "snapshots" and len(topic.partitions) != 1:
        found.append(Finding(configs.topic, f"{len(topic.partitions)} partitions, must be 1", fatal=True))
    if replicas < min(3, brokers):
        what = f"{replicas} of {brokers} brokers hold it; {min(3, brokers)} should (kafka-reassign-partitions)"
        found.append(Finding(configs.topic, what, fatal=False))
    return found
