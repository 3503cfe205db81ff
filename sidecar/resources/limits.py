"""How many claims and places in queues there may be: in all, in one queue, and of one principal; and how large a change
of owners may be, which is one batch in the log. Pure.

Clients without a login are one principal to Kafka, User:ANONYMOUS, although they may be many applications. For them,
and for claims of older nodes without a principal, only the limits of the cluster of nodes hold.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.changelog import Key, Record
from sidecar.cluster.resolver import ANONYMOUS
from sidecar.resources.requests import ClaimVerdict, Request, refuse_all
from sidecar.v1 import control_pb2 as control

CLAIMS_LIMIT: Final = 100_000
PLACES_LIMIT: Final = 100_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Half of the ownership topic's limit for a batch."""
CHANGE_RECORDS: Final = 5_000
"""The records that a request may need: its claims, at most 1,000, and the claims of others that end with them."""
_RECORD_OVERHEAD: Final = 64
_RECORD_BYTES: Final = 5_120
"""An upper bound of a record's size without its resource: names of deposed sessions, the owner's name, and so on."""
_FREE_RECORD_BYTES: Final = 1_024
"""The same, if nobody was deposed: the owner's name and the client's address, of 255 bytes each, and what is fixed."""
_TIMES: Final = 3
"""How often a record repeats a resource, at most: in the key, in the value, and the group."""


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


def encoded_size(records: Sequence[Record]) -> int:
    """Return the approximate size of these records in a batch, in bytes."""
    values = (record.value for record in records)
    keys = sum(_RECORD_OVERHEAD + len(record.key.topic) for record in records)  # keys of claims are ASCII
    return keys + sum(value.ByteSize() for value in values if value is not None)


def may_be_too_large(request: Request, owned: Container[Key]) -> bool:
    """Return whether a request may be too large for a batch, by a cheap upper bound. `owned`: the resources with
    owners; only their records can name clients that were deposed.
    """
    keys = [wish.key for wish in request.wishes]
    fixed = sum(_RECORD_BYTES if key in owned else _FREE_RECORD_BYTES for key in keys)
    principal = len(request.principal.encode())
    return fixed + sum(principal + _TIMES * len(key.topic) for key in keys) > BATCH_BYTES


def too_large(request: Request, records: Sequence[Record]) -> ClaimVerdict | None:
    """Return the refusal of a request whose records do not fit into one batch; None if they fit."""
    size = encoded_size(records)
    if len(records) > CHANGE_RECORDS:
        message = f"this request changes {len(records)} claims, {CHANGE_RECORDS} is the limit: claim fewer at once"
    elif size > BATCH_BYTES:
        message = f"the claims of this request take {size} bytes, {BATCH_BYTES} are the limit: claim fewer at once"
    else:
        return None
    return refuse_all(request, control.INVALID_REQUEST, message)
