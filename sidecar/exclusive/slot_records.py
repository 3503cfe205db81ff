"""Reads from the ownership topic's records what a takeover needs of a topic's slots. No IO, no state.

Records with another topic id (KIP-516) belong to a deleted topic of the same name and do not count.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from sidecar.changelog import MASTER_SLOT
from sidecar.exclusive import records, succession
from sidecar.exclusive.domain import Domain
from sidecar.exclusive.requests import Claim, Fence
from sidecar.exclusive.tenure import check_generation, is_outdated, stamp_of
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping
    from uuid import UUID

    from sidecar.changelog import Clock, Entry, Opened, Position, SlotName, View
    from sidecar.exclusive.requests import Request
    from sidecar.exclusive.succession import Mention
    from sidecar.exclusive.tails import Look
    from sidecar.protocol.caller import TopicLayout
    from sidecar.protocol.ids import Stamp
    from sidecar.v1 import state_pb2 as state


class Known(NamedTuple):
    """The owner, the record of the slot that is taken, and those of the slots that are taken with it."""

    ownership: Entry[state.Ownership] | None
    opened: Entry[Opened] | None
    others: dict[SlotName, Entry[Opened]]


class SlotRecords:
    """The records, for one request to take one slot. `master` is this node's stamp of the master slot, where another
    slot is taken.
    """

    def __init__(self, view: View, clock: Clock, domain: Domain, request: Request, master: Stamp | None) -> None:
        self._view = view
        self._clock = clock
        self._domain = domain
        self._topic = domain.topic
        self._request = request
        self._master = master

    @property
    def now_ms(self) -> int:
        """The brokers' time: after the fence, the timestamp of the node's own marker, which was read back."""
        return self._clock.now_ms()

    def known(self, topic_id: UUID) -> Known:
        """As things stand now."""
        # Model: ReadLast.
        domain = self._domain
        ownership = None if domain.is_shared else self._view.ownership(self._topic, domain.slot)
        if ownership is not None and ownership.value.topic_id != topic_id.bytes:
            ownership = None
        opened = self._opened(topic_id)
        return Known(ownership, opened.pop(domain.slot, None), opened if domain.is_master else {})

    def _opened(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """The newest record of every slot of the topic."""
        entries = self._view.opened(self._topic).items()
        return {name: entry for name, entry in entries if entry.value.topic_id == topic_id.bytes}

    def _others(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """The same without the slot that is taken; none where the request is for no session."""
        entries = self._opened(topic_id).items() if self._request.session else ()
        return {name: entry for name, entry in entries if name != self._domain.slot}

    def followed(self, topic_id: UUID) -> dict[SlotName, Entry[Opened]]:
        """Other slots that the session had: each was fenced, above the epoch of its record, with the master slot."""
        session = self._request.session
        return {name: entry for name, entry in self._others(topic_id).items() if entry.value.session == session}

    def keeps(self, ownership: Entry[state.Ownership] | None) -> bool:
        """Whether the session is the last owner and goes on, so that the generation stays.

        Raises `KafkaError` 90 PRODUCER_FENCED for a deposed one, `GenerationError` where a fence is wanted under
        another generation. Nothing is committed where this changes meanwhile.
        """
        request = self._request
        if isinstance(request, Fence):
            check_generation(self._view, self._domain, request.generations)
        if ownership is None:
            return False
        if request.is_for_nobody:
            return True
        if any(deposed.session == request.session for deposed in ownership.value.deposed):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{request.name} was fenced from {self._topic}")
        if is_outdated(self._view, self._domain, ownership):
            return False
        asked = request.asked if isinstance(request, Claim) else None
        same = ownership.value.session == request.session
        return same and (asked is None or asked <= ownership.value.generation)

    def partitions(self, layout: TopicLayout) -> tuple[int, ...]:
        """The partitions concerned, all that were ever written through a slot among them: brokers that lag may know
        fewer. Raises `KafkaError`.
        """
        there = self._domain.of(layout.leaders)
        written = {
            index
            for entry in self._opened(layout.topic_id).values()
            for index in self._domain.of(entry.value.base.partition)
        }
        if missing := sorted(written.difference(there)):
            message = f"no broker that answers knows of partition {missing[0]} of {self._topic}; try again"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        if not there:
            message = f"{self._topic} has no partition {self._domain.partition}"
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        return tuple(there)

    # The master slot ------------------------------------------------------------------------------------------------

    def check_master(self) -> None:
        """Check that the node still has the master slot. Raises `KafkaError` 6 NOT_LEADER_OR_FOLLOWER where it has
        not.
        """
        # Model: Serve.
        master = self._master
        if master is None:
            return
        serving = self._view.opened(self._topic).get(MASTER_SLOT)
        if stamp_of(serving) != master or self._view.epoch(master.producer_id) != master.epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"another node took {self._topic} over")

    def under(self) -> int:
        """The offset of this node's master record; 0 if the master slot itself is taken over. Raises `KafkaError` 6 if
        another node's master record stands there by now.
        """
        if self._master is None:
            return 0
        self.check_master()
        return self._view.opened_now(self._topic)[MASTER_SLOT].offset

    # Sequences ------------------------------------------------------------------------------------------------------

    def mentions(self, topic_id: UUID, last: Mapping[SlotName, Mapping[int, int]]) -> list[Mention]:
        """What the records of other slots have about the session."""
        session = self._request.session
        found = [
            succession.mention(
                session, entry.value, entry.offset, last.get(name, {}), self.now_ms, self.shifts(name, entry)
            )
            for name, entry in self._others(topic_id).items()
        ]
        return [said for said in found if said is not None]

    def shifts(self, name: SlotName, entry: Entry[Opened] | None) -> dict[int, state.SequenceBase]:
        """Where the bases of a slot's session moved within its newest epoch: behind the fence nothing is added."""
        writer = stamp_of(entry)
        found = {key.partition: shift for key, shift in self._view.shifts(self._topic, name)}
        return {
            index: shift
            for index, shift in found.items()
            if index is not None and (shift.producer_id, shift.producer_epoch) == (writer.producer_id, writer.epoch)
        }

    def client_id(self, session: str, topic_id: UUID) -> str | None:
        """The client.id that a session belongs to, as the request says it, or the newest record that does."""
        if session == self._request.session and self._request.client_id is not None:
            return self._request.client_id
        entries = sorted(self._opened(topic_id).values(), key=lambda entry: entry.offset, reverse=True)
        found = (records.client_ids(entry.value).get(session) for entry in entries)
        return next((client_id for client_id in found if client_id is not None), None)

    def memory(self, topic_id: UUID, opened: Entry[Opened] | None) -> Mapping[int, Position]:
        """Where the session stands by this node's memory. Empty if the memory may be outdated: it counts if its epoch
        is still the newest, or if the topic was created anew and no record of the new topic names the session.
        """
        session, memory = self._request.session, self._request.memory
        if memory is None:
            return {}
        if opened is not None and stamp_of(opened) == memory.stamp:
            return memory.stands_at
        if memory.topic_id == topic_id:
            return {}
        entries = self._opened(topic_id).values()
        is_known = any(succession.mention(session, each.value, each.offset, {}, self.now_ms) for each in entries)
        return {} if is_known else memory.stands_at

    def trusted(self, former: Domain, entry: Entry[Opened], look: Look, trusted_ms: float) -> dict[int, int]:
        """The ends of the partitions whose leader remembers no batch of a slot and cannot have forgotten one.

        Reading starts there instead of at the begin of the slot's epoch: others may have written much since, and
        retention may have deleted it. A leader that knows a higher epoch has forgotten this one. A leader that knows a
        batch of the slot may hold it in front of its end. `trusted_ms`: how far back leaders surely remember every
        producer. Empty while the brokers' time is not known.
        """
        oldest = self.now_ms - trusted_ms if self._clock.is_confirmed else math.inf
        writer = stamp_of(entry)
        ends: dict[int, int] = {}
        for index, end in look.ends.items():
            active = look.remembered[TopicPartition(self._topic, index)].of(writer.producer_id)
            if active is not None and (active.stamp.epoch > writer.epoch or active.last_sequence >= 0):
                continue
            tail = self._view.tail(self._topic, former.slot, index)
            if max(entry.at_ms, min(tail.at_ms, tail.value.at_ms) if tail is not None else 0) > oldest:
                ends[index] = end
        return ends
