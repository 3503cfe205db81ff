"""All governed topics of a node: finds the topic a batch is for, says who produces, keeps the right to serve.

What the gateway sees of this room. A client's *session* is `pid:N`, its producer id, which survives reconnects and
nodes, or for a client without idempotence `conn:ID`, its connection.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeAlias

from metadata import MetadataUnavailable
from metadata.nodes import Holder as MetadataHolder
from metadata.nodes import ServeStatus
from metadata.ownership import AccessMode, Ownership
from sidecar.changelog import MASTER_SLOT, Kind
from sidecar.cluster.logs import LogReader
from sidecar.cluster.resolver import TopicKind
from sidecar.dedup.content import Headers
from sidecar.dedup.environment import Surroundings as Ids
from sidecar.dedup.marks import NAMES_LIMIT
from sidecar.exclusive.admission import checked_header
from sidecar.exclusive.bindings import Bindings
from sidecar.exclusive.catalog import PolicyCatalog
from sidecar.exclusive.chronicle import Chronicle
from sidecar.exclusive.claims import Claimant
from sidecar.exclusive.existing import PENDING, ExistingPartitions
from sidecar.exclusive.forgetting import Forgetting
from sidecar.exclusive.identity import shown_name
from sidecar.exclusive.newcomers import Refusals, RefusedLedger
from sidecar.exclusive.operations import Offer
from sidecar.exclusive.partitions import PartitionedTopic
from sidecar.exclusive.policies import PolicyFields, Scope
from sidecar.exclusive.queues import Queues
from sidecar.exclusive.returning import Answering, KeptBytes
from sidecar.exclusive.shares import Shares
from sidecar.exclusive.tenure import NothingDoneError
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder.append import LONGEST_WAIT_MS, Outcome
from sidecar.forwarder.whole import WholeRequest
from sidecar.protocol import batch as record_batch
from sidecar.protocol import produce
from sidecar.protocol.caller import Lane
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.primitives import new_tuple
from sidecar.protocol.produce import ProduceResult
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from metadata.nodes import LiveNodes
    from sidecar.changelog import Change, Changelog, Key, SlotName
    from sidecar.cluster.nodes import NodeDirectory
    from sidecar.cluster.resolver import NameResolver
    from sidecar.exclusive.domain import Domain
    from sidecar.exclusive.interfaces import Hooks, Owning, Producing, Served
    from sidecar.exclusive.tenure import Surroundings
    from sidecar.fencing import KeepAlive
    from sidecar.forwarder.forwarder import Forwarder
    from sidecar.forwarder.whole import Asker
    from sidecar.network.framing import Frame
    from sidecar.network.tasks import Tasks
    from sidecar.protocol.batch import Numbers
    from sidecar.protocol.produce import ProducePart, ProduceRequest

Topic: TypeAlias = GovernedTopic | PartitionedTopic

_SUCCESSORS_KEPT: Final = 10_000
_CLAIMANTS_KEPT: Final = 1_000
_GONE: Final = Outcome(ErrorCode.NETWORK_EXCEPTION)
_REFUSALS: Final = frozenset({ErrorCode.POLICY_VIOLATION, ErrorCode.PRODUCER_FENCED})
_REFUSAL_STEP_S: Final = 0.1
_LONGEST_REFUSAL_S: Final = 1.0
_ORPHANS_S: Final = 2.0
_SNAPSHOTS_S: Final = 0.5
_TIDY_S: Final = 60.0
_FIRST_WHOLE: Final = 7
"""Below it Kafka refuses zstd, which the node's own requests, version 8, may carry."""


class Governor:
    """The governed topics. Implements `Environment` for them, and what the gateway calls."""

    def __init__(
        self,
        around: Surroundings,
        forwarder: Forwarder,
        tasks: Tasks,
        hooks: Hooks,
        resolver: NameResolver,
        nodes: NodeDirectory,
        *,
        reconnect_grace: float,
        disconnect_grace: float,
        queue_limit: int,
        headers: Headers = Headers(),  # noqa: B008  a tuple
        names_limit: int = NAMES_LIMIT,
        deduplication: bool = False,
    ) -> None:
        """`headers` carry sequence ids and names, of which `names_limit` are remembered per partition; `deduplication`
        is the default of topics without a nearer policy.
        """
        self.around = around
        self.forwarder = forwarder
        self.tasks = tasks
        self.hooks = hooks
        self.reconnect_grace = reconnect_grace
        self.disconnect_grace = disconnect_grace
        self.queue_limit = queue_limit
        logs = LogReader(around.upstream, Lane("sequence-ids"))
        self.ids = Ids(logs, around.changelog, around.store, tasks, hooks, headers, names_limit)
        self.catalog = PolicyCatalog(around, PolicyFields(deduplication=True) if deduplication else None)
        self.chronicle = Chronicle(around, tasks, hooks, self.wall_ms, lambda name: self.topic(name).generation)
        self.catalog.changed = self.chronicle.policy_changed
        self.queues = Queues(around, tasks)
        self.refused = RefusedLedger()
        self.bindings = Bindings(around.changelog.view)
        self.existing = ExistingPartitions(around.upstream, tasks, self._missing)
        self.kept = KeptBytes()
        self.draining = False
        self.gave_first_id = False
        """Whether a client of this node was given the producer id 0, of which there is one in a cluster."""
        self.terms: KeepAlive | None = None
        self._resolver = resolver
        self._nodes = nodes
        self._topics: dict[str, Topic] = {}
        self._by_name: dict[bytes, Topic] = {}
        self._of_connection: dict[int, set[Topic]] = {}
        self._successors: OrderedDict[str, str] = OrderedDict()
        self._deposed: dict[str, dict[SlotName, tuple[int, frozenset[str]]]] = {}
        self._orphans: set[str] = set()
        self._orphans_until = 0.0
        self._gone: set[str] = set()
        self._shares = Shares(around, nodes, tasks)
        self.forgetting = Forgetting(around, logs, self)
        self._myself = MetadataHolder(around.node_id, around.boot)
        self._unsubscribe: Callable[[], None] = lambda: None
        self.watchers: list[Callable[[str, int | None], None]] = []
        """Told of a topic, and the partition where that has an owner of its own, whose owner may be another one."""

    def start(self) -> None:
        """Take over what the changelog says; it has been read to its end."""
        self._unsubscribe = self.changelog.tailer.subscribe(self._changed)
        self._apply_policies()
        view = self.changelog.view
        for entry in view.entries(Kind.OWNERSHIP):
            self._read_deposed(entry.key, entry.value)
            if view.opened_now(entry.key.topic) and self.catalog.book.effective(entry.key.topic) is not None:
                self.topic(entry.key.topic)  # an owner's time to come back runs from here on

    # Environment --------------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self.around.node_id

    @property
    def changelog(self) -> Changelog:
        return self.around.changelog

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        return self.changelog.clock.now_ms()

    def policy_of(self, topic: str) -> PolicyFields | None:
        """What holds for a topic; None where it is not governed. A shadow never is, whatever its name begins with:
        nobody writes to it.
        """
        return None if self._resolver.is_shadow(topic.encode()) else self.catalog.book.effective(topic)

    def mode_of(self, topic: str) -> AccessMode:
        policy = self.catalog.book.effective(topic)
        return policy.access_mode if policy is not None and policy.access_mode is not None else AccessMode.SHARED

    def deduplicates(self, topic: str) -> bool:
        policy = self.catalog.book.effective(topic)
        return policy is not None and bool(policy.deduplication)

    def is_served_elsewhere(self, topic: str) -> bool:
        node = self._nodes.serving.get(topic.encode(), self.node_id)
        return node != self.node_id and node in self._nodes.placement.nodes

    def is_deposed(self, domain: Domain, session: str) -> bool:
        return any(
            session in deposed
            for slot, (_, deposed) in self._deposed.get(domain.topic, {}).items()
            if slot != domain.slot and domain.overlaps(slot)
        )

    async def may_serve(self, topic: Served) -> bool:
        if self.draining or topic.name in self._shares.moving:
            return False
        if not self.catalog.is_applied_everywhere():
            raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, "another node has not seen the newest policies yet")
        serving = self.changelog.view.serving(topic.name)
        last_node = serving.value.node if serving is not None else None
        try:
            answer = await self.around.store.serve(topic.name, self.node_id, self.around.boot, last_node=last_node)
        except MetadataUnavailable:
            if last_node != self.node_id:
                raise
            topic.serving = True
            return True
        if answer.status is ServeStatus.GRANTED:
            topic.serving = True
            self._nodes.serving[topic.name.encode()] = self.node_id
            return True
        if answer.status is ServeStatus.HELD:
            return False
        raise NothingDoneError(ErrorCode.LEADER_NOT_AVAILABLE, f"the right to serve {topic.name} is not settled yet")

    def stirred(self, topic: Owning) -> None:
        for watcher in self.watchers:
            watcher(topic.name, topic.domain.partition)

    def _replaced(self, topic: Topic) -> None:
        """What owned something of it owns it no longer."""
        for part in topic.parts:
            self.stirred(part)

    def unknown(self, topic: Owning) -> None:
        """Forget a topic that Kafka does not know and nobody ever wrote to: a prefix covers any name that comes."""
        whole = self._topics.get(topic.name)
        if isinstance(whole, GovernedTopic) and whole is topic and whole.ownership is None and not whole.has_slot:
            self._drop(whole)

    def _drop(self, topic: Topic) -> None:
        topic.serving = False
        del self._topics[topic.name], self._by_name[topic.name.encode()]
        self._nodes.serving.pop(topic.name.encode(), None)
        for topics in self._of_connection.values():
            topics.discard(topic)
        self.hooks.topic_forgotten(topic.name)

    def _missing(self, name: bytes) -> None:
        """Kafka knows no topic of this name."""
        topic = self._by_name.get(name)
        if topic is None:
            self.hooks.topic_forgotten(name.decode(errors="replace"))
        elif isinstance(topic, GovernedTopic):
            self.unknown(topic)

    # What the gateway calls ---------------------------------------------------------------------------------------

    def append(
        self,
        client: Producing,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append one batch to a governed topic; see `sidecar.gateway.produce.GovernedTopics`."""

        def settle(missing: Outcome | None) -> None:
            if missing is None and client.is_alive():
                self.append(client, part, batch, timeout_ms, done)
            else:  # for a client that went while it waited nothing is begun: nobody would let go of it
                done(new_tuple(ProduceResult, (part.topic, part.partition, *(missing or _GONE), ())))

        missing = self.existing.admits(part.topic, part.partition, settle)
        if missing is None:
            self._append_there(client, part, batch, timeout_ms, done)
        elif missing is not PENDING:
            settle(missing)

    def _append_there(
        self,
        client: Producing,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
    ) -> None:
        """Append one batch to a partition that there is."""

        def answered(outcome: Outcome) -> None:
            result = new_tuple(ProduceResult, (part.topic, part.partition, *outcome, ()))
            if outcome.error in _REFUSALS:
                self._refuse(client, done, result)
                return
            if not outcome.error:
                client.refusals = 0
            done(result)

        answer = Answering(self, client, part, batch, answered)
        try:
            answer.header = header = checked_header(batch)
        except KafkaError as error:
            answer(Outcome(error.code, message=error.message))
            return
        claimant, topic = client.claimants.get((part.topic, header.producer_id)), self._by_name.get(part.topic)
        if self.draining:
            answer(Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER, message="this node shuts down"))
            return
        if not self.forwarder.admit(len(batch)):
            answer(Outcome(ErrorCode.NOT_ENOUGH_REPLICAS, message="the retry buffer of this node is full; try again"))
            return
        if claimant is None or topic is None:
            claimant, topic = self._introduce(client, part.topic, header.producer_id)
        if not topic.forward(claimant, part.partition, header, batch, timeout_ms, answer):
            self.connected(client.connection_id, topic)  # it may be another one of the name
            address, alive = client.address, client.is_alive
            topic.offer(Offer(claimant, address, part.partition, header, batch, timeout_ms, alive, answer))

    async def govern(self, topics: Collection[bytes]) -> dict[bytes, KafkaError]:
        """See `sidecar.gateway.produce.GovernedTopics`."""
        found = await asyncio.gather(*[self.catalog.govern(topic.decode(errors="replace")) for topic in topics])
        return {topic: error for topic, error in zip(topics, found, strict=True) if error is not None}

    def _refuse(self, client: Producing, done: Callable[[ProduceResult], None], result: ProduceResult) -> None:
        """Answer a refusal: at once, or later and later where a client does nothing but strike back.

        Some try again without a pause, tens of thousands of times. Where the connection carries anything else, what
        comes behind the answer must not wait for it.
        """
        now = self.now()
        if now != client.refused_at:  # the clock stands still while one request is taken up
            client.refusals += 1
        client.refused_at = now
        alone = not client.carries_ordinary and len(self._of_connection.get(client.connection_id, ())) <= 1
        if client.refusals == 1 or not alone:
            done(result)
        else:
            delay = min(_LONGEST_REFUSAL_S, _REFUSAL_STEP_S * (client.refusals - 1))
            asyncio.get_running_loop().call_later(delay, done, result)

    def append_whole(
        self, client: Producing, request: ProduceRequest, frame: Frame, body: int, moved: int, asker: Asker
    ) -> bool:
        """Send a request on as it is; see `sidecar.gateway.produce.GovernedTopics`."""
        parts, window, name = request.parts, memoryview(frame.buffer), request.parts[0].topic
        topic = self._by_name.get(name)
        if (
            topic is None
            or self.draining
            or client.turned_away
            or name in self.existing.waiting
            or asker.version < _FIRST_WHOLE
            or not 0 <= request.timeout_ms <= LONGEST_WAIT_MS
        ):
            return False
        if produce.bare_bytes(asker.version, name, [part.end - part.start for part in parts]) != frame.end - body:
            return False  # a broker might not understand the rest, and hang up on all who share its connection
        batches: list[tuple[ProducePart, memoryview, Numbers]] = []
        claimant: Claimant | None = None
        for part in parts:
            batch = window[part.start + moved : part.end + moved]
            numbers = record_batch.read_numbers(batch)
            if numbers is None or part.topic != name or (numbers.producer_id < 0 and topic.ids is not None):
                return False
            if not batches:
                claimant = client.claimants.get((name, numbers.producer_id))
            elif numbers.producer_id != batches[0][2].producer_id:
                return False
            if claimant is None:
                return False
            batches.append((part, batch, numbers))
        assert claimant is not None
        return topic.forward_whole(claimant, new_tuple(WholeRequest, (frame, body, request.timeout_ms, batches, asker)))

    def _introduce(self, client: Producing, name: bytes, producer_id: int) -> tuple[Claimant, Topic]:
        """Who produces to a topic under a producer id, for the first time on this connection."""
        session = f"pid:{producer_id}" if producer_id >= 0 else client.session
        label, is_named, mode, generation = client.producer
        successor, connection = self._successors.get(session), client.connection_id
        shown = shown_name(label)
        found = Claimant(session, shown, is_named, connection, mode, generation, successor, client_id=shown)
        if len(client.claimants) >= _CLAIMANTS_KEPT:
            client.claimants.clear()
        client.claimants[name, producer_id] = found
        topic = self.topic(name.decode())
        self.connected(connection, topic)
        return found, topic

    def connected(self, connection: int, topic: Topic) -> None:
        """A client connection claims a topic: its end is the topic's concern."""
        self._of_connection.setdefault(connection, set()).add(topic)

    def topic(self, name: str) -> Topic:
        """The state of a governed topic on this node."""
        return self._topics.get(name) or self._begin(name, Refusals(self.refused))

    def _begin(self, name: str, refusals: Refusals) -> Topic:
        kind = PartitionedTopic if self.catalog.book.scope(name) is Scope.PARTITION else GovernedTopic
        found = self._topics[name] = self._by_name[name.encode()] = kind(name, self, refusals)
        return found

    def served(self, topic: bytes) -> Topic | None:
        """See `sidecar.exclusive.returning.Door`."""
        return self._by_name.get(topic)

    def known_topics(self) -> list[str]:
        """Every governed topic that has a policy of its own, had an owner and is not gone, or has a producer on this
        node.
        """
        view = self.changelog.view
        owned = (entry.key.topic for entry in view.entries(Kind.OWNERSHIP))
        names = {*self.catalog.book.topics, *self._topics, *(name for name in owned if view.opened_now(name))}
        return sorted(name for name in names if self._resolver.kind(name.encode()) is TopicKind.GOVERNED)

    def check(self, client: Producing, producer_id: int | None, *, transactional: bool = False) -> KafkaError | None:
        """Whether a client may initialise again under a producer id: not another client's, nor one that was deposed
        somewhere. Whose a `transactional` one is Kafka knows.
        """
        if producer_id is None:
            return None
        session = f"pid:{producer_id}"
        foreign = None if transactional else self.bindings.check(session, shown_name(client.producer[0]))
        if foreign is not None:
            return foreign
        for topic, slots in self._deposed.items():
            for generation, deposed in slots.values():
                if session in deposed:
                    message = f"this producer was fenced from {topic} (generation {generation})"
                    return KafkaError(ErrorCode.PRODUCER_FENCED, message)
        return None

    def initialised(
        self,
        client: Producing,
        new_producer_id: int,
        named_producer_id: int | None,
        *,
        transactional: bool = False,
    ) -> None:
        """A client got a new producer id, which is its own; where it named its old one, the new session follows that.
        A `transactional` one is given again to whoever asks for its transactional id, and never writes here.
        """
        self.gave_first_id |= new_producer_id == 0
        if not transactional:
            self.bindings.given(new_producer_id, shown_name(client.producer[0]))
            for topic in self._topics.values():
                topic.refusals.forget(f"pid:{new_producer_id}")  # of somebody who used it before it was given
        if named_producer_id is not None and named_producer_id != new_producer_id:
            self._successors[f"pid:{new_producer_id}"] = f"pid:{named_producer_id}"
            while len(self._successors) > _SUCCESSORS_KEPT:
                self._successors.popitem(last=False)

    def followed_by(self, session: str) -> str | None:
        """The session of the same client that this one follows, as its InitProducerId named it."""
        return self._successors.get(session)

    def connection_closed(self, connection: int) -> None:
        """A client connection is gone."""
        self.refused.connection_closed(connection)
        self.kept.forget(connection)
        self.bindings.connection_closed(connection)
        for topic in self._of_connection.pop(connection, ()):
            topic.connection_closed(connection)

    # The changelog ------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.key.kind is Kind.POLICY:
            self._apply_policies()
        elif change.key.kind is Kind.OWNERSHIP:
            self._read_deposed(change.key, change.after.value if change.after is not None else None)
            topic = self._topics.get(change.key.topic)
            if topic is not None:
                topic.changed(change)  # where another node serves it, what that one writes down is all that is known
        elif change.key.kind is Kind.SERVING and change.after is None and change.key.slot == MASTER_SLOT:
            self._forgotten(change.key.topic)

    def _forgotten(self, name: str) -> None:
        """The node that served a topic found it gone, and has forgotten it; see `sidecar.exclusive.forgetting`."""
        self.bindings.forget(name)
        topic = self._topics.get(name)
        if topic is not None and not topic.serving and not any(p.busy or p.newcomers.order for p in topic.parts):
            self._drop(topic)

    def _apply_policies(self) -> None:
        book = self.catalog.read()
        self._resolver.set_policies(book.topics, book.governed_prefixes)
        self.catalog.settings_changed()
        for name, topic in list(self._topics.items()):
            if book.effective(name) is None:
                del self._topics[name], self._by_name[name.encode()]
                self._replaced(topic)
                if topic.serving:
                    self.tasks.start(topic.ungoverned())
            elif isinstance(topic, PartitionedTopic) is (book.scope(name) is Scope.PARTITION):
                topic.policy_changed()
            else:
                self._rescope(topic)

    def _rescope(self, topic: Topic) -> None:
        """Owners own something else from now on: nobody goes on with what he had."""
        found = self._begin(topic.name, topic.refusals)
        self._replaced(topic)
        if topic.serving:
            found.serving = True
            self.tasks.start(topic.hand_back())

    def _read_deposed(self, key: Key, ownership: state.Ownership | None) -> None:
        slot = key.slot or MASTER_SLOT
        if ownership is None or not ownership.deposed:
            slots = self._deposed.get(key.topic, {})
            slots.pop(slot, None)
            if not slots:
                self._deposed.pop(key.topic, None)
        else:
            sessions = frozenset(deposed.session for deposed in ownership.deposed)
            self._deposed.setdefault(key.topic, {})[slot] = ownership.generation, sessions

    # Sequence ids ---------------------------------------------------------------------------------------------------

    async def keep_ids(self) -> None:
        """Write snapshots when it is time, forget names that are idle. Until cancelled."""
        tidied = self.now()
        while True:
            await asyncio.sleep(_SNAPSHOTS_S)
            tidy = self.now() - tidied > _TIDY_S
            tidied = self.now() if tidy else tidied
            for topic in list(self._topics.values()):
                if topic.ids is not None and topic.serving:
                    if tidy:
                        await topic.ids.tidy()
                    await topic.ids.save_due()

    # Upkeep -------------------------------------------------------------------------------------------------------

    def assume(self, terms: KeepAlive) -> None:
        """What the brokers demand of every fence is known."""
        self.terms = terms
        for topic in self._topics.values():
            topic.upkeep.assume(terms)

    def kept_topics(self) -> list[Topic]:
        """The topics whose fences this node keeps alive: those that it serves, and those that nobody serves where it
        stands first in line.
        """
        if self.draining:
            return []
        now = self.now()
        if now > self._orphans_until:
            self._orphans, self._orphans_until = self._find_orphans(), now + _ORPHANS_S
        return [topic for topic in self._topics.values() if topic.serving or topic.name in self._orphans]

    def gone(self, names: set[str]) -> None:
        """Kafka does not know these topics of `kept_topics`: until they are back their series are for others. What else
        is kept of them goes once every broker says so: one that is created anew goes on with its generation.
        """
        self.tasks.start(self.forgetting.look(names))
        for name in names:
            self.hooks.topic_forgotten(name)
        if names != self._gone:
            self._gone = names
            for topic in self._topics.values():
                if topic.serving and topic.generation and topic.name not in names:
                    self.chronicle.tell_again(next(iter(topic.parts)))

    def has_clients(self, name: str) -> bool:
        """See `sidecar.exclusive.forgetting.Room`."""
        topic = self._topics.get(name)
        return topic is not None and any(topic in topics for topics in self._of_connection.values())

    async def let_go(self, name: str) -> bool:
        """See `sidecar.exclusive.forgetting.Room`."""
        topic = self.topic(name)
        if self.draining or not (topic.serving or await self.may_serve(topic)):
            return False
        await topic.hand_back()
        return True

    def _find_orphans(self) -> set[str]:
        """Topics that were served once, and are no more."""
        me, placement, serving = self.node_id, self._nodes.placement, self._nodes.serving
        found: set[str] = set()
        for entry in self.changelog.view.entries(Kind.SERVING):
            name = entry.key.topic.encode()
            if (
                entry.key.slot == MASTER_SLOT
                and name not in serving
                and self._resolver.kind(name) is TopicKind.GOVERNED
                and placement.of_topic(name) == me
            ):
                found.add(self.topic(entry.key.topic).name)
        return found

    # Leases -------------------------------------------------------------------------------------------------------

    def served_topics(self) -> list[str]:
        """What this node asserts to serve, with every heartbeat."""
        return [name for name, topic in self._topics.items() if topic.serving]

    def serves(self, name: str) -> bool:
        """Whether a topic is among these, however many they are."""
        topic = self._topics.get(name)
        return topic is not None and topic.serving

    def owned(self) -> list[Ownership]:
        """The owners that this node asserts, with every heartbeat."""
        return [record for topic in self._topics.values() if topic.serving for record in topic.as_owned()]

    def heard(self, live: LiveNodes, lost: set[str]) -> None:
        """A heartbeat's answer: who lives and serves what; `lost` are topics that another live node serves."""
        self.catalog.live = live
        self._nodes.serving = {name.encode(): holder.node_id for name, holder in live.serving.items()}
        for topic in self._topics.values():
            for part in topic.parts if topic.serving else ():
                if part.newcomers.order:
                    self.queues.changed(part)  # Redis may have lost it
            if live.serving.get(topic.name) not in (None, self._myself):
                topic.served_elsewhere()
        if not self.draining:
            self._shares.hand_out(self._topics.values())
        for name in lost:
            topic = self._topics.get(name)
            if topic is not None and topic.serving:
                topic.serving = False
                self.tasks.start(topic.hand_back())

    async def refill(self) -> None:
        """Tell an emptied Redis the policies."""
        await self.catalog.refill()

    async def drain(self) -> None:
        """Take nothing new, finish what is in flight, let go of the right to serve."""
        self.draining = True
        await asyncio.gather(*[topic.hand_back() for topic in self._topics.values() if topic.serving])
        self._unsubscribe()
