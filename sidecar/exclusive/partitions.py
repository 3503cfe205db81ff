"""A topic whose partitions have their own owners (scope partition): all rules of ownership apply to each partition.

The node that serves the topic holds its master slot without a session. This shuts out every session that wrote to the
whole topic, and every slot that another node opened. Under it each partition is a `GovernedTopic` with a slot of its
own.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeAlias

from metadata.ownership import Ownership
from sidecar.changelog import FAILURES, MASTER_SLOT, Change, Key, Kind, SlotName
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import MOVED
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.policy_ids import PolicyIds, begin_ids
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.requests import NothingDoneError, Purpose, Request
from sidecar.exclusive.slots import SlotScope, TakenSlot
from sidecar.exclusive.takeover import Takeover
from sidecar.exclusive.topic import GovernedTopic
from sidecar.exclusive.upkeep import Renewal, Upkeep, keep_slot_alive, renew_fence
from sidecar.fencing.slot import WriterSlot
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant, Holder
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Stamp

_AT_ONCE: Final = 16


class PartitionedTopic:
    """The partitions of one topic on the node that serves it."""

    def __init__(self, name: str, environment: Environment, refusals: Refusals) -> None:
        self.name = name
        self.refusals = refusals
        self.scope = SlotScope(name)
        self.serving = False
        self.is_dropped = False
        """As of `GovernedTopic`."""
        self.upkeep = Upkeep(environment.terms, environment.changelog.clock)
        self.partitions: dict[int, GovernedTopic] = {}
        self._env = environment
        self._taken: TakenSlot | None = None
        self._idle: dict[SlotName, WriterSlot] = {}
        self._taking = asyncio.Lock()
        self._ids = PolicyIds(name, environment, self._is_live, self.fence_wanted, by_partition=True)
        for entry in environment.changelog.view.of_topic(name):
            index = _partition_of(entry.key)
            if entry.key.kind is Kind.OWNERSHIP and index is not None:
                self.of(index)

    def of(self, partition: int) -> GovernedTopic:
        """The state of one partition: its owner, and the sessions that wait for it."""
        found = self.partitions.get(partition)
        if found is None:
            scope = SlotScope.of_partition(self.name, partition)
            found = self.partitions[partition] = GovernedTopic(self.name, self._env, self.refusals, scope, self)
        return found

    def forget_if_idle(self, partition: int) -> None:
        """Forget a partition without owner, slot, waiting sessions or operation: clients may name any number."""
        part = self.partitions.get(partition)
        if part and not (part.busy or part.has_slot or part.state.waiting or part.state.record is not None):
            del self.partitions[partition]

    @property
    def parts(self) -> Iterable[GovernedTopic]:
        """Everything here that can have an owner."""
        return list(self.partitions.values())

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""
        return self._ids.now

    @property
    def generation(self) -> int:
        """The highest generation of all partitions."""
        return max((part.generation for part in self.partitions.values()), default=0)

    async def know_ids(self, timeout: float) -> TopicIds:
        """As `GovernedTopic.know_ids`."""
        if self.ids is None:
            raise LookupError(self.name)
        if not self.ids.is_begun:
            await self.take(0)
        await self.ids.known(timeout)
        return self.ids

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
        """As `GovernedTopic.forward`."""
        found = self.partitions.get(partition)
        return found is not None and found.forward(claimant, partition, header, batch, timeout_ms, reply)

    def forward_whole(self, claimant: Claimant, request: WholeRequest) -> bool:
        """As `GovernedTopic.forward_whole`; requests for several partitions go batch by batch."""
        if len(request.batches) != 1:
            return False
        found = self.partitions.get(request.batches[0][0].partition)
        return found is not None and found.forward_whole(claimant, request)

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the work under way is over."""
        if offer.partition < 0:
            self._env.forwarder.released(len(offer.batch))
            offer.reply.answer(Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        found = self.of(offer.partition)
        found.offer(offer)
        self.forget_if_idle(offer.partition)

    def served_elsewhere(self) -> None:
        """As `GovernedTopic.served_elsewhere`."""
        for part in self.parts:
            part.served_elsewhere()

    @property
    def may_move(self) -> bool:
        """As `GovernedTopic.may_move`."""
        return not self._taking.locked() and all(part.may_move for part in self.parts)

    def policy_changed(self) -> None:
        """Begin or end sequence ids: the topic is fenced again, and every partition continues under its next epoch."""
        if self._ids.follow_policy():
            self.fence_wanted()

    def _is_live(self, session: str) -> bool:
        return any(part.is_live(session) for part in self.partitions.values())

    def fence_wanted(self) -> None:
        """As `GovernedTopic.fence_wanted`."""
        self._taken = None
        for part in self.parts:
            part.reopen()

    # The master slot --------------------------------------------------------------------------------------------------

    async def take(self, partition: int) -> Stamp:
        """Take or keep the right to serve the topic, and a master slot that covers this partition; returns its stamp.

        Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER if another node serves it, and what a takeover raises.
        """
        async with self._taking:
            if not await self._env.may_serve(self.name):
                raise NothingDoneError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another node serves the topic")
            self.serving = True
            taken = self._taken
            if taken is not None and partition not in taken.partitions:
                layout = await self._env.services.upstream.whole_layout(self.name)
                if partition not in layout.leaders:
                    raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} has no partition {partition}")
                taken = None  # it was added: every slot has to be fenced there
            if taken is None or self._env.changelog.view.epoch(taken.stamp.producer_id) != taken.stamp.epoch:
                taken = await self._adopt()
            return taken.stamp

    async def _adopt(self) -> TakenSlot:
        """Take the master slot without an owner; this fences the holders of the topic's other slots."""
        began = self.upkeep.now()
        ids = self.ids
        takeover = Takeover(
            self._env.services, self.scope, Request(Purpose.SPLIT), trusted_ms=self.upkeep.trusted_ms, ids=ids
        )
        taken = await takeover.run()
        if ids is not self.ids:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile")
        self._taken = taken
        if ids is not None:
            begin_ids(ids, taken, self._env.changelog.view)
        self._idle = dict(taken.others)
        self.upkeep.kept(began, taken.fenced_from)
        return taken

    def outdated(self) -> None:
        """Note that the topic was created anew: before a partition gets an owner, it is fenced as a whole."""
        self._taken = None

    def taken(self, slot: SlotName) -> None:
        """Note that a partition's owner has its slot."""
        self._idle.pop(slot, None)

    async def keep_alive(self) -> None:
        """Renew the fences of all slots of the topic."""
        began, taken = self.upkeep.now(), self._taken
        if taken is not None:
            renewal, fenced_from = await renew_fence(self._env.services, taken, None)
            if renewal is Renewal.KEPT:
                await self._keep_slots(taken)
                self.upkeep.kept(began, fenced_from)
                return
            self._taken = None
        async with self._taking:
            if self._taken is None and await self._env.may_serve(self.name):
                self.serving = True
                await self._adopt()

    async def _keep_slots(self, taken: TakenSlot) -> None:
        parts = [part for part in self.parts if part.has_slot]
        for first in range(0, len(parts), _AT_ONCE):
            await asyncio.gather(*[part.keep_alive() for part in parts[first : first + _AT_ONCE]])
        for name, slot in list(self._idle.items()):
            scope = SlotScope(self.name, name)
            try:
                await keep_slot_alive(self._env.services, scope, slot, scope.of(taken.partitions))
            except FencedError:
                self._idle.pop(name, None)  # a partition's owner has it, or the topic is another node's
            except FAILURES as error:
                self._env.hooks.operation_failed(self.name, error)

    # Other requests ---------------------------------------------------------------------------------------------------

    def changed(self, change: Change) -> None:
        """Read a partition's owner again: another node has stored a record."""
        partition = _partition_of(change.key)
        if partition is not None and not self.serving:
            self.of(partition).reread()

    def as_owned(self) -> list[Ownership]:
        """The ownership that this node reports to Redis with every heartbeat."""
        return [owned for part in self.parts for owned in part.as_owned()]

    async def administer(
        self, partition: int | None, *, fence: bool, generations: frozenset[int] | None = None
    ) -> Holder:
        """As `GovernedTopic.administer`, for one partition."""
        if partition is None:
            raise ValueError(f"{self.name} has the scope partition: say which one")
        if partition not in self.partitions:
            raise LookupError(f"{self.name}-{partition}")
        return await self.partitions[partition].administer(None, fence=fence, generations=generations)

    async def ungoverned(self) -> None:
        """Stop serving the topic: it has no policy any more."""
        await self.hand_back()

    async def hand_back(self) -> None:
        """The node leaves, or lost the right to serve: finish the batches in flight and stop serving."""
        await asyncio.gather(*[part.hand_back() for part in self.parts])
        await self._ids.save()
        self.serving = False
        self._taken, self._idle = None, {}
        self._env.hooks.topic_forgotten(self.name)
        for part in self.parts:
            part.writer.drop_epoch(MOVED)


def _partition_of(key: Key) -> int | None:
    return SlotScope(key.topic, key.slot or MASTER_SLOT).partition


Topic: TypeAlias = GovernedTopic | PartitionedTopic
