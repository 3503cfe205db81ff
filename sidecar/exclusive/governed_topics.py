"""All governed topics of a node: policies, the right to serve, upkeep, and what the changelog says of them.

What the gateway sees of this room. A client's *session* is `pid:N`, its producer id, which survives reconnects and
nodes, or for a client without idempotence `conn:ID`, its connection.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from metadata.nodes import LiveNodes
from metadata.ownership import AccessMode, Ownership
from sidecar.access.services import NodeServices
from sidecar.changelog import MASTER_SLOT, Change, Kind
from sidecar.cluster.logs import LogReader
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import NAMES_LIMIT
from sidecar.dedup.partition import IdsServices
from sidecar.exclusive.bindings import Bindings
from sidecar.exclusive.catalog import PolicyCatalog
from sidecar.exclusive.forgetting import Forgetting
from sidecar.exclusive.interfaces import OwnershipHooks, Owning, Served
from sidecar.exclusive.newcomers import Refusals
from sidecar.exclusive.owner import DeposedSessions
from sidecar.exclusive.ownership_events import OwnershipEvents
from sidecar.exclusive.partitions import PartitionedTopic
from sidecar.exclusive.policies import PolicyFields, Scope
from sidecar.exclusive.producers import Producers
from sidecar.exclusive.queues import Queues
from sidecar.exclusive.serving import ServingRights
from sidecar.exclusive.slots import SlotScope
from sidecar.exclusive.topic import GovernedTopic
from sidecar.fencing import KeepAlive
from sidecar.forwarder.forwarder import Forwarder
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import Channel
from sidecar.protocol.session import Session

Topic: TypeAlias = GovernedTopic | PartitionedTopic

_ORPHANS_S: Final = 2.0
_SNAPSHOTS_S: Final = 0.5
_FORGET_S: Final = 60.0
"""Between two looks for names that are idle."""


class GovernedTopics:
    """The governed topics. Implements `Environment` for them; what clients send is `producers`'."""

    def __init__(
        self,
        services: NodeServices,
        forwarder: Forwarder,
        tasks: Tasks,
        hooks: OwnershipHooks,
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
        self.services = services
        self.node_id = services.node_id
        self.changelog = services.changelog
        self.forwarder = forwarder
        self.tasks = tasks
        self.hooks = hooks
        self.reconnect_grace = reconnect_grace
        self.disconnect_grace = disconnect_grace
        self.queue_limit = queue_limit
        logs = LogReader(services.upstream, Channel("sequence-ids"))
        self.ids = IdsServices(logs, services.changelog, services.store, tasks, hooks, headers, names_limit)
        self.events = OwnershipEvents(services, tasks, hooks, lambda name: self.topic(name).generation)
        default = PolicyFields(deduplication=True) if deduplication else None
        self.catalog = PolicyCatalog(services, default, self.events.policy_changed)
        self.queues = Queues(services, tasks)
        self.bindings = Bindings(services.changelog.view)
        self.draining = False
        self.by_name: dict[bytes, Topic] = {}
        """The topics that have a state here, as requests name them."""
        self.producers = Producers(self)
        self.terms: KeepAlive | None = None
        self._resolver = resolver
        self._topics: dict[str, Topic] = {}
        self._deposed = DeposedSessions()
        self._orphans: set[str] = set()
        self._orphans_until = 0.0
        self._gone: set[str] = set()
        self._rights = ServingRights(services, nodes, tasks, self.catalog)
        self.forgetting = Forgetting(services, logs, hooks, self._has_clients, self._let_go)
        self._unsubscribe: Callable[[], None] = lambda: None
        self.watchers: list[Callable[[str, int | None], None]] = []
        """Called with a topic whose owner may have changed, and with the partition where that has its own owner."""

    def limit(self, *, disconnect_grace: float, queue_limit: int) -> None:
        """Go on with other settings."""
        self.disconnect_grace, self.queue_limit = disconnect_grace, queue_limit

    def start(self) -> None:
        """Take over what the changelog says; it has been read to its end."""
        kinds = Kind.POLICY, Kind.OWNERSHIP, Kind.SERVING, Kind.SLOT
        self._unsubscribe = self.changelog.tailer.subscribe(self._changed, *kinds)
        self._apply_policies()
        view = self.changelog.view
        for opened in (*view.entries(Kind.SERVING), *view.entries(Kind.SLOT)):
            self.bindings.changed(opened.key)
        for entry in view.entries(Kind.OWNERSHIP):
            self._deposed.note(entry.key, entry.value)
            if view.opened(entry.key.topic) and self.catalog.book.effective(entry.key.topic) is not None:
                self.topic(entry.key.topic)  # an owner's time to come back runs from here on

    # Environment --------------------------------------------------------------------------------------------------

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
        return self._rights.is_elsewhere(topic)

    def is_deposed(self, scope: SlotScope, session: Session) -> bool:
        return self._deposed.has(scope, session)

    def deposed_from(self, session: Session) -> tuple[str, int] | None:
        """The topic that a session lost, and under which generation; None where it lost none."""
        return self._deposed.lost_by(session)

    def forget_refusals(self, session: Session) -> None:
        """Nothing of a session counts as refused on any topic."""
        for topic in self._topics.values():
            topic.refusals.forget(session)

    async def may_serve(self, topic: Served) -> bool:
        return not self.draining and await self._rights.take(topic)

    def owner_may_have_changed(self, topic: Owning) -> None:
        for watcher in self.watchers:
            watcher(topic.name, topic.scope.partition)

    def _replaced(self, topic: Topic) -> None:
        """What owned something of it owns it no longer."""
        for part in topic.parts:
            self.owner_may_have_changed(part)

    def unknown(self, topic: Owning) -> None:
        """Forget a topic that Kafka does not know and nobody ever wrote to: a prefix covers any name that comes."""
        whole = self._topics.get(topic.name)
        if isinstance(whole, GovernedTopic) and whole is topic and whole.owner.record is None and not whole.has_slot:
            self._drop(whole)

    def _drop(self, topic: Topic) -> None:
        topic.serving = False
        del self._topics[topic.name], self.by_name[topic.name.encode()]
        self._rights.forget(topic.name)
        self.producers.dropped(topic)
        self.hooks.topic_forgotten(topic.name)

    def missing(self, name: bytes) -> None:
        """Kafka knows no topic of this name."""
        topic = self.by_name.get(name)
        if topic is None:
            self.hooks.topic_forgotten(name.decode(errors="replace"))
        elif isinstance(topic, GovernedTopic):
            self.unknown(topic)

    # Topics -------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The state of a governed topic on this node."""
        return self._topics.get(name) or self._begin(name, Refusals(self.producers.refused))

    def _begin(self, name: str, refusals: Refusals) -> Topic:
        kind = PartitionedTopic if self.catalog.book.scope(name) is Scope.PARTITION else GovernedTopic
        found = self._topics[name] = self.by_name[name.encode()] = kind(name, self, refusals)
        return found

    def known_topics(self) -> list[str]:
        """Every governed topic that has its own policy, had an owner and is not gone, or has a producer on this
        node.
        """
        view = self.changelog.view
        owned = (entry.key.topic for entry in view.entries(Kind.OWNERSHIP))
        names = {*self.catalog.book.topics, *self._topics, *(name for name in owned if view.opened(name))}
        return sorted(name for name in names if self._resolver.kind(name.encode()) is TopicKind.GOVERNED)

    # The changelog ------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.key.kind is Kind.POLICY:
            self._apply_policies()
        elif change.key.kind is Kind.OWNERSHIP:
            self._deposed.note(change.key, change.after.value if change.after is not None else None)
            topic = self._topics.get(change.key.topic)
            if topic is not None:
                topic.changed(change)  # where another node serves it, what that one writes down is all that is known
        else:
            self.bindings.changed(change.key)
            if change.after is None and change.key.slot == MASTER_SLOT:
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
        self.catalog.reread_settings()
        for name, topic in list(self._topics.items()):
            if book.effective(name) is None:
                del self._topics[name], self.by_name[name.encode()]
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

    # Sequence ids ---------------------------------------------------------------------------------------------------

    async def keep_ids(self) -> None:
        """Write snapshots when it is time, forget names that are idle. Until cancelled."""
        forgot_at = self.now()
        while True:
            await asyncio.sleep(_SNAPSHOTS_S)
            is_time = self.now() - forgot_at > _FORGET_S
            forgot_at = self.now() if is_time else forgot_at
            for topic in list(self._topics.values()):
                if topic.ids is not None and topic.serving:
                    if is_time:
                        await topic.ids.forget_idle()
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
                    self.events.report_again(next(iter(topic.parts)))

    def _has_clients(self, name: str) -> bool:
        topic = self._topics.get(name)
        return topic is not None and self.producers.has_clients(topic)

    async def _let_go(self, name: str) -> bool:
        topic = self.topic(name)
        if self.draining or not (topic.serving or await self.may_serve(topic)):
            return False
        await topic.hand_back()
        return True

    def _find_orphans(self) -> set[str]:
        """Topics that were served once, and are no more."""
        found: set[str] = set()
        for entry in self.changelog.view.entries(Kind.SERVING):
            name = entry.key.topic.encode()
            if (
                entry.key.slot == MASTER_SLOT
                and self._rights.is_first_in_line(name)
                and self._resolver.kind(name) is TopicKind.GOVERNED
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
        """A heartbeat's answer: live nodes and the topics that they serve; `lost` are topics that another live node
        serves.
        """
        self.catalog.heard(live)
        self._rights.heard(live.serving)
        for topic in self._topics.values():
            for part in topic.parts if topic.serving else ():
                if part.newcomers.order:
                    self.queues.changed(part)  # Redis may have lost it
            if self._rights.is_anothers(live.serving.get(topic.name)):
                topic.served_elsewhere()
        if not self.draining:
            self._rights.hand_out(self._topics.values())
        for name in lost:
            topic = self._topics.get(name)
            if topic is not None and topic.serving:
                topic.serving = False
                self.tasks.start(topic.hand_back())

    async def refill(self) -> None:
        """Write the policies to an emptied Redis."""
        await self.catalog.refill()

    async def drain(self) -> None:
        """Take nothing new, finish what is in flight, let go of the right to serve."""
        self.draining = True
        await asyncio.gather(*[topic.hand_back() for topic in self._topics.values() if topic.serving])
        self._unsubscribe()
