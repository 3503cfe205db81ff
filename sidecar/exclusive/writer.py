"""Writes for the session of a slot: batches in order are forwarded, others are answered by their sequences.

The owner of a topic or partition has one, and so has each session that writes beside others. A batch may need a work
first (`write` returns it); the methods below the line are those works, and `resource` runs them.
"""

import weakref
from functools import partial
from typing import Final

from sidecar.changelog import ChangelogError
from sidecar.dedup.content import TooLargeAtOnceError
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED, SEQUENCE_ANSWERS
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import Offer
from sidecar.fencing.slot import EpochsUsedUpError
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict
from sidecar.network.aside import aside
from sidecar.network.backoff import RetryTimeoutError
from sidecar.ownership.state import Work
from sidecar.ownership.step import BUSY
from sidecar.protocol.batch import surely_newest
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.limits import BATCH_BYTES
from sidecar.takeover.slots import TakenSlot
from sidecar.writing.epoch import SlotEpoch, Writer
from sidecar.writing.upkeep import Upkeep, Watched

_WRITTEN: Final = (Verdict.FORWARD, Verdict.RAISE, Verdict.RENEW)
_NEEDS: Final = {Verdict.RAISE: Work.RAISE, Verdict.RENEW: Work.RENEW}


class SlotWriter:
    """The writer of one slot. `epoch`: the epoch at work; None while nobody writes."""

    def __init__(self, topic: str, environment: Environment, upkeep: Upkeep) -> None:
        self.epoch: SlotEpoch | None = None
        self._topic = topic
        self._env = environment
        self._upkeep = upkeep
        self._examined: weakref.ref[memoryview] | None = None
        """The batch whose records a thread found new enough; it is judged again at once."""

    def begin(self, taken: TakenSlot, ids: TopicIds | None, owner: Writer) -> None:
        """Write under this epoch from now on. `ids`: the sequence ids of the topic, if it has any."""
        assert self.epoch is None, "writers stopped before the fence"
        assert taken.session, "somebody writes"
        assert taken.scope.is_shared or taken.generation > 0, "an owner has a generation"
        assert set(taken.bases) >= set(taken.partitions), "the session's place is known in every partition"
        self.epoch = SlotEpoch(taken, self._env.forwarder, owner, ids, self._env.services.epoch_records)

    def writes_under(self, lane: Lane) -> bool:
        """Whether a lane is one of the epoch at work."""
        return self.epoch is not None and lane.stamp == self.epoch.taken.stamp

    def drop_epoch(self, outcome: Outcome) -> None:
        """Stop writing under the present epoch; answer the batches that wait for it with `outcome`."""
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            epoch.close(outcome)

    def write(self, offer: Offer) -> Work | None:
        """Forward a batch of the session, or answer it by its sequences or its age. Returns the work that is needed
        before that; then the batch is offered again.
        """
        # Model: Forward, Repeat.
        epoch, header = self.epoch, offer.header
        assert epoch is not None, "the state says that this node writes"
        try:
            due = self._due(epoch, offer)
        except Exception:
            self.answer(offer, BUSY)
            raise
        if isinstance(due, Reply):
            epoch.append(offer.partition, header, offer.batch, offer.timeout_ms, due)
        elif isinstance(due, Outcome):
            self.answer(offer, due)
        else:
            return due
        return None

    def _due(self, epoch: SlotEpoch, offer: Offer) -> Work | Outcome | Reply:
        """The work that a batch needs, its answer, or the reply with which it is forwarded."""
        upkeep, header, reply = self._upkeep, offer.header, offer.reply
        if not epoch.covers(offer.partition):
            return Work.FIND
        verdict = epoch.verdict(offer.partition, header, offer.claimant.connection)
        newest = surely_newest(offer.batch, header.attributes, header.base_timestamp, header.max_timestamp)
        is_examined = self._examined is not None and self._examined() is offer.batch
        if verdict in _WRITTEN and not upkeep.takes(newest):
            try:
                refusal = None if is_examined else upkeep.examine(self._topic, offer.batch, at_once=True)
            except TooLargeAtOnceError:
                return Work.EXAMINE
            if refusal is not None:
                return refusal
            if upkeep.stamped:
                reply = Watched(reply, upkeep)
        if verdict is Verdict.FORWARD:
            upkeep.wrote()
            self._env.hooks.governed_produce(self._topic, header.records, len(offer.batch))
            return reply
        if verdict in _NEEDS:
            return _NEEDS[verdict]
        epoch.answered(offer.partition, verdict, offer.claimant.connection)
        return SEQUENCE_ANSWERS[verdict]

    def answer(self, offer: Offer, outcome: Outcome) -> None:
        """Answer a batch that is not forwarded."""
        self._env.forwarder.released(len(offer.batch))
        offer.reply.answer(outcome)

    # Works ----------------------------------------------------------------------------------------------------------

    async def examine(self, offer: Offer) -> Outcome | None:
        """Have a thread determine the age of a large batch's records; returns the answer if they are too old."""
        allowance, opened = offer.reply.allowance, list[int]()
        examine = partial(self._upkeep.examine, self._topic, offer.batch, at_once=False, opened=opened.append)
        async with allowance:
            try:
                refusal = await aside(examine)
            finally:
                allowance.spend(opened[0] if opened else BATCH_BYTES)
        if refusal is None:
            self._examined = weakref.ref(offer.batch)
        return refusal

    async def exists(self, partition: int) -> bool:
        """Whether the topic has this partition by now."""
        return partition in (await self._env.services.upstream.whole_layout(self._topic)).leaders

    async def raise_epoch(self, work: Work, offer: Offer) -> bool:
        """Replace the slot epoch from memory: the session's client raised its own, or a partition has had enough
        records. False if a takeover has to do it: not every outcome is known, or Kafka refused. It fences and reads the
        log, which also keeps out batches still on their way, and the batch is judged again. The same holds if the
        epoch was dropped in between: its reason may have changed.
        """
        # Model: NewClientEpoch.
        epoch, services = self.epoch, self._env.services
        if epoch is None or not (await epoch.quiet() and epoch.certain and self.epoch is epoch):
            return False
        try:
            if work is Work.RAISE:
                following = await epoch.raise_for(services, offer.partition, offer.header.producer_epoch)
            else:
                following = await epoch.renew(services)
        except (KafkaError, ChangelogError, RetryTimeoutError, UpstreamError, EpochsUsedUpError) as error:
            self._env.hooks.operation_failed(self._topic, error)
            return False
        raised, held = following.taken.stamp, epoch.taken.stamp
        assert raised.producer_id == held.producer_id, "the next epoch is of the same producer id"
        assert raised.epoch > held.epoch, "a raise is above what was written under"
        if self.epoch is not epoch:
            following.close(MOVED)
            return False
        self.epoch = following
        epoch.close(MOVED)
        return True
