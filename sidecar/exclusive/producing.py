"""What is remembered of one client connection that produces to governed topics. It ends with the connection.

Made by `gateway.client`, which holds it; read and changed by `producers` and `returning` alone.
"""

from dataclasses import dataclass, field

from sidecar.dedup.turned_away import TurnedAway
from sidecar.exclusive.claims import Claimant


@dataclass(slots=True)
class ProducingState:
    """`claimants`: who produces on the connection, by topic and producer id. `turned_away`: by topic and partition, the
    batches with sequence ids that it was not let in with.
    """

    claimants: dict[tuple[bytes, int], Claimant] = field(default_factory=dict[tuple[bytes, int], "Claimant"])
    turned_away: dict[tuple[bytes, int], TurnedAway] = field(default_factory=dict[tuple[bytes, int], "TurnedAway"])
    refusals: int = 0
    """Refused requests in a row."""
    refused_at: float = 0.0
    """When the last one was, in seconds of the loop's clock."""

    def renamed(self) -> None:
        """The connection has another client.id: whoever produces on it is somebody else."""
        self.claimants.clear()
