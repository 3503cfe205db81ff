"""The epochs of a slot at work: what comes to one that is over, and what the next one takes along from memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.changelog import MASTER_SLOT
from sidecar.dedup.reply import Reply
from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.batch import read_header
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from tests.kafka.exclusive.producers import batch_of, id_headers
from tests.kafka.exclusive.room import until
from tests.unit.exclusive.paper_cluster import TOPIC, Client, Node, cluster
from tests.wait import wait_until

if TYPE_CHECKING:
    from tests.kafka.exclusive.room import Room
    from tests.unit.exclusive.world import World

OK, MOVED, REFUSED = 0, 6, 44


# Epochs that are over -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("partition", [0, 1], ids=["used", "new"])
async def test_what_comes_to_an_epoch_that_is_over_goes_nowhere(
    world: World, room: Room, ids: bool, partition: int
) -> None:
    """A batch that was looked into by a thread may come when its epoch is closed, and be the first of its partition."""
    topic = await world.govern(room, deduplication=ids)
    owner = room.connect("owner")
    await until(lambda: owner.send_ids(topic, [1], sequence=0))
    epoch = room.topic(topic).writer.epoch
    assert epoch is not None
    room.topic(topic).reopen()
    written = await world.log(topic, partition)
    batch = batch_of([b"late"], owner.producer_id, 0, 1 - partition, headers=[id_headers(2)])
    answers: list[Outcome] = []
    assert room.governed.env.forwarder.admit(len(batch))
    header = read_header(batch, 0, len(batch))
    epoch.append(partition, header, memoryview(batch), 10_000, Reply(answers.append))
    await wait_until(lambda: answers, "an answer")
    assert [answer.error for answer in answers] == [MOVED]
    await world.kafka.pause(1.0)
    assert await world.log(topic, partition) == written


# The next epoch -------------------------------------------------------------------------------------------------------


async def test_what_was_refused_is_no_repeat_after_the_client_raised_its_epoch_elsewhere(
    world: World, room: Room
) -> None:
    topic = await world.govern(room)
    owner, heir = room.connect("owner"), room.connect("heir")
    assert await owner.send(topic, b"0") == OK
    assert await heir.send(topic, partition=1, sequence=0) == REFUSED
    owner.close()
    await until(lambda: heir.send(topic, b"1", partition=1, sequence=1))
    assert await heir.send(topic, partition=1, sequence=0) == REFUSED
    await until(lambda: heir.send(topic, b"2", sequence=0, epoch=1))
    assert await heir.send(topic, partition=1, sequence=0) == REFUSED
    assert await heir.send(topic, b"3", partition=1, sequence=2) == OK
    assert await world.log(topic, 1) == [b"1", b"3"]


def retired(node: Node) -> tuple[int, list[int]]:
    """The producer id of the topic's slot, and its former ones."""
    node.read()
    opened = node.changelog.view.opened(TOPIC)[MASTER_SLOT].value
    return opened.producer_id, list(opened.retired_producer_ids)


async def test_the_former_producer_ids_of_a_slot_are_fenced_on_after_the_client_raised_its_epoch() -> None:
    """The fence of each is renewed as long as the record names it."""
    async with cluster() as paper:
        node, owner = paper.node(), Client(7)
        assert await owner.send(node, 0) == OK
        first, _ = retired(node)
        for name in paper.kafka._stamps:  # its coordinator has forgotten the id
            paper.kafka._stamps[name] = Stamp(ProducerId(2_000), ProducerEpoch(-1))
        node.whole.reopen()
        assert await owner.send(node, 1) == OK
        assert retired(node) == (2_000, [first])
        owner.epoch = 1
        assert await owner.send(node, 2, sequence=0) == OK
        assert retired(node) == (2_000, [first])


# Records that are dropped as duplicates -------------------------------------------------------------------------------


async def test_a_batch_of_which_a_part_was_written_gets_the_same_answer_again(world: World, room: Room) -> None:
    """The part moved the base of the session behind the batch's first record: it looked out of order."""
    topic = await world.govern(room, deduplication=True)
    owner = room.connect("owner")
    await until(lambda: owner.send_ids(topic, [1], sequence=0))
    room.topic(topic).reopen()
    await until(lambda: owner.send_ids(topic, [1, 2], sequence=1))
    assert await owner.send_ids(topic, [1, 2], sequence=1) == OK
    assert await world.log(topic) == [b"1", b"2"]


async def test_a_part_is_written_under_the_next_epoch_if_kafka_refuses_the_note_of_it(world: World, room: Room) -> None:
    topic = await world.govern(room, deduplication=True)
    owner = room.connect("owner")
    await until(lambda: owner.send_ids(topic, [1], sequence=0))
    fences = room.gates.passed.count("EndTxn")
    room.gates.fail("ProduceBatch", KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, "fenced"))
    await until(lambda: owner.send_ids(topic, [1, 2], sequence=1))
    assert room.gates.passed.count("EndTxn") > fences
    assert await world.log(topic) == [b"1", b"2"]
