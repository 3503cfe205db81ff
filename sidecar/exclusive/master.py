"""The master slot of a topic whose partitions have their own owners. The node that serves the topic holds it without a
session: this shuts out every session that wrote to the whole topic, and every slot that another node opened.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from sidecar.changelog import FAILURES, MASTER_SLOT, Entry, Kind, Record, SlotName
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.policy_ids import PolicyIds, begin_ids
from sidecar.exclusive.resource import Resource
from sidecar.fencing.slot import WriterSlot
from sidecar.ownership.step import EpochLost, Loss
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, Stamp
from sidecar.takeover.records import freed
from sidecar.takeover.requests import NothingDoneError, Purpose, Request
from sidecar.takeover.slots import SlotScope, TakenSlot
from sidecar.takeover.takeover import Takeover
from sidecar.writing.upkeep import Renewal, Upkeep, keep_slot_alive, renew_fence

_RELEASED_AT_ONCE: Final = 8
"""Records per batch: each may list so many deposed sessions that more would exceed Kafka's limit of a batch."""
_SEEN_S: Final = 5.0


class MasterSlot:
    """The right to serve the topic, its master slot, and what its partitions share: their upkeep and sequence ids.

    `idle`: partitions of which nothing is under way any more since this was looked at last.
    """

    def __init__(
        self, name: str, environment: Environment, policy_ids: PolicyIds, partitions: Mapping[int, Resource]
    ) -> None:
        """`partitions`: those with a state, by number, as they come and go."""
        self.name = name
        self._partitions = partitions
        self.serving = False
        self.upkeep = Upkeep(environment.terms, environment.changelog.clock)
        self.policy_ids = policy_ids
        self.idle: set[int] = set()
        self._env = environment
        self._scope = SlotScope(name)
        self._taken: TakenSlot | None = None
        self._slots: dict[SlotName, WriterSlot] = {}
        """The slots of partitions that have no owner on this node."""
        self._taking = asyncio.Lock()

    @property
    def ids(self) -> TopicIds | None:
        """The sequence ids of the topic; None if the policy has no deduplication."""
        return self.policy_ids.now

    @property
    def busy(self) -> bool:
        """It is being taken."""
        return self._taking.locked()

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
                taken = await self._adopt(self._hold)
            return taken.stamp

    async def _hold(self) -> None:
        """See `PolicyCatalog.hold`."""
        await self._env.catalog.hold(self.name)

    async def _adopt(self, hold: Callable[[], Awaitable[None]] | None = None) -> TakenSlot:
        """Take the master slot without an owner; this fences the holders of the topic's other slots. `hold`: called
        behind the fence if partitions may get owners.
        """
        began, ids = self.upkeep.now(), self.ids
        request, trusted_ms = Request(Purpose.SPLIT), self.upkeep.trusted_ms
        takeover = Takeover(self._env.services, self._scope, request, trusted_ms=trusted_ms, ids=ids)
        taken = await takeover.run(fenced=hold)
        if ids is not self.ids:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"the policy of {self.name} changed meanwhile")
        self._taken = taken
        self._end_former(taken)
        if ids is not None:
            begin_ids(ids, taken, self._env.changelog.view)
        self._slots = dict(taken.others)
        self.upkeep.kept(began, taken.fenced_from)
        return taken

    def _end_former(self, taken: TakenSlot) -> None:
        """Let nobody write who began in a former topic of this name: its sequence ids say nothing about this one."""
        for part in self._partitions.values():
            epoch = part.writer.epoch
            if epoch is not None and epoch.taken.topic_id != taken.topic_id:
                part.tell(EpochLost(Loss.POLICY))

    async def remove_owners(self) -> None:
        """Fence all slots of a topic that lost its policy, then release the owners of its partitions, under the master
        slot's epoch: none of them continues with its generation. Does nothing if another node serves the topic. Raises
        what a takeover raises.
        """
        changelog = self._env.changelog
        async with self._taking:
            if not await self._env.may_serve(self.name):
                return
            taken = await self._adopt()
            owned = [entry for entry in changelog.view.of_topic(self.name) if _names_owner(entry)]
            for first in range(0, len(owned), _RELEASED_AT_ONCE):
                batch = [
                    Record(entry.key, freed(entry.value, changelog.clock.now_ms(), deposes=False))
                    for entry in owned[first : first + _RELEASED_AT_ONCE]
                ]
                offset = await taken.journal.append(batch)
                await changelog.tailer.reached(Offset(offset + len(batch) - 1), timeout=_SEEN_S)

    def outdated(self) -> None:
        """Note that it was taken in another topic of the name, or that all has to be fenced again: it is taken anew
        before a partition gets an owner.
        """
        self._taken = None

    def opened(self, slot: SlotName) -> None:
        """Note that a partition's owner has its slot."""
        self._slots.pop(slot, None)

    async def hand_back(self) -> None:
        """Store the sequence ids, and stop serving the topic: after a takeover of the slot that is under way."""
        async with self._taking:
            try:
                await self.policy_ids.save()
            finally:
                self.serving = False
                self._taken, self._slots = None, {}

    async def renew(self) -> tuple[TakenSlot, Mapping[int, int]] | None:
        """Renew its fence; returns it, and by partition an offset that is not behind the fence's marker. None if it was
        taken anew instead, and all slots were fenced with it, or if another node serves the topic.
        """
        taken = self._taken
        if taken is not None:
            renewal, fenced_from = await renew_fence(self._env.services, taken, None)
            if renewal is Renewal.KEPT:
                return taken, fenced_from
            if self._taken is taken:
                self._taken = None
        async with self._taking:
            if self._taken is None and await self._env.may_serve(self.name):
                self.serving = True
                await self._adopt(self._hold)
        return None

    async def renew_slots(self, taken: TakenSlot) -> None:
        """Renew the fences of partitions' slots that nobody owns here."""
        for name, slot in list(self._slots.items()):
            scope = SlotScope(self.name, name)
            try:
                await keep_slot_alive(self._env.services, scope, slot, scope.of(taken.partitions))
            except FencedError:
                self._slots.pop(name, None)  # a partition's owner has it, or the topic is another node's
            except FAILURES as error:
                self._env.hooks.operation_failed(self.name, error)


def _names_owner(entry: Entry[Any]) -> bool:
    """Whether a record names the owner of a partition."""
    return entry.key.kind is Kind.OWNERSHIP and entry.key.slot != MASTER_SLOT and bool(entry.value.session)
