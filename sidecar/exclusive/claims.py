"""Decides about a producer's batch on a governed topic: forward it, claim the topic, or refuse it. Pure; the theory
first.

A topic has at most one *holder*: the session that owns it; or *shared* sessions that write beside each other. A session
that Produces is one of: the holder; a *deposed* session, which lost the topic and stays refused; a
*successor* of the holder (its own client with a new producer id); a shared one; any other is a *newcomer*. A newcomer
is judged again at each Produce; a refused one changes nothing.

Two waits are not refusals. They are answered 7 REQUEST_TIMED_OUT at once, as a delayed answer would block the client's
other topics:

- *Grace.* A holder that lost its node may come back for `reconnect_grace`, and so may shared sessions. A plain
  holder under the newcomer's own name may be its ghost: its connection may be dead, which is known after 25 s.
- *Queue.* Sessions in mode wait_for_exclusive keep their place, first come first served, as long as they keep trying.

Modes and codes: PIP-68, PIP-161; generations: the Kafka wiki's Single Reader/Writer; docs/reference/client-id.md.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from metadata.ownership import AccessMode
from sidecar.access.rules import Answer, decide
from sidecar.exclusive.ownership import Absent, Held, Holder, Owned, is_held
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Caller, Session

GHOST_LIMIT_S: Final = 25.0
"""Within this time TCP finds that a silent client is dead (see `sidecar.network.keepalive`)."""


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
    """The client: a session belongs to one client (`bindings`). None: any client."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return self.name or self.session


@dataclass(frozen=True, slots=True)
class Situation:
    """What is known of a topic when a batch arrives. `tainted`: connections that carried a deposed session. `ghosts`:
    by connection, when a newcomer's first batch under the holder's own name arrived. `shared`: the labels of connected
    shared sessions, by session. `shared_awaited`: more of them may come back from another node.
    """

    mode: AccessMode
    generation: int
    holder: Held | None = None
    deposed: Container[str] = ()
    tainted: Container[int] = ()
    waiting: Sequence[str] = ()
    ghosts: Mapping[int, float] = field(default_factory=dict[int, float])
    shared: Mapping[str, str] = field(default_factory=dict[str, str])
    shared_awaited: bool = False
    queue_limit: int = 1_000


class Step(Enum):
    """What to do with the batch."""

    FORWARD = "the session owns the topic here"
    RETURN = "the session owns the topic but is not served here yet: fail over"
    CLAIM = "the topic is free, or its holder gives way: change of owner"
    SHARE = "the session may write beside others, through a slot of its own"
    WAIT = "keep a place in the queue, answer REQUEST_TIMED_OUT"
    LATER = "answer REQUEST_TIMED_OUT: the holder may come back, or is this client's own ghost"
    REFUSE = "answer with the code"


@dataclass(frozen=True, slots=True)
class Verdict:
    """A step, its code and message if it is an answer, and whether a claim deposes the holder."""

    step: Step
    code: int = 0
    message: str = ""
    deposes: bool = False
    evicts_queue: bool = False


_HOW: Final = ". mode=wait_for_exclusive waits for it, mode=exclusive_with_fencing takes it over"
"""What a client can request if it is refused because of other producers."""


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


def judge(situation: Situation, claimant: Claimant, now: float) -> Verdict:
    """Decide on a batch. `now` is monotonic seconds."""
    holder = situation.holder
    if claimant.session in situation.deposed:
        return _fenced(situation)
    asked = _asked_mode(situation.mode, claimant)
    if asked is None:
        held = held_message(holder, situation.generation, situation.waiting)
        message = f"the policy of this topic is {situation.mode}: mode shared is not allowed, leave it out. {held}"
        return Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, message)
    if holder is not None and holder.session == claimant.session:
        return Verdict(Step.FORWARD if isinstance(holder, Owned) else Step.RETURN)
    if claimant.connection in situation.tainted and not claimant.names_session:
        return _fenced(situation)
    if holder is not None and (
        (claimant.connection in holder.connections and not claimant.names_session)
        or claimant.succeeds == holder.session
    ):
        return Verdict(Step.CLAIM, deposes=True)
    if claimant.generation is not None or asked is AccessMode.EXCLUSIVE_WITH_FENCING:
        return _decided(situation, claimant, asked)
    if holder is None and asked is AccessMode.SHARED:
        return _beside(situation, claimant)
    if holder is None:
        return _free(situation, claimant, asked)
    return _held(situation, holder, claimant, asked, now)


def _fenced(situation: Situation) -> Verdict:
    """The verdict for a session that lost the topic."""
    holder = situation.holder
    now = f"{holder.label} owns it now" if holder is not None else "nobody owns it now"
    message = f"Producer was fenced: {now} (generation {situation.generation}). Create a new producer to write again"
    return Verdict(Step.REFUSE, ErrorCode.PRODUCER_FENCED, message)


def _asked_mode(policy: AccessMode, claimant: Claimant) -> AccessMode | None:
    """The mode in force for a claimant; None if it requests `shared` on an exclusive policy."""
    if claimant.mode is None:
        return policy
    if claimant.mode is AccessMode.SHARED and policy is not AccessMode.SHARED:
        return None
    return claimant.mode


def _beside(situation: Situation, claimant: Claimant) -> Verdict:
    """The verdict for a session that wants to share. Sessions that wait for the topic alone precede new ones."""
    if claimant.session in situation.shared or not situation.waiting:
        return Verdict(Step.SHARE)
    message = held_message(None, situation.generation, situation.waiting)
    message += ". A shared producer may write when none of them is left; mode=wait_for_exclusive waits behind them"
    return Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, message)


def _free(situation: Situation, claimant: Claimant, asked: AccessMode) -> Verdict:
    waiting, others = situation.waiting, {**situation.shared}
    others.pop(claimant.session, None)
    if (others or situation.shared_awaited) and asked is AccessMode.WAIT_FOR_EXCLUSIVE:
        return _decided(situation, claimant, asked)
    if others:
        message = shared_message(others, situation.generation) + _HOW
        return Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, message)
    if situation.shared_awaited:
        message = "shared producers of this topic may still come back from another node"
        return Verdict(Step.LATER, ErrorCode.REQUEST_TIMED_OUT, message)
    return _decided(situation, claimant, asked, is_free=not waiting or waiting[0] == claimant.session)


def _held(situation: Situation, holder: Held, claimant: Claimant, asked: AccessMode, now: float) -> Verdict:
    if not is_held(holder, now):
        if asked is AccessMode.SHARED:
            return _beside(situation, claimant)
        return _free(situation, claimant, asked)
    if asked is AccessMode.WAIT_FOR_EXCLUSIVE:
        return _decided(situation, claimant, asked)
    if isinstance(holder, Absent):
        return Verdict(Step.LATER, ErrorCode.REQUEST_TIMED_OUT, f"{holder.label} may still come back to the topic")
    if holder.session.is_plain and claimant.is_named and claimant.name == holder.name:
        first = situation.ghosts.get(claimant.connection, now)
        if now - first < GHOST_LIMIT_S:
            message = f"{holder.label} is connected already; this may be your own earlier connection"
            return Verdict(Step.LATER, ErrorCode.REQUEST_TIMED_OUT, message)
    return _decided(situation, claimant, asked)


def _decided(situation: Situation, claimant: Claimant, asked: AccessMode, *, is_free: bool = False) -> Verdict:
    """The verdict by the rules that apply to resources of all kinds."""
    holder, waiting, highest = situation.holder, situation.waiting, situation.generation
    has_room = len(waiting) < situation.queue_limit or claimant.session in waiting
    answer = decide(asked, claimant.generation, highest=highest, is_free=is_free, has_room=has_room)
    if answer is Answer.GRANTED:
        fences = asked is AccessMode.EXCLUSIVE_WITH_FENCING
        return Verdict(Step.CLAIM, deposes=holder is not None and not is_free, evicts_queue=fences)
    message = held_message(holder, highest, waiting)
    if holder is None and situation.shared and answer is not Answer.LOWER:
        message = shared_message(situation.shared, highest)
    if answer is Answer.WAIT:
        return Verdict(Step.WAIT, ErrorCode.REQUEST_TIMED_OUT, message)
    if answer is Answer.LOWER:
        message += f"; generation {claimant.generation} was asked for: {highest} or a higher one takes it over"
    elif answer is Answer.FULL:
        message += f"; its queue of {situation.queue_limit} is full: try again when one of them has left"
    else:
        message += _HOW
    return Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, message)
