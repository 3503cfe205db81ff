"""What Kafka does with a fenced writer, shown on a real broker (docs/internals/architecture.md, Fencing)."""

from __future__ import annotations

import asyncio
import time

import pytest

from sidecar.protocol.caller import CoordinatorKind, FencedError
from sidecar.protocol.calls.logs import IsolationLevel, ListOffsets, OffsetAt
from sidecar.protocol.calls.transactions import DescribeProducers, InitProducerId
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Stamp, TopicPartition
from tests.conftest import Unique
from tests.kafka.fencing.conftest import NewSlot
from tests.kafka_calls import KafkaCalls
from tests.wait import wait_for

PARTITIONS = 6


@pytest.fixture
async def topic(kafka: KafkaCalls, unique: Unique) -> str:
    return await kafka.create(unique("orders"), PARTITIONS)


def everywhere(topic: str) -> dict[str, range]:
    return {topic: range(PARTITIONS)}


def of(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


async def test_opening_a_slot_alone_fences_nothing(kafka: KafkaCalls, new_slot: NewSlot, topic: str) -> None:
    stale = await new_slot(topic).open()
    await new_slot(topic).open()
    assert (await kafka.produce(of(topic), stale)).error == ErrorCode.NONE


async def test_a_fenced_writer_cannot_append_to_a_partition_it_never_wrote(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    stale = await new_slot(topic).open()
    assert (await kafka.produce(of(topic, 0), stale)).error == ErrorCode.NONE
    rival = new_slot(topic)
    await rival.open()
    await rival.fence(everywhere(topic))
    ends = [await kafka.latest(of(topic, index)) for index in range(PARTITIONS)]
    answers = [
        await kafka.produce(of(topic, index), stale, sequence) for index in range(PARTITIONS) for sequence in (0, 1, 2)
    ]
    assert {answer.error for answer in answers} == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert [await kafka.latest(of(topic, index)) for index in range(PARTITIONS)] == ends


async def test_a_fence_returns_only_when_every_leader_remembers_it(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    for _ in range(10):
        writer = await slot.open()
        await slot.fence(everywhere(topic))
        known = [await kafka.producer(of(topic, index), writer) for index in range(PARTITIONS)]
        assert [found.stamp if found else None for found in known] == [writer] * PARTITIONS


async def test_the_new_holder_writes_in_sequence_and_repeats_get_their_offset(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    writer = await slot.open()
    await slot.fence(everywhere(topic))
    first = await kafka.produce(of(topic), writer, 0, count=2)
    second = await kafka.produce(of(topic), writer, 2)
    assert (first.error, second.error) == (0, 0)
    assert second.base_offset == first.base_offset + 2
    repeat = await kafka.produce(of(topic), writer, 2)
    assert (repeat.error, repeat.base_offset) == (0, second.base_offset)
    assert (await kafka.produce(of(topic), writer, 9)).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


async def test_a_keep_alive_in_mid_traffic_disturbs_neither_sequences_nor_readers(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    writer = await slot.open()
    await slot.fence(everywhere(topic))
    done = asyncio.Event()
    written = [0] * PARTITIONS
    held_back: list[int] = []

    async def write(index: int) -> None:
        while not done.is_set():
            answer = await kafka.produce(of(topic, index), writer, written[index])
            assert answer.error == ErrorCode.NONE, (index, written[index], answer)
            written[index] += 1
            if index == 0:
                held_back.append(await _held_back(kafka, of(topic, 0)))

    writers = [asyncio.create_task(write(index)) for index in range(PARTITIONS)]
    for _ in range(15):
        await slot.keep_alive(everywhere(topic))
    done.set()
    await asyncio.gather(*writers)
    assert min(written) > 1
    assert set(held_back) == {0}


async def _held_back(kafka: KafkaCalls, partition: TopicPartition) -> int:
    """Records that a read_committed reader may not see yet, of those that were there when the question was asked."""
    leader = await kafka.leader(partition)
    ends: list[int] = []
    for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        listed = await kafka.upstream.call(leader, ListOffsets({partition: OffsetAt.LATEST}, isolation))
        ends.append(listed[partition].offset)
    return max(0, ends[0] - ends[1])


async def test_a_keep_alive_returns_only_when_every_partition_remembers_anew(
    kafka: KafkaCalls, new_slot: NewSlot, unique: Unique
) -> None:
    """At the same epoch the leaders' memory looks the same before and after but for its time."""
    partitions = 60
    topic = await kafka.create(unique("wide"), partitions)
    slot = new_slot(topic)
    writer = await slot.open()
    await slot.fence({topic: range(partitions)})
    for _ in range(3):
        before = await _remembered_at(kafka, writer, topic, partitions)
        wait_for(lambda before=before: time.time() * 1000 > max(before) + 1, "the clock to move on")
        await slot.keep_alive({topic: range(partitions)})
        after = await _remembered_at(kafka, writer, topic, partitions)
        assert min(after) > max(before)


async def _remembered_at(kafka: KafkaCalls, writer: Stamp, topic: str, partitions: int) -> list[int]:
    """Unix milliseconds per partition, as the leaders tell the last marker's time."""
    request = DescribeProducers({topic: tuple(range(partitions))})
    answers = await kafka.upstream.call(await kafka.leader(of(topic)), request)
    known = [answer.of(writer.producer_id) for answer in answers.values()]
    return [found.last_timestamp_ms for found in known if found]


async def test_a_holder_that_lost_the_slot_learns_it_at_its_keep_alive_and_stays_fenced(
    new_slot: NewSlot, topic: str
) -> None:
    holder, rival = new_slot(topic), new_slot(topic)
    held = await holder.open()
    await holder.fence(everywhere(topic))
    await rival.open()
    with pytest.raises(FencedError) as fenced:
        await holder.keep_alive(everywhere(topic))
    assert fenced.value.code == ErrorCode.PRODUCER_FENCED
    assert fenced.value.writer == held
    with pytest.raises(FencedError):
        await holder.raise_epoch()
    with pytest.raises(FencedError):
        assert holder.stamp
    await rival.fence(everywhere(topic))


async def test_the_keep_alive_of_a_loser_never_fences_the_winner(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    loser, winner = new_slot(topic), new_slot(topic)
    await loser.open()
    writer = await winner.open()
    await winner.fence(everywhere(topic))
    with pytest.raises(FencedError):
        await loser.fence(everywhere(topic))
    assert (await kafka.produce(of(topic), writer)).error == ErrorCode.NONE


async def test_a_slot_that_was_lost_can_be_opened_again(kafka: KafkaCalls, new_slot: NewSlot, topic: str) -> None:
    slot, rival = new_slot(topic), new_slot(topic)
    await slot.open()
    lost_to = await rival.open()
    with pytest.raises(FencedError):
        await slot.fence(everywhere(topic))
    again = await slot.open()
    await slot.fence(everywhere(topic))
    assert again.epoch == lost_to.epoch + 1
    assert (await kafka.produce(of(topic), lost_to)).error == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_the_first_batch_of_a_raised_epoch_fences_the_old_one_on_its_partition_alone(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    old = await slot.open()
    await slot.fence(everywhere(topic))
    raised = await slot.raise_epoch()
    assert raised == slot.stamp
    assert (raised.producer_id, raised.epoch) == (old.producer_id, old.epoch + 1)
    assert (await kafka.produce(of(topic, 0), raised)).error == ErrorCode.NONE
    assert (await kafka.produce(of(topic, 0), old)).error == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await kafka.produce(of(topic, 1), old)).error == ErrorCode.NONE


async def test_raising_again_after_a_lost_reply_gives_the_same_epoch(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    held = await slot.open()
    raised = await slot.raise_epoch()
    coordinator = await kafka.upstream.coordinator(slot.transactional_id, CoordinatorKind.TRANSACTION)
    again = await kafka.upstream.call(coordinator, InitProducerId(slot.transactional_id, 60_000, held))
    assert again.error == ErrorCode.NONE
    assert again.stamp == raised


async def test_nobody_raises_past_a_takeover(new_slot: NewSlot, topic: str) -> None:
    holder, rival = new_slot(topic), new_slot(topic)
    await holder.open()
    await holder.raise_epoch()
    taken = await rival.open()
    with pytest.raises(FencedError) as fenced:
        await holder.raise_epoch()
    assert fenced.value.code == ErrorCode.PRODUCER_FENCED
    assert rival.stamp == taken


async def test_operations_of_one_slot_queue_so_a_keep_alive_never_meets_a_raise(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    slot = new_slot(topic)
    first = await slot.open()
    rounds = 20
    for _ in range(rounds):
        await asyncio.gather(slot.keep_alive(everywhere(topic)), slot.raise_epoch(), slot.keep_alive(everywhere(topic)))
    assert slot.stamp.epoch == first.epoch + rounds
    known = await kafka.producer(of(topic, 3), first)
    assert known is not None
    assert known.stamp == slot.stamp


async def test_rivals_that_open_at_once_get_different_epochs_and_the_highest_wins(
    kafka: KafkaCalls, new_slot: NewSlot, topic: str
) -> None:
    rivals = [new_slot(topic) for _ in range(8)]
    stamps = await asyncio.gather(*[rival.open() for rival in rivals])
    assert len({stamp.epoch for stamp in stamps}) == len(rivals)
    outcomes = await asyncio.gather(*[rival.fence(everywhere(topic)) for rival in rivals], return_exceptions=True)
    newest = max(stamps, key=lambda stamp: stamp.epoch)
    for stamp, outcome in zip(stamps, outcomes, strict=True):
        assert (outcome is None) == (stamp == newest), (stamp, outcome)
        assert outcome is None or isinstance(outcome, FencedError)
    for stamp in stamps:
        expected = ErrorCode.NONE if stamp == newest else ErrorCode.INVALID_PRODUCER_EPOCH
        assert (await kafka.produce(of(topic, 5), stamp)).error == expected


async def test_a_longer_transaction_timeout_than_the_broker_allows_is_shortened(new_slot: NewSlot, topic: str) -> None:
    slot = new_slot(topic, transaction=24 * 3600.0)
    await slot.open()
    await slot.fence(everywhere(topic))


async def test_a_topic_that_does_not_exist_ends_at_the_deadline(new_slot: NewSlot, unique: Unique) -> None:
    slot = new_slot(unique("s"), deadline=0.5)
    await slot.open()
    with pytest.raises(TimeoutError, match=r"fence of sidecar\.test\..*AddPartitionsToTxn of .* answered 3"):
        await slot.fence({unique("gone"): [0]})
