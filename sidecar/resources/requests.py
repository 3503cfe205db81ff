"""What is asked of the coordinator and what it answers, as values."""

from dataclasses import dataclass
from typing import Protocol

from sidecar.access.prospects import Prospect
from sidecar.changelog import Key
from sidecar.v1 import control_pb2 as control


@dataclass(frozen=True, slots=True)
class Wish:
    """One claim of a request. `key` is `claim_key(group, resource)`; `generation` None: the mode decides."""

    key: Key
    group: str
    resource: control.Resource
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A set of claims, all or nothing. The same `token` again is the same request. `session`: whose they are to be."""

    token: bytes
    session: str
    name: str
    mode: control.AccessMode
    wishes: tuple[Wish, ...]


class Asker(Protocol):
    """A client connection. `address` is for people: where it is and what it runs."""

    @property
    def session(self) -> str: ...
    @property
    def connection_id(self) -> int: ...
    @property
    def address(self) -> str: ...
    def is_alive(self) -> bool: ...
    def sever(self) -> None:
        """Close the connection, whatever is under way on it."""


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """What is to be done with a request, and one ownership per wish in their order: what would be granted, or who holds
    it and the error. BUSY: this node coordinates nothing now, `ready` first.
    """

    prospect: Prospect
    ownerships: tuple[control.Ownership, ...] = ()


def gone_message(now: control.Ownership) -> str:
    """For one that lost or released a claim: its owner since, and what to do."""
    owner = f"{now.owner_name} owns it" if now.owner_session else "nobody owns it"
    return f"{owner} now (generation {now.generation}); this claim was lost or released: claim with a new token"


def refuse_all(request: Request, error: control.Error, message: str) -> ClaimVerdict:
    """A request that is refused for one reason."""
    answers = [control.Ownership(resource=wish.resource, error=error, message=message) for wish in request.wishes]
    return ClaimVerdict(Prospect.REFUSED, tuple(answers))
