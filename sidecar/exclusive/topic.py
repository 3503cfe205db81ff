"""One governed topic, or one partition with its own owner: its parts, and how a batch passes through them.

A topic has an owner (`owner`), a writer for it (`writer`), sessions that do not own it (`newcomers`), and slots for
shared sessions (`shared`). It is ready, or busy with one operation (`operations`): a takeover (`topic_takeovers`) or
the end of an ownership (`ending`). `claims` decides what happens to a batch; this module does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from metadata.ownership import AccessMode, Ownership
from sidecar.changelog import Change
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive import claims
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.bindings import FOREIGN, NOT_YOURS
from sidecar.exclusive.claims import Claimant, Situation, Step
from sidecar.exclusive.ending import Ending
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.interfaces import WholeTopic
from sidecar.exclusive.newcomers import Refusals
from sidecar.exclusive.operations import GRANTED, Offer
from sidecar.exclusive.ownership import Absent, Holder, Owned
from sidecar.exclusive.slots import SlotScope
from sidecar.exclusive.topic_takeovers import TopicTakeovers
from sidecar.exclusive.writer import SlotWriter
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict
from sidecar.protocol.batch import BatchHeader, surely_newest
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Session

_NOT_SHARED: Final = "partitions of this topic have one owner each: ask for a mode in client.id"


class GovernedTopic(TopicTakeovers):
    """Implements `sidecar.exclusive.writer.Writing` for the topic's owner, and `interfaces.Owning`."""

    def __init__(
        self,
        name: str,
        environment: Environment,
        refusals: Refusals,
        scope: SlotScope | None = None,
        whole: WholeTopic | None = None,
    ) -> None:
        super().__init__(name, environment, refusals, scope, whole)
        self.writer = SlotWriter(name, environment, self.upkeep, refusals, self)
        self.ending = Ending(self)

    # What others see of it ------------------------------------------------------------------------------------------

    @property
    def parts(self) -> Iterable[GovernedTopic]:
        """Everything here that can have an owner."""
        return (self,)

    @property
    def generation(self) -> int:
        """See `Owning`."""
        return self.owner.generation

    @property
    def has_slot(self) -> bool:
        """Whether this node has taken its slot."""
        return self.taken is not None

    @property
    def busy(self) -> bool:
        """An operation is under way: batches wait for it."""
        return self.writer.operations.busy

    @property
    def may_move(self) -> bool:
        """Whether another node could serve the topic from now on without ending a session."""
        sessions = [found.session for found in self.shared.connected()]
        if self.owner.holder is not None:
            sessions.append(self.owner.holder.session)
        return not self.busy and not any(session.is_plain for session in sessions)

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""
        return self._ids.now if self._ids is not None else self.whole.ids if self.whole is not None else None

    def as_owned(self) -> list[Ownership]:
        """The ownership that this node reports to Redis with every heartbeat."""
        return [] if self.writer.epoch is None else self.owner.in_redis()

    # Batches --------------------------------------------------------------------------------------------------------

    def forward(
        self,
        claimant: Claimant,
        partition: int,
        header: BatchHeader,
        batch: memoryview,
        timeout_ms: int,
        reply: Reply,
    ) -> bool:
        """Forward a batch in order, of a session that writes here; False if there is anything to decide."""
        epoch = self._epoch_of(claimant)
        if (
            epoch is None
            or (epoch.ids is not None and self.refusals.has(claimant.session, self.scope))
            or not epoch.covers(partition)
            or epoch.verdict(partition, header) is not Verdict.FORWARD
            or not self.upkeep.takes(
                surely_newest(batch, header.attributes, header.base_timestamp, header.max_timestamp)
            )
        ):
            return False
        self._env.hooks.governed_produce(self.name, header.records, len(batch))
        epoch.append(partition, header, batch, timeout_ms, reply)
        return True

    def forward_whole(self, claimant: Claimant, request: WholeRequest) -> bool:
        """As `forward`, for a client's whole request; False unless all of it can be sent now."""
        epoch = self._epoch_of(claimant)
        size, records, oldest = 0, 0, request.batches[0][2].newest
        for _, batch, numbers in request.batches:  # a comprehension would be a call
            size += len(batch)
            records += numbers.records
            if numbers.newest < oldest:  # noqa: PLR1730  a call costs more
                oldest = numbers.newest
        if epoch is None or not self.upkeep.takes(oldest) or not epoch.append_whole(request, size):
            return False
        self._env.hooks.governed_produce(self.name, records, size)
        return True

    def _epoch_of(self, claimant: Claimant) -> SlotEpoch | None:
        """The slot epoch under which a session writes on its connection; None if it does not, or in an operation."""
        holder = self.owner.holder
        if self.writer.operations.busy:
            return None
        if holder is None:
            shared = self.shared.of(claimant)
            return shared.writer.epoch if shared is not None and not shared.writer.operations.busy else None
        if holder.session != claimant.session or claimant.connection not in holder.writers:
            return None
        return self.writer.epoch

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the operation under way is over."""
        self.writer.operations.offer(offer)

    def judge(self, offer: Offer) -> None:
        """See `Writing`."""
        holder, claimant, operations = self.owner.holder, offer.claimant, self.writer.operations
        if (
            isinstance(holder, Owned)
            and holder.session == claimant.session
            and self.writer.epoch is not None
            and claimant.generation is None
            and claimant.mode is not AccessMode.SHARED
        ):
            self._forward(offer, self.writer.epoch)
            return
        if self.is_dropped:
            operations.answer(offer, MOVED)  # its client asks anew
            return
        now = self._env.now()
        verdict = claims.judge(self._situation(claimant, now), claimant, now)
        step = verdict.step
        if step is Step.FORWARD and self.writer.epoch is not None:
            self._forward(offer, self.writer.epoch)
        elif step in (Step.FORWARD, Step.RETURN, Step.CLAIM):
            operations.begin(partial(self.claim, offer, verdict), offer)
        elif step is Step.SHARE and self.whole is not None:
            self._refuse(offer, claims.Verdict(Step.REFUSE, ErrorCode.POLICY_VIOLATION, _NOT_SHARED), now)
        elif step is Step.SHARE:
            if self.may_share():
                self.shared.offer(offer)
            else:
                operations.begin(self.share, offer)
        else:
            self._refuse(offer, verdict, now)

    def _refuse(self, offer: Offer, verdict: claims.Verdict, now: float) -> None:
        claimant = offer.claimant
        deposed = verdict.code == ErrorCode.PRODUCER_FENCED
        if not (self.serving or deposed) and self._env.is_served_elsewhere(self.name):
            self.writer.operations.answer(offer, MOVED)  # the node that serves the topic decides
            return
        if verdict.step is Step.WAIT:
            self.queue.wait(claimant, now)
            self._env.hooks.fenced(self.name, "waiting")
        elif verdict.step is Step.LATER:
            if isinstance(self.owner.holder, Owned):
                self.newcomers.may_be_ghost(claimant.connection, now)
            self._env.hooks.fenced(self.name, "waiting")
        elif deposed:
            self.newcomers.fenced(claimant, self._env.wall_ms(), listed=claimant.session in self.owner.listed)
            self._env.hooks.fenced(self.name, "deposed")
        else:
            self.refusals.add(claimant, offer.partition, offer.header)
            self._env.hooks.fenced(self.name, "not_owner")
        self.writer.operations.answer(offer, Outcome(verdict.code, message=verdict.message))

    def _forward(self, offer: Offer, epoch: SlotEpoch) -> None:
        if self._is_to_be_renewed(offer, epoch):
            self.writer.operations.begin(self.again, offer)
            return
        self.owner.connected(offer.claimant.connection, writes=not offer.is_claim)
        if offer.is_claim:
            self.writer.operations.answer(offer, GRANTED)
        else:
            self.writer.write(offer, epoch)

    def _is_to_be_renewed(self, offer: Offer, epoch: SlotEpoch) -> bool:
        """Whether the owner's epoch needs a newer record before this batch is written.

        It does in two cases. The topic has sequence ids, and sequences of the session were refused since. Or the
        session was claimed by request before its client wrote anything, so the record does not name the client.
        """
        if epoch.ids is not None and self.refusals.has(offer.claimant.session, self.scope):
            return True
        is_of_nobody = epoch.taken.caller is None and epoch.taken.session.is_idempotent
        return is_of_nobody and not offer.is_claim and offer.claimant.caller is not None

    def _situation(self, claimant: Claimant, now: float) -> Situation:
        holder, session = self.owner.holder, claimant.session
        is_deposed = session in self.newcomers.struck or self.owner.is_deposed(session)
        return Situation(
            mode=self._env.mode_of(self.name),
            generation=self.owner.generation,
            holder=holder,
            deposed=(session,) if is_deposed else (),
            tainted=self.newcomers.tainted,
            waiting=self.newcomers.queue(now),
            ghosts=self.newcomers.ghosts,
            shared={found.session: found.claimant.label for found in self.shared.connected()} if holder is None else {},
            shared_awaited=self.shared.awaited_until > now,
            queue_limit=self._env.queue_limit,
        )

    def outlook(self, claimant: Claimant) -> claims.Verdict:
        """The verdict on a claim now. Changes nothing."""
        now = self._env.now()
        found = self._env.bindings.look(self.name, claimant)
        if found is None:
            return claims.Verdict(Step.REFUSE, FOREIGN.error, NOT_YOURS)
        return claims.judge(self._situation(found, now), found, now)

    # Operations -----------------------------------------------------------------------------------------------------

    def operation_over(self) -> None:
        """See `Writing`."""
        self.ending.check()
        self._env.owner_may_have_changed(self)
        if self.whole is not None and self.scope.partition is not None:
            self.whole.forget_if_idle(self.scope.partition)

    async def grow(self, partition: int) -> None:
        """See `Writing`."""
        await self.again()

    def fenced(self, lane: Lane) -> None:
        """Kafka refuses this epoch: find out which node took the slot, and take over again if none did."""
        if self.writer.writes_under(lane):
            self.lose_epoch()

    def raised(self, epoch: SlotEpoch) -> None:
        """See `Writing`."""
        self.taken = epoch.taken

    def dropped(self, epoch: SlotEpoch) -> None:
        """See `Writing`."""

    # Events of the node ----------------------------------------------------------------------------------------------

    def policy_changed(self) -> None:
        """Apply a changed policy: shared sessions may have to stop, deduplication begins or ends."""
        if self._ids is not None and self._ids.follow_policy():
            self.reopen()
        if self.shared.master is not None and self._env.mode_of(self.name) is not AccessMode.SHARED:
            self.shared.dismiss()

    def connection_closed(self, connection: int) -> None:
        """Handle the end of a client connection to this node."""
        self.newcomers.connection_closed(connection, self._env.now())
        self.queue.changed()
        self.shared.connection_closed(connection)
        self.owner.disconnected(connection)
        self.ending.check()

    def join(self, session: Session, connection: int) -> bool:
        """Add a connection of the owner that carried no batch; False if the session does not own the topic here. If
        the owner had lost its last connection, this ends its grace.
        """
        holder = self.owner.current
        if holder is None or holder.session != session or (isinstance(holder, Absent) and self.writer.epoch is None):
            return False
        self.owner.connected(connection)
        return True

    def changed(self, change: Change) -> None:
        """Read the owner again, unless this node serves the topic: another node has stored a record."""
        if not self.serving and change.key.slot == self.scope.slot:
            self.reread()

    def served_elsewhere(self) -> None:
        """Note that another node serves the topic now."""
        if not self.serving:
            self.owner.moved_away()

    async def administer(
        self, partition: int | None = None, *, fence: bool, generations: frozenset[int] | None = None
    ) -> Holder:
        """See `Ending.administer`. Raises ValueError if a partition is named: the topic has one owner."""
        if partition is not None:
            raise ValueError(f"{self.name} has the scope topic: leave partition out")
        return await self.ending.administer(fence=fence, generations=generations)

    async def ungoverned(self) -> None:
        """See `Ending.ungoverned`."""
        await self.ending.ungoverned()

    async def hand_back(self) -> None:
        """See `Ending.hand_back`."""
        await self.ending.hand_back()
