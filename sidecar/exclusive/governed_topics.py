"""All governed topics of a node: policies, the right to serve, upkeep, and what the changelog says of them.

What the gateway sees of this room. A client's *session* is `pid:N`, its producer id, which survives reconnects and
nodes, or for a client without idempotence `conn:ID`, its connection.
"""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Final

from metadata.nodes import LiveNodes
from metadata.ownership import Ownership
from sidecar.changelog import MASTER_SLOT, Change, Kind
from sidecar.cluster.resolver import TopicKind
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.forgetting import Forgetting
from sidecar.exclusive.partitions import PartitionedTopic, Topic
from sidecar.exclusive.producers import Producers
from sidecar.exclusive.registry import Registry
from sidecar.exclusive.topic import GovernedTopic
from sidecar.fencing.expiry import KeepAlive
from sidecar.policy.policies import Scope

_ORPHANS_S: Final = 2.0
_MOVED_AT_ONCE: Final = 16
_SNAPSHOTS_S: Final = 0.5
_FORGET_S: Final = 60.0
"""The time between two searches for sessions that are gone."""


class GovernedTopics:
    """The governed topics of a node. `env`: what they share; `producers` handles what clients send."""

    def __init__(self, environment: Environment) -> None:
        self.env = environment
        self.topics = Registry(environment)
        self.producers = Producers(environment, self.topics)
        self._orphans: set[str] = set()
        self._orphans_until = 0.0
        self._gone: set[str] = set()
        self.forgetting = Forgetting(
            environment.services, environment.logs, environment.hooks, self._has_clients, self._let_go
        )
        self._unsubscribe: Callable[[], None] = lambda: None

    def limit(self, *, disconnect_grace: float, queue_limit: int) -> None:
        """Apply the settings that may change at run time."""
        self.env.disconnect_grace, self.env.queue_limit = disconnect_grace, queue_limit

    def start(self) -> None:
        """Build the state from the changelog, which has been read to its end."""
        kinds = Kind.POLICY, Kind.OWNERSHIP, Kind.SERVING, Kind.SLOT, Kind.CLAIM
        self._unsubscribe = self.env.changelog.tailer.subscribe(self._changed, *kinds)
        self._apply_policies()
        view = self.env.changelog.view
        for opened in (*view.entries(Kind.SERVING), *view.entries(Kind.SLOT)):
            self.env.bindings.changed(opened.key)
        for entry in (*view.entries(Kind.OWNERSHIP), *view.entries(Kind.CLAIM)):
            self.producers.recorded(entry.value.session)
        for entry in view.entries(Kind.OWNERSHIP):
            self.env.deposed.note(entry.key, entry.value)
            if view.opened(entry.key.topic) and self.env.catalog.book.effective(entry.key.topic) is not None:
                self.topic(entry.key.topic)  # an owner's grace starts now

    # Topics -------------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        """The state of a governed topic on this node."""
        return self.topics.topic(name)

    def known_topics(self) -> list[str]:
        """Every governed topic that has its own policy, had an owner and still exists, or has a producer on this
        node.
        """
        view = self.env.changelog.view
        owned = (entry.key.topic for entry in view.entries(Kind.OWNERSHIP))
        names = {*self.env.catalog.book.topics, *self.topics.named, *(name for name in owned if view.opened(name))}
        return sorted(name for name in names if self.env.resolver.kind(name.encode()) is TopicKind.GOVERNED)

    def whole(self, name: str) -> GovernedTopic | None:
        """The state of a topic; None if its partitions have their own owners."""
        topic = self.topic(name)
        return topic if isinstance(topic, GovernedTopic) else None

    # The changelog ------------------------------------------------------------------------------------------------

    def _changed(self, change: Change) -> None:
        if change.key.kind in (Kind.OWNERSHIP, Kind.CLAIM) and change.after is not None:
            self.producers.recorded(change.after.value.session)
        if change.key.kind is Kind.POLICY:
            self._apply_policies()
        elif change.key.kind is Kind.OWNERSHIP:
            self.env.deposed.note(change.key, change.after.value if change.after is not None else None)
            topic = self.topics.named.get(change.key.topic)
            if topic is not None:
                topic.changed(change)  # if another node serves it, only its records are known here
        elif change.key.kind is not Kind.CLAIM:
            self.env.bindings.changed(change.key)
            if change.after is None and change.key.slot == MASTER_SLOT:
                self._forgotten(change.key.topic)

    def _forgotten(self, name: str) -> None:
        """Forget a topic that its serving node found deleted and has forgotten (`sidecar.exclusive.forgetting`)."""
        self.env.bindings.forget(name)
        topic = self.topics.named.get(name)
        if topic is not None and not topic.serving and not any(p.busy or p.state.waiting for p in topic.parts):
            self.topics.drop(topic)

    def _apply_policies(self) -> None:
        book = self.env.catalog.read()
        self.env.resolver.set_policies(book.topics, book.governed_prefixes)
        self.env.catalog.settings_changed()
        for name, topic in list(self.topics.named.items()):
            if book.effective(name) is None:
                self.topics.remove(topic)
                _drop_grants(topic)
                self._replaced(topic)
                if topic.serving:
                    self.env.tasks.start(topic.ungoverned())
            elif isinstance(topic, PartitionedTopic) is (book.scope(name) is Scope.PARTITION):
                topic.policy_changed()
            else:
                self._rescope(topic)

    def _replaced(self, topic: Topic) -> None:
        """Call the watchers: the topic's parts have lost their owners."""
        for part in topic.parts:
            self.env.owner_may_have_changed(part.scope)

    def _rescope(self, topic: Topic) -> None:
        """Replace the state after a change of the scope: no owner keeps what it had."""
        _drop_grants(topic)
        successor = self.topics.begin(topic.name, topic.refusals)
        self._replaced(topic)
        if topic.serving:
            successor.serving = True
            self.env.tasks.start(topic.hand_back())

    # Sequence ids ---------------------------------------------------------------------------------------------------

    async def keep_ids(self) -> None:
        """Write snapshots when they are due, and forget sessions that are gone, until cancelled. No topic waits for the
        snapshots of another one: its brokers may be silent.
        """
        forgot_at = self.env.now()
        saving = set[str]()

        async def save(name: str, ids: TopicIds) -> None:
            try:
                await ids.save_due()
            finally:
                saving.discard(name)

        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(_SNAPSHOTS_S)
                is_time = self.env.now() - forgot_at > _FORGET_S
                forgot_at = self.env.now() if is_time else forgot_at
                for topic in list(self.topics.named.values()):
                    ids = topic.ids
                    if ids is None or not topic.serving:
                        continue
                    if is_time:
                        await ids.forget_gone()
                    if topic.name not in saving and ids.is_due:
                        saving.add(topic.name)
                        group.create_task(save(topic.name, ids))

    # Upkeep -------------------------------------------------------------------------------------------------------

    def assume(self, terms: KeepAlive) -> None:
        """Apply what the brokers' settings require of every fence."""
        self.env.terms = terms
        for topic in self.topics.named.values():
            topic.upkeep.assume(terms)

    def kept_topics(self) -> list[Topic]:
        """The topics whose fences this node keeps alive: those that it serves, and unserved ones that are
        placed on it.
        """
        if self.env.draining:
            return []
        now = self.env.now()
        if now > self._orphans_until:
            self._orphans, self._orphans_until = self._find_orphans(), now + _ORPHANS_S
        return [topic for topic in self.topics.named.values() if topic.serving or topic.name in self._orphans]

    def gone(self, names: set[str]) -> None:
        """Handle topics of `kept_topics` that Kafka does not know: free their metric series until they exist again.
        Their stored state is deleted when every broker has confirmed it. A topic that is created anew continues with
        its generation.
        """
        self.env.tasks.start(self.forgetting.look(names))
        for name in names:
            self.env.hooks.topic_forgotten(name)
        if names != self._gone:
            self._gone = names
            for topic in self.topics.named.values():
                if topic.serving and topic.generation and topic.name not in names:
                    self.env.events.report_again(next(iter(topic.parts)).subject)

    def _has_clients(self, name: str) -> bool:
        topic = self.topics.named.get(name)
        return topic is not None and self.topics.has_clients(topic)

    async def _let_go(self, name: str) -> bool:
        topic = self.topic(name)
        if self.env.draining or not (topic.serving or await self.env.may_serve(name)):
            return False
        topic.serving = True
        await topic.hand_back()
        return True

    def _find_orphans(self) -> set[str]:
        """The topics that were served before, are served by no node now, and are placed on this one."""
        orphans: set[str] = set()
        for entry in self.env.changelog.view.entries(Kind.SERVING):
            name = entry.key.topic.encode()
            if (
                entry.key.slot == MASTER_SLOT
                and self.env.rights.is_first_in_line(name)
                and self.env.resolver.kind(name) is TopicKind.GOVERNED
            ):
                orphans.add(self.topic(entry.key.topic).name)
        return orphans

    # Leases -------------------------------------------------------------------------------------------------------

    def served_topics(self) -> list[str]:
        """The topics that this node reports as served, with every heartbeat."""
        return [name for name, topic in self.topics.named.items() if topic.serving]

    def serves(self, name: str) -> bool:
        """Whether a topic is one of `served_topics`; does not build the list."""
        topic = self.topics.named.get(name)
        return topic is not None and topic.serving

    def owned(self) -> list[Ownership]:
        """The owners that this node reports with every heartbeat."""
        return [record for topic in self.topics.named.values() if topic.serving for record in topic.as_owned()]

    def heard(self, live: LiveNodes, lost: set[str]) -> None:
        """Apply a heartbeat's answer: live nodes and the topics that they serve. `lost`: topics of this node that
        another live node serves.
        """
        self.env.catalog.heard(live)
        self.env.rights.heard(live.serving)
        for topic in self.topics.named.values():
            for part in topic.parts if topic.serving else ():
                if part.state.waiting:
                    self.env.queues.changed(part.scope, part.sessions())  # Redis may have lost it
            if self.env.rights.is_anothers(live.serving.get(topic.name)):
                topic.served_elsewhere()
        if not self.env.draining:
            self._hand_out()
        for name in lost:
            topic = self.topics.named.get(name)
            if topic is not None and topic.serving:
                topic.serving = False
                self.env.tasks.start(topic.hand_back())

    def _hand_out(self) -> None:
        """Begin to hand over topics that are served here but placed on other nodes, some at a time."""
        served = (name for name, topic in self.topics.named.items() if topic.serving)
        movable = (move for move in self.env.rights.to_move(served) if self.topics.named[move[0]].may_move)
        for name, to in islice(movable, _MOVED_AT_ONCE):
            topic = self.topics.named[name]
            topic.serving = False
            self.env.rights.moving.add(name)
            self.env.tasks.start(self.env.rights.hand_over(name, to, topic.hand_back))

    async def refill(self) -> None:
        """Write the policies to an emptied Redis."""
        await self.env.catalog.refill()

    async def drain(self) -> None:
        """Accept nothing new, finish the batches in flight, and give up the right to serve."""
        self.env.draining = True
        await asyncio.gather(*[topic.hand_back() for topic in self.topics.named.values() if topic.serving])
        self._unsubscribe()


def _drop_grants(topic: Topic) -> None:
    """Let a topic without a policy, or with another scope, grant nothing any more, nor its partitions."""
    topic.is_dropped = True
    for part in topic.parts:
        part.is_dropped = True
