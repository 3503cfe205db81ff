"""Kafka's latest metadata: brokers, controller, leaders. No I/O: `upstream` updates it, the gateway routes by it.

What one broker has shown, another one that lags does not take back: brokers learn of changes one after the other, and
each of them only moves forward. So an answer without a known topic, or with another topic id, counts if it is from a
broker that has shown the topic itself (`doubted`). Older leaders and missing partitions never count.

The view may be out of date at any time. A caller that notices (NOT_LEADER_OR_FOLLOWER, a lost connection) requests a
refresh; a wrong route costs the client a retry, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final
from uuid import UUID

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Found
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.primitives import at_once

NO_LEADER = -1
_SHOWN_BY: Final = 3
"""The number of brokers that are remembered for a topic."""


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's id and the leader (broker id, -1: none) and leader epoch of each partition. `shown_by`: some of the
    brokers that have this topic in their metadata.
    """

    topic_id: UUID
    leaders: MappingProxyType[int, int]
    leader_epochs: MappingProxyType[int, int]
    shown_by: frozenset[int] = frozenset()


class ClusterView:
    """The newest metadata. Topics are keyed by the bytes of their names, as in hot requests. `names` has the names of
    the same topics by topic id (KIP-516), without the old ids of topics that were deleted or created anew.
    """

    def __init__(self) -> None:
        self.version = 0
        """Rises with every change of this view: values derived from it are valid while the version is the same."""
        self.brokers: dict[int, Broker] = {}
        self.controller = -1
        self.cluster_id: str | None = None
        self._topics: dict[bytes, TopicRoute] = {}
        self.names: dict[bytes, bytes] = {}

    def doubted(self, state: ClusterState, broker: int, *, is_all: bool) -> Generator[None, None, set[bytes]]:
        """Return, in slices, the topics that this view has, and that a broker's answer lacks or has under another id
        although that broker has never shown them. `is_all`: all topics were requested.
        """
        doubted: set[bytes] = set()
        named: set[bytes] = set()
        for number, topic in enumerate(state.topics, 1):
            name = topic.name.encode() or self.names.get(topic.topic_id.bytes, b"")
            named.add(name)
            route = self._topics.get(name)
            if route is not None and _contradicts(topic, route) and _may_lag(broker, route):
                doubted.add(name)
            if not number % BOUNDS.turn:
                yield
        for number, name in enumerate(self._topics.keys() - named if is_all else (), 1):
            route = self._topics.get(name)
            if route is not None and _may_lag(broker, route):
                doubted.add(name)
            if not number % BOUNDS.turn:
                yield
        return doubted

    def apply(self, state: ClusterState, broker: int | None = None, *, is_all: bool = False) -> ClusterState:
        """Apply an answer of a broker to Metadata: its brokers are all brokers, its topics are the requested ones.
        Returns it with newer leaders and further partitions, as far as they are known.
        """
        return at_once(self.apply_steps(state, broker, is_all=is_all))

    def apply_steps(
        self, state: ClusterState, broker: int | None = None, *, is_all: bool = False
    ) -> Generator[None, None, ClusterState]:
        """Do as `apply` does, in slices."""
        self.version += 1
        if state.brokers:
            self.brokers = {broker.id: broker for broker in state.brokers}
        self.controller = state.controller
        self.cluster_id = state.cluster_id or self.cluster_id
        if is_all:
            for name in self._topics.keys() - {topic.name.encode() for topic in state.topics}:
                if broker in self._topics[name].shown_by:
                    self._drop(name)
        sliced = 0
        topics: list[TopicState] = []
        for topic in state.topics:
            topics.append(self._apply_topic(topic, broker))
            sliced += 1 + len(topic.partitions)
            if sliced >= BOUNDS.turn:
                sliced = 0
                yield
                self.version += 1
        return replace(state, topics=tuple(topics))

    def _apply_topic(self, topic: TopicState, broker: int | None) -> TopicState:
        name = topic.name.encode()
        if topic.error == ErrorCode.UNKNOWN_TOPIC_ID:
            self._drop(self.names.get(topic.topic_id.bytes, b""))
        elif topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._drop(name)
        elif topic.partitions:
            leaders = {p.partition: p.leader for p in topic.partitions}
            epochs = {p.partition: p.leader_epoch for p in topic.partitions}
            known = self._topics.get(name)
            shown_by: frozenset[int] = frozenset()
            if known is not None and known.topic_id == topic.topic_id:
                # A broker with old metadata must not bring back the old leader (as in Java's Metadata, KAFKA-7747),
                # nor remove partitions: a topic id never loses partitions.
                shown_by, older = known.shown_by, False
                for index, epoch in known.leader_epochs.items():
                    if index not in epochs or epochs[index] < epoch:
                        leaders[index], epochs[index], older = known.leaders[index], epoch, True
                if older:
                    topic = replace(topic, partitions=_merged(topic.partitions, leaders, epochs))
            else:
                self._drop(name)
                if topic.topic_id.int:
                    self.names[topic.topic_id.bytes] = name
            if broker is not None and broker >= 0 and broker not in shown_by:
                shown_by = frozenset((*sorted(shown_by)[: _SHOWN_BY - 1], broker))
            self._topics[name] = TopicRoute(
                topic.topic_id, MappingProxyType(leaders), MappingProxyType(epochs), shown_by
            )
        return topic

    def _drop(self, name: bytes) -> None:
        route = self._topics.pop(name, None)
        if route is not None:
            self.names.pop(route.topic_id.bytes, None)

    def learn(self, found: Mapping[tuple[bytes, int], Found]) -> None:
        """Apply the leaders that brokers return for partitions that they do not lead (KIP-951), if they are newer."""
        newer: dict[bytes, dict[int, Found]] = {}
        for (topic, partition), leader in found.items():
            route = self._topics.get(topic)
            known = None if route is None else route.leader_epochs.get(partition)
            if known is not None and known < leader.epoch and leader.broker in self.brokers:
                newer.setdefault(topic, {})[partition] = leader
        if newer:
            self.version += 1
        for topic, of_topic in newer.items():
            route = self._topics[topic]
            leaders = route.leaders | {index: leader.broker for index, leader in of_topic.items()}
            epochs = route.leader_epochs | {index: leader.epoch for index, leader in of_topic.items()}
            self._topics[topic] = replace(
                route, leaders=MappingProxyType(leaders), leader_epochs=MappingProxyType(epochs)
            )

    def leader_epoch(self, topic: bytes, partition: int) -> int:
        """Return the newest known leader epoch, else -1."""
        route = self._topics.get(topic)
        return -1 if route is None else route.leader_epochs.get(partition, -1)

    def leader(self, topic: bytes, partition: int) -> int:
        """Return the broker id of the leader if it is known, else `NO_LEADER`."""
        route = self._topics.get(topic)
        if route is None:
            return NO_LEADER
        leader = route.leaders.get(partition, NO_LEADER)
        return leader if leader in self.brokers else NO_LEADER

    def only_leader(self, partitions: Iterable[tuple[bytes, int]]) -> int:
        """Return the broker that leads all of these partitions, else `NO_LEADER`."""
        found = NO_LEADER
        for topic, partition in partitions:
            leader = self.leader(topic, partition)
            if leader == NO_LEADER or found not in (NO_LEADER, leader):
                return NO_LEADER
            found = leader
        return found

    def why_no_leader(self, topic: bytes, partition: int) -> ErrorCode:
        """Return Kafka's error for a partition without a known leader: LEADER_NOT_AVAILABLE if the partition exists,
        else UNKNOWN_TOPIC_OR_PARTITION.
        """
        route = self._topics.get(topic)
        exists = route is not None and partition in route.leaders
        return ErrorCode.LEADER_NOT_AVAILABLE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def route(self, topic: bytes) -> TopicRoute | None:
        return self._topics.get(topic)

    def missing(self, partitions: Iterable[tuple[bytes, int]]) -> set[bytes]:
        """Return the topics of those partitions for which no leader is known."""
        return {topic for topic, partition in partitions if self.leader(topic, partition) == NO_LEADER}

    def forget(self, topics: Iterable[bytes]) -> None:
        """Drop topics whose leaders proved wrong, so that the next request asks anew."""
        self.version += 1
        for topic in topics:
            self._drop(topic)


def _contradicts(topic: TopicState, route: TopicRoute) -> bool:
    gone = topic.error in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    return gone or (bool(topic.partitions) and topic.topic_id != route.topic_id)


def _may_lag(broker: int, route: TopicRoute) -> bool:
    """Whether a broker may not have heard of a topic yet that others have shown."""
    return bool(route.shown_by) and broker not in route.shown_by


def _merged(
    answered: Iterable[PartitionState], leaders: Mapping[int, int], epochs: Mapping[int, int]
) -> tuple[PartitionState, ...]:
    """The partitions of an answer with the newest known leaders, and those that it lacks."""
    there = {each.partition: each for each in answered}
    found: list[PartitionState] = []
    for index, leader in sorted(leaders.items()):
        own = there.get(index)
        if own is not None and own.leader_epoch == epochs[index]:
            found.append(own)
        else:
            error = ErrorCode.LEADER_NOT_AVAILABLE if leader == NO_LEADER else ErrorCode.NONE
            found.append(PartitionState(index, error, leader, epochs[index]))
    return tuple(found)
