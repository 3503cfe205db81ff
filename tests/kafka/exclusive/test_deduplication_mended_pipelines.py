"""What deduplication once got wrong about batches that are under way: in a slot that ends, and in a client's pipeline.

What a topic's next node has to know is in `test_deduplication_mended.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from metadata.ownership import AccessMode
from sidecar.cluster.logs import LogReader
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.policies import PolicyFields
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append
from sidecar.protocol.errors import KafkaError
from tests.conftest import Unique
from tests.kafka.exclusive.deduplicated import deduplicated, log_of, write
from tests.kafka.exclusive.room import HeldAnswers, Party, Room, free, open_room, until
from tests.kafka.gates import Gate
from tests.services import Services
from tests.topics import create_topic, delete_records
from tests.wait import wait_for_async


@pytest.fixture
async def shared(room: Room, services: Services) -> str:
    return await deduplicated(room, services, mode=AccessMode.SHARED)


def ids_of(room: Room, topic: str) -> TopicIds:
    found = room.topic(topic).ids
    assert found is not None
    return found


async def happens(condition: Callable[[], bool], what: str) -> None:
    async def seen() -> bool:
        return condition()

    await wait_for_async(seen, what)


class OnTheWay:
    """Batches that have left and have not reached their leader."""

    def __init__(self, room: Room) -> None:
        self._ship = room.governed.env.forwarder.ship
        self._batches: list[tuple[Lane, Append]] = []

    def __len__(self) -> int:
        return len(self._batches)

    def add(self, lane: Lane, append: Append) -> None:
        self._batches.append((lane, append))

    def arrive(self) -> None:
        batches, self._batches = self._batches, []
        for lane, append in batches:
            self._ship(lane, append)

    def fail(self, code: int) -> None:
        batches, self._batches = self._batches, []
        for lane, append in batches:
            lane.settled(append, Outcome(code))


@contextmanager
def slow_leader(room: Room) -> Iterator[OnTheWay]:
    """What is sent within is on its way until it is told to arrive, or to fail."""
    batches = OnTheWay(room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sidecar.exclusive.epoch.SlotEpoch.append_whole", lambda *_: False)
        patch.setattr(room.governed.env.forwarder, "ship", batches.add)
        yield batches


# A slot that is fenced among others -----------------------------------------------------------------------------------


async def test_what_lands_while_a_slot_is_looked_at_does_not_stop_the_topic(
    room: Room, services: Services, shared: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was behind the end that had been asked for: the log seemed to have shrunk, and its ids to be lost."""
    other, gone = room.connect("other"), room.connect("gone", plain=True)
    for party in (gone, other):
        assert (await write(party, shared, 0))[0] == 0
    ids = ids_of(room, shared)
    await ids.save_all()
    await asyncio.to_thread(delete_records, services.kafka_bootstrap, shared)
    answers = HeldAnswers(monkeypatch)
    first = gone.begin(shared, ids=[1])
    await answers.came(1)
    with slow_leader(room) as batches:
        second = other.begin(shared, ids=[1])
        assert len(batches) == 1
    newest = ids._newest

    async def and_then_it_lands(extents: Any) -> Any:
        found = await newest(extents)
        if batches:
            batches.arrive()
            await answers.came(2)
            answers.end()
            answers.tell()
            assert (await second).error == 0
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ids, "_newest", and_then_it_lands)
        gone.close()
        heir = room.connect("heir")  # gets the slot
        await until(lambda: heir.send_ids(shared, [0], sequence=0))
    assert (await first).error == 0
    assert second.done()
    assert not room.told.lost
    await until(lambda: other.send_ids(shared, [2], sequence=2))


async def test_a_second_look_at_one_partition_leaves_what_others_have_under_way(
    services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at all partitions was tried again for another one, and ended batches of sessions that had not ended."""
    cluster, kafka, redis = unique("d"), services.kafka_bootstrap, services.redis_url
    async with open_room(kafka, redis, cluster) as before:
        topic = await deduplicated(before, services, 2, mode=AccessMode.SHARED)
        seed = before.connect("seed", plain=True)
        for partition in (0, 1):
            assert (await write(seed, topic, 0, partition=partition))[0] == 0
        before.crash()
    async with open_room(kafka, redis, cluster, node_id=2, grace=0.1) as room:
        fetch, ends, gate = LogReader.fetch, LogReader.ends, Gate()
        failing, failed = True, 0

        async def fails_for_one(logs: LogReader, partition: Any, *rest: Any) -> bytes:
            nonlocal failed
            if failing and partition == (topic, 1):
                failed += 1
                raise KafkaError(6, "no leader for a while")
            return await fetch(logs, partition, *rest)

        async def held_for_the_other(logs: LogReader, name: str, partitions: list[int]) -> dict[int, int]:
            found = await ends(logs, name, partitions)
            if list(partitions) == [0] and name == topic:
                await gate.pass_through()
            return found

        monkeypatch.setattr(LogReader, "fetch", fails_for_one)
        monkeypatch.setattr("sidecar.dedup.topic._AGAIN_S", 0.1)
        other, gone = room.connect("other"), room.connect("gone", plain=True)
        await until(lambda: other.send_ids(topic, [0], sequence=0))
        assert (await write(gone, topic, 0))[0] == 0
        with slow_leader(room) as batches:
            theirs, first = other.begin(topic, ids=[1], sequence=1), gone.begin(topic, ids=[1])
            assert len(batches) == 2
        monkeypatch.setattr(LogReader, "ends", held_for_the_other)
        gone.close()
        third = room.connect("heir").begin(topic, ids=[0])  # gets the slot of `gone`
        await gate.reached()
        so_far = failed
        await happens(lambda: failed >= so_far + 2, "the look at all partitions to be tried again")
        gate.open()
        batches.arrive()
        failing = False
        assert (await theirs).error == 0
        await asyncio.gather(first, third)
        other.close()
        again = room.connect("other")
        await until(lambda: again.send_ids(topic, [1], sequence=0))
        assert (await log_of(services, topic)).count("1") == 1


async def test_a_slot_that_is_fenced_while_another_one_is_looked_at_is_looked_at_too(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition was taken for known with the other's, and what it had under way was forgotten."""
    topic = await deduplicated(room, services, 2, mode=AccessMode.SHARED)
    stays, gone = room.connect("stays"), room.connect("gone", plain=True)
    for party in (stays, gone):
        assert (await write(party, topic, 0))[0] == 0
    ids = ids_of(room, topic)
    answers, gate = HeldAnswers(monkeypatch), Gate()
    begun = [gone.begin(topic, ids=[1])]
    await answers.came(1)
    ends = LogReader.ends

    async def held(reader: LogReader, name: str, partitions: Any) -> dict[int, int]:
        if list(partitions) == [0] and name == topic:  # a takeover asks for both
            await gate.pass_through()
        return await ends(reader, name, partitions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogReader, "ends", held)
        gone.close()
        begun.append(room.connect("heir").begin(topic, ids=[0]))  # gets the slot: partition 0 is looked at
        await gate.reached()
        brief = room.connect("brief", plain=True)
        theirs = brief.begin(topic, ids=[1], partition=1)
        await answers.came(2)
        brief.close()
        begun.append(room.connect("last").begin(topic, ids=[0], partition=1))  # gets that slot
        await happens(lambda: not ids.of(1).is_ready, "partition 1 to be looked at")
        gate.open()
        await happens(lambda: ids.of(0).is_ready and ids.of(1).is_ready, "both to be known")
    answers.end()
    answers.tell()
    assert (await theirs).error == 0
    await asyncio.gather(*begun)
    again = room.connect("brief")
    await until(lambda: again.send_ids(topic, [1], sequence=0, partition=1))
    assert (await log_of(services, topic, 1)).count("1") == 1


async def test_a_name_goes_on_behind_what_its_last_session_has_under_way(
    room: Room, services: Services, shared: str
) -> None:
    """A higher id overtook one on its way in another slot: ids of a name did not rise in the log."""
    first = room.connect("billing")
    assert (await write(first, shared, 0))[0] == 0
    with slow_leader(room) as batches:
        under_way = first.begin(shared, ids=[1])
        assert len(batches) == 1
    first.close()
    then = room.connect("billing").begin(shared, ids=[2])
    assert (await write(room.connect("other"), shared, 7))[0] == 0  # all the way, meanwhile
    assert not then.done()
    batches.arrive()
    assert (await under_way).error == 0
    await then
    own = [each for each in await log_of(services, shared) if each != "7"]
    assert own in (["0", "1", "2"], ["0", "1"])


async def test_a_partition_whose_ids_are_lost_is_not_looked_at_again_and_again(
    room: Room, services: Services, shared: str
) -> None:
    """The look at what a slot had under way was repeated as fast as Kafka answers, for ever."""
    gone = room.connect("gone", plain=True)
    assert (await write(gone, shared, 0))[0] == 0
    with slow_leader(room) as batches:
        first = gone.begin(shared, ids=[1])
        assert len(batches) == 1
    await room.topic(shared).keep_alive()
    gone.close()
    await asyncio.to_thread(delete_records, services.kafka_bootstrap, shared)  # and there is no snapshot yet
    heir = room.connect("heir")
    assert await heir.send_ids(shared, [0], sequence=0) == 5
    batches.arrive()
    await first
    await happens(lambda: not ids_of(room, shared)._settling, "the look to end")
    assert len(room.told.lost) == 1


# What was not written when it came first ------------------------------------------------------------------------------


async def test_what_was_refused_in_the_middle_of_a_pipeline_is_not_acknowledged_later(
    room: Room, services: Services, shared: str
) -> None:
    """Higher ids of the same pipeline had been written since: it passed for a duplicate, and was nowhere."""
    first, second = room.connect("billing"), room.connect("billing")
    assert (await write(first, shared, 0))[0] == 0
    assert await second.send_ids(shared, [1], sequence=0) == 44  # another live session
    first.close()
    await until(lambda: second.send_ids(shared, [2], sequence=1))
    assert await second.send_ids(shared, [1], sequence=2) == 44  # its application sends again what failed
    assert await log_of(services, shared) == ["0", "2"]


async def test_what_was_refused_to_a_client_that_did_not_hear_of_it_is_no_duplicate_later(
    room: Room, services: Services
) -> None:
    """Its connection broke with the answers. A batch behind the refused ones had been written, so what the client
    numbered anew passed for a duplicate, and was nowhere.
    """
    topic = await deduplicated(room, services)
    owner, billing = room.connect("owner"), room.connect("billing")
    assert (await write(owner, topic, 0))[0] == 0
    assert [await billing.send_ids(topic, [number], sequence=number) for number in range(2)] == [44, 44]
    owner.close()
    await free(room, topic)
    assert await billing.send_ids(topic, [2], sequence=2) == 5
    again = room.connect("billing", producer_id=billing.producer_id)
    billing.close()
    assert await again.send_ids(topic, [0], sequence=0) == 44
    for number in (1, 2):
        await until(lambda number=number: again.send_ids(topic, [number], sequence=number - 1, epoch=1))
    assert await log_of(services, topic) == ["0", "1", "2"]


@pytest.fixture
async def topic(room: Room, services: Services) -> str:
    return await deduplicated(room, services)


async def told_to_come_again(room: Room, billing: Party, topic: str) -> None:
    """Id 1 of a pipeline of single batches is not written for a while, and 2 comes behind it."""
    assert (await write(billing, topic, 0))[0] == 0
    with slow_leader(room) as batches:
        first = billing.begin(topic, ids=[1], timeout_ms=100)

        def over() -> bool:
            batches.fail(19)  # too few replicas, each time
            return first.done()

        await happens(over, "the node to give up")
    assert (await first).error in (5, 6, 7, 19)
    assert await billing.send_ids(topic, [2]) == 5


async def test_what_comes_behind_a_batch_of_a_plain_client_that_failed_is_written_after_it(
    room: Room, services: Services, topic: str
) -> None:
    """The one behind it was written, and the first one passed for a duplicate when it came again."""
    billing = room.connect("billing", plain=True)
    await told_to_come_again(room, billing, topic)
    for number in (1, 2):
        result = await billing.begin(topic, ids=[number])
        assert (result.error, result.base_offset >= 0) == (0, True)
    assert await log_of(services, topic) == ["0", "1", "2"]


async def test_a_batch_of_a_plain_client_that_comes_again_too_late_is_told_so(
    room: Room, services: Services, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it for ever, and nobody acknowledges it."""
    billing = room.connect("billing", plain=True)
    await told_to_come_again(room, billing, topic)
    monkeypatch.setattr("sidecar.dedup.turned_away.PATIENCE_S", 0.2)
    await until(lambda: billing.send_ids(topic, [2]))
    assert await billing.send_ids(topic, [1]) == 44
    assert await log_of(services, topic) == ["0", "2"]


@pytest.mark.parametrize("plain", [False, True])
async def test_a_standby_that_was_refused_is_told_of_duplicates_once_it_may_write(
    room: Room, services: Services, plain: bool
) -> None:
    """It was told that its ids were not in the log, which the session before it had written."""
    topic = await deduplicated(room, services, mode=AccessMode.SHARED)
    first, standby = room.connect("billing", plain=plain), room.connect("billing", plain=plain)
    assert (await write(first, topic, 1))[0] == 0
    assert (await write(standby, topic, 2))[0] == 44
    assert (await write(first, topic, 2, 3))[0] == 0
    first.close()
    assert await write(standby, topic, 2) == (0, -1)
    assert await log_of(services, topic) == ["1", "2", "3"]


async def test_the_parts_of_a_batch_that_was_too_large_are_no_duplicates_of_it(room: Room, services: Services) -> None:
    """Its first answer was lost, so the node was in doubt about it; with its first part in the log it took the whole
    for written. The others were acknowledged, and nowhere.
    """
    topic = await asyncio.to_thread(create_topic, services.kafka_bootstrap, 1, **{"max.message.bytes": "150"})
    await room.governed.env.catalog.set(topic, PolicyFields(AccessMode.EXCLUSIVE, deduplication=True))
    billing = room.connect("billing")
    assert (await write(billing, topic, 0))[0] == 0
    with slow_leader(room) as batches:
        whole = billing.begin(topic, ids=list(range(1, 6)))
        assert len(batches) == 1
        batches.fail(13)
    assert (await whole).error == 7  # a refusal says nothing of the try whose answer was lost

    async def again() -> int:
        return (await billing.begin(topic, ids=list(range(1, 6)), sequence=1)).error

    await until(again, 10)
    for part in range(1, 6):
        answer = await billing.begin(topic, ids=[part], sequence=part)
        assert answer.error == 0
        assert answer.base_offset >= 0, part
    assert await log_of(services, topic) == [str(number) for number in range(6)]


async def test_a_pipeline_goes_on_behind_a_batch_that_was_given_up_once_those_behind_it_had_landed(
    room: Room, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node went back to the one that was given up, and all that came behind the others was out of order for ever.
    librdkafka ends for good with that.
    """
    topic = await deduplicated(room, services)
    billing = room.connect("billing")
    assert (await write(billing, topic, 0))[0] == 0
    answers = HeldAnswers(monkeypatch)
    late, behind = billing.begin(topic, ids=[1], timeout_ms=0), billing.begin(topic, ids=[2, 3])
    await answers.came(2)
    answers.end()
    answers.lose()
    answers.tell()
    assert ((await late).error, (await behind).error) == (7, 7), "behind a doubt an acknowledgement is one too"
    again = [billing.begin(topic, ids=[1], sequence=1), billing.begin(topic, ids=[2, 3], sequence=2)]
    new = billing.begin(topic, ids=[4])
    assert [(await each).error for each in (*again, new)] == [0, 0, 0]
    assert (await write(billing, topic, 4, 5))[0] == 0
    assert await log_of(services, topic) == [str(number) for number in range(6)]


async def test_nothing_of_a_plain_client_overtakes_what_ran_out_of_time_before_it_was_sent(
    room: Room, services: Services
) -> None:
    """The next one was written, so it was a duplicate when it came again: acknowledged, and nowhere."""
    topic = await deduplicated(room, services)
    billing = room.connect("billing", plain=True)
    assert (await write(billing, topic, 0))[0] == 0
    with slow_leader(room) as batches:
        first = billing.begin(topic, ids=[1])
        batches.fail(13)
        late, behind = billing.begin(topic, ids=[2], timeout_ms=0), billing.begin(topic, ids=[3])
    assert ((await first).error, (await late).error, (await behind).error) == (0, 7, 7)
    assert (await write(billing, topic, 2))[0] == 0
    assert (await write(billing, topic, 3))[0] == 0
    assert await log_of(services, topic) == ["0", "1", "2", "3"]
