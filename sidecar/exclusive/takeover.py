"""The takeover of a topic: how a node makes a session its owner, or goes on serving the one it has.

The order is what makes it safe. Each step may be the last one before a crash; a model checker broke the protocol for
each step that was left out or moved:

0. Look at the ownership topic without fencing: a deposed session ends here.
1. Claim in Redis: arbitration and the generation.
2. Note where the previous epoch stopped (`tails`), then InitProducerId: the next epoch E.
3. Fence every partition and the ownership partition at E.
4. Read the ownership topic up to that marker: what step 0 saw must still hold.
5. Read the logs on from the tails: what the previous epoch got in meanwhile.
6. Append `Serving` (and `Ownership`), stamped with E, sequence 0: the commit point.
7. Publish to Redis, append an event, serve.

Nothing of an older epoch is behind the fence. This module performs the steps; who may ask for them is decided in
`claims`, what the records of step 6 say in `succession`.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from metadata import MetadataUnavailable
from metadata.ownership import AccessMode, ClaimAnswer, ClaimRequest, ClaimStatus, Generation, Ownership
from sidecar.changelog import (
    MASTER_SLOT,
    Record,
    ownership_key,
    pack_positions,
    serving_key,
    unpack_offsets,
)
from sidecar.exclusive import succession
from sidecar.exclusive.succession import mode_of
from sidecar.exclusive.tails import TailReader
from sidecar.fencing import Witness, WriterSlot, fence_topic, transactional_id
from sidecar.protocol.caller import Lane
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from uuid import UUID

    from metadata import MetadataStore
    from sidecar.changelog import Changelog, Entry, Position, StampedJournal
    from sidecar.exclusive.succession import Intent
    from sidecar.forwarder.sequences import RefusedSequences
    from sidecar.protocol.caller import TopicLayout, Upstream

CLAIM_LEASE_MS: Final = 10_000
_ATTEMPTS: Final = 4
_WITNESS_LANE: Final = Lane("takeover")
_WITNESS_TIMEOUT: Final = 10.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every takeover of this node needs."""

    node_id: int
    boot: str
    cluster: str
    upstream: Upstream
    changelog: Changelog
    store: MetadataStore


@dataclass(frozen=True, slots=True)
class Tenure:
    """The outcome: an epoch that this node alone writes under, for a session."""

    topic_id: UUID
    stamp: Stamp
    slot: WriterSlot
    journal: StampedJournal
    session: str
    generation: int
    bases: Mapping[int, Position]
    refused: Mapping[int, RefusedSequences]
    partitions: tuple[int, ...]
    ownership: state.Ownership
    position: int
    """Offset in the ownership topic of the record that says so."""


async def tails_now(
    around: Surroundings, topic: str, writer: Stamp, layout: TopicLayout, wrote: Collection[int]
) -> list[Record] | None:
    """Where a slot's writer stands in each partition, as far as the changelog does not know it.

    None where the leader of a partition that it `wrote` has forgotten that: its sequences cannot go on there.
    """
    reader = TailReader(around.upstream, Witness(around.upstream, _WITNESS_LANE, _WITNESS_TIMEOUT), topic)
    view = around.changelog.view
    ownership = view.ownership(topic)
    since = unpack_offsets(ownership.value.start) if ownership is not None else {}
    tails, remembered = await reader.before(view, writer, layout.leaders, since)
    for index in wrote:
        active = remembered[TopicPartition(topic, index)].of(writer.producer_id)
        if active is None or (active.stamp.epoch == writer.epoch and active.last_sequence < 0):
            return None
    return reader.records(view, layout.topic_id, writer, tails)


class HeldError(KafkaError):
    """Somebody else owns the topic, as Redis or the changelog knows better than this node did. `owner` says who."""

    def __init__(self, owner: Ownership | None) -> None:
        super().__init__(ErrorCode.POLICY_VIOLATION, "held")
        self.owner = owner


class LostRaceError(Exception):
    """Somebody else took the topic over while this takeover was under way."""


def owner_record(topic: str, entry: Entry[state.Ownership], node_id: int) -> Ownership:
    """A changelog record as Redis keeps it."""
    value = entry.value
    return Ownership(
        resource=topic,
        generation=Generation(value.generation),
        position=entry.offset,
        session=None if value.released_ms or not value.session else value.session,
        name=value.name,
        mode=mode_of(value.mode),
        since_ms=value.since_ms,
        node_id=node_id,
        producer_id=entry.writer.producer_id if entry.writer else -1,
        producer_epoch=entry.writer.epoch if entry.writer else -1,
    )


class Takeover:
    """One takeover of one topic; `run` performs it, again from the start where somebody interfered."""

    def __init__(self, around: Surroundings, topic: str, intent: Intent) -> None:
        self._around = around
        self._topic = topic
        self._intent = intent
        self._view = around.changelog.view
        self._now_ms = int(time.time() * 1000)

    async def run(self) -> Tenure:
        """Raises `HeldError`, `LostRaceError`, `KafkaError`, `MetadataUnavailable`, and what the rooms below raise."""
        for _ in range(_ATTEMPTS):
            tenure = await self._attempt()
            if tenure is not None:
                return tenure
        raise LostRaceError(f"the ownership of {self._topic} changed again and again")

    async def _attempt(self) -> Tenure | None:
        around, topic = self._around, self._topic
        layout = await around.upstream.layout(topic, refresh=True)
        ownership, serving = self._known(layout.topic_id)
        keeps = self._keeps(ownership)
        token, generation = await self._claim(ownership, serving, keeps)
        published = False
        try:
            previous = _stamp_of(serving)
            reader = TailReader(around.upstream, Witness(around.upstream, _WITNESS_LANE, _WITNESS_TIMEOUT), topic)
            since = unpack_offsets(ownership.value.start) if ownership is not None else {}
            tails, remembered = await reader.before(self._view, previous, layout.leaders, since)
            if serving is not None:
                records = reader.records(self._view, layout.topic_id, previous, tails)
                for first in range(0, len(records), 500):
                    await around.changelog.append(records[first : first + 500])

            slot = WriterSlot(around.upstream, transactional_id(around.cluster, topic))
            await slot.open()
            partition = around.changelog.partition
            former = {slot.transactional_id: previous.producer_id} if previous.producer_id >= 0 else {}
            fenced = await fence_topic(
                around.upstream, [slot], topic, also={partition.topic: [partition.partition]}, former=former
            )

            await around.changelog.tailer.seen(slot.stamp, timeout=10.0)
            if self._known(fenced.topic_id) != (ownership, serving):
                await self._abandon(token)
                return None

            ends = await reader.ends(fenced.partitions)
            last = await reader.behind(previous, tails, slot.stamp, ends) if serving is not None else {}
            intent, served = self._intent, serving.value if serving is not None else None
            before = intent.stands_at or succession.history(intent.session, topic, remembered)
            bases, refused, left = succession.sequences(intent, served, fenced.partitions, last, before, self._now_ms)
            owned = ownership.value if ownership is not None else None
            owner = succession.ownership(intent, owned, fenced.topic_id, generation, ends, self._now_ms, keeps=keeps)
            entry = state.Serving(
                topic_id=fenced.topic_id.bytes,
                node=around.node_id,
                producer_id=slot.stamp.producer_id,
                producer_epoch=slot.stamp.epoch,
                session="" if intent.adopts else owner.session,
                name="" if intent.adopts else owner.name,
                generation=generation,
                base=pack_positions(bases),
                refused=succession.pack_refused(refused),
                left=left,
                retired_producer_ids=succession.retired(served, slot.stamp),
                since_ms=self._now_ms,
            )
            journal = around.changelog.journal(slot.stamp)
            changed = owner != owned
            batch = [Record(serving_key(topic, MASTER_SLOT), entry)]
            if changed:
                batch.append(Record(ownership_key(topic, MASTER_SLOT), owner))
            offset = await journal.append(batch)
            await around.changelog.tailer.reached(Offset(offset + len(batch) - 1), timeout=10.0)
            position = offset + 1 if changed else ownership.offset if ownership is not None else offset
            tenure = Tenure(
                fenced.topic_id,
                slot.stamp,
                slot,
                journal,
                owner.session,
                generation,
                bases,
                refused,
                fenced.partitions,
                owner,
                position,
            )
            await self._publish(tenure, token)
            published = True
            return tenure
        finally:
            if not published:
                await self._abandon(token)

    def _known(self, topic_id: UUID) -> tuple[Entry[state.Ownership] | None, Entry[state.Serving] | None]:
        """What the changelog says of this topic; a topic of another id under the name is none of ours."""
        ownership, serving = self._view.ownership(self._topic), self._view.serving(self._topic)
        if ownership is not None and ownership.value.topic_id != topic_id.bytes:
            ownership = None
        if serving is not None and serving.value.topic_id != topic_id.bytes:
            serving = None
        return ownership, serving

    def _keeps(self, ownership: Entry[state.Ownership] | None) -> bool:
        """Whether the session is the last owner and goes on: the generation stays. Raises `KafkaError` 90 for a
        deposed one.
        """
        if ownership is None:
            return False
        if self._intent.adopts:
            return True
        if any(deposed.session == self._intent.session for deposed in ownership.value.deposed):
            raise KafkaError(ErrorCode.PRODUCER_FENCED, f"{self._intent.name} was fenced from {self._topic}")
        asked = self._intent.asked
        same = ownership.value.session == self._intent.session
        return same and (asked is None or asked <= ownership.value.generation)

    # Step 1 and 7: Redis ------------------------------------------------------------------------------------------

    async def _claim(
        self, ownership: Entry[state.Ownership] | None, serving: Entry[state.Serving] | None, keeps: bool
    ) -> tuple[bytes | None, int]:
        around, intent = self._around, self._intent
        if intent.adopts and ownership is not None:
            return None, ownership.value.generation  # nobody's claim: the right to serve is enough
        # Generations of a topic never fall, also where it was deleted and created again.
        latest = self._view.ownership(self._topic)
        known = owner_record(self._topic, latest, serving.value.node if serving else -1) if latest is not None else None
        if known is not None and ownership is None:
            known = Ownership(self._topic, known.generation, known.position, None)
        token = secrets.token_bytes(16)
        request = ClaimRequest(
            resource=self._topic,
            token=token,
            node_id=around.node_id,
            boot=around.boot,
            session=intent.session,
            name=intent.name,
            mode=AccessMode.EXCLUSIVE_WITH_FENCING if intent.deposes else intent.mode,
            lease_ms=CLAIM_LEASE_MS,
            known=known,
            asked=intent.asked,
            topic=self._topic,
            returns_to=ownership.value.generation
            if keeps and ownership is not None and ownership.value.released_ms
            else None,
        )
        try:
            answer = await self._ask_redis(request)
        except MetadataUnavailable:
            if keeps and ownership is not None and serving is not None and serving.value.node == around.node_id:
                return None, ownership.value.generation  # who served last goes on without Redis
            raise
        if answer.status is ClaimStatus.GRANTED and answer.generation is not None:
            return token, answer.generation
        if answer.status in (ClaimStatus.HELD, ClaimStatus.LOWER_GENERATION):
            raise HeldError(answer.current)
        if answer.status is ClaimStatus.ELSEWHERE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._topic} is served by another node")
        if answer.status is ClaimStatus.EXHAUSTED:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"no generation is left for {self._topic}")
        raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"another claim to {self._topic} is under way")

    async def _ask_redis(self, request: ClaimRequest) -> ClaimAnswer:
        """Claim; where the answer was lost, again with the same token, which is the same claim."""
        try:
            return await self._around.store.claim(request)
        except MetadataUnavailable as error:
            if not error.maybe_applied:
                raise
        return await self._around.store.claim(request)

    async def _publish(self, tenure: Tenure, token: bytes | None) -> None:
        value = tenure.ownership
        record = Ownership(
            resource=self._topic,
            generation=Generation(tenure.generation),
            position=tenure.position,
            session=None if value.released_ms else value.session or None,
            name=value.name,
            mode=mode_of(value.mode),
            since_ms=value.since_ms,
            node_id=self._around.node_id,
            producer_id=tenure.stamp.producer_id,
            producer_epoch=tenure.stamp.epoch,
        )
        with suppress(MetadataUnavailable):  # the changelog has it; the next heartbeat that arrives tells Redis
            await self._around.store.publish(record, token)

    async def _abandon(self, token: bytes | None) -> None:
        if token is not None:
            with suppress(MetadataUnavailable):  # the claim's own lease ends it
                await self._around.store.abandon(self._topic, token)


def _stamp_of(serving: Entry[state.Serving] | None) -> Stamp:
    if serving is None:
        return Stamp(ProducerId(-1), ProducerEpoch(-1))
    return Stamp(ProducerId(serving.value.producer_id), ProducerEpoch(serving.value.producer_epoch))
