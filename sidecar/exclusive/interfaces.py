"""What modules of this room need of others and of each other, as interfaces."""

from typing import Protocol

from metadata.ownership import AccessMode
from sidecar.dedup.partition import IdsHooks
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.upkeep import Cause
from sidecar.network.aside import Allowance
from sidecar.protocol.session import Caller, Session


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
        """The client that its producer ids belong to."""
        ...

    @property
    def allowance(self) -> Allowance:
        """The limit on what threads decompress of its batches."""
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
    """Events for metrics and the log; implementations are cheap and never raise."""

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
    def fence_renewed(self, topic: str, cause: Cause | None) -> None:
        """A topic was fenced again at its epoch, before its time for a `cause`, or because it was time."""

    def topic_forgotten(self, topic: str) -> None:
        """The node no longer serves the topic, or Kafka no longer has it."""

    def compaction_lag_raised(self, topic: str, before_ms: int, after_ms: int) -> None:
        """A topic with sequence ids is compacted: its min.compaction.lag.ms was raised."""

    def compaction_lag_low(self, topic: str, problem: str) -> None:
        """Kafka refused that."""

    def topic_gone(self, topic: str, generation: int) -> None:
        """Kafka no longer has the topic; of its stored state only the generation is left."""
