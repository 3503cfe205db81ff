"""What one node knows of who owns a topic, or a partition with an owner of its own. Frozen: `step` makes the next one.

The *holder* is in one of four states:

- None: nobody owns it. Sessions may write beside each other if its policy allows it.
- `Owned`: a session owns it, and this node serves it.
- `Leaving`: the owner's last connection closed. It loses the topic at `until`, unless it connects or writes before.
- `Awaited`: the owner was served by another node, or by this one before a restart or a lost epoch. Until `until` it may
  come back.

Beside it stand the sessions that do not own it: those that wait, were deposed, or may be blocked by their own ghost.
They are bounded by the number of connections, by a limit, or by the queue's limit. PIP-68, PIP-161.

It is idle, or busy with one *work*: a takeover, or what may lead to one. Batches wait for that, two seconds at most.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from metadata.ownership import AccessMode
from metadata.ownership import Ownership as RedisOwnership
from sidecar.protocol.session import Caller, Session
from sidecar.v1 import state_pb2 as records

CLOSED: Final = -1
"""The connection of a claimant that waits and is disconnected."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """The client that Produces. `mode` and `generation`: as its client.id requests, None if it requests none."""

    session: Session
    name: str
    is_named: bool
    connection: int
    mode: AccessMode | None = None
    generation: int | None = None
    succeeds: Session | None = None
    """A session of the same client that this one follows (InitProducerId named its producer id)."""
    names_session: bool = False
    """Whether the claim names its session: then other sessions that its connection carried have no effect on it."""
    caller: Caller | None = None
    """The client: a session belongs to one client. None: any client."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or self.session


@dataclass(frozen=True, slots=True)
class Holder:
    """A session that owns the topic. `connections`: those on this node that carried its Produce, or claimed for it by
    request. `writers`: those of them that are known to be of the client that its producer id belongs to.
    """

    session: Session
    name: str
    mode: AccessMode
    generation: int
    connections: frozenset[int] = frozenset()
    writers: frozenset[int] = frozenset()

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or self.session


@dataclass(frozen=True, slots=True)
class Owned(Holder):
    """The session owns the topic, and this node serves it. Without a connection it is about to be released."""


@dataclass(frozen=True, slots=True)
class Absent(Holder):
    """The owner has no connection to this node and may come back until `until`, in monotonic seconds."""

    until: float = 0.0


@dataclass(frozen=True, slots=True)
class Leaving(Absent):
    """Its last connection closed; the node releases the topic at `until`."""


@dataclass(frozen=True, slots=True)
class Awaited(Absent):
    """`recorded`: its ownership in Redis, which is released there if it does not come back."""

    recorded: RedisOwnership | None = None


Held: TypeAlias = Owned | Leaving | Awaited


def is_held(holder: Held | None, now: float) -> bool:
    """Whether a session owns the topic, or may still come back to it. `now` is monotonic seconds."""
    return holder is not None and not (isinstance(holder, Absent) and holder.until <= now)


class Work(Enum):
    """What a resource is busy with. One at a time; nothing else changes who writes."""

    CLAIM = "a takeover makes a session the owner"
    RESUME = "a takeover lets the same session write under the next epoch"
    OPEN = "a takeover lets a session write beside others, through a slot of its own"
    SHARE = "a takeover frees the topic: sessions may write beside each other"
    ADOPT = "a takeover lets this node renew the fence of a topic that nobody serves"
    RAISE = "the next epoch is opened from memory: the session's client raised its own"
    RENEW = "the next epoch is opened from memory: a partition has had enough records under this one"
    FIND = "a partition that is not fenced is looked up"
    EXAMINE = "a thread determines the age of a batch's records"
    RELEASE = "the owner has no connection: the topic is released"
    LOOK = "the epoch was lost: the newest record tells to whom"
    REQUEST = "an operator's or the node's own request is carried out"


class Place(NamedTuple):
    """A place in the queue. `claimant`: None until a session that waited at the previous node tries here. `since`,
    `until`: when it came and how long it is kept, in monotonic seconds.
    """

    claimant: Claimant | None
    since: float
    until: float


_NO_PLACES: Final[Mapping[Session, Place]] = MappingProxyType({})
_NO_GHOSTS: Final[Mapping[int, float]] = MappingProxyType({})
_NO_TRIES: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class State:
    """`record`: the newest record in the changelog, at offset `position` of the ownership topic; None and -1 without
    one. `listed`: the sessions that it lists as deposed. `floor`: the highest generation of any overlapping slot.
    Times are monotonic seconds unless they say otherwise.
    """

    holder: Held | None = None
    record: records.Ownership | None = None
    position: int = -1
    listed: frozenset[str] = frozenset()
    floor: int = 0
    places: Mapping[Session, Place] = field(default_factory=lambda: _NO_PLACES)
    """Those that wait, or are expected to wait, in order."""
    waiting: tuple[Session, ...] = ()
    """Their sessions. A change of these makes a new tuple."""
    pruned_at: float = 0.0
    """When the places that nobody kept were last removed."""
    tainted: frozenset[int] = frozenset()
    """Connections that carried a deposed session: everything else on them is refused too."""
    ghosts: Mapping[int, float] = field(default_factory=lambda: _NO_GHOSTS)
    """By connection, when the first batch under the owner's own name arrived."""
    struck: Mapping[str, int] = field(default_factory=lambda: _NO_TRIES)
    """The last try (Unix ms) of sessions that were answered PRODUCER_FENCED and are not in `listed`."""
    again: Mapping[str, int] = field(default_factory=lambda: _NO_TRIES)
    """The same for sessions that were in `listed` then, with an earlier try; a later record may have dropped them.
    Sessions outside the list never displace them.
    """
    is_beside: bool = False
    """It is the slot of one session that writes beside others, which is its holder and never loses it by a rule."""
    work: Work | None = None
    is_slow: bool = False
    """The work has taken so long that batches do not wait for it any more."""

    @property
    def generation(self) -> int:
        """The generation; 0 before anybody owned it."""
        return max(self.record.generation if self.record is not None else 0, self.floor)

    @property
    def tries(self) -> dict[str, int]:
        """The last tries (Unix ms) of sessions that were answered PRODUCER_FENCED, for the changelog."""
        return {**self.struck, **self.again}

    def current(self, now: float) -> Held | None:
        """The holder; None also if it is absent and its grace has ended."""
        return self.holder if is_held(self.holder, now) else None

    def seconds_left(self, now: float) -> float | None:
        """The seconds until the node has to release the topic, at most 0 if that is due; None: it has not to."""
        holder = self.holder
        if self.is_beside:
            return None
        if isinstance(holder, Leaving):
            return holder.until - now
        return 0.0 if isinstance(holder, Owned) and not holder.connections else None

    def claimants(self) -> list[tuple[Claimant, float]]:
        """The claimants that wait, in order, and since when."""
        return [(place.claimant, place.since) for place in self.places.values() if place.claimant is not None]
