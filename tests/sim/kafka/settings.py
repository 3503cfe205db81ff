"""What the simulated cluster needs of the world around it, and how it is set up."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

Span = tuple[float, float]
"""A delay in virtual seconds, drawn evenly between the two."""

_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


class Cancellable(Protocol):
    """What `Scheduler.call_later` returns."""

    def cancel(self) -> Any: ...


class Scheduler(Protocol):
    """Time and chance. Everything that the cluster does later, or may do in another order, goes through it."""

    rng: random.Random

    def now(self) -> float:
        """Virtual seconds since the start."""
        ...

    def wall_ms(self) -> int:
        """The brokers' wall clock, Unix milliseconds."""
        ...

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """Call once, `delay` virtual seconds from now."""
        ...


class Peer(Protocol):
    """The client's end of a connection, as the network gives it to the broker."""

    def send(self, data: bytes) -> Any: ...

    def close(self) -> Any: ...


TOPIC_DEFAULTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "delete.retention.ms": str(_DAY_MS),
        "file.delete.delay.ms": "60000",
        "flush.messages": "9223372036854775807",
        "flush.ms": "9223372036854775807",
        "max.compaction.lag.ms": "9223372036854775807",
        "max.message.bytes": "1048588",
        "message.timestamp.after.max.ms": str(_HOUR_MS),
        "message.timestamp.before.max.ms": "9223372036854775807",
        "message.timestamp.type": "CreateTime",
        "min.cleanable.dirty.ratio": "0.5",
        "min.compaction.lag.ms": "0",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": str(7 * _DAY_MS),
        "segment.bytes": "1073741824",
        "segment.ms": str(7 * _DAY_MS),
        "unclean.leader.election.enable": "false",
    }
)
"""Defaults of Kafka 4.1 (`TopicConfig`, `ServerTopicConfigSynonyms`)."""

_DEFAULTS_BEFORE_4: Final[Mapping[str, str]] = MappingProxyType({"message.timestamp.after.max.ms": str(2**63 - 1)})
"""KIP-1030."""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Times in virtual seconds where nothing else is said. Defaults are Kafka's own, but for partition counts."""

    version: tuple[int, int] = (4, 1)
    """Which Kafka answers, where releases differ: 3.9, 4.1 and 4.3 are compared with real ones."""
    brokers: tuple[int, ...] = (1, 2, 3)
    hosts: str = "kafka-{}"
    port: int = 9092
    cluster_id: str = "simulated-kafka-cluster"
    serve: Span = (0.000_2, 0.002)
    """From a whole request to the moment when a broker works on it."""
    link: Span = (0.000_2, 0.003)
    """Between two brokers, or a broker and the controller, one way."""
    metadata: Span = (0.001, 0.05)
    """From a change in the controller to a broker's own image of it."""
    apply: Span = (0.0, 0.005)
    """From then until its replicas act on it."""
    commit: Span = (0.001, 0.01)
    """A change in the controller's own log."""
    markers: Span = (0.000_5, 0.01)
    """Before the coordinator sends a transaction marker, for each one."""
    load: Span = (0.005, 0.2)
    """How long a new coordinator loads its partition."""
    retry: Span = (0.05, 0.2)
    """Until a broker asks another one again (replica.fetch.backoff.ms, marker retries)."""
    fetch_wait: float = 0.5
    """replica.fetch.wait.max.ms: at the latest after it a follower hears of a new high watermark."""
    replica_lag: float = 30.0
    """replica.lag.time.max.ms."""
    session: float = 9.0
    """broker.session.timeout.ms: a broker without a heartbeat for this time is fenced."""
    heartbeat: float = 2.0
    """broker.heartbeat.interval.ms."""
    request_timeout: float = 30.0
    """request.timeout.ms between brokers."""
    replication: int = 3
    """default.replication.factor."""
    partitions: int = 1
    """num.partitions."""
    auto_create: bool = False
    """auto.create.topics.enable."""
    transaction_partitions: int = 4
    offsets_partitions: int = 2
    internal_min_isr: int = 2
    """transaction.state.log.min.isr; never more than there are replicas."""
    producer_expiration_ms: int = _DAY_MS
    """producer.id.expiration.ms."""
    transactional_id_expiration_ms: int = 7 * _DAY_MS
    """transactional.id.expiration.ms."""
    max_transaction_timeout_ms: int = 900_000
    """transaction.max.timeout.ms."""
    abort_check: float = 10.0
    """transaction.abort.timed.out.transaction.cleanup.interval.ms."""
    expiration_check: float | None = 600.0
    """producer.id.expiration.check.interval.ms; None: never by itself."""
    retention_check: float | None = 300.0
    """log.retention.check.interval.ms; None: never by itself."""
    cleaner_backoff: float | None = 15.0
    """log.cleaner.backoff.ms; None: never by itself."""
    hw_checkpoint: float = 5.0
    """replica.high.watermark.checkpoint.interval.ms."""
    start_checkpoint: float = 60.0
    """log.flush.start.offset.checkpoint.interval.ms."""
    producer_id_block: int = 1000
    """ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE."""
    topic_defaults: Mapping[str, str] = field(default_factory=dict)
    """Broker-wide defaults that differ from `TOPIC_DEFAULTS`."""

    def defaults(self) -> dict[str, str]:
        """What a topic is set to that says nothing itself."""
        older = _DEFAULTS_BEFORE_4 if self.version < (4, 0) else {}
        return {**TOPIC_DEFAULTS, **older, **self.topic_defaults}
