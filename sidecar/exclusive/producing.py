"""What is remembered of one client connection that produces to governed topics. It ends with the connection.

`gateway.client` creates it; only `producers` and `returning` read and change it.
"""

from dataclasses import dataclass, field

from sidecar.dedup.turned_away import TurnedAway
from sidecar.ownership.state import Claimant


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
