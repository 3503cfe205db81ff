"""Stamped appends on a real broker: once, in order, and never behind a fence of somebody newer."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.changelog import MASTER_SLOT, AppendRefusedError, AppendUncertainError, Changelog, Key, Kind, Record
from sidecar.changelog.changelog import Appender
from sidecar.changelog.records import RawRecord, read_batches
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing.slot import WriterSlot
from sidecar.network.backoff import RetryTimeoutError
from sidecar.protocol.caller import FencedError
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, Stamp, TopicPartition
from sidecar.v1 import state_pb2 as state
from tests.conftest import Unique
from tests.sim.kafka.direct import SimulatedKafka
from tests.unit.changelog.conftest import LossyUpstream, OpenChangelog


class Claimant:
    """A node that takes a topic over: opens its slot, fences the ownership partition, claims."""

    def __init__(self, changelog: Changelog, kafka: SimulatedKafka, topic: str) -> None:
        self.changelog = changelog
        self.slot = WriterSlot(kafka.upstream, f"sidecar.{changelog.partition.topic}.{topic}")
        self.topic = topic

    async def fence(self) -> Stamp:
        writer = await self.slot.open()
        partition = self.changelog.partition
        await self.slot.fence({partition.topic: [partition.partition]})
        return writer

    def records(self, session: str, generation: int) -> list[Record]:
        writer = self.slot.stamp
        serving = state.Serving(session=session, producer_id=writer.producer_id, producer_epoch=writer.epoch)
        owner = state.Ownership(session=session, generation=generation)
        return [
            Record(Key(Kind.SERVING, self.topic, MASTER_SLOT), serving),
            Record(Key(Kind.OWNERSHIP, self.topic, MASTER_SLOT), owner),
        ]

    async def claim(self, session: str, generation: int) -> Offset:
        raw = [record.encode() for record in self.records(session, generation)]
        return await self.changelog.appender.append(self.changelog.partition, raw, writer=self.slot.stamp)


async def logged(kafka: SimulatedKafka, partition: TopicPartition) -> list[RawRecord]:
    request = FetchPartition(partition, Offset(0), max_wait_ms=0, max_bytes=10 * 1024 * 1024)
    fetched = await kafka.upstream.call(await kafka.leader(partition), request)
    assert fetched.error == 0
    return [record for batch in read_batches(fetched.records) for _, record in batch.records]


async def test_a_claim_is_in_every_nodes_view_with_its_stamp(
    kafka: SimulatedKafka, open_changelog: OpenChangelog, unique: Unique
) -> None:
    ours, theirs = await open_changelog(), await open_changelog()
    claimant = Claimant(ours, kafka, unique("orders"))
    writer = await claimant.fence()
    offset = await claimant.claim("pid:7", 1)
    await theirs.tailer.reached(Offset(offset + 1), timeout=10)
    entry = theirs.view.ownership(claimant.topic)
    assert entry is not None
    assert (entry.value.session, entry.value.generation) == ("pid:7", 1)
    assert (entry.writer, entry.offset) == (writer, offset + 1)
    serving = theirs.view.serving(claimant.topic)
    assert serving is not None
    assert (serving.value.producer_id, serving.value.producer_epoch) == (writer.producer_id, writer.epoch)


async def test_of_two_claims_in_a_race_the_older_epoch_is_fenced(
    kafka: SimulatedKafka, changelog: Changelog, unique: Unique
) -> None:
    topic = unique("orders")
    older, newer = Claimant(changelog, kafka, topic), Claimant(changelog, kafka, topic)
    stale = await older.fence()
    await newer.fence()
    with pytest.raises(FencedError) as fenced:
        await older.claim("pid:1", 1)
    assert fenced.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert fenced.value.writer == stale
    offset = await newer.claim("pid:2", 2)
    await changelog.tailer.reached(offset, timeout=10)
    assert [record for record in await logged(kafka, changelog.partition) if b"pid:1" in (record.value or b"")] == []


async def test_a_claim_in_front_of_the_fence_is_read_by_whoever_fenced(
    kafka: SimulatedKafka, changelog: Changelog, unique: Unique
) -> None:
    topic = unique("orders")
    older, newer = Claimant(changelog, kafka, topic), Claimant(changelog, kafka, topic)
    await older.fence()
    for generation in range(1, 20):
        claim = asyncio.create_task(older.claim("pid:1", generation))
        writer = await newer.fence()
        await changelog.tailer.seen(writer, timeout=10)
        entry = changelog.view.ownership(topic)
        known = entry.value.generation if entry else 0
        (outcome,) = await asyncio.gather(claim, return_exceptions=True)
        if isinstance(outcome, BaseException):
            assert isinstance(outcome, FencedError)
            assert known < generation
        else:
            assert known == generation
        older, newer = newer, older


async def test_an_append_whose_answer_is_lost_is_in_the_log_once(
    kafka: SimulatedKafka, lossy: LossyUpstream, open_changelog: OpenChangelog, unique: Unique
) -> None:
    changelog = await open_changelog(upstream=lossy)
    claimant = Claimant(changelog, kafka, unique("orders"))
    await claimant.fence()
    lossy.lose = 3
    offset = await claimant.claim("pid:7", 1)
    assert lossy.lost == 3
    claims = [record for record in await logged(kafka, changelog.partition) if record.key.startswith(b"ownership/")]
    assert len(claims) == 1
    await changelog.tailer.reached(Offset(offset + 1), timeout=10)
    entry = changelog.view.ownership(claimant.topic)
    assert entry is not None
    assert entry.offset == offset + 1


async def test_when_no_answer_ever_comes_the_outcome_is_unknown_and_the_journal_ends(
    kafka: SimulatedKafka, lossy: LossyUpstream, changelog: Changelog, unique: Unique
) -> None:
    claimant = Claimant(changelog, kafka, unique("orders"))
    writer = await claimant.fence()
    changelog_of_a_deaf_node = Changelog(
        changelog.topics, Appender(lossy, changelog.topics.ids, deadline=0.5), changelog.tailer
    )
    journal = changelog_of_a_deaf_node.journal(writer)
    lossy.lose = 1_000
    with pytest.raises(AppendUncertainError):
        await journal.append(claimant.records("pid:7", 1))
    lossy.lose = 0
    with pytest.raises(AppendUncertainError, match="unknown batch in front"):
        await journal.append(claimant.records("pid:7", 2))
    assert lossy.lost > 1
    assert len([r for r in await logged(kafka, changelog.partition) if r.key.startswith(b"ownership/")]) == 1
    assert await claimant.claim("pid:7", 1) >= 0


async def test_a_journal_counts_the_sequences_of_its_records(
    kafka: SimulatedKafka, changelog: Changelog, unique: Unique
) -> None:
    claimant = Claimant(changelog, kafka, unique("orders"))
    journal = changelog.journal(await claimant.fence())
    offsets = await asyncio.gather(*[journal.append(claimant.records("pid:7", number)) for number in range(1, 11)])
    assert offsets == sorted(offsets)
    await changelog.tailer.reached(Offset(offsets[-1] + 1), timeout=10)
    known = await kafka.producer(changelog.partition, journal.writer)
    assert known is not None
    assert known.last_sequence == 19
    entry = changelog.view.ownership(claimant.topic)
    assert entry is not None
    assert entry.value.generation == 10


async def test_a_batch_that_is_refused_leaves_the_journal_usable(
    kafka: SimulatedKafka, changelog: Changelog, unique: Unique
) -> None:
    claimant = Claimant(changelog, kafka, unique("orders"))
    journal = changelog.journal(await claimant.fence())
    huge = Record(Key(Kind.OWNERSHIP, claimant.topic, MASTER_SLOT), state.Ownership(name="x" * 9 * 1024 * 1024))
    with pytest.raises(AppendRefusedError) as refused:
        await journal.append([huge])
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    await journal.append(claimant.records("pid:7", 1))


async def test_what_speaks_for_a_topic_cannot_be_appended_without_a_stamp(changelog: Changelog) -> None:
    with pytest.raises(ValueError, match="needs its slot's stamp"):
        await changelog.append([Record(Key(Kind.OWNERSHIP, "orders", MASTER_SLOT), state.Ownership())])


async def test_hints_and_policies_go_without_a_stamp_and_can_be_taken_back(
    changelog: Changelog, unique: Unique
) -> None:
    topic = unique("orders")
    tail = Record(Key(Kind.TAIL, topic, MASTER_SLOT, 3), state.Tail(offset=12, last_sequence=-1))
    policy = Record(Key(Kind.POLICY, topic), state.Policy(deduplication=True))
    offset = await changelog.append([tail, policy])
    await changelog.tailer.reached(Offset(offset + 1), timeout=10)
    found = changelog.view.tail(topic, MASTER_SLOT, 3)
    assert found is not None
    assert (found.value.last_sequence, found.writer) == (-1, None)
    await changelog.tailer.reached(await changelog.append([Record(Key(Kind.POLICY, topic), None)]), timeout=10)
    assert topic not in {policy.key.topic for policy in changelog.view.policies()}


async def test_an_event_is_appended_to_the_history(kafka: SimulatedKafka, changelog: Changelog) -> None:
    event = state.Event(id=b"0" * 16, kind=state.Event.CLAIMED, topic="orders", generation=3)
    await changelog.add_event(event)
    (record,) = await logged(kafka, TopicPartition(changelog.topics.names.events, 0))
    assert record.key == b"orders"
    assert state.Event.FromString(record.value or b"") == event


async def test_without_a_broker_the_batch_is_surely_not_in_the_log(changelog: Changelog) -> None:
    """Port 1 of loopback refuses connections."""
    upstream = KafkaUpstream([("127.0.0.1", 1)], connect_timeout=0.2, request_timeout=0.5)
    appender = Appender(upstream, changelog.topics.ids, deadline=0.5)
    with pytest.raises(RetryTimeoutError):
        await appender.append(changelog.partition, [RawRecord(b"policy/x", b"")])
    await upstream.close()
