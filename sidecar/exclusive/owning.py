"""Claims topics and partitions by request (own APIs) instead of by a first batch: it looks first, then takes.

The same rules hold as for batches (`ownership.step`), the same takeover follows, and the same sessions own: a session
that owns a topic by request writes to it as its owner, and one that owns it by a batch may ask for it again. `look`
changes nothing, so that a set of claims is granted as a whole or not at all; the take judges again what changed since.

PIP-68 (access modes), the Kafka wiki's Single Reader/Writer (sets of resources), `proto/sidecar/v1/control.proto`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from metadata.ownership import AccessMode
from sidecar.access.prospects import Look, Prospect
from sidecar.access.rules import MODES
from sidecar.dedup.reply import Reply
from sidecar.exclusive.answers import FAILURES
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.offers import NO_BATCH, Offer
from sidecar.exclusive.partitions import PartitionedTopic, Topic
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant, Holder
from sidecar.ownership.step import Act
from sidecar.policy.policies import Scope
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.v1 import control_pb2 as control

_EMPTY: Final = memoryview(b"")


@dataclass(frozen=True, slots=True, eq=False)
class TopicClaim:
    """One claim to write. `partition` is given where the topic's partitions have their own owners. `client`: for
    display. `alive` returns whether the claimant's connection is still open.
    """

    topic: str
    partition: int | None
    claimant: Claimant
    client: str
    alive: Callable[[], bool]

    def by(self, connection: int, alive: Callable[[], bool]) -> TopicClaim:
        """The same claim, made on another connection."""
        return replace(self, claimant=replace(self.claimant, connection=connection), alive=alive)


_READY: Final = Look(Prospect.READY)
_WAIT: Final = Look(Prospect.WAIT)
_BUSY: Final = Look(Prospect.BUSY)
_ERRORS: Final[Mapping[int, control.Error]] = {
    ErrorCode.PRODUCER_FENCED: control.DEPOSED,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: control.NOT_SERVING,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: control.UNKNOWN_RESOURCE,
    ErrorCode.INVALID_REQUEST: control.INVALID_REQUEST,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: control.NOT_AUTHORIZED,
}


def refused(claimant: Claimant, code: int, message: str | None) -> Look:
    """The error for a claimant, from the Kafka error that its batch would get."""
    error = _ERRORS.get(code, control.UNAVAILABLE)
    if code == ErrorCode.POLICY_VIOLATION:
        error = control.HELD
        if claimant.generation is not None:
            error = control.LOWER_GENERATION
        elif claimant.mode is AccessMode.WAIT_FOR_EXCLUSIVE:
            error = control.QUEUE_FULL
    return Look(Prospect.REFUSED, error, message or "")


class TopicOwners:
    """Claims to topics and partitions on this node."""

    def __init__(self, governed: GovernedTopics) -> None:
        self._governed = governed

    # Before a claim -------------------------------------------------------------------------------------------------

    async def govern(self, names: Iterable[str]) -> dict[str, Look]:
        """Make the topics governed; returns the error of each topic for which that failed."""
        catalog = self._governed.env.catalog
        ordinary = [name for name in names if catalog.book.effective(name) is None]
        errors = await asyncio.gather(*[catalog.govern(name) for name in ordinary])
        return {
            name: Look(Prospect.REFUSED, _ERRORS.get(error.code, control.UNAVAILABLE), error.message)
            if error.code != ErrorCode.POLICY_VIOLATION
            else Look(Prospect.REFUSED, control.NOT_AUTHORIZED, error.message)
            for name, error in zip(ordinary, errors, strict=True)
            if error is not None
        }

    def scope_fault(self, topic: str, partition: int | None) -> str:
        """Why a topic cannot be claimed like this; "" if it can."""
        policy = self._governed.env.catalog.book.effective(topic)
        by_partition = policy is not None and policy.scope is Scope.PARTITION
        if by_partition and partition is None:
            return f"each partition of {topic} has an owner of its own (scope partition): claim partitions"
        if partition is not None and not by_partition:
            return (
                f"{topic} has one owner for all its partitions: claim the topic, or give it the scope partition first"
                f" (sidecar topic set {topic} --scope partition)"
            )
        return ""

    def mode(self, topic: str, asked: control.AccessMode) -> AccessMode:
        """The mode of a claim that asks for none: the policy's; a claim to a shared topic is exclusive."""
        mode = MODES.get(asked) or self._governed.env.mode_of(topic)
        return AccessMode.EXCLUSIVE if mode is AccessMode.SHARED else mode

    # A claim --------------------------------------------------------------------------------------------------------

    def look(self, claim: TopicClaim) -> Look:
        """The outlook of the claim now; changes nothing."""
        governed, claimant = self._governed, claim.claimant
        if governed.env.draining:
            return Look(Prospect.REFUSED, control.NOT_SERVING, "this node is shutting down")
        fault = self.scope_fault(claim.topic, claim.partition)
        if governed.env.catalog.book.effective(claim.topic) is None:
            fault = f"{claim.topic} has no policy any more: claim it again"
        if fault:
            return Look(Prospect.REFUSED, control.INVALID_REQUEST, fault)
        whole, part = self._part(claim.topic, claim.partition)
        if not whole.serving and governed.env.is_served_elsewhere(claim.topic):
            return Look(Prospect.REFUSED, control.NOT_SERVING, f"another node serves {claim.topic}")
        if part.busy:
            return _BUSY
        verdict = part.outlook(claimant)
        if verdict.act in (Act.FORWARD, Act.RETURN, Act.CLAIM):
            return _READY
        if verdict.act is Act.WAIT:
            return _WAIT
        if verdict.act is Act.LATER:
            return Look(Prospect.REFUSED, control.UNAVAILABLE, verdict.message)
        return refused(claimant, verdict.code, verdict.message)

    def keep_place(self, claim: TopicClaim, came: float) -> None:
        """Wait in the topic's queue until `leave`, ordered by the time of the request (`came`, monotonic seconds): so
        two requests for the same topics have the same order in all queues. Does nothing if the connection is closed.
        """
        if not claim.alive():
            return
        self._part(claim.topic, claim.partition)[1].keep_place(claim.claimant, math.inf, came)
        self._connect(claim)

    def leave(self, claim: TopicClaim) -> None:
        """Leave the queue."""
        self._part(claim.topic, claim.partition)[1].leave(claim.claimant.session)

    async def take(self, claim: TopicClaim) -> Look:
        """Take ownership, by a takeover if needed; READY if it is owned now. BUSY: the connection is closed."""
        if not claim.alive():
            return _BUSY
        whole, _ = self._part(claim.topic, claim.partition)
        answered: asyncio.Future[Look] = asyncio.get_running_loop().create_future()

        def done(outcome: Outcome) -> None:
            if answered.done():
                return
            if outcome.error == ErrorCode.NONE:
                answered.set_result(_READY)
            elif outcome.error == ErrorCode.REQUEST_TIMED_OUT:
                answered.set_result(_WAIT)
            elif outcome.error == ErrorCode.NOT_LEADER_OR_FOLLOWER and not self.is_served_elsewhere(claim):
                # The error is a broker's: a partition of the topic is being opened, or has lost its leader.
                answered.set_result(Look(Prospect.REFUSED, control.UNAVAILABLE, f"{claim.topic} has no leader now"))
            else:
                answered.set_result(refused(claim.claimant, outcome.error, outcome.message))

        self._connect(claim)
        reply, partition = Reply(done), claim.partition or 0
        whole.offer(Offer(claim.claimant, claim.client, partition, NO_BATCH, _EMPTY, 0, claim.alive, reply))
        return await answered

    def head_of_queue(self, topic: str, partition: int | None) -> str | None:
        """The session whose turn is next."""
        return next(iter(self._part(topic, partition)[1].sessions()), None)

    def join(self, claim: TopicClaim, connection: int) -> None:
        """Add a connection of the session: the ownership does not end while that is open."""
        whole, part = self._part(claim.topic, claim.partition)
        if part.join(claim.claimant.session, connection):
            self._governed.topics.connected(connection, whole)

    def generation(self, claim: TopicClaim) -> int | None:
        """The generation under which the claimant owns the topic; None if it does not. A session without a
        producer id counts as the owner if its connection is one of the owner's.
        """
        if self._governed.env.catalog.book.effective(claim.topic) is None:
            return None  # no policy any more: any client may write
        holder = self._holding(claim)
        return None if holder is None else holder.generation

    def _holding(self, claim: TopicClaim) -> Holder | None:
        """The holder, if it is the claimant, or if a plain claimant is on one of its connections."""
        _, part = self._part(claim.topic, claim.partition)
        holder, own = part.current, claim.claimant
        if holder is None:
            return None
        is_successor = own.session.is_plain and own.connection in holder.connections
        return holder if holder.session == own.session or is_successor else None

    def is_served_elsewhere(self, claim: TopicClaim) -> bool:
        """Whether another node serves its topic."""
        whole, _ = self._part(claim.topic, claim.partition)
        return not whole.serving and self._governed.env.is_served_elsewhere(claim.topic)

    async def release(self, claim: TopicClaim) -> Look:
        """Release it; READY if the claimant does not own it any more."""
        if self.is_served_elsewhere(claim):
            return Look(Prospect.REFUSED, control.NOT_SERVING, f"another node serves {claim.topic}")
        _, part = self._part(claim.topic, claim.partition)
        try:
            holder = self._holding(claim)
            await part.give_up(claim.claimant.session if holder is None else holder.session)
        except KafkaError as error:
            return refused(claim.claimant, error.code, error.message)
        except FAILURES as error:
            return Look(Prospect.REFUSED, control.UNAVAILABLE, f"{claim.topic} cannot be released now: {error}")
        return _READY

    def _connect(self, claim: TopicClaim) -> None:
        self._governed.topics.connected(claim.claimant.connection, self._governed.topic(claim.topic))

    def _part(self, topic: str, partition: int | None) -> tuple[Topic, GovernedTopic]:
        """The topic, and the part of it (itself or a partition) that can have this owner."""
        whole = self._governed.topic(topic)
        if isinstance(whole, PartitionedTopic):
            return whole, whole.of(partition or 0)
        return whole, whole
