"""The coordinator's requests and verdicts, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from sidecar.access.prospects import Look, Prospect
from sidecar.changelog import Key, claim_key
from sidecar.v1 import control_pb2 as control


@dataclass(frozen=True, slots=True)
class Wish:
    """One claim of a request. `key` is `claim_key(group, resource)`; `generation` None: the mode decides."""

    key: Key
    group: str
    resource: control.Resource
    generation: int | None = None

    @classmethod
    def of(cls, group: str, resource: control.Resource, generation: int | None = None) -> Wish:
        """Return the claim to a resource; of a topic without a group: to write."""
        return cls(claim_key(group, resource), group, resource, generation)

    @property
    def is_written(self) -> bool:
        """Whether it is a topic or partition for writing: `exclusive` grants these, the coordinator all others."""
        return bool(self.resource.topic) and not self.group

    @property
    def index(self) -> int | None:
        """The partition; None for a whole topic or a free string."""
        return self.resource.partition if self.resource.HasField("partition") else None

    def __str__(self) -> str:
        if self.resource.name:
            what = f"the string {self.resource.name!r}"
        else:
            what = self.resource.topic if self.index is None else f"partition {self.index} of {self.resource.topic}"
        return f"{what} in group {self.group}" if self.group else what


@dataclass(frozen=True, slots=True)
class Request:
    """A set of claims, all or nothing. The same `token` again is the same request. `session`: the claiming session;
    `principal`: of the client that claims; its claims and places are counted.
    """

    token: bytes
    session: str
    name: str
    mode: control.AccessMode
    wishes: tuple[Wish, ...]
    principal: str = ""


class WishAnswer(NamedTuple):
    """The decision on a wish: NONE with the generation that it gets, or has; TIMED_OUT: it has to wait; or an error."""

    error: control.Error = control.NONE
    message: str = ""
    generation: int = 0


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The decision on a request, and on each of its wishes in their order. BUSY: this node does not coordinate now;
    await `ready` first.
    """

    prospect: Prospect
    answers: tuple[WishAnswer, ...] = ()

    def looks(self, request: Request) -> dict[Key, Look]:
        """Return the prospect of each wish, with its error."""
        keys = [wish.key for wish in request.wishes]
        if self.prospect is not Prospect.REFUSED:
            return dict.fromkeys(keys, Look(self.prospect))
        answers = zip(keys, self.answers, strict=True)
        return {key: refused_by(answer.error, answer.message) if answer.error else READY for key, answer in answers}


BUSY: Final = ClaimVerdict(Prospect.BUSY)
READY: Final = Look(Prospect.READY)


def refused_by(error: control.Error, message: str) -> Look:
    """Return why something cannot be owned."""
    return Look(Prospect.REFUSED, error, message)


def refuse_all(request: Request, error: control.Error, message: str) -> ClaimVerdict:
    """Return a verdict that refuses all wishes for one reason."""
    return ClaimVerdict(Prospect.REFUSED, (WishAnswer(error, message),) * len(request.wishes))


def gone_message(name: str, session: str, generation: int) -> str:
    """Return the message for a client that lost or released a claim: the present owner, and what to do."""
    owner = f"{name} owns it" if session else "nobody owns it"
    return f"{owner} now (generation {generation}); this claim was lost or released: claim with a new token"
