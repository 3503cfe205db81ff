"""A topic whose partitions have their own owners (scope partition): all rules of ownership apply to each partition.

Under the topic's master slot (`master`) each partition is a `GovernedTopic` with a slot of its own.
"""

import asyncio
from collections.abc import Iterable
from typing import Final, TypeAlias

from metadata.ownership import Ownership
from sidecar.changelog import MASTER_SLOT, Change, Key, Kind
from sidecar.dedup.reply import Reply
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.answers import FAILURES, MOVED
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.master import MasterSlot
from sidecar.exclusive.offers import Offer
from sidecar.exclusive.policy_ids import PolicyIds
from sidecar.exclusive.refusals import Refusals
from sidecar.exclusive.topic import GovernedTopic
from sidecar.forwarder.forwarder import WholeRequest
from sidecar.forwarder.outcome import Outcome
from sidecar.ownership.state import Claimant, Holder
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.errors import ErrorCode
from sidecar.takeover.slots import SlotScope
from sidecar.writing.upkeep import Upkeep

_AT_ONCE: Final = 16


class PartitionedTopic:
    """The partitions of one topic on the node that serves it. `master`: what they share."""

    def __init__(self, name: str, environment: Environment, refusals: Refusals) -> None:
        self.name = name
        self.refusals = refusals
        self.is_dropped = False
        """As of `GovernedTopic`."""
        ids = PolicyIds(name, environment, self._is_live, self.fence_wanted, by_partition=True)
        self.partitions: dict[int, GovernedTopic] = {}
        self.master = MasterSlot(name, environment, ids, self.partitions)
        self._env = environment
        for entry in environment.changelog.view.of_topic(name):
            index = _partition_of(entry.key)
            if entry.key.kind is Kind.OWNERSHIP and index is not None:
                self.of(index)

    def of(self, partition: int) -> GovernedTopic:
        """The state of one partition: its owner, and the sessions that wait for it."""
        part = self.partitions.get(partition)
        if part is None:
            scope = SlotScope.of_partition(self.name, partition)
            part = GovernedTopic(self.name, self._env, self.refusals, scope, self.master)
            part.is_dropped = self.is_dropped
            self.partitions[partition] = part
        return part

    def _forget_idle(self) -> None:
        """Forget partitions without owner, slot, waiting sessions or a work: clients may name any number."""
        idle, self.master.idle = self.master.idle, set()
        for partition in idle:
            part = self.partitions.get(partition)
            if part and not (part.busy or part.has_slot or part.state.waiting or part.state.record is not None):
                del self.partitions[partition]

    @property
    def serving(self) -> bool:
        """Whether this node serves the topic, and reports that with its heartbeats."""
        return self.master.serving

    @serving.setter
    def serving(self, serving: bool) -> None:
        self.master.serving = serving

    @property
    def upkeep(self) -> Upkeep:
        """The state of the topic's fence."""
        return self.master.upkeep

    @property
    def parts(self) -> Iterable[GovernedTopic]:
        """Everything here that can have an owner."""
        self._forget_idle()
        return list(self.partitions.values())

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids; None if the policy has no deduplication."""
        return self.master.ids

    @property
    def generation(self) -> int:
        """The highest generation of all partitions."""
        return max((part.generation for part in self.partitions.values()), default=0)

    async def know_ids(self, timeout: float) -> TopicIds:
        """As `GovernedTopic.know_ids`."""
        ids = self.ids
        if ids is None:
            raise LookupError(self.name)
        if not ids.is_begun:
            await self.master.take(0)
        await ids.known(timeout)
        return ids

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
        part = self.partitions.get(partition)
        return part is not None and part.forward(claimant, partition, header, batch, timeout_ms, reply)

    def forward_whole(self, claimant: Claimant, request: WholeRequest) -> bool:
        """As `GovernedTopic.forward_whole`; requests for several partitions go batch by batch."""
        if len(request.batches) != 1:
            return False
        part = self.partitions.get(request.batches[0][0].partition)
        return part is not None and part.forward_whole(claimant, request)

    def offer(self, offer: Offer) -> None:
        """Decide on a batch, now or when the work under way is over."""
        if offer.partition < 0:
            self._env.forwarder.released(len(offer.batch))
            offer.reply.answer(Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            return
        part = self.of(offer.partition)
        part.offer(offer)
        self.master.idle.add(offer.partition)
        self._forget_idle()

    def served_elsewhere(self) -> None:
        """As `GovernedTopic.served_elsewhere`."""
        for part in self.parts:
            part.served_elsewhere()

    @property
    def may_move(self) -> bool:
        """As `GovernedTopic.may_move`."""
        return not self.master.busy and all(part.may_move for part in self.parts)

    def policy_changed(self) -> None:
        """Begin or end sequence ids: the topic is fenced again, and every partition continues under its next epoch."""
        if self.master.policy_ids.follow_policy():
            self.fence_wanted()

    def _is_live(self, session: str) -> bool:
        return any(part.is_live(session) for part in self.partitions.values())

    def fence_wanted(self) -> None:
        """As `GovernedTopic.fence_wanted`."""
        self.master.outdated()
        for part in self.parts:
            part.reopen()

    async def keep_alive(self) -> None:
        """Renew the fences of all slots of the topic."""
        began, renewed = self.upkeep.now(), await self.master.renew()
        if renewed is not None:
            taken, fenced_from = renewed
            parts = [part for part in self.parts if part.has_slot]
            for first in range(0, len(parts), _AT_ONCE):
                await asyncio.gather(*[part.keep_alive() for part in parts[first : first + _AT_ONCE]])
            await self.master.renew_slots(taken)
            self.upkeep.kept(began, fenced_from)

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
        """Remove the owners of a topic without a policy: other clients may write to its partitions now. After what is
        under way, the takeover of the master slot fences all of them at once.
        """
        await asyncio.gather(*[part.hand_back() for part in self.parts])
        try:
            await self.master.remove_owners()
        except FAILURES as error:
            self._env.hooks.operation_failed(self.name, error)
        finally:
            await self.hand_back()

    async def hand_back(self) -> None:
        """The node leaves, or lost the right to serve: finish the batches in flight and stop serving."""
        await asyncio.gather(*[part.hand_back() for part in self.parts])
        await self.master.hand_back()
        self._env.hooks.topic_forgotten(self.name)
        for part in self.parts:
            part.writer.drop_epoch(MOVED)


def _partition_of(key: Key) -> int | None:
    return SlotScope(key.topic, key.slot or MASTER_SLOT).partition


Topic: TypeAlias = GovernedTopic | PartitionedTopic
