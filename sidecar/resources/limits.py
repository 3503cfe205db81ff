"""How many claims and places in queues there may be: in all, in one queue, and of one principal. Pure.

Clients without a login are one principal to Kafka, User:ANONYMOUS, although they may be many applications. For them,
and for claims of older nodes without a principal, only the limits of the cluster of nodes hold.
"""

from dataclasses import dataclass
from typing import Final

from sidecar.cluster.resolver import ANONYMOUS

CLAIMS_LIMIT: Final = 100_000
PLACES_LIMIT: Final = 100_000


@dataclass(slots=True)
class ClaimLimits:
    """`queue`: places in the queue of one resource; `claims`, `places`: of all resources together; `of_principal`:
    claims of one principal, and places of one; 0: no limit.
    """

    queue: int
    of_principal: int = 0
    claims: int = CLAIMS_LIMIT
    places: int = PLACES_LIMIT

    def claims_fault(self, owned: int, more: int, principal: str, owned_by: int, gained: int) -> str:
        """Return why a request may not claim; "" if it may. `owned`: claims in all; `more`: new ones; `owned_by`: those
        of the principal; `gained`: by how many the request would raise them.
        """
        if more and owned + more > self.claims:
            return f"{self.claims} resources is the limit of one cluster of nodes; release some"
        if gained and self._is_over(principal, owned_by + gained):
            return f"{self.of_principal} resources is the limit of one principal; release some"
        return ""

    def places_fault(self, taken: int, more: int, principal: str, taken_by: int) -> str:
        """Return why a request may not take `more` places; "" if it may. `taken`: in all; `taken_by`: by its login."""
        if taken + more > self.places:
            return f"{self.places} places in queues are kept at most; try again later"
        if self._is_over(principal, taken_by + more):
            return f"{self.of_principal} places in queues is the limit of one principal; give some up"
        return ""

    def _is_over(self, principal: str, number: int) -> bool:
        return is_somebody(principal) and 0 < self.of_principal < number


def is_somebody(principal: str) -> bool:
    """Return whether a principal is one client that logged in, not everybody."""
    return principal not in ("", ANONYMOUS)
