"""What is remembered of one client connection that produces to governed topics. It ends with the connection.

`gateway.client` creates it; only `producers` and `returning` read and change it.
"""

from dataclasses import dataclass, field
from typing import Protocol

from metadata.ownership import AccessMode
from sidecar.dedup.turned_away import TurnedAway
from sidecar.network.aside import Allowance
from sidecar.ownership.state import Claimant
from sidecar.protocol.session import Caller, Session


@dataclass(slots=True)
class ProducingState:
    """`claimants`: the sessions that produce on the connection, by topic and producer id. `turned_away`: by topic and
    partition, its refused batches with sequence ids.
    """

    claimants: dict[tuple[bytes, int], Claimant] = field(default_factory=dict[tuple[bytes, int], "Claimant"])
    turned_away: dict[tuple[bytes, int], TurnedAway] = field(default_factory=dict[tuple[bytes, int], "TurnedAway"])
    refusals: int = 0
    """Refused requests in a row."""
    refused_at: float = 0.0
    """The time of the last one, in seconds of the loop's clock."""

    def renamed(self) -> None:
        """Forget the claimants: the connection has another client.id now, which makes it another client."""
        self.claimants.clear()


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
