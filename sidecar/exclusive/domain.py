"""What a writer slot is for: a whole topic (slot 0), one partition of it (slot pN), or one shared session (1, 2, …)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidecar.changelog import MASTER_SLOT, Key, SlotName, partition_of, partition_slot, serving_key, slot_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.changelog import Entry, View
    from sidecar.v1 import state_pb2 as state


@dataclass(frozen=True, slots=True)
class Domain:
    """A slot of a topic."""

    topic: str
    slot: SlotName = MASTER_SLOT

    @classmethod
    def of_partition(cls, topic: str, partition: int) -> Domain:
        """One partition of a topic whose partitions have owners of their own."""
        return cls(topic, partition_slot(partition))

    @property
    def partition(self) -> int | None:
        """The one partition that it is about; None: all of them."""
        return partition_of(self.slot)

    @property
    def is_master(self) -> bool:
        """It is the whole topic: whoever takes it shuts out every other slot."""
        return self.slot == MASTER_SLOT

    @property
    def is_shared(self) -> bool:
        """One session among others has it: it has no owner and no generation."""
        return not self.is_master and self.partition is None

    @property
    def resource(self) -> str:
        """Its name where one owner is arbitrated. Topic names hold no slash."""
        return self.topic if self.is_master else f"{self.topic}/{self.slot}"

    def covers(self, partition: int) -> bool:
        """Whether its slot may write there."""
        return self.partition in (None, partition)

    def of(self, partitions: Iterable[int]) -> list[int]:
        """Those of a topic's partitions that it is about, in order."""
        return sorted(index for index in partitions if self.covers(index))

    def overlaps(self, slot: SlotName) -> bool:
        """Whether another slot's owner might write where this one's does."""
        other = partition_of(slot)
        return self.partition is None or other is None or self.partition == other

    @property
    def key(self) -> Key:
        """Of the record that opens its epochs."""
        return slot_key(self.topic, self.slot) if self.is_shared else serving_key(self.topic, self.slot)

    def opened(self, view: View) -> Entry[state.Serving] | Entry[state.Slot] | None:
        """The record that opened its newest epoch."""
        return view.slot(self.topic, self.slot) if self.is_shared else view.serving(self.topic, self.slot)
