"""What a governed topic needs of its node, as an interface; `governed_topics` implements it."""

from typing import Protocol

from metadata.ownership import AccessMode
from sidecar.access.services import NodeServices
from sidecar.changelog import Changelog
from sidecar.dedup.partition import IdsServices
from sidecar.exclusive.bindings import Bindings
from sidecar.exclusive.interfaces import OwnershipHooks, Owning, Served
from sidecar.exclusive.ownership_events import OwnershipEvents
from sidecar.exclusive.queues import Queues
from sidecar.exclusive.slots import SlotScope
from sidecar.fencing import KeepAlive
from sidecar.forwarder.forwarder import Forwarder
from sidecar.network.tasks import Tasks
from sidecar.protocol.session import Session


class Environment(Protocol):
    """Shared by all governed topics of a node. Times are in seconds."""

    services: NodeServices
    node_id: int
    changelog: Changelog
    forwarder: Forwarder
    tasks: Tasks
    hooks: OwnershipHooks
    reconnect_grace: float
    disconnect_grace: float
    queue_limit: int
    events: OwnershipEvents
    bindings: Bindings
    """Whose every producer id is."""
    queues: Queues
    ids: IdsServices
    """What the sequence ids of every topic need."""
    terms: KeepAlive | None
    """What the brokers demand of every fence; None before they were asked."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def wall_ms(self) -> int:
        """Unix milliseconds by the brokers' clock."""
        ...

    def mode_of(self, topic: str) -> AccessMode:
        """The policy's access mode."""
        ...

    def deduplicates(self, topic: str) -> bool:
        """Whether the policy wants each sequence id in the topic once."""
        ...

    def is_served_elsewhere(self, topic: str) -> bool:
        """Whether another live node serves a topic, by the last heartbeat."""
        ...

    def is_deposed(self, scope: SlotScope, session: Session) -> bool:
        """Whether a session lost what a slot is for when the scope was another one."""
        ...

    async def may_serve(self, topic: Served) -> bool:
        """Take or keep the right to serve the topic."""
        ...

    def owner_may_have_changed(self, topic: Owning) -> None:
        """Who owns a topic or partition may have changed, or whether it can be claimed now."""

    def unknown(self, topic: Owning) -> None:
        """Kafka knows no topic of this name."""
