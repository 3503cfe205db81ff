"""Kafka's latest metadata: brokers, controller, leaders. No I/O: `upstream` updates it, the gateway routes by it.

The view may be out of date at any time. A caller that notices (NOT_LEADER_OR_FOLLOWER, a lost connection) requests a
refresh; a wrong route costs the client a retry, never a wrong answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Found
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.metadata import Broker, ClusterState, TopicState
from sidecar.protocol.primitives import at_once

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """A topic's id and the leader (broker id, -1: none) and leader epoch of each partition."""

    topic_id: UUID
    leaders: MappingProxyType[int, int]
    leader_epochs: MappingProxyType[int, int]


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

    def apply(self, state: ClusterState) -> None:
        """Apply an answer to Metadata: its brokers are all brokers, its topics are the requested ones."""
        at_once(self.apply_steps(state))

    def apply_steps(self, state: ClusterState) -> Generator[None, None, None]:
        """Do as `apply` does, in slices."""
        self.version += 1
        if state.brokers:
            self.brokers = {broker.id: broker for broker in state.brokers}
        self.controller = state.controller
        self.cluster_id = state.cluster_id or self.cluster_id
        sliced = 0
        for topic in state.topics:
            self._apply_topic(topic)
            sliced += 1 + len(topic.partitions)
            if sliced >= BOUNDS.turn:
                sliced = 0
                yield
                self.version += 1

    def _apply_topic(self, topic: TopicState) -> None:
        name = topic.name.encode()
        if topic.error == ErrorCode.UNKNOWN_TOPIC_ID:
            self._drop(self.names.get(topic.topic_id.bytes, b""))
        elif topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._drop(name)
        elif topic.partitions:
            leaders = {p.partition: p.leader for p in topic.partitions}
            epochs = {p.partition: p.leader_epoch for p in topic.partitions}
            known = self._topics.get(name)
            if known is not None and known.topic_id == topic.topic_id:
                # A broker with old metadata must not bring back the old leader (as in Java's Metadata, KAFKA-7747),
                # nor remove partitions: a topic id never loses partitions.
                for index, epoch in known.leader_epochs.items():
                    if index not in epochs or epochs[index] < epoch:
                        leaders[index], epochs[index] = known.leaders[index], epoch
            else:
                self._drop(name)
                if topic.topic_id.int:
                    self.names[topic.topic_id.bytes] = name
            self._topics[name] = TopicRoute(topic.topic_id, MappingProxyType(leaders), MappingProxyType(epochs))

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
            self._topics[topic] = TopicRoute(route.topic_id, MappingProxyType(leaders), MappingProxyType(epochs))

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

    def why_unread(self, topic: bytes, partition: int) -> ErrorCode:
        """Return the same for a reader: NOT_LEADER_OR_FOLLOWER if the partition exists. Java's consumer throws an
        IllegalStateException if an answer to Fetch has LEADER_NOT_AVAILABLE
        (`FetchCollector.handleInitializeErrors`).
        """
        why = self.why_no_leader(topic, partition)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if why == ErrorCode.LEADER_NOT_AVAILABLE else why

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
