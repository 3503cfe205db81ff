"""The parts of which the sidecar's own APIs are composed."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.exclusive.governed_topics import GovernedTopics
    from sidecar.exclusive.owning import TopicOwners
    from sidecar.gateway.own.answers import Answers
    from sidecar.resources.coordinator import Coordinator


class Rooms(NamedTuple):
    """The rooms that claims are made in, and what builds the answers."""

    upstream: KafkaUpstream
    nodes: NodeDirectory
    resolver: NameResolver
    governed: GovernedTopics
    topics: TopicOwners
    coordinator: Coordinator
    answers: Answers
