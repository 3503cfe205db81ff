"""The states of ownership of a topic, or of a partition with its own owner, as one node knows them. Pure.

A topic is in one of four states, and a function of an event's name says which one follows:

- None: nobody owns it. Sessions may write beside each other if its policy allows it (they are in `shared`).
- `Owned`: a session owns it, and this node serves it.
- `Leaving`: the owner's last connection closed. It loses the topic at `until`, unless it connects or writes before.
- `Awaited`: the owner was served by another node, or by this one before a restart or a lost epoch. Until `until` it may
  come back.

| event | None | Owned | Leaving | Awaited |
|---|---|---|---|---|
| a record names an owner, or none | Awaited, None | Awaited, None | Awaited, None | Awaited, None |
| `moved_away`: another node serves it | - | Awaited | Awaited | Awaited, for longer |
| `connected`, or wrote | - | Owned | Owned | Owned |
| `disconnected`, the last connection | - | Leaving, or Owned by nobody's connection | - | - |
| `taken_over` for a session, or nobody | Owned, None | Owned, None | Owned, None | Owned, None |
| released, or shared | - | None | None | None |

A plain session (`conn:…`) never comes back: `moved_away` leaves its state as it is. While a takeover or another
operation is under way (`operations`) the state is that from before it, and no batch is judged by it. Sessions
that wait or were deposed are not part of the state: they are in `newcomers` and the ownership record. PIP-68.

`owner` stores the state of one topic, and only `owner` changes it.
"""

from dataclasses import dataclass, replace
from typing import TypeAlias

from metadata.ownership import AccessMode
from metadata.ownership import Ownership as RedisOwnership
from sidecar.protocol.session import Session


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
State: TypeAlias = Held | None


def seconds_left(state: State, now: float) -> float | None:
    """The seconds until the node has to release the topic, at most 0 if that is due; None: it has not to."""
    if isinstance(state, Leaving):
        return state.until - now
    return 0.0 if isinstance(state, Owned) and not state.connections else None


def is_held(state: State, now: float) -> bool:
    """Whether a session owns the topic, or may still come back to it."""
    return state is not None and not (isinstance(state, Absent) and state.until <= now)


def moved_away(state: State, until: float) -> State:
    """The state while another node serves the topic. If that node dies, the owner may come back here `until` then."""
    if state is None or state.session.is_plain:
        return state
    recorded = state.recorded if isinstance(state, Awaited) else None
    return Awaited(state.session, state.name, state.mode, state.generation, until=until, recorded=recorded)


def connected(state: State, connection: int, *, writes: bool = False) -> State:
    """The state with one more connection of the owner. `writes`: a batch on it was admitted."""
    if state is None:
        return None
    owned = _owned(state)
    connections, writers = owned.connections, owned.writers
    if connection not in connections:
        connections |= {connection}
    if writes and connection not in writers:
        writers |= {connection}
    if owned is state and connections is owned.connections and writers is owned.writers:
        return owned
    return replace(owned, connections=connections, writers=writers)


def disconnected(state: State, connection: int, until: float | None) -> State:
    """The state without a closed connection. `until`: when an owner without any loses the topic; None: now."""
    if state is None or connection not in state.connections:
        return state
    left = {connection}
    found = replace(_owned(state), connections=state.connections - left, writers=state.writers - left)
    return _alone(found, until)


def taken_over(state: State, owner: Owned | None, until: float | None) -> State:
    """The state after a committed takeover. `owner`: without the connections that it had before; None: nobody owns the
    topic. `until`: as in `disconnected`.
    """
    if owner is None:
        return None
    if state is not None and state.session == owner.session:
        owner = replace(owner, connections=owner.connections | state.connections)
    return _alone(owner, until)


def _owned(state: Held) -> Owned:
    if isinstance(state, Owned):
        return state
    return Owned(state.session, state.name, state.mode, state.generation, state.connections, state.writers)


def _alone(owner: Owned, until: float | None) -> Owned | Leaving:
    """The owner, as `Leaving` if it has no connection and there is a grace."""
    if owner.connections or until is None:
        return owner
    return Leaving(owner.session, owner.name, owner.mode, owner.generation, until=until)
