"""The node as its HTTP side sees it: `sidecar.node.port.NodePort`, implemented over the rooms. Changes nothing by
itself.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from metadata import GenerationChanged, MetadataUnavailable
from metadata.ownership import AccessMode
from sidecar.changelog import MASTER_SLOT, ChangelogError, RetryTimeoutError, follow_events, partition_slot
from sidecar.exclusive.answers import NO_REDIS
from sidecar.exclusive.catalog import UnservedError, Wanted
from sidecar.exclusive.policies import PolicyFields, Scope
from sidecar.exclusive.records import mode_of
from sidecar.exclusive.takeover import LostRaceError
from sidecar.exclusive.tenure import GenerationError, NothingDoneError
from sidecar.gateway.catching_up import BehindError
from sidecar.gateway.owners import standing
from sidecar.gateway.sequence_ids import IdsError, KnownIds, SequenceIds, Why, state_of
from sidecar.node import port
from sidecar.node.client_view import page_of
from sidecar.node.gauges import known_ids
from sidecar.node.shadow_view import ShadowView
from sidecar.protocol.caller import Lane, UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.metadata import MetadataRequest
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from sidecar.gateway.owners import Owner
    from sidecar.node.parts import Rooms, Running
    from sidecar.protocol.metadata import TopicState
    from sidecar.settings.told import Shown

NO_CHANGE = "no topic can change its owner now"
_PER_TURN: Final = 64
"""Topics that are described in one turn of the event loop: a page may name a thousand."""
_NAMES_PER_TURN: Final = 16
"""Producer names in one turn: each is looked up in every partition."""
PRODUCERS: Final = 100
"""Names that are shown with a topic."""
_EVENT_STREAMS = 8
_KAFKA_S: Final = 3.0
"""How long Kafka may take to say which topics there are."""
_KNOW_S: Final = 5.0
"""How long a question about sequence ids waits for them to be read."""
_KINDS = {number: port.EventKind(name.lower()) for name, number in state.Event.Kind.items() if number}
_AWAY = (UpstreamError, KafkaError, ChangelogError, RetryTimeoutError, LostRaceError, TimeoutError)


class NodeView:
    """Implements `NodePort`."""

    def __init__(self, node: Running) -> None:
        self._node = node
        self.shadows = ShadowView(node)
        self._event_lanes = [Lane(f"events-{number}") for number in range(_EVENT_STREAMS)]

    def _rooms(self) -> Rooms:
        rooms = self._node.rooms
        if rooms is None:
            raise port.UnavailableError(self._node.problem)
        return rooms

    async def checks(self) -> Sequence[port.Check]:
        node, rooms = self._node, self._node.rooms
        failing = rooms.loops.failing() if rooms is not None else {}
        stands = ", ".join(f"{name} keeps failing: {problem}" for name, problem in failing.items())
        is_serving = node.state is port.NodeState.SERVING
        serving = port.Check("node", is_serving and not failing, node.problem or stands)
        if rooms is None:
            waiting = "not reached yet"
            return [serving, *[port.Check(name, ok=False, detail=waiting) for name in ("kafka", "redis", "changelog")]]
        tail_error = rooms.changelog.tailer.last_error
        known = bool(node.upstream.view.brokers)
        return [
            serving,
            port.Check("kafka", *_kafka(known, tail_error)),
            port.Check("redis", *self._redis(rooms)),
            port.Check("changelog", tail_error is None, str(tail_error or "")),
        ]

    def _redis(self, rooms: Rooms) -> tuple[bool, str]:
        one, membership = self._node.one_redis, rooms.membership
        if one is not None and one.problem:
            return False, one.problem
        return membership.available, "" if membership.available else f"{membership.problem}; {NO_CHANGE}"

    async def status(self) -> port.Status:
        node = self._node
        view = node.upstream.view
        rooms = node.rooms
        return port.Status(
            node_id=node.settings.node_id,
            cluster=node.settings.cluster,
            state=node.state,
            started_ms=node.started_ms,
            advertise=(node.nodes.me.host, node.nodes.me.port),
            kafka_cluster_id=view.cluster_id,
            nodes=[port.Peer(n.id, n.host, n.port) for n in node.nodes.placement.nodes.values()],
            brokers=[port.Peer(b.id, b.host, b.port) for b in view.brokers.values()],
            client_connections=node.metrics.client_connections,
            governed_topics=len(rooms.governor.known_topics()) if rooms else 0,
            checks=await self.checks(),
            deduplication=known_ids(rooms.governor) if rooms else port.Deduplicated(),
        )

    async def clients(self, after: int, most: int) -> tuple[Sequence[port.ClientFacts], int | None]:
        return await page_of(self._rooms().gateway.clients, self._node.settings.node_id, after, most)

    def settings(self) -> Sequence[Shown]:
        return self._node.told.shown()

    async def topic_names(self, *, governed: bool) -> Sequence[str]:
        rooms = self._rooms()
        state = await self._ask(MetadataRequest(None, allow_auto_topic_creation=False))
        names = [topic.name for topic in state if not topic.internal and not topic.name.startswith("__")]
        if governed:
            names = [name for name in names if rooms.governor.policy_of(name) is not None]
        policies = rooms.governor.catalog.book
        waiting = [name for name in policies.topics if rooms.governor.policy_of(name) is not None]
        return sorted({*names, *waiting, *[prefix + "*" for prefix in policies.prefixes]})

    async def topics(self, names: Sequence[str], *, producers: bool = False) -> Sequence[port.Topic]:
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
        return [replace(topic, shadow_stats=await self.shadows.stats_of(topic.shadows)) for topic in shown]

    async def _partitions(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """The partitions of those topics that there are: by what is known of them where Kafka cannot be asked."""
        try:
            state = await self._ask(MetadataRequest(tuple(names), allow_auto_topic_creation=False))
        except port.UnavailableError:
            known = {name: self._node.upstream.view.route(name.encode()) for name in names}
            if self._node.rooms is None or None in known.values():
                raise
            return {name: frozenset(route.leaders) for name, route in known.items() if route is not None}
        return {topic.name: frozenset(found.partition for found in topic.partitions) for topic in state}

    async def _with_producers(self, topic: port.Topic, partitions: frozenset[int] | None) -> port.Topic:
        ids = self._rooms().governor.topic(topic.name).ids if topic.deduplication is port.IdsState.READY else None
        if ids is None or partitions is None:
            return topic
        known = KnownIds(ids, partitions)
        return replace(topic, producers=(await _newest(known, PRODUCERS))[0])

    async def _ask(self, request: MetadataRequest) -> list[TopicState]:
        self._rooms()
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
        policy = self._rooms().governor.catalog.book.exact(name)
        return None if policy is None else port.Topic(name, 0, _shown(policy))

    def _topic(self, name: str, partitions: frozenset[int] | None) -> port.Topic | None:
        governor = self._rooms().governor
        if partitions is None:  # a policy may be there before its topic: it holds from the first batch on
            waiting, own = governor.policy_of(name), governor.catalog.book.exact(name)
            return None if waiting is None or own is None else port.Topic(name, 0, _shown(waiting))
        policy = governor.policy_of(name)
        stands = standing(governor, self._node.nodes, name)
        if policy is None:
            off = port.IdsState.OFF
            return port.Topic(
                name, len(partitions), generation=stands.generation, deduplication=off, shadows=self._names(name)
            )
        owners = {index: _owner(found) for index, found in stands.owners.items()}
        ids, detail = state_of(governor.topic(name), elsewhere=governor.is_served_elsewhere(name))
        return port.Topic(
            name,
            len(partitions),
            policy=_shown(policy),
            generation=stands.generation,
            owner=owners.pop(None, None),
            owners={index: found for index, found in owners.items() if index is not None}
            if stands.by_partition
            else None,
            waiting=[port.Waiting(each.name, each.session, each.since_ms, each.partition) for each in stands.waiting],
            shadows=self._names(name),
            serving_node=stands.serving_node,
            generations={index: found for index, found in stands.generations.items() if index is not None}
            if stands.by_partition
            else None,
            deduplication=port.IdsState(ids.value),
            deduplication_detail=detail,
        )

    def _names(self, source: str) -> list[str]:
        return [found.name for found in self._rooms().shadows.of(source)]

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[port.Event | None]:
        rooms = self._rooms()
        if not self._event_lanes:
            raise port.UnavailableError(f"{_EVENT_STREAMS} streams of events are open already; close one first")
        lane = self._event_lanes.pop()
        try:
            partition = rooms.changelog.events
            async for found in follow_events(self._node.upstream, partition, lane, after, newest, topic):
                yield None if found is None else _as_event(*found)
        finally:
            self._event_lanes.append(lane)

    async def merge_policy(self, name: str, change: port.Policy, match: port.IfMatch | None = None) -> port.Topic:
        governor = self._rooms().governor
        await self.catch_up()
        wanted_generations = await self._wanted(name, match)
        if (source := self._node.resolver.source(name.encode())) is not None:
            raise port.InvalidError(
                f"{name} is a shadow, which nobody can write to: govern its source {source.topic.decode()}"
            )
        wanted = PolicyFields(
            access_mode=None if change.access_mode is None else AccessMode(change.access_mode.value),
            deduplication=change.deduplication,
            exclusive_reader=change.exclusive_reader,
            scope=None if change.scope is None else Scope(change.scope.value),
            log_append_time=change.log_append_time,
        )
        try:
            await governor.catalog.set(name, wanted, wanted_generations)
        except UnservedError as error:
            raise port.InvalidError(str(error)) from None
        except GenerationChanged as error:
            raise _another(name, error.current) from None
        except MetadataUnavailable as error:
            raise port.UnavailableError(f"Redis does not answer, so policies cannot change now: {error}") from None
        except _AWAY as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        return (await self.topics([name], producers=True))[0]

    async def _wanted(self, name: str, match: port.IfMatch | None) -> Wanted | None:
        """What a policy is to change under; raises GenerationError where something is to be there that is not."""
        if match is None:
            return None
        found = next(iter(await self.topics([name])), None)
        if match.partition is not None and found is not None:
            if found.generations is None:
                raise port.InvalidError(f"{name} has no owners of partitions: leave partition out")
            if match.partition >= found.partitions:
                raise port.InvalidError(f"{name} has {found.partitions} partitions, and no {match.partition}")
        if match.generations is not None:
            return Wanted(match.generations, match.partition)
        if found is None:
            raise port.GenerationError(f"neither a topic nor a policy {name} exists; nothing was done")
        return None

    async def delete_policy(self, name: str, match: port.IfMatch | None = None) -> None:
        await self.catch_up()
        try:
            deleted = await self._rooms().governor.catalog.delete(name, await self._wanted(name, match))
        except GenerationChanged as error:
            raise _another(name, error.current) from None
        except MetadataUnavailable as error:
            raise port.UnavailableError(f"Redis does not answer, so policies cannot change now: {error}") from None
        except _AWAY as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        if not deleted:
            raise port.NotFoundError(f"{name} has no policy of its own")

    async def fence(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> port.Topic:
        return await self._administer(name, partition, generations, fence=True)

    async def release(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> port.Topic:
        return await self._administer(name, partition, generations, fence=False)

    async def catch_up(self) -> None:
        try:
            await self._rooms().catching_up.now()
        except BehindError as error:
            raise port.UnavailableError(str(error)) from None

    def check_serving(self, name: str) -> None:
        rooms = self._rooms()
        if rooms.governor.serves(name):
            return
        number = self._node.nodes.serving.get(name.encode())
        if number is None and not rooms.membership.available:  # then the last one that wrote down that it does
            recorded = rooms.changelog.view.serving(name)
            number = None if recorded is None else recorded.value.node
        if number not in (None, self._node.settings.node_id):
            self._check_node(name, number)

    def _check_recorded(self, name: str, partition: int | None) -> None:
        """Where this node knows no owner: raises `ElsewhereError` where the changelog tells of one at another live
        node, of which Redis, emptied a moment ago, does not tell yet.
        """
        rooms = self._rooms()
        if rooms.governor.topic(name).serving:
            return
        slot = MASTER_SLOT if partition is None else partition_slot(partition)
        recorded = rooms.changelog.view.serving(name, slot)
        if recorded is not None and recorded.value.session and recorded.value.node != self._node.settings.node_id:
            self._check_node(name, recorded.value.node)

    def _check_node(self, name: str, number: int) -> None:
        live = self._rooms().governor.catalog.live
        if live is None or number not in live.nodes:
            return
        admin = live.nodes[number].admin
        if admin == str(self._node.settings.admin_advertise):
            why = f"both nodes say that their admin address is {admin}, so this one cannot (SIDECAR_ADMIN_ADVERTISE)"
            raise port.ElsewhereError(f"node {number} serves {name}: ask it; {why}", None)
        raise port.ElsewhereError(f"node {number} serves {name}: ask it, at {admin}", admin)

    async def _administer(
        self, name: str, partition: int | None, generations: frozenset[int] | None, *, fence: bool
    ) -> port.Topic:
        await self.catch_up()
        described = await self.topics([name])
        if not described:
            raise port.NotFoundError(f"topic {name} does not exist")
        if described[0].policy is None:
            raise port.ConflictError(f"{name} is not governed: nobody owns it")
        self.check_serving(name)
        try:
            topic = self._rooms().governor.topic(name)
            await topic.administer(partition, fence=fence, generations=generations)
        except ValueError as error:
            raise port.InvalidError(str(error)) from None
        except GenerationError as error:
            raise port.GenerationError.of(name, error.current) from None
        except LookupError:
            self._check_recorded(name, partition)
            raise port.ConflictError(f"nobody owns {name if partition is None else f'{name}-{partition}'}") from None
        except NothingDoneError as error:
            raise port.NothingDoneError(f"{name} cannot change its owner now: {error.message}; try again") from None
        except MetadataUnavailable as error:
            raise port.UnavailableError(f"{NO_REDIS}: {error}") from None
        except _AWAY as error:
            raise port.UnavailableError.unsettled(error, f"sidecar topic show {name}") from None
        return (await self.topics([name], producers=True))[0]

    # Sequence ids ---------------------------------------------------------------------------------------------------

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[port.Producer], tuple[int, bytes] | None]:
        return await _newest(await self._known(name), most, behind)

    async def producer(self, name: str, producer: str) -> port.ProducerIds:
        known, key = await self._known(name), producer.encode()
        marks = {index: mark for index, mark in known.ids.marks_of(key).items() if index in known.partitions}
        if not marks:
            raise _unknown_name(name, producer)
        last = {index: mark.id for index, mark in marks.items()}
        return port.ProducerIds(
            producer,
            known.resume(last),
            last,
            offsets={index: mark.offset if mark.offset >= 0 else None for index, mark in marks.items()},
            last_seen_ms={index: mark.seen * 1000 for index, mark in marks.items()},
            in_use=known.ids.is_in_use(key),
        )

    async def forget_producer(self, name: str, producer: str) -> None:
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
        """The sequence ids of a topic that this node serves, or that nobody does."""
        node, rooms = self._node, self._rooms()
        try:
            return await SequenceIds(node.upstream, node.nodes, rooms.governor, rooms.catching_up).of(name, _KNOW_S)
        except IdsError as error:
            if error.why is Why.NO_TOPIC:
                raise port.NotFoundError(str(error)) from None
            if error.why is Why.NO_IDS:
                raise port.ConflictError(str(error)) from None
            if error.why is Why.ELSEWHERE:
                self.check_serving(name)
                raise port.NothingDoneError(str(error)) from None
            raise port.UnavailableError(str(error)) from None


def _another(name: str, current: int | None) -> port.PortError:
    if current is None:
        return port.UnavailableError(f"{name} is changing its owner: look at its generation, and try again")
    return port.GenerationError.of(name, current)


async def _newest(
    known: KnownIds, most: int, behind: tuple[int, bytes] | None = None
) -> tuple[list[port.Producer], tuple[int, bytes] | None]:
    found: list[port.Producer] = []
    names, last_place = await known.newest(most, behind)
    for number, name in enumerate(names, start=1):
        last = known.last(name)
        found.append(port.Producer(name.decode(errors="replace"), known.resume(last), last))
        if number % _NAMES_PER_TURN == 0:
            await asyncio.sleep(0)
    return found, last_place


def _unknown_name(topic: str, producer: str) -> port.NotFoundError:
    return port.NotFoundError(f"no sequence id of a producer {producer!r} is known in {topic}")


def _owner(found: Owner) -> port.Owner:
    return port.Owner(
        name=found.name,
        session=found.session,
        mode=port.AccessMode(found.mode.value),
        since_ms=found.since_ms,
        client=found.client,
        generation=found.generation,
    )


def _as_event(position: int, event: state.Event) -> port.Event | None:
    if event.kind not in _KINDS:
        return None  # of a newer node
    return port.Event(
        position=position,
        id=event.id.hex(),
        kind=_KINDS[event.kind],
        at_ms=event.at_ms,
        topic=event.topic,
        generation=event.generation,
        session=event.session,
        name=event.name,
        mode=port.AccessMode(mode_of(event.mode).value) if event.mode else None,
        client=event.client,
        node_id=event.node,
        detail=event.detail,
        partition=event.partition if event.HasField("partition") else None,
    )


def _kafka(known: bool, tail_error: Exception | None) -> tuple[bool, str]:
    """Whether Kafka answers: the node reads from it all the time."""
    if not known:
        return False, "no broker is known"
    silent = isinstance(tail_error, UpstreamError)
    return not silent, str(tail_error) if silent else ""


def _shown(policy: PolicyFields) -> port.Policy:
    return port.Policy(
        access_mode=None if policy.access_mode is None else port.AccessMode(policy.access_mode.value),
        deduplication=policy.deduplication,
        exclusive_reader=policy.exclusive_reader,
        scope=None if policy.scope is None else port.Scope(policy.scope.value),
        log_append_time=policy.log_append_time,
    )
