"""A session that writes through a slot: batches in order are forwarded, others are answered by their sequences.

Shared by the owner of a topic or partition (`topic`) and by sessions that write beside each other (`shared`).
"""

import weakref
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from sidecar.changelog import ChangelogError
from sidecar.dedup.content import TooLargeAtOnceError
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED, SEQUENCE_ANSWERS
from sidecar.exclusive.bindings import FOREIGN
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.epoch import SlotEpoch
from sidecar.exclusive.operations import Offer, Operations
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.slots import TakenSlot
from sidecar.exclusive.upkeep import Upkeep, Watched
from sidecar.fencing.slot import EpochsUsedUpError
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Verdict
from sidecar.network.aside import aside
from sidecar.network.backoff import RetryTimeoutError
from sidecar.protocol.batch import surely_newest
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ClientSequence
from sidecar.protocol.limits import BATCH_BYTES

_WRITTEN: Final = (Verdict.FORWARD, Verdict.RAISE, Verdict.RENEW)


class Writing(Protocol):
    """The holder of a writer: the owner of a topic or partition (`topic`), or a session beside others (`shared`)."""

    def judge(self, offer: Offer) -> None:
        """Decide on a batch while no operation is under way."""

    def failed(self, error: Exception) -> Outcome | None:
        """The answer to batches that waited for a failed operation; None: they are judged again."""
        ...

    def operation_over(self) -> None:
        """Called when no operation is in progress any more."""

    async def again(self) -> None:
        """Let the same session write under the next epoch, by a takeover."""

    async def grow(self, partition: int) -> None:
        """Fence again: the topic has partitions that are not fenced, such as this one."""

    def fenced(self, lane: Lane) -> None:
        """Called when Kafka refuses the epoch of a lane."""

    def raised(self, epoch: SlotEpoch) -> None:
        """Called when the session writes under an epoch that was opened from memory."""

    def dropped(self, epoch: SlotEpoch) -> None:
        """Called when nothing is written under an epoch any more, before it is closed."""


class SlotWriter:
    """Implements `sidecar.exclusive.epoch.Writer` for its epoch."""

    def __init__(
        self, name: str, environment: Environment, upkeep: Upkeep, refusals: Refusals, writing: Writing
    ) -> None:
        """`name` is the topic's."""
        self.name = name
        self.upkeep = upkeep
        self.refusals = refusals
        self.epoch: SlotEpoch | None = None
        self._examined: weakref.ref[memoryview] | None = None
        """The batch whose records a thread found new enough; it is judged again at once."""
        self._env = environment
        self._writing = writing
        self.operations = Operations(
            environment.tasks, environment.forwarder, self._decide, writing.failed, writing.operation_over
        )

    def _decide(self, offer: Offer) -> None:
        """Check first that the producer id is the client's: batches of other clients under it change nothing."""
        claimant = self._env.bindings.admitted(self.name, offer.claimant)
        if claimant is None:
            self._env.hooks.fenced(self.name, "not_owner")
            self.operations.answer(offer, FOREIGN)
        else:
            self._writing.judge(offer if claimant is offer.claimant else replace(offer, claimant=claimant))

    def fenced(self, lane: Lane) -> None:
        """See `sidecar.forwarder.lane.LaneOwner`."""
        self._writing.fenced(lane)

    def begin(self, taken: TakenSlot, ids: TopicIds | None) -> None:
        """Write under this epoch from now on. `ids`: the sequence ids of the topic, if it has any."""
        services = self._env.services
        self.epoch = SlotEpoch(taken, self._env.forwarder, self, ids, services.epoch_records)

    def writes_under(self, lane: Lane) -> bool:
        """Whether a lane is one of the epoch at work."""
        return self.epoch is not None and lane.stamp == self.epoch.taken.stamp

    def refused(self, partition: int, client_epoch: int, first: ClientSequence, records: int) -> None:
        """Note sequences that the client counts as used: the next epoch begins after them."""
        if self.epoch is not None:
            self.refusals.note(self.epoch.taken.session, partition, client_epoch, first, records)

    def write(self, offer: Offer, epoch: SlotEpoch) -> None:
        """Forward a batch of the session, or answer it by its sequences or its age."""
        # Model: Forward, Repeat.
        if not epoch.covers(offer.partition):
            self.operations.begin(partial(self._find_partition, offer), offer)
            return
        verdict = epoch.verdict(offer.partition, offer.header, offer.claimant.connection)
        header = offer.header
        newest = surely_newest(offer.batch, header.attributes, header.base_timestamp, header.max_timestamp)
        is_examined = self._examined is not None and self._examined() is offer.batch
        if verdict in _WRITTEN and not self.upkeep.takes(newest):
            try:
                refusal = None if is_examined else self.upkeep.examine(self.name, offer.batch, at_once=True)
            except TooLargeAtOnceError:
                self.operations.begin(partial(self._examine, offer), offer)
                return
            if refusal is not None:
                self.operations.answer(offer, refusal)
                return
            if self.upkeep.stamped:
                offer = replace(offer, reply=Watched(offer.reply, self.upkeep))
        if verdict is Verdict.FORWARD:
            self.upkeep.wrote()
            self._env.hooks.governed_produce(self.name, offer.header.records, len(offer.batch))
            epoch.append(offer.partition, offer.header, offer.batch, offer.timeout_ms, offer.reply)
        elif verdict is Verdict.RAISE:
            following = partial(epoch.raise_for, self._env.services, offer.partition, offer.header.producer_epoch)
            self.operations.begin(partial(self._raise, epoch, following), offer)
        elif verdict is Verdict.RENEW:
            following = partial(epoch.renew, self._env.services)
            self.operations.begin(partial(self._raise, epoch, following), offer)
        else:
            epoch.answered(offer.partition, verdict, offer.claimant.connection)
            self.operations.answer(offer, SEQUENCE_ANSWERS[verdict])

    async def _examine(self, offer: Offer) -> None:
        """Have a thread find the age of a large batch's records."""
        allowance, opened = offer.reply.allowance, list[int]()
        examine = partial(self.upkeep.examine, self.name, offer.batch, at_once=False, opened=opened.append)
        async with allowance:
            try:
                refusal = await aside(examine)
            finally:
                allowance.spend(opened[0] if opened else BATCH_BYTES)
        if refusal is None:
            self._examined = weakref.ref(offer.batch)
        else:
            self.operations.reject(offer, refusal)

    async def _find_partition(self, offer: Offer) -> None:
        """Fence a partition that did not exist at the last takeover, or answer that it does not exist."""
        layout = await self._env.services.upstream.whole_layout(self.name)
        if offer.partition in layout.leaders:
            await self._writing.grow(offer.partition)
        else:
            self.operations.reject(offer, Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    async def _raise(self, epoch: SlotEpoch, following: Callable[[], Awaitable[SlotEpoch]]) -> None:
        """Replace the slot epoch: the session's client raised its own, or a partition has had enough records.

        The next epoch is opened from memory only if every outcome is known. Otherwise a takeover fences and reads the
        log, which also keeps out batches still on their way, and the batch is judged again. The same holds if the epoch
        was dropped in between: its reason may have changed.
        """
        # Model: NewClientEpoch.
        if await epoch.quiet() and epoch.certain and self.epoch is epoch:
            try:
                found = await following()
            except (KafkaError, ChangelogError, RetryTimeoutError, UpstreamError, EpochsUsedUpError) as error:
                self._env.hooks.operation_failed(self.name, error)
            else:
                if self.epoch is epoch:
                    self.epoch = found
                    self._writing.raised(found)
                    epoch.close(MOVED)
                    return
                found.close(MOVED)
        await self._writing.again()

    def drop_epoch(self, outcome: Outcome) -> None:
        """Stop writing under the present epoch; answer the batches that wait for it with `outcome`."""
        epoch, self.epoch = self.epoch, None
        if epoch is not None:
            self._writing.dropped(epoch)
            epoch.close(outcome)

    def numbering_lost(self, lane: Lane) -> None:
        """Open a new epoch: the outcome of a batch is unknown, and only a new epoch can settle it."""
        if not self.writes_under(lane):
            return
        self.drop_epoch(Outcome(ErrorCode.REQUEST_TIMED_OUT))
        if not self.operations.busy:
            self.operations.begin(self._writing.again)
