"""What all governed topics of a node share: services, settings, and what is known of topics by name."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from metadata.ownership import AccessMode
from sidecar.access.services import NodeServices
from sidecar.changelog import MASTER_SLOT, Key, SlotName
from sidecar.cluster.logs import LogReader
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.dedup.content import Headers
from sidecar.dedup.marks import NAMES_LIMIT
from sidecar.dedup.partition import IdsServices
from sidecar.exclusive.bindings import Bindings
from sidecar.exclusive.ownership_events import OwnershipEvents
from sidecar.exclusive.serving import Queues, ServingRights
from sidecar.fencing.expiry import KeepAlive
from sidecar.forwarder.forwarder import Forwarder
from sidecar.network.tasks import Tasks
from sidecar.policy.catalog import PolicyCatalog
from sidecar.policy.policies import PolicyFields
from sidecar.protocol.caller import Channel
from sidecar.protocol.session import Session
from sidecar.takeover.slots import SlotScope
from sidecar.telemetry.ownership_reports import OwnershipReports
from sidecar.v1 import state_pb2 as state


class DeposedSessions:
    """The deposed sessions, by the records of all topics."""

    def __init__(self) -> None:
        self._found: dict[str, dict[SlotName, tuple[int, frozenset[str]]]] = {}

    def note(self, key: Key, record: state.Ownership | None) -> None:
        """Note the newest record of a topic's slot; None: it was deleted."""
        slot = key.slot or MASTER_SLOT
        if record is None or not record.deposed:
            slots = self._found.get(key.topic, {})
            slots.pop(slot, None)
            if not slots:
                self._found.pop(key.topic, None)
        else:
            sessions = frozenset(deposed.session for deposed in record.deposed)
            self._found.setdefault(key.topic, {})[slot] = record.generation, sessions

    def has(self, scope: SlotScope, session: Session) -> bool:
        """Whether a session was deposed from an overlapping slot, before the scope was changed."""
        return any(
            session in deposed
            for slot, (_, deposed) in self._found.get(scope.topic, {}).items()
            if slot != scope.slot and scope.overlaps(slot)
        )

    def lost_by(self, session: Session) -> tuple[str, int] | None:
        """A topic from which a session was deposed, and its generation; None if there is none."""
        for topic, slots in self._found.items():
            for generation, deposed in slots.values():
                if session in deposed:
                    return topic, generation
        return None


@dataclass(eq=False)
class Environment:
    """Times are in seconds. `headers` carry sequence ids and names, of which `names_limit` are remembered per
    partition; `deduplication` is the default of topics without a nearer policy.
    """

    services: NodeServices
    forwarder: Forwarder
    tasks: Tasks
    hooks: OwnershipReports
    resolver: NameResolver
    nodes: NodeDirectory
    reconnect_grace: float
    disconnect_grace: float
    queue_limit: int
    headers: Headers = Headers()  # noqa: RUF009  a tuple
    names_limit: int = NAMES_LIMIT
    deduplication: bool = False

    def __post_init__(self) -> None:
        services = self.services
        self.node_id, self.changelog = services.node_id, services.changelog
        self.logs = LogReader(services.upstream, Channel("sequence-ids"))
        self.ids = IdsServices(
            self.logs, self.changelog, services.store, self.tasks, self.hooks, self.headers, self.names_limit
        )
        """What the sequence ids of every topic need."""
        self.events = OwnershipEvents(services, self.tasks, self.hooks)
        default = PolicyFields(deduplication=True) if self.deduplication else None
        self.catalog = PolicyCatalog(services, default, self.events.policy_changed)
        self.queues = Queues(services, self.tasks)
        self.bindings = Bindings(self.changelog.view)
        """The client that each producer id belongs to."""
        self.deposed = DeposedSessions()
        self.rights = ServingRights(services, self.nodes, self.tasks, self.catalog)
        self.terms: KeepAlive | None = None
        """What the brokers' settings require of every fence; None until they are read."""
        self.draining = False
        self.watchers: list[Callable[[str, int | None], None]] = []
        """Called with a topic whose owner may have changed, and the partition if it has its own owner."""

    def now(self) -> float:
        """Monotonic seconds."""
        return asyncio.get_running_loop().time()

    def wall_ms(self) -> int:
        """Unix milliseconds by the brokers' clock."""
        return self.changelog.clock.now_ms()

    def at_ms(self, monotonic_s: float) -> int:
        """Monotonic seconds as Unix milliseconds."""
        return self.wall_ms() - int((self.now() - monotonic_s) * 1000)

    def policy_of(self, topic: str) -> PolicyFields | None:
        """The policy in force for a topic; None if it is not governed. A shadow is never governed, even if a prefix
        covers its name: nobody writes to it.
        """
        return None if self.resolver.is_shadow(topic.encode()) else self.catalog.book.effective(topic)

    def mode_of(self, topic: str) -> AccessMode:
        """The policy's access mode."""
        policy = self.catalog.book.effective(topic)
        return policy.access_mode if policy is not None and policy.access_mode is not None else AccessMode.SHARED

    def deduplicates(self, topic: str) -> bool:
        """Whether the topic is deduplicated by sequence ids."""
        policy = self.catalog.book.effective(topic)
        return policy is not None and bool(policy.deduplication)

    def is_served_elsewhere(self, topic: str) -> bool:
        """Whether another live node serves a topic, by the last heartbeat."""
        return self.rights.is_elsewhere(topic)

    async def may_serve(self, topic: str) -> bool:
        """Take or keep the right to serve the topic."""
        return not self.draining and await self.rights.take(topic)

    def owner_may_have_changed(self, scope: SlotScope) -> None:
        """Call the watchers: a topic or partition may have another owner, or may be claimed now."""
        for watcher in self.watchers:
            watcher(scope.topic, scope.partition)
