"""One governed topic, or one partition with its own owner: its parts, and how a batch passes through them.

A topic has a state (`state`: its owner, and the sessions that do not own it), a writer for its owner (`writer`), and
slots for shared sessions (`shared`). It is ready, or busy with one operation (`operations`): a takeover
(`topic_takeovers`) or the end of an ownership (`ending`). `ownership.step` decides what happens to a batch; this module
does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Final

from metadata.ownership import AccessMode, Ownership
from sidecar.changelog import Change
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.bindings import FOREIGN, NOT_YOURS
from sidecar.exclusive.ending import Ending
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.interfaces import WholeTopic
from sidecar.exclusive.operations import GRANTED, Offer
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.slots import SlotScope, owner_record
from sidecar.exclusive.topic_takeovers import TopicTakeovers
from sidecar.exclusive.writer import SlotWriter
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict as SequenceVerdict
from sidecar.ownership.state import Absent, Claimant, Holder
from sidecar.ownership.step import (
    Act,
    BatchOffered,
    ConnectionClosed,
    ConnectionOpened,
    Facts,
    ServedElsewhere,
    Verdict,
    is_owners,
    judge,
)  # fmt: skip
from sidecar.protocol.batch import BatchHeader, surely_newest
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.session import Session

_REASONS: Final = {Act.WAIT: "waiting", Act.LATER: "waiting"}
"""The metric's reasons of answers that are no refusals."""


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
        return self.state.generation

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
        if self.state.holder is not None:
            sessions.append(self.state.holder.session)
        return not self.busy and not any(session.is_plain for session in sessions)

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""
        return self._ids.now if self._ids is not None else self.whole.ids if self.whole is not None else None

    def as_owned(self) -> list[Ownership]:
        """The ownership that this node reports to Redis with every heartbeat."""
        entry = self._env.changelog.view.ownership(self.name, self.scope.slot)
        if self.writer.epoch is None or entry is None:
            return []
        node = self._env.services.node_id
        return [owner_record(self.scope.resource, entry.value, entry.offset, entry.writer, node)]

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
            or epoch.verdict(partition, header) is not SequenceVerdict.FORWARD
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
        holder = self.state.holder
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
        operations, epoch = self.writer.operations, self.writer.epoch
        verdict = self.apply(BatchOffered(offer.claimant, offer.is_claim), self._facts(offer.claimant, offer))
        assert verdict is not None
        match verdict.act:
            case Act.FORWARD:
                assert epoch is not None
                self.writer.write(offer, epoch)
            case Act.GRANT:
                operations.answer(offer, GRANTED)
            case Act.RENEW:
                operations.begin(self.again, offer)
            case Act.CLAIM:
                operations.begin(partial(self.claim, offer, verdict), offer)
            case Act.SHARE:
                self.shared.offer(offer)
            case Act.BEGIN_SHARING:
                operations.begin(self.share, offer)
            case Act.MOVED:
                operations.answer(offer, MOVED)
            case _:
                self._refuse(offer, verdict)

    def _refuse(self, offer: Offer, verdict: Verdict) -> None:
        self._store_queue()
        reason = _REASONS.get(verdict.act)
        if reason is None:
            reason = "deposed" if verdict.code == ErrorCode.PRODUCER_FENCED else "not_owner"
        if reason == "not_owner":
            self.refusals.add(offer.claimant, offer.partition, offer.header)
        self._env.hooks.fenced(self.name, reason)
        self.writer.operations.answer(offer, Outcome(verdict.code, message=verdict.message))

    def _facts(self, claimant: Claimant, offer: Offer | None = None) -> Facts:
        """What a claimant is judged by, beside the state."""
        env, epoch, is_free = self._env, self.writer.epoch, self.state.holder is None
        needs_record = epoch is not None and offer is not None and self._is_to_be_renewed(offer, epoch)
        if epoch is not None and is_owners(self.state, claimant):
            return Facts(writes=True, needs_record=needs_record)
        return Facts(
            env.reconnect_grace,
            env.disconnect_grace,
            mode=env.mode_of(self.name),
            was_deposed=env.deposed.has(self.scope, claimant.session),
            writes=epoch is not None,
            needs_record=needs_record,
            is_serving=self.serving,
            is_elsewhere=env.is_served_elsewhere(self.name),
            is_dropped=self.is_dropped,
            shared={found.session: found.claimant.label for found in self.shared.connected()} if is_free else {},
            shared_awaited=self.shared.awaited_until > env.now(),
            may_share=self.may_share(),
            by_partition=self.whole is not None,
            queue_limit=env.queue_limit,
            wall_ms=env.wall_ms(),
        )

    def _is_to_be_renewed(self, offer: Offer, epoch: SlotEpoch) -> bool:
        """Whether the owner's epoch needs a newer record before this batch is written.

        It does in two cases. The topic has sequence ids, and sequences of the session were refused since. Or the
        session was claimed by request before its client wrote anything, so the record does not name the client.
        """
        if epoch.ids is not None and self.refusals.has(offer.claimant.session, self.scope):
            return True
        is_of_nobody = epoch.taken.caller is None and epoch.taken.session.is_idempotent
        return is_of_nobody and not offer.is_claim and offer.claimant.caller is not None

    def outlook(self, claimant: Claimant) -> Verdict:
        """The verdict on a claim now. Changes nothing."""
        its = self._env.bindings.look(self.name, claimant)
        if its is None:
            return Verdict(Act.REFUSE, FOREIGN.error, NOT_YOURS)
        self.sessions()
        return judge(self.state, self._facts(its), its, self._env.now())

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
        self.apply(ConnectionClosed(connection))
        self._store_queue()
        self.shared.connection_closed(connection)
        self.ending.check()

    def join(self, session: Session, connection: int) -> bool:
        """Add a connection of the owner that carried no batch; False if the session does not own the topic here. If
        the owner had lost its last connection, this ends its grace.
        """
        holder = self.current
        if holder is None or holder.session != session or (isinstance(holder, Absent) and self.writer.epoch is None):
            return False
        self.apply(ConnectionOpened(connection))
        return True

    def changed(self, change: Change) -> None:
        """Read the owner again, unless this node serves the topic: another node has stored a record."""
        if not self.serving and change.key.slot == self.scope.slot:
            self.reread()

    def served_elsewhere(self) -> None:
        """Note that another node serves the topic now."""
        if not self.serving:
            self.apply(ServedElsewhere())

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
