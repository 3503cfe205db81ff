"""What a node's heartbeat asserts, and the receivers of its answer: governed topics, and the coordinator of claims."""

from __future__ import annotations

from collections.abc import Collection

from metadata.nodes import LiveNodes
from metadata.ownership import Ownership
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.resources.lease import CoordinatorLease


class Leases:
    """Implements `sidecar.cluster.nodes.Asserted`."""

    def __init__(self, governed: GovernedTopics, claims: CoordinatorLease) -> None:
        self._governed = governed
        self._claims = claims

    def served_topics(self) -> Collection[str]:
        return [*self._governed.served_topics(), *self._claims.served_topics()]

    def owned(self) -> Collection[Ownership]:
        return self._governed.owned()

    def heard(self, live: LiveNodes, lost: set[str]) -> None:
        self._governed.heard(live, lost)
        self._claims.heard(lost)

    async def refill(self) -> None:
        await self._governed.refill()
