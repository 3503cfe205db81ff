"""What the room needs of others, as interfaces: of a client connection (`gateway.client` implements it), and a governed
topic of the node around it (`governor` does).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sidecar.dedup.environment import Hooks as IdsHooks

if TYPE_CHECKING:
    from metadata.ownership import AccessMode
    from sidecar.changelog import Changelog
    from sidecar.dedup.environment import Surroundings as Ids
    from sidecar.dedup.turned_away import TurnedAway
    from sidecar.exclusive.bindings import Bindings
    from sidecar.exclusive.chronicle import Chronicle
    from sidecar.exclusive.claims import Claimant
    from sidecar.exclusive.domain import Domain
    from sidecar.exclusive.queues import Queues
    from sidecar.exclusive.tenure import Surroundings
    from sidecar.exclusive.topic import GovernedTopic
    from sidecar.exclusive.topic_state import TopicState
    from sidecar.fencing import KeepAlive
    from sidecar.forwarder.forwarder import Forwarder
    from sidecar.network.tasks import Tasks


class Producing(Protocol):
    """What this room needs to know of a client connection."""

    claimants: dict[tuple[bytes, int], Claimant]
    """Who produces on this connection, by topic and producer id: remembered here, forgotten with its client id."""
    carries_ordinary: bool
    """Whether it ever wrote to a topic that is not governed."""
    refusals: int
    """Refused requests in a row."""
    refused_at: float
    """When the last one was, in seconds of the loop's clock."""
    turned_away: dict[tuple[bytes, int], TurnedAway]
    """By topic and partition, the batches with sequence ids that it was not let in with."""

    @property
    def connection_id(self) -> int: ...
    @property
    def session(self) -> str:
        """`conn:ID`: what the client is called while it has no producer id."""
        ...

    @property
    def address(self) -> str: ...
    def is_alive(self) -> bool: ...
    def sever(self) -> None:
        """Close the connection."""
        ...

    @property
    def producer(self) -> tuple[str, bool, AccessMode | None, int | None]:
        """Name, whether it is one, and the mode and generation that its client.id asks for."""
        ...


class Hooks(IdsHooks, Protocol):
    """What the node wants to know (metrics, log); implementations are cheap and never raise."""

    def governed_produce(self, topic: str, records: int, size: int) -> None: ...
    def fenced(self, topic: str, reason: str) -> None:
        """A batch was refused: `deposed`, `not_owner`, `waiting` (told to come again) or `redis_down`."""
        ...

    def owner_changed(self, topic: str, generation: int, name: str | None, mode: str | None) -> None: ...
    def takeover(
        self, topic: str, mode: str, seconds: float, session: str, generation: int, deposed: str | None
    ) -> None: ...
    def released(self, topic: str, session: str, generation: int) -> None: ...
    def topic_forgotten(self, topic: str) -> None:
        """The topic is served here no longer, or Kafka has it no more."""
        ...

    def topic_gone(self, topic: str, generation: int) -> None:
        """Kafka has the topic no more; of all that was kept its generation is left."""
        ...


class Served(Protocol):
    """A topic that one node of all serves. `serving`: this one does."""

    name: str
    serving: bool


class Moving(Served, Protocol):
    """One that may go to another node."""

    @property
    def may_move(self) -> bool:
        """Whether that ends nobody's session."""
        ...

    async def hand_back(self) -> None:
        """Finish what is in flight, serve no more."""
        ...


class Environment(Protocol):
    """Shared by all governed topics of a node. Times are in seconds."""

    around: Surroundings
    forwarder: Forwarder
    tasks: Tasks
    hooks: Hooks
    reconnect_grace: float
    disconnect_grace: float
    queue_limit: int
    chronicle: Chronicle
    bindings: Bindings
    """Whose every producer id is."""
    queues: Queues
    ids: Ids
    """What the sequence ids of every topic need."""
    terms: KeepAlive | None
    """What the brokers demand of every fence; None before they were asked."""

    @property
    def node_id(self) -> int: ...
    @property
    def changelog(self) -> Changelog: ...

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

    def is_deposed(self, domain: Domain, session: str) -> bool:
        """Whether a session lost what a slot is for when the scope was another one."""
        ...

    async def may_serve(self, topic: Served) -> bool:
        """Take or keep the right to serve the topic."""
        ...

    def stirred(self, topic: TopicState) -> None:
        """Who owns a topic or partition may have changed, or whether it can be claimed now."""
        ...

    def unknown(self, topic: GovernedTopic) -> None:
        """Kafka knows no topic of this name."""
        ...
