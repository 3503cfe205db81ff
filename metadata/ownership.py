"""Ownership of a resource and claims to it: frozen facts, how Redis keeps them, and the answers of the scripts.

A *resource* is a writer slot's name (a topic, or a partition of it) or any other string that somebody can own. Its
record says who owns it under which generation, and from which changelog position this is known. Rules are in `lua/`,
none are here.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from .nodes import Holder

Generation = NewType("Generation", int)
"""Public number of an ownership, int64: rises with every change of owner, never falls. 0: never owned."""

MAX_INT64: Final = 2**63 - 1


class AccessMode(StrEnum):
    """How a session wants a resource; the names of `client.id`."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"
    WAIT_FOR_EXCLUSIVE = "wait_for_exclusive"
    EXCLUSIVE_WITH_FENCING = "exclusive_with_fencing"


@dataclass(frozen=True, slots=True)
class Ownership:
    """The changelog's record of one resource's ownership.

    `position` is the offset of the changelog record that says so (>= 0): within one generation the later record wins.
    `session` is "pid:N" or "conn:ID"; None: free, the generation stays and the other fields speak of the last owner.
    `since_ms` is Unix time. (`producer_id`, `producer_epoch`) is the slot's stamp, -1 where there is none.
    Raises ValueError where a field is out of its bounds.
    """

    resource: str
    generation: Generation
    position: int
    session: str | None
    name: str = ""
    mode: AccessMode = AccessMode.EXCLUSIVE
    since_ms: int = 0
    node_id: int = -1
    producer_id: int = -1
    producer_epoch: int = -1
    wire: str = field(init=False, repr=False, compare=False)
    """The record as Redis stores it; encoded once, because every heartbeat sends it."""

    def __post_init__(self) -> None:
        check_resource(self.resource)
        check_int64(self.generation, "generation")
        check_int64(self.position, "changelog position")
        if self.session is not None:
            check_session(self.session)
        head = f"{self.generation} {self.position} {self.session or '-'}"
        object.__setattr__(self, "wire", f"{head} {self.details()}")

    def details(self) -> str:
        """Return the fields that no script reads, as JSON."""
        return json.dumps(
            {
                "name": self.name,
                "mode": self.mode,
                "since_ms": self.since_ms,
                "node_id": self.node_id,
                "producer_id": self.producer_id,
                "producer_epoch": self.producer_epoch,
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, resource: str, wire: bytes) -> Ownership:
        """Decode a record from Redis; unknown fields of the JSON are ignored."""
        generation, position, session, details = wire.decode().split(" ", 3)
        fields = json.loads(details)
        return cls(
            resource=resource,
            generation=Generation(int(generation)),
            position=int(position),
            session=None if session == "-" else session,
            name=fields.get("name", ""),
            mode=AccessMode(fields.get("mode", AccessMode.EXCLUSIVE)),
            since_ms=fields.get("since_ms", 0),
            node_id=fields.get("node_id", -1),
            producer_id=fields.get("producer_id", -1),
            producer_epoch=fields.get("producer_epoch", -1),
        )


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A session's request to own a resource, sent by the node that received its Produce.

    `token`: 16 random bytes, one per request; the same token is the same request. `asked`: the generation from
    `client.id`, None where it names none, 0 always wins. `known`: newest record of the changelog, None where there is
    none. `topic`: the topic that a live node may be serving; None for a resource that belongs to no topic. `lease_ms`:
    how long others wait for this claim at most; repeating the request renews it. `returns_to`: the generation that the
    session let go of, where the changelog has it as the last owner: it goes on with that if nobody owned the resource
    since.
    """

    resource: str
    token: bytes
    node_id: int
    boot: str
    session: str
    name: str
    mode: AccessMode
    lease_ms: int
    known: Ownership | None = None
    asked: int | None = None
    topic: str | None = None
    returns_to: int | None = None

    def __post_init__(self) -> None:
        check_resource(self.resource)
        check_session(self.session)
        check_token(self.token)
        if self.asked is not None:
            check_int64(self.asked, "generation")
        if self.returns_to is not None:
            check_int64(self.returns_to, "generation")
        if self.known is not None and self.known.resource != self.resource:
            raise ValueError(f"the known owner is of {self.known.resource!r}, the claim of {self.resource!r}")
        if self.lease_ms < 1:
            raise ValueError("a claim needs a lease of at least 1 ms")


class ClaimStatus(StrEnum):
    """Outcome of a claim. `GRANTED` lets the takeover begin; it is not yet ownership."""

    GRANTED = "granted"
    HELD = "held"
    LOWER_GENERATION = "lower"
    BUSY = "busy"
    ELSEWHERE = "elsewhere"
    OVER = "over"
    EXHAUSTED = "exhausted"

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed although the owner stays (OVER: with a new token)."""
        return self in (ClaimStatus.BUSY, ClaimStatus.OVER)


@dataclass(frozen=True, slots=True)
class ClaimAnswer:
    """`generation` is set when GRANTED. `current` is Redis' record of the moment (None: never owned): the holder when
    HELD, whom the claim deposes when GRANTED to another session. BUSY: `rival` is the session of the claim in progress,
    `wait_ms` is until its lease ends. ELSEWHERE: `server` is the node that serves the topic.
    """

    status: ClaimStatus
    generation: Generation | None = None
    current: Ownership | None = None
    rival: str | None = None
    wait_ms: int = 0
    server: Holder | None = None


@dataclass(frozen=True, slots=True)
class PublishAnswer:
    """`accepted`: Redis now holds exactly the record that was sent; else `current` is what supersedes it."""

    accepted: bool
    current: Ownership


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """`released`: the resource is free at that generation (now or before); else `current` is a newer owner."""

    released: bool
    current: Ownership


@dataclass(frozen=True, slots=True)
class ClaimInProgress:
    """A granted claim whose lease has not ended; `generation` is the granted one."""

    session: str
    token: bytes
    generation: Generation
    remaining_ms: int


@dataclass(frozen=True, slots=True)
class ResourceState:
    """What Redis knows of one resource; both fields are None if it knows nothing."""

    resource: str
    owner: Ownership | None
    claim: ClaimInProgress | None


def check_resource(resource: str) -> None:
    """Raises ValueError for an empty name."""
    if not resource:
        raise ValueError("a resource needs a name")


def check_session(session: str) -> None:
    """A session id stands between blanks in Redis, and "-" means free. Raises ValueError."""
    if not session or session == "-" or not session.isascii() or not session.isprintable() or " " in session:
        raise ValueError(f"a session id is printable ASCII without blanks, not {session!r}")


def check_token(token: bytes) -> None:
    """Raises ValueError for anything but 16 bytes."""
    if len(token) != 16:
        raise ValueError(f"a token has 16 random bytes, not {len(token)}")


def check_int64(value: int, what: str) -> None:
    """Raises ValueError below 0 and above int64."""
    if not 0 <= value <= MAX_INT64:
        raise ValueError(f"a {what} is 0 to {MAX_INT64}, not {value}")
