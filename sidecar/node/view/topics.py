"""Topics as their describer sees them: which there are, who owns and who serves them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sidecar.gateway.owners import standing
from sidecar.gateway.sequence_ids import KnownIds, State, state_of
from sidecar.node import port
from sidecar.node.parts import Running
from sidecar.node.view.ids import newest_of
from sidecar.node.view.serving import rooms_of
from sidecar.node.view.shadows import ShadowView
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.metadata import MetadataRequest, TopicState

_PER_TURN: Final = 64
"""Topics described in one turn of the event loop: a page may name a thousand."""
PRODUCERS: Final = 100
"""Names that are shown with a topic."""
_KAFKA_S: Final = 3.0
"""How long Kafka may take to list the topics, in seconds."""


class TopicsView:
    """Topics and prefixes with a policy."""

    def __init__(self, node: Running, shadows: ShadowView) -> None:
        self._node = node
        self._shadows = shadows

    async def names(self, *, governed: bool) -> Sequence[str]:
        """All topics that clients see and all prefixes with a policy, sorted.

        With `governed` only topics that are governed, by whatever policy, and the prefixes.
        """
        rooms = rooms_of(self._node)
        state = await self._ask(MetadataRequest(None, allow_auto_topic_creation=False))
        names = [topic.name for topic in state if not topic.internal and not topic.name.startswith("__")]
        if governed:
            names = [name for name in names if rooms.governed.policy_of(name) is not None]
        policies = rooms.governed.catalog.book
        waiting = [name for name in policies.topics if rooms.governed.policy_of(name) is not None]
        return sorted({*names, *waiting, *[prefix + "*" for prefix in policies.prefixes]})

    async def of(self, names: Sequence[str], *, producers: bool = False) -> Sequence[port.Topic]:
        """These topics and prefixes in this order; those that do not exist are left out.

        With `producers` the newest names, of topics that this node serves and whose sequence ids it knows, and the
        numbers of shadows.
        """
        found = await self._partitions([name for name in names if not name.endswith("*")])
        topics: list[port.Topic] = []
        for number, name in enumerate(names, start=1):
            described = self._prefix(name) if name.endswith("*") else self._topic(name, found.get(name))
            topics += [described] if described is not None else []
            if number % _PER_TURN == 0:
                await asyncio.sleep(0)
        if not producers:
            return topics
        shown = [await self._with_producers(topic, found.get(topic.name)) for topic in topics]
        covering = rooms_of(self._node).governed.catalog.book.covering
        return [
            replace(
                topic, policies=dict(covering(topic.name)), shadow_stats=await self._shadows.stats_of(topic.shadows)
            )
            for topic in shown
        ]

    async def _partitions(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """The partitions of those topics that exist. If Kafka does not answer: as this node knows them."""
        try:
            state = await self._ask(MetadataRequest(tuple(names), allow_auto_topic_creation=False))
        except port.UnavailableError:
            known = {name: self._node.upstream.view.route(name.encode()) for name in names}
            if self._node.rooms is None or None in known.values():
                raise
            return {name: frozenset(route.leaders) for name, route in known.items() if route is not None}
        return {topic.name: frozenset(found.partition for found in topic.partitions) for topic in state}

    async def _with_producers(self, topic: port.Topic, partitions: frozenset[int] | None) -> port.Topic:
        governed = rooms_of(self._node).governed
        ids = governed.topic(topic.name).ids if topic.deduplication is State.READY else None
        if ids is None or partitions is None:
            return topic
        known = KnownIds(ids, partitions)
        return replace(topic, producers=(await newest_of(known, PRODUCERS))[0])

    async def _ask(self, request: MetadataRequest) -> list[TopicState]:
        rooms_of(self._node)
        if request.names_nothing:
            return []
        try:
            async with asyncio.timeout(_KAFKA_S):
                state = await self._node.upstream.metadata(request)
        except TimeoutError:
            raise port.UnavailableError(f"Kafka does not answer within {_KAFKA_S:g} s") from None
        except (UpstreamError, KafkaError) as error:
            raise port.UnavailableError(f"Kafka does not answer: {error}") from None
        return [topic for topic in state.topics if topic.partitions]

    def _prefix(self, name: str) -> port.Topic | None:
        policy = rooms_of(self._node).governed.catalog.book.exact(name)
        return None if policy is None else port.Topic(name, 0, policy)

    def _topic(self, name: str, partitions: frozenset[int] | None) -> port.Topic | None:
        governed = rooms_of(self._node).governed
        if partitions is None:  # a policy may be older than its topic: it holds from the first batch on
            waiting, own = governed.policy_of(name), governed.catalog.book.exact(name)
            return None if waiting is None or own is None else port.Topic(name, 0, waiting)
        policy = governed.policy_of(name)
        stands = standing(governed, self._node.nodes, name)
        if policy is None:
            off = State.OFF
            return port.Topic(
                name, len(partitions), generation=stands.generation, deduplication=off, shadows=self._names(name)
            )
        owners = dict(stands.owners)
        ids, detail = state_of(governed.topic(name), elsewhere=governed.is_served_elsewhere(name))
        return port.Topic(
            name,
            len(partitions),
            policy=policy,
            generation=stands.generation,
            owner=owners.pop(None, None),
            owners={index: found for index, found in owners.items() if index is not None}
            if stands.by_partition
            else None,
            waiting=stands.waiting,
            shadows=self._names(name),
            serving_node=stands.serving_node,
            generations={index: found for index, found in stands.generations.items() if index is not None}
            if stands.by_partition
            else None,
            deduplication=ids,
            deduplication_detail=detail,
        )

    def _names(self, source: str) -> list[str]:
        return [found.name for found in rooms_of(self._node).shadows.of(source)]
