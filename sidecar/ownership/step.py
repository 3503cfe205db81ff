"""Decides who owns a topic, or a partition with an owner of its own: what follows from each event. Pure; the theory
first.

A topic has at most one *holder*: the session that owns it; or *shared* sessions that write beside each other. A session
that Produces is one of: the holder; a *deposed* session, which lost the topic and stays refused; a
*successor* of the holder (its own client with a new producer id); a shared one; any other is a *newcomer*. A newcomer
is judged again at each Produce; a refused one changes nothing.

Two waits are not refusals. They are answered 7 REQUEST_TIMED_OUT at once, as a delayed answer would block the client's
other topics; only a work under way delays an answer:

- *Grace.* A holder that lost its node may come back for `reconnect_grace`, and so may shared sessions. A plain
  session that holds the topic under the newcomer's own name may be the newcomer's earlier connection, already dead:
  the newcomer is asked to come again until TCP has found that out, 25 s at most.
- *Queue.* Sessions in mode wait_for_exclusive keep their place, first come first served, as long as they keep trying.

What an event makes of the holder (a dash: it stays):

| event | None | Owned | Leaving | Awaited |
|---|---|---|---|---|
| `RecordRead`: a record names an owner, or none | Awaited, None | Awaited, None | Awaited, None | Awaited, None |
| `ServedElsewhere` | - | Awaited | Awaited | Awaited, for longer |
| `FoundInRedis`, after the grace | Awaited | - | Awaited | Awaited |
| `ConnectionOpened` | - | Owned | Owned | Owned |
| `ConnectionClosed`, the last one | - | Leaving; without a grace Owned, without a connection | - | - |
| `TakenOver` for a session | Owned, Leaving | Owned, Leaving | Owned, Leaving | Owned, Leaving |
| `TakenOver` for nobody | None | None | None | None |
| `Freed` | - | None | None | None |

`TakenOver` makes it Leaving if the session's connections have closed meanwhile and there is a grace.
A plain session (`conn:…`) never comes back: `ServedElsewhere` leaves its state as it is. The slot of a session that
writes beside others is Owned by it: only events of connections change its holder, and what would take it away raises.

What follows from an event for the *work*, of which there is one at a time:

| event | idle | busy |
|---|---|---|
| `BatchOffered` | judged; a claim, a needed record or a due release begins a work | waits; answered 5 if it is slow |
| `Began` | busy | (an error of the caller) |
| `TookLong` | - | slow: batches that wait are answered 5 LEADER_NOT_AVAILABLE |
| `Ended` | (an error of the caller) | idle: what waits is judged in order, or gets the answer of the failure |
| `Settled`, `ConnectionClosed`, `TimerFired` | an owner without a connection is released, or a timer is set | - |
| `EpochLost`: fenced | writers stop; `LOOK` at the newest record | writers stop |
| `EpochLost`: in doubt | writers stop; `RESUME` under the next epoch | writers stop |
| `EpochLost`: ids in doubt | writers stop; the next batch resumes | writers stop, unless the work settles it |
| `EpochLost`: policy changed | writers stop; the next batch resumes | writers stop |

Modes and codes: PIP-68, PIP-161; generations: the Kafka wiki's Single Reader/Writer; docs/reference/client-id.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from metadata.ownership import AccessMode
from metadata.ownership import Ownership as RedisOwnership
from sidecar.access.rules import KEPT_S, Answer, decide
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.invariants import STRUCK_KEPT, assert_step
from sidecar.ownership.state import (
    CLOSED,
    Absent,
    Awaited,
    Claimant,
    Held,
    Holder,
    Leaving,
    Owned,
    Place,
    State,
    Work,
    is_held,
)
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as records

GHOST_LIMIT_S: Final = 25.0
"""Within this time TCP finds that a silent client is dead (see `sidecar.network.keepalive`)."""
_PRUNE_S: Final = 0.25
_HOW: Final = ". mode=wait_for_exclusive waits for it, mode=exclusive_with_fencing takes it over"
"""What a client can request if it is refused because of other producers."""
_NOBODY: Final[Mapping[str, str]] = MappingProxyType({})
_NOT_SHARED: Final = "partitions of this topic have one owner each: ask for a mode in client.id"

# Facts ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Facts:
    """What an event is judged by, beside the state. Graces are in seconds.

    For a batch: `mode`: the policy's. `was_deposed`: its session lost an overlapping slot. `writes`: this node writes
    for the holder. `needs_record`: a newer record of the owner is needed before this batch is written. `is_serving`:
    this node serves the topic; `is_elsewhere`: another one does. `is_dropped`: the topic lost its policy. `shared`:
    the labels of connected shared sessions, by session; `shared_awaited`: more may come back from another node;
    `may_share`: sessions write beside each other under this node's master slot. `by_partition`: it is a partition.
    For the slot of a shared session: `is_dropped`: another session is about to get it.
    """

    reconnect_grace: float = 0.0
    disconnect_grace: float = 0.0
    mode: AccessMode = AccessMode.EXCLUSIVE
    was_deposed: bool = False
    writes: bool = False
    needs_record: bool = False
    is_serving: bool = True
    is_elsewhere: bool = False
    is_dropped: bool = False
    shared: Mapping[str, str] = field(default_factory=lambda: _NOBODY)
    shared_awaited: bool = False
    may_share: bool = False
    by_partition: bool = False
    queue_limit: int = 1_000
    wall_ms: int = 0


# Events ---------------------------------------------------------------------------------------------------------------


class BatchOffered(NamedTuple):
    """A client offers a batch. `is_claim`: it claims by request, and there is nothing to write."""

    claimant: Claimant
    is_claim: bool = False


class ConnectionOpened(NamedTuple):
    """The owner has another connection, which carried no batch."""

    connection: int


class ConnectionClosed(NamedTuple):
    """A client's connection to this node ended."""

    connection: int


class RecordRead(NamedTuple):
    """The newest record was read, after a start, a lost epoch, or because another node stored it. `record`: None
    without one. `recorded`: its owner in the form for Redis, None if it cannot come back.
    """

    record: records.Ownership | None
    position: int
    floor: int
    recorded: RedisOwnership | None


class Recorded(NamedTuple):
    """The node stored a record of the topic."""

    record: records.Ownership
    position: int


class TakenOver(NamedTuple):
    """A takeover was committed. `owner`: without the connections that it had before; None: nobody owns the topic.
    `deposes`: the last owner lost it for ever.
    """

    owner: Owned | None
    deposes: bool = False


class Freed(NamedTuple):
    """The owner was released, or sessions write beside each other."""


class ServedElsewhere(NamedTuple):
    """Another node serves the topic now. If it dies, the owner may come back here within the grace."""


class FoundInRedis(NamedTuple):
    """Redis knows this owner, which this node did not: it may come back, as after a start."""

    owner: RedisOwnership


class WaitedBefore(NamedTuple):
    """These sessions waited at the previous node. They keep their places if they come back within the grace."""

    sessions: Sequence[Session]


class PlaceKept(NamedTuple):
    """A claimant that came at `came` (monotonic seconds) waits for `seconds`. Another event extends that."""

    claimant: Claimant
    seconds: float
    came: float


class PlaceLeft(NamedTuple):
    """A session does not wait any more."""

    session: Session


class ClaimEnded(NamedTuple):
    """A session's claim was committed: it and the `evicted` leave the queue, and `tainted` lost the topic with them."""

    session: Session
    evicted: Sequence[Session] = ()
    tainted: frozenset[int] = frozenset()


class Tainted(NamedTuple):
    """These connections carried a session that lost the topic."""

    connections: frozenset[int]


class TimePassed(NamedTuple):
    """Places that nobody kept may be removed."""


class TimerFired(NamedTuple):
    """The time of `SetTimer` has come."""


class Began(NamedTuple):
    """A work begins that no event before asked for: a request, or what a batch needs before it is written."""

    work: Work


class TookLong(NamedTuple):
    """The work under way has taken two seconds."""


class Ended(NamedTuple):
    """The work is over. `refusal`: the answer to what waited for it; None: it is judged again."""

    refusal: Outcome | None = None


class Settled(NamedTuple):
    """What waited for the work is answered, written, or waits for the next one."""


class Loss(Enum):
    """Why nothing may be written under the present epoch any more."""

    FENCED = "Kafka refuses it, or has forgotten it"
    DOUBT = "the outcome of a batch is unknown, and so is the next sequence, until a fence"
    IDS = "the outcome of a batch with a sequence id is unknown until a fence"
    POLICY = "sequence ids begin or end, or it is another topic's: only a fence shows everything that was written"


class EpochLost(NamedTuple):
    """Writers have to stop."""

    loss: Loss


Event: TypeAlias = (
    BatchOffered | ConnectionOpened | ConnectionClosed | RecordRead | Recorded | TakenOver | Freed | ServedElsewhere
    | FoundInRedis | WaitedBefore | PlaceKept | PlaceLeft | ClaimEnded | Tainted | TimePassed | TimerFired | Began
    | TookLong | Ended | Settled | EpochLost
)  # fmt: skip

# What follows ---------------------------------------------------------------------------------------------------------


class Act(Enum):
    """What to do with a batch."""

    FORWARD = "the session owns the topic here: write it"
    GRANT = "the session owns the topic here, and has nothing to write"
    RENEW = "the owner needs a newer record before it is written"
    RETURN = "the session owns the topic but is not served here yet: fail over"
    CLAIM = "the topic is free, or its holder gives way: change of owner"
    SHARE = "the session may write beside others, through a slot of its own"
    BEGIN_SHARING = "it may, once this node has the master slot for that"
    WAIT = "it has a place in the queue now; answer REQUEST_TIMED_OUT"
    LATER = "answer REQUEST_TIMED_OUT: the holder may come back, or is this client's own ghost"
    REFUSE = "answer with the code"
    MOVED = "answer NOT_LEADER_OR_FOLLOWER: another node decides, or its policy is gone"
    OPEN = "the shared session needs an epoch of its slot first"
    RELEASE = "the owner has left, and its release is due: it comes before any other session is judged"
    HOLD = "it waits for the work under way, and is judged after it"
    BUSY = "answer LEADER_NOT_AVAILABLE: the work under way is slow, or another session is about to get the slot"


@dataclass(frozen=True, slots=True)
class Verdict:
    """An act, its code and message if it is an answer, and whether a claim deposes the holder and those that wait."""

    act: Act
    code: int = 0
    message: str = ""
    deposes: bool = False
    evicts_queue: bool = False


class Begin(NamedTuple):
    """Begin this work, which no batch asked for."""

    work: Work


class StopWriting(NamedTuple):
    """Close the epoch: answer what is under way for a retry."""

    loss: Loss


class Settle(NamedTuple):
    """Answer all batches that wait with the refusal; without one, judge them again in order. After a work `Settled`
    follows.
    """

    refusal: Outcome | None


class SetTimer(NamedTuple):
    """Have `TimerFired` follow at a time in monotonic seconds. An earlier timer may stay instead."""

    until: float


class Idle(NamedTuple):
    """No work is under way any more: the owner may be another one, or none."""


Effect: TypeAlias = Verdict | Begin | StopWriting | Settle | SetTimer | Idle

BUSY: Final = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message="the topic is changing its owner; try again")

_MOVES_HOLDER: Final = (TakenOver, Freed, RecordRead, FoundInRedis)


def step(state: State, event: Event, facts: Facts, now: float) -> tuple[State, tuple[Effect, ...]]:
    """The next state, and what follows, in order: for a batch its verdict. `now` is monotonic seconds."""
    after, effects = _step(state, event, facts, now)
    if after is not state:
        moves, reads = isinstance(event, _MOVES_HOLDER), isinstance(event, RecordRead)
        assert_step(state, after, moves_holder=moves, reads=reads)
    return after, effects


def _step(state: State, event: Event, facts: Facts, now: float) -> tuple[State, tuple[Effect, ...]]:
    match event:
        case BatchOffered():
            return _judged(state, event, facts, now)
        case ConnectionClosed(connection):
            return _looked(_closed(state, connection, facts, now), now)
        case TimerFired():
            return _looked(state, now)
        case Began(work):
            return _begun(state, work), ()
        case TookLong():
            return (state, ()) if state.work is None else (replace(state, is_slow=True), (Settle(BUSY),))
        case Ended(refusal):
            assert state.work is not None, "what ends was under way"
            return replace(state, work=None, is_slow=False), (Settle(refusal),)
        case Settled():
            if state.work is not None:
                return state, ()
            state, effects = _looked(state, now)
            return state, effects if state.work is not None else (*effects, Idle())
        case EpochLost(loss):
            return _stopped(state, loss)
        case _:
            return _noted(state, event, facts, now), ()


def _noted(state: State, event: Event, facts: Facts, now: float) -> State:  # noqa: C901, PLR0912  a case for each
    """The next state after an event from which nothing follows at once."""
    match event:
        case ConnectionOpened(connection):
            return _connected(state, connection, writes=False)
        case TakenOver(owner, deposes):
            return _taken_over(state, owner, _until(facts, now), deposes=deposes)
        case RecordRead():
            return _read(state, event, facts, now)
        case Recorded(record, position):
            return _recorded(state, record, position)
        case Freed():
            return replace(state, holder=None)
        case ServedElsewhere():
            return _moved_away(state, now + facts.reconnect_grace)
        case FoundInRedis(owner):
            return _found(state, owner, facts, now)
        case WaitedBefore(sessions):
            return _expecting(state, sessions, facts, now)
        case PlaceKept(claimant, seconds, came):
            return _placed(state, claimant, now, seconds, came)
        case PlaceLeft(session):
            return _without(state, (session,))
        case ClaimEnded():
            return _claimed(state, event)
        case Tainted(connections):
            return replace(state, tainted=state.tainted | connections)
        case _:
            assert isinstance(event, TimePassed), event
            return _pruned(state, now)


# The work -------------------------------------------------------------------------------------------------------------


def _begun(state: State, work: Work) -> State:
    assert state.work is None, f"{state.work} is under way: one work at a time"
    return replace(state, work=work)


def _looked(state: State, now: float) -> tuple[State, tuple[Effect, ...]]:
    """An owner without a connection is released, at once or when its grace is over; not during another work."""
    left = state.seconds_left(now)
    if left is None or state.work is not None:
        return state, ()
    if left > 0:
        return state, (SetTimer(now + left),)
    return _begun(state, Work.RELEASE), (Begin(Work.RELEASE),)


def _is_release_due(state: State, now: float) -> bool:
    left = state.seconds_left(now)
    return left is not None and left <= 0


_SETTLES: Final = frozenset({Work.CLAIM, Work.RESUME, Work.SHARE, Work.ADOPT, Work.OPEN, Work.LOOK, Work.RELEASE})
"""The works that fence, or after which nothing is written before a fence."""
_FOLLOWS: Final = {Loss.FENCED: Work.LOOK, Loss.DOUBT: Work.RESUME}


def _stopped(state: State, loss: Loss) -> tuple[State, tuple[Effect, ...]]:
    if loss is Loss.IDS and state.work in _SETTLES:
        return state, ()
    follows = _FOLLOWS.get(loss)
    if follows is None or state.work is not None or (state.is_beside and loss is Loss.FENCED):
        return state, (StopWriting(loss),)  # a shared session that was fenced: its next batch finds out by whom
    return _begun(state, follows), (StopWriting(loss), Begin(follows))


# A batch --------------------------------------------------------------------------------------------------------------


_BEGINS: Final = {
    Act.RENEW: Work.RESUME, Act.CLAIM: Work.CLAIM, Act.BEGIN_SHARING: Work.SHARE, Act.OPEN: Work.OPEN,
    Act.RELEASE: Work.RELEASE,
}  # fmt: skip
"""The acts that begin a work, for which the batch waits itself, before all others."""


def _judged(state: State, event: BatchOffered, facts: Facts, now: float) -> tuple[State, tuple[Verdict]]:
    if state.work is not None:
        return state, (_BUSY if state.is_slow else _HOLD,)
    state, verdict = _beside_others(state, facts) if state.is_beside else _offered(state, event, facts, now)
    work = _BEGINS.get(verdict.act)
    return state if work is None else _begun(state, work), (verdict,)


def _beside_others(state: State, facts: Facts) -> tuple[State, Verdict]:
    """The verdict on a batch of the session that a shared slot is for."""
    if facts.is_dropped:
        return state, _BUSY
    return state, _FORWARD if facts.writes and not facts.needs_record else _OPEN


def _offered(state: State, event: BatchOffered, facts: Facts, now: float) -> tuple[State, Verdict]:
    claimant, holder = event.claimant, state.holder
    if facts.writes and is_owners(state, claimant):
        return _of_owner(state, event, facts)
    if facts.is_dropped:
        return state, _MOVED
    if holder is not None and holder.session != claimant.session and _is_release_due(state, now):
        return state, _RELEASE
    state = _pruned(state, now)
    verdict = judge(state, facts, claimant, now)
    if verdict.act is Act.FORWARD and facts.writes:
        return _of_owner(state, event, facts)
    if verdict.act in (Act.FORWARD, Act.RETURN, Act.CLAIM):
        return state, replace(verdict, act=Act.CLAIM)
    if verdict.act is Act.SHARE and not facts.by_partition:
        return state, verdict if facts.may_share else _BEGIN_SHARING
    if verdict.act is Act.SHARE:
        verdict = Verdict(Act.REFUSE, ErrorCode.POLICY_VIOLATION, _NOT_SHARED)
    is_deposed = verdict.code == ErrorCode.PRODUCER_FENCED
    if facts.is_elsewhere and not facts.is_serving and not is_deposed:
        return state, _MOVED
    if verdict.act is Act.WAIT:
        state = _placed(state, claimant, now, KEPT_S)
    elif verdict.act is Act.LATER and isinstance(holder, Owned) and claimant.connection not in state.ghosts:
        state = replace(state, ghosts={**state.ghosts, claimant.connection: now})
    elif is_deposed:
        state = _struck(state, claimant, facts.wall_ms)
    return state, verdict


def is_owners(state: State, claimant: Claimant) -> bool:
    """Whether a claimant is the owner and asks for nothing else: then no other fact counts but that the node writes."""
    holder = state.holder
    return (
        isinstance(holder, Owned)
        and holder.session == claimant.session
        and claimant.generation is None
        and claimant.mode is not AccessMode.SHARED
    )


def _of_owner(state: State, event: BatchOffered, facts: Facts) -> tuple[State, Verdict]:
    if facts.needs_record:
        return state, _RENEW
    connection = event.claimant.connection
    return _connected(state, connection, writes=not event.is_claim), _GRANT if event.is_claim else _FORWARD


_MOVED: Final = Verdict(Act.MOVED)
_RENEW: Final = Verdict(Act.RENEW)
_GRANT: Final = Verdict(Act.GRANT)
_FORWARD: Final = Verdict(Act.FORWARD)
_BEGIN_SHARING: Final = Verdict(Act.BEGIN_SHARING)
_OPEN: Final = Verdict(Act.OPEN)
_RELEASE: Final = Verdict(Act.RELEASE)
_HOLD: Final = Verdict(Act.HOLD)
_BUSY: Final = Verdict(Act.BUSY)


def judge(state: State, facts: Facts, claimant: Claimant, now: float) -> Verdict:
    """What a claimant may do now. `now` is monotonic seconds."""
    holder = state.holder
    if claimant.session in state.struck or claimant.session in state.listed or facts.was_deposed:
        return _fenced(state)
    asked = _asked_mode(facts.mode, claimant)
    if asked is None:
        held = held_message(holder, state.generation, state.waiting)
        message = f"the policy of this topic is {facts.mode}: mode shared is not allowed, leave it out. {held}"
        return Verdict(Act.REFUSE, ErrorCode.POLICY_VIOLATION, message)
    if holder is not None and holder.session == claimant.session:
        return Verdict(Act.FORWARD if isinstance(holder, Owned) else Act.RETURN)
    if claimant.connection in state.tainted and not claimant.names_session:
        return _fenced(state)
    if holder is not None and (
        (claimant.connection in holder.connections and not claimant.names_session)
        or claimant.succeeds == holder.session
    ):
        return Verdict(Act.CLAIM, deposes=True)
    if claimant.generation is not None or asked is AccessMode.EXCLUSIVE_WITH_FENCING:
        return _decided(state, facts, claimant, asked)
    if holder is None and asked is AccessMode.SHARED:
        return _beside(state, facts, claimant)
    if holder is None:
        return _free(state, facts, claimant, asked)
    return _held(state, holder, facts, claimant, asked, now)


def held_message(holder: Holder | None, generation: int, waiting: Sequence[str]) -> str:
    """Pulsar's message, with the generation."""
    if holder is not None:
        return f"Topic has an existing exclusive producer: {holder.label} (generation {holder.generation})"
    if waiting:
        return f"Topic has waiting exclusive producers: {len(waiting)} (generation {generation})"
    return f"Topic has no exclusive producer now (generation {generation})"


def shared_message(shared: Mapping[str, str], generation: int) -> str:
    """Pulsar's message, with the number of shared producers and the name of one."""
    return (
        f"Topic has existing shared producers: {len(shared)}, one of them {next(iter(shared.values()))}"
        f" (generation {generation})"
    )


def _fenced(state: State) -> Verdict:
    """The verdict for a session that lost the topic."""
    holder = state.holder
    now = f"{holder.label} owns it now" if holder is not None else "nobody owns it now"
    message = f"Producer was fenced: {now} (generation {state.generation}). Create a new producer to write again"
    return Verdict(Act.REFUSE, ErrorCode.PRODUCER_FENCED, message)


def _asked_mode(policy: AccessMode, claimant: Claimant) -> AccessMode | None:
    """The mode in force for a claimant; None if it requests `shared` on an exclusive policy."""
    if claimant.mode is None:
        return policy
    if claimant.mode is AccessMode.SHARED and policy is not AccessMode.SHARED:
        return None
    return claimant.mode


def _beside(state: State, facts: Facts, claimant: Claimant) -> Verdict:
    """The verdict for a session that wants to share. Sessions that wait for the topic alone precede new ones."""
    if not state.waiting or claimant.session in _shared(state, facts):
        return Verdict(Act.SHARE)
    message = held_message(None, state.generation, state.waiting)
    message += ". A shared producer may write when none of them is left; mode=wait_for_exclusive waits behind them"
    return Verdict(Act.REFUSE, ErrorCode.POLICY_VIOLATION, message)


def _shared(state: State, facts: Facts) -> Mapping[str, str]:
    """The sessions that write beside each other: none while one holds the topic."""
    return facts.shared if state.holder is None else _NOBODY


def _free(state: State, facts: Facts, claimant: Claimant, asked: AccessMode) -> Verdict:
    waiting, others = state.waiting, {**_shared(state, facts)}
    others.pop(claimant.session, None)
    if (others or facts.shared_awaited) and asked is AccessMode.WAIT_FOR_EXCLUSIVE:
        return _decided(state, facts, claimant, asked)
    if others:
        message = shared_message(others, state.generation) + _HOW
        return Verdict(Act.REFUSE, ErrorCode.POLICY_VIOLATION, message)
    if facts.shared_awaited:
        message = "shared producers of this topic may still come back from another node"
        return Verdict(Act.LATER, ErrorCode.REQUEST_TIMED_OUT, message)
    return _decided(state, facts, claimant, asked, is_free=not waiting or waiting[0] == claimant.session)


def _held(state: State, holder: Held, facts: Facts, claimant: Claimant, asked: AccessMode, now: float) -> Verdict:
    if not is_held(holder, now):
        if asked is AccessMode.SHARED:
            return _beside(state, facts, claimant)
        return _free(state, facts, claimant, asked)
    if asked is AccessMode.WAIT_FOR_EXCLUSIVE:
        return _decided(state, facts, claimant, asked)
    if isinstance(holder, Absent):
        return Verdict(Act.LATER, ErrorCode.REQUEST_TIMED_OUT, f"{holder.label} may still come back to the topic")
    if holder.session.is_plain and claimant.is_named and claimant.name == holder.name:
        first = state.ghosts.get(claimant.connection, now)
        if now - first < GHOST_LIMIT_S:
            message = f"{holder.label} is connected already; this may be your own earlier connection"
            return Verdict(Act.LATER, ErrorCode.REQUEST_TIMED_OUT, message)
    return _decided(state, facts, claimant, asked)


def _decided(state: State, facts: Facts, claimant: Claimant, asked: AccessMode, *, is_free: bool = False) -> Verdict:
    """The verdict by the rules that apply to resources of all kinds."""
    holder, waiting, highest = state.holder, state.waiting, state.generation
    has_room = len(waiting) < facts.queue_limit or claimant.session in state.places
    answer = decide(asked, claimant.generation, highest=highest, is_free=is_free, has_room=has_room)
    if answer is Answer.GRANTED:
        fences = asked is AccessMode.EXCLUSIVE_WITH_FENCING
        return Verdict(Act.CLAIM, deposes=holder is not None and not is_free, evicts_queue=fences)
    message = held_message(holder, highest, waiting)
    if holder is None and facts.shared and answer is not Answer.LOWER:
        message = shared_message(facts.shared, highest)
    if answer is Answer.WAIT:
        return Verdict(Act.WAIT, ErrorCode.REQUEST_TIMED_OUT, message)
    if answer is Answer.LOWER:
        message += f"; generation {claimant.generation} was asked for: {highest} or a higher one takes it over"
    elif answer is Answer.FULL:
        message += f"; its queue of {facts.queue_limit} is full: try again when one of them has left"
    else:
        message += _HOW
    return Verdict(Act.REFUSE, ErrorCode.POLICY_VIOLATION, message)


# The holder -----------------------------------------------------------------------------------------------------------


def _until(facts: Facts, now: float) -> float | None:
    """Until when an owner keeps the topic after its last connection closed; None: it does not."""
    return now + facts.disconnect_grace if facts.disconnect_grace > 0 else None


def _connected(state: State, connection: int, *, writes: bool) -> State:
    """With one more connection of the owner. `writes`: a batch on it was admitted."""
    holder = state.holder
    if holder is None:
        return state
    connections, writers = holder.connections, holder.writers
    if connection not in connections:
        connections |= {connection}
    if writes and connection not in writers:
        writers |= {connection}
    if isinstance(holder, Owned) and connections is holder.connections and writers is holder.writers:
        return state
    return replace(state, holder=_owned(holder, connections, writers))


def _closed(state: State, connection: int, facts: Facts, now: float) -> State:
    """A plain session leaves the queue, an idempotent one keeps its place for the grace."""
    holder = state.holder
    if holder is not None and connection in holder.connections:
        left = {connection}
        owned = _owned(holder, holder.connections - left, holder.writers - left)
        state = replace(state, holder=_alone(owned, None if state.is_beside else _until(facts, now)))
    if connection in state.tainted or connection in state.ghosts:
        ghosts = {other: since for other, since in state.ghosts.items() if other != connection}
        state = replace(state, tainted=state.tainted - {connection}, ghosts=ghosts)
    its = [
        (place.claimant, place)
        for place in state.places.values()
        if place.claimant is not None and place.claimant.connection == connection
    ]
    until = now + facts.reconnect_grace
    kept = {
        claimant.session: place._replace(claimant=replace(claimant, connection=CLOSED), until=until)
        for claimant, place in its
        if not claimant.session.is_plain
    }
    if kept:
        state = replace(state, places={**state.places, **kept})
    return _without(state, [claimant.session for claimant, _ in its if claimant.session.is_plain])


def _taken_over(state: State, owner: Owned | None, until: float | None, *, deposes: bool) -> State:
    before, holder = state.holder, None
    if owner is not None:
        if before is not None and before.session == owner.session:
            owner = replace(owner, connections=owner.connections | before.connections)
        holder = _alone(owner, until)
    tainted = state.tainted
    if deposes and before is not None and before.session != (owner.session if owner is not None else ""):
        tainted |= before.connections - (holder.connections if holder is not None else frozenset())
    return replace(state, holder=holder, tainted=tainted)


def _moved_away(state: State, until: float) -> State:
    holder = state.holder
    if holder is None or holder.session.is_plain:
        return state
    recorded = holder.recorded if isinstance(holder, Awaited) else None
    awaited = Awaited(holder.session, holder.name, holder.mode, holder.generation, until=until, recorded=recorded)
    return replace(state, holder=awaited)


def _read(state: State, event: RecordRead, facts: Facts, now: float) -> State:
    holder, recorded = None, event.recorded
    if event.record is None:
        state = replace(state, record=None, position=-1, listed=frozenset())
    else:
        state = _recorded(state, event.record, event.position)
    if recorded is not None and recorded.session is not None:
        session = Session(recorded.session)
        until = now + (0.0 if session.is_plain else facts.reconnect_grace)
        holder = Awaited(session, recorded.name, recorded.mode, recorded.generation, until=until, recorded=recorded)
    return replace(state, holder=holder, floor=event.floor)


def _found(state: State, owner: RedisOwnership, facts: Facts, now: float) -> State:
    if owner.session is None or state.current(now) is not None:
        return state
    until, session = now + facts.reconnect_grace, Session(owner.session)
    holder = Awaited(session, owner.name, owner.mode, owner.generation, until=until, recorded=owner)
    return replace(state, holder=holder)


def _recorded(state: State, record: records.Ownership, position: int) -> State:
    listed = frozenset(deposed.session for deposed in record.deposed)
    return replace(state, record=record, position=position, listed=listed)


def _owned(holder: Held, connections: frozenset[int], writers: frozenset[int]) -> Owned:
    return Owned(holder.session, holder.name, holder.mode, holder.generation, connections, writers)


def _alone(owner: Owned, until: float | None) -> Owned | Leaving:
    """The owner, as `Leaving` if it has no connection and there is a grace."""
    if owner.connections or until is None:
        return owner
    return Leaving(owner.session, owner.name, owner.mode, owner.generation, until=until)


# The others -----------------------------------------------------------------------------------------------------------


def _pruned(state: State, now: float) -> State:
    """Without sessions that have not tried again in time. Looked at four times a second, as a queue may be long."""
    if not state.waiting or now - state.pruned_at <= _PRUNE_S:
        return state
    gone = [session for session, place in state.places.items() if now > place.until]
    return replace(_without(state, gone), pruned_at=now)


def _placed(state: State, claimant: Claimant, now: float, patience: float, came: float | None = None) -> State:
    """Give a claimant a place for `patience` seconds, or extend its place. `came`: when it first arrived (None: now).
    It is placed before all that arrived later, even if it lost its place in between.
    """
    session, before = claimant.session, state.places.get(claimant.session)
    since = now if came is None else came
    if before is not None and before.since <= since:
        kept = Place(claimant, before.since, max(before.until, now + patience))
        return replace(state, places={**state.places, session: kept})
    if before is None and (not state.waiting or state.places[state.waiting[-1]].since <= since):
        place = Place(claimant, since, now + patience)
        return replace(state, places={**state.places, session: place}, waiting=(*state.waiting, session))
    items = [item for item in state.places.items() if item[0] != session]
    behind = len(items)
    while behind and items[behind - 1][1].since > since:
        behind -= 1
    items.insert(behind, (session, Place(claimant, since, now + patience)))
    return _queued(state, dict(items))


def _expecting(state: State, sessions: Iterable[Session], facts: Facts, now: float) -> State:
    expected = Place(None, now, now + facts.reconnect_grace)
    return _queued(state, {**{session: expected for session in sessions if not session.is_plain}, **state.places})


def _without(state: State, sessions: Iterable[Session]) -> State:
    """Without the places of these sessions."""
    gone = {session for session in sessions if session in state.places}
    if not gone:
        return state
    places = dict(state.places)  # a copy and a few deletions cost less than a loop over a long queue
    for session in gone:
        del places[session]
    return _queued(state, places)


def _queued(state: State, places: Mapping[Session, Place]) -> State:
    return replace(state, places=places, waiting=tuple(places))


def _struck(state: State, claimant: Claimant, wall_ms: int) -> State:
    """Note a try of a deposed session, or of another one on its connection."""
    session, tainted = claimant.session, state.tainted
    if claimant.connection not in tainted:
        tainted |= {claimant.connection}
    if session.is_plain:
        return replace(state, tainted=tainted)
    if session in state.listed:
        return replace(state, tainted=tainted, again={**state.again, session: wall_ms})
    struck = {**state.struck, session: wall_ms}
    if len(struck) > STRUCK_KEPT:
        del struck[next(iter(struck))]
    return replace(state, tainted=tainted, struck=struck)


def _claimed(state: State, event: ClaimEnded) -> State:
    state = _without(state, (event.session, *event.evicted))
    struck = {session: tried for session, tried in state.struck.items() if session not in state.listed}
    return replace(state, ghosts={}, struck=struck, again={}, tainted=state.tainted | event.tainted)
