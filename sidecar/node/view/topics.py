"""Topics as the HTTP side sees them: their names, owners, serving nodes, and sequence ids by producer name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sidecar.gateway.owners import standing
from sidecar.gateway.sequence_ids import IdsError, KnownIds, SequenceIds, State, Why, state_of
from sidecar.node import port
from sidecar.node.parts import Parts, rooms_of
from sidecar.node.view.shadows import ShadowView
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.metadata import MetadataRequest, TopicState

_NAMES_PER_TURN: Final = 16
"""The number of producer names in one turn: each is looked up in every partition."""
_KNOW_S: Final = 5.0
"""How long a query for sequence ids waits until they are read (seconds)."""


_PER_TURN: Final = 64
"""The number of topics described in one turn of the event loop: a page may have a thousand."""
PRODUCERS: Final = 100
"""The number of producer names that are shown with a topic."""
_KAFKA_S: Final = 3.0
"""How long Kafka may take to list the topics, in seconds."""


class TopicsView:
    """Topics and prefixes with a policy, and the sequence ids of topics that this node serves, or no node does."""

    def __init__(self, node: Parts) -> None:
        self._node = node
        self.shadows = ShadowView(node)

    async def topic_names(self, *, governed: bool) -> Sequence[str]:
        """Return all topics that clients see and all prefixes with a policy, sorted.

        With `governed` only governed topics and the prefixes.
        """
        rooms = rooms_of(self._node)
        state = await self._ask(MetadataRequest(None, allow_auto_topic_creation=False))
        names = [topic.name for topic in state if not topic.internal and not topic.name.startswith("__")]
        if governed:
            names = [name for name in names if rooms.governed.env.policy_of(name) is not None]
        policies = rooms.governed.env.catalog.book
        waiting = [name for name in policies.topics if rooms.governed.env.policy_of(name) is not None]
        return sorted({*names, *waiting, *[prefix + "*" for prefix in policies.prefixes]})

    async def topics(self, names: Sequence[str], *, producers: bool = False) -> Sequence[port.Topic]:
        """Return these topics and prefixes in this order; those that do not exist are left out.

        With `producers` also the newest producer names (if this node serves the topic and knows its sequence ids), and
        the numbers of shadows.
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
        covering = rooms_of(self._node).governed.env.catalog.book.covering
        return [
            replace(topic, policies=dict(covering(topic.name)), shadow_stats=await self.shadows.stats_of(topic.shadows))
            for topic in shown
        ]

    async def _partitions(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """Return the partitions of those topics that exist; from this node's own view if Kafka does not answer."""
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
        policy = rooms_of(self._node).governed.env.catalog.book.exact(name)
        return None if policy is None else port.Topic(name, 0, policy)

    def _topic(self, name: str, partitions: frozenset[int] | None) -> port.Topic | None:
        governed = rooms_of(self._node).governed
        if partitions is None:  # a policy may be older than its topic: it applies from the first batch on
            waiting, own = governed.env.policy_of(name), governed.env.catalog.book.exact(name)
            return None if waiting is None or own is None else port.Topic(name, 0, waiting)
        policy = governed.env.policy_of(name)
        stands = standing(governed, self._node.nodes, name)
        if policy is None:
            off = State.OFF
            return port.Topic(
                name, len(partitions), generation=stands.generation, deduplication=off, shadows=self._names(name)
            )
        owners = dict(stands.owners)
        ids, detail = state_of(governed.topic(name), elsewhere=governed.env.is_served_elsewhere(name))
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

    # Who serves one -----------------------------------------------------------------------------------------------

    def check_serving(self, name: str) -> None:
        """Raise ElsewhereError if another live node serves the topic. Quick: no round trip."""
        rooms = rooms_of(self._node)
        if rooms.governed.serves(name):
            return
        number = self._node.nodes.serving.get(name.encode())
        if number is None and not rooms.membership.available:  # then the last server by the changelog
            recorded = rooms.changelog.view.serving(name)
            number = None if recorded is None else recorded.value.node
        if number not in (None, self._node.settings.node_id):
            self._check_node(name, number)

    def _check_node(self, name: str, number: int) -> None:
        live = rooms_of(self._node).governed.env.catalog.live
        if live is None or number not in live.nodes:
            return
        admin = live.nodes[number].admin
        if admin == str(self._node.settings.admin_advertise):
            why = f"both nodes say that their admin address is {admin}, so this one cannot (SIDECAR_ADMIN_ADVERTISE)"
            raise port.ElsewhereError(f"node {number} serves {name}: ask it; {why}", None)
        raise port.ElsewhereError(f"node {number} serves {name}: ask it, at {admin}", admin)

    # Sequence ids -------------------------------------------------------------------------------------------------

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[port.Producer], tuple[int, bytes] | None]:
        """Return at most `most` producer names of a topic, by their last record, the newest first; `behind`: start
        after this place (Unix seconds of the last record, name). Also the place for the next page, None at the end.

        Takes over a topic that no node serves. Raises NotFoundError if there is no such topic, ConflictError without
        deduplication, ElsewhereError, UnavailableError while the sequence ids are being read.
        """
        return await newest_of(await self._known(name), most, behind)

    async def producer(self, name: str, producer: str) -> port.ProducerIds:
        """Return what is known of one name. Raises what `producers` raises, and NotFoundError for an unknown name."""
        known, key = await self._known(name), producer.encode()
        marks = await known.marks(key)
        if not marks:
            raise _unknown_name(name, producer)
        return port.ProducerIds(
            producer,
            known.resume(marks),
            {index: mark.id for index, mark in marks.items()},
            offsets={index: mark.offset if mark.offset >= 0 else None for index, mark in marks.items()},
            last_seen_ms={index: mark.seen * 1000 for index, mark in marks.items()},
            in_use=known.ids.is_in_use(key),
        )

    async def forget_producer(self, name: str, producer: str) -> None:
        """Delete a name and its sequence ids for good. Raises what `producer` raises, ConflictError while in use."""
        known, key = await self._known(name), producer.encode()
        if known.ids.is_in_use(key):
            raise port.ConflictError(f"a connected session writes to {name} under {producer!r}: stop it first")
        try:
            forgotten = await known.ids.forget(key)
        except TimeoutError as error:
            raise port.UnavailableError(str(error)) from None
        if not forgotten:
            raise _unknown_name(name, producer)

    async def _known(self, name: str) -> KnownIds:
        """Return the sequence ids of a topic that this node serves, or that no node does."""
        node, rooms = self._node, rooms_of(self._node)
        try:
            return await SequenceIds(node.upstream, node.nodes, rooms.governed, rooms.catching_up).of(name, _KNOW_S)
        except IdsError as error:
            if error.why is Why.NO_TOPIC:
                raise port.NotFoundError(str(error)) from None
            if error.why is Why.NO_IDS:
                raise port.ConflictError(str(error)) from None
            if error.why is Why.ELSEWHERE:
                self.check_serving(name)
                raise port.NothingDoneError(str(error)) from None
            raise port.UnavailableError(str(error)) from None


async def newest_of(
    known: KnownIds, most: int, behind: tuple[int, bytes] | None = None
) -> tuple[list[port.Producer], tuple[int, bytes] | None]:
    """The `most` names that wrote last, of those after a place; and the place to go on after, None at the end."""
    found: list[port.Producer] = []
    names, last_place = await known.newest(most, behind)
    for number, name in enumerate(names, start=1):
        marks = await known.marks(name)
        last = {index: mark.id for index, mark in marks.items()}
        found.append(port.Producer(name.decode(errors="replace"), known.resume(marks), last))
        if number % _NAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    return found, last_place


def _unknown_name(topic: str, producer: str) -> port.NotFoundError:
    return port.NotFoundError(f"no sequence id of a producer {producer!r} is known in {topic}")
