"""What modules of this room need of others and of each other, as interfaces."""

from typing import Protocol

from metadata.ownership import AccessMode
from sidecar.changelog import SlotName
from sidecar.dedup.partition import IdsHooks
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.ownership import Holder
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.slots import SlotScope, TakenSlot
from sidecar.exclusive.upkeep import Upkeep
from sidecar.network.aside import Allowance
from sidecar.protocol.ids import Stamp
from sidecar.protocol.session import Caller, Session
from sidecar.v1 import state_pb2 as state


class Producing(Protocol):
    """What this room needs to know of a client connection; `gateway.client` implements it."""

    governed: ProducingState
    """What this room remembers of it."""

    @property
    def carries_ordinary(self) -> bool:
        """Whether it ever wrote to a topic that is not governed."""
        ...

    @property
    def connection_id(self) -> int: ...
    @property
    def caller(self) -> Caller:
        """Which client it is: whose the producer ids are that it uses."""
        ...

    @property
    def allowance(self) -> Allowance:
        """What a thread opens of its batches."""
        ...

    @property
    def session(self) -> Session:
        """`conn:ID`: what the client is called while it has no producer id."""
        ...

    @property
    def address(self) -> str: ...
    def is_alive(self) -> bool: ...
    def sever(self) -> None:
        """Close the connection."""

    @property
    def producer(self) -> tuple[str, bool, AccessMode | None, int | None]:
        """Name as it is shown, whether it is one, and the mode and generation that its client.id asks for."""
        ...


class OwnershipHooks(IdsHooks, Protocol):
    """What the node wants to know (metrics, log); implementations are cheap and never raise."""

    def governed_produce(self, topic: str, records: int, size: int) -> None: ...
    def fenced(self, topic: str, reason: str) -> None:
        """A batch was refused: `deposed`, `not_owner`, `waiting` (refused for a retry) or `redis_down`."""

    def owner_changed(self, topic: str, generation: int, name: str | None, mode: str | None) -> None: ...
    def takeover(
        self, topic: str, mode: str, seconds: float, session: str, generation: int, deposed: str | None
    ) -> None: ...
    def deposed(self, resource: str, lost: tuple[str, ...], by: Caller, client: str) -> None:
        """A client took a topic or partition from its owner, or from the sessions that wrote beside each other."""

    def released(self, topic: str, session: str, generation: int) -> None: ...
    def topic_forgotten(self, topic: str) -> None:
        """The topic is served here no longer, or Kafka has it no more."""

    def topic_gone(self, topic: str, generation: int) -> None:
        """Kafka has the topic no more; of all that was kept its generation is left."""


class Served(Protocol):
    """A topic that one node of all serves. `serving`: it is this node, whose heartbeats assert that."""

    name: str
    serving: bool


class Movable(Served, Protocol):
    """A topic as a whole, which may be handed over."""

    @property
    def may_move(self) -> bool:
        """Whether another node can serve it without the end of a session."""
        ...

    async def hand_back(self) -> None:
        """Finish what is in flight, serve no more."""


class OwnerKnown(Protocol):
    """What is known of an owner. `record` is what the changelog says, at `position` in the ownership topic."""

    record: state.Ownership | None
    position: int

    @property
    def generation(self) -> int:
        """0 before anybody owned it."""
        ...

    @property
    def holder(self) -> Holder | None:
        """Who owns it, present or not."""
        ...


class Waiting(Protocol):
    """Who waits."""

    def sessions(self) -> tuple[str, ...]:
        """In order."""
        ...


class Owning(Served, Protocol):
    """A topic, or a partition with its own owner, as events, metrics and Redis show it."""

    scope: SlotScope

    @property
    def owner(self) -> OwnerKnown: ...
    @property
    def queue(self) -> Waiting: ...
    @property
    def written_under(self) -> TakenSlot | None:
        """The slot epoch that its owner writes under here, where it does."""
        ...


class WholeTopic(Protocol):
    """The topic that a partition with its own owner belongs to."""

    upkeep: Upkeep

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids of the topic, where it has any."""
        ...

    async def take(self, partition: int) -> Stamp:
        """The right to serve the topic and its master slot, whose stamp is returned."""
        ...

    def outdated(self) -> None:
        """The master slot is of a topic that was deleted: it is taken anew before anything else."""

    def taken(self, slot: SlotName) -> None:
        """The partition's slot was taken for its owner."""

    def forget_if_idle(self, partition: int) -> None:
        """The partition has no operation in progress any more."""
