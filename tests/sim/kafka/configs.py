"""Which settings a topic may have, and which values (`LogConfig`, `TopicConfig`, `ConfigDef`).

One limit is not Kafka's: segments may be smaller than the 1 MB of Kafka 4.x (KIP-1030), so that a short history rolls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from tests.sim.kafka import errors
from tests.sim.kafka.errors import RefusedError

_LISTS: Final = {
    "cleanup.policy": frozenset({"compact", "delete"}),
    "follower.replication.throttled.replicas": None,
    "leader.replication.throttled.replicas": None,
}


def _at_least(lowest: int) -> Callable[[str], bool]:
    return lambda value: int(value) >= lowest


def _one_of(*values: str) -> Callable[[str], bool]:
    return lambda value: value in values


def _flag(value: str) -> bool:
    return value.lower() in {"true", "false"}


_RULES: Final[Mapping[str, Callable[[str], bool]]] = {
    "compression.type": _one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    "delete.retention.ms": _at_least(0),
    "file.delete.delay.ms": _at_least(0),
    "flush.messages": _at_least(1),
    "flush.ms": _at_least(0),
    "index.interval.bytes": _at_least(0),
    "local.retention.bytes": _at_least(-2),
    "local.retention.ms": _at_least(-2),
    "max.compaction.lag.ms": _at_least(1),
    "max.message.bytes": _at_least(0),
    "message.timestamp.after.max.ms": _at_least(0),
    "message.timestamp.before.max.ms": _at_least(0),
    "message.timestamp.type": _one_of("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": lambda value: 0 <= float(value) <= 1,
    "min.compaction.lag.ms": _at_least(0),
    "min.insync.replicas": _at_least(1),
    "preallocate": _flag,
    "remote.storage.enable": _flag,
    "retention.bytes": _at_least(-1),
    "retention.ms": _at_least(-1),
    "segment.bytes": _at_least(14),
    "segment.index.bytes": _at_least(4),
    "segment.jitter.ms": _at_least(0),
    "segment.ms": _at_least(1),
    "unclean.leader.election.enable": _flag,
}


def is_list(name: str) -> bool:
    """Whether items can be appended to it and taken out of it."""
    return name in _LISTS


def items(value: str) -> list[str]:
    return [each.strip() for each in value.split(",") if each.strip()]


def check(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The settings as they are kept. Raises `RefusedError` 40 for one that a topic may not have."""
    found: dict[str, str] = {}
    for name, value in configs.items():
        if value is None:
            raise RefusedError(errors.INVALID_CONFIG, f"Null value not supported for topic configs: {name}")
        if not _is_right(name, value.strip()):
            raise RefusedError(errors.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
        found[name] = value
    return found


def _is_right(name: str, value: str) -> bool:
    if name in _LISTS:
        allowed = _LISTS[name]
        return allowed is None or all(each in allowed for each in items(value))
    try:
        return name in _RULES and _RULES[name](value)
    except ValueError:
        return False
