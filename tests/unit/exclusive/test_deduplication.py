"""Sequence ids as clients of a node's room see them: what a policy, an owner, a slot and a partition make of them.

What gates, marks and recovery decide is in `tests/unit/dedup`.
"""

from __future__ import annotations

from collections import deque

import pytest

from metadata.ownership import AccessMode
from sidecar.dedup.marks import Mark
from sidecar.dedup.topic import TopicIds
from sidecar.policy.policies import PolicyFields, Scope
from tests.kafka.exclusive.deduplicated import come_and_go, write
from tests.kafka.exclusive.room import Party, Room, free, until
from tests.unit.exclusive.world import World
from tests.wait import wait_until


@pytest.fixture
async def topic(room: Room, world: World) -> str:
    return await world.govern(room, 1, deduplication=True)


@pytest.fixture
async def beside(room: Room, world: World) -> str:
    """A topic that sessions write to beside each other."""
    return await world.govern(room, 1, mode=AccessMode.SHARED, deduplication=True)


def ids_of(room: Room, topic: str) -> TopicIds:
    found = room.topic(topic).ids
    assert found is not None
    return found


async def leave(party: Party, room: Room, topic: str) -> None:
    party.close()
    await free(room, topic)


async def decide(room: Room, topic: str) -> None:
    """An operator goes on from what can still be known."""
    for deduplication in (False, True):
        await room.governed.env.catalog.set(topic, PolicyFields(deduplication=deduplication))


# Names ----------------------------------------------------------------------------------------------------------------


async def test_a_second_live_session_of_a_name_is_refused_until_the_first_is_gone(
    room: Room, world: World, beside: str
) -> None:
    first, second = room.connect("billing"), room.connect("billing")
    assert (await write(first, beside, 1))[0] == 0
    result = await second.begin(beside, ids=[2], sequence=0)
    assert (result.error, "another live session" in (result.message or "")) == (44, True)
    first.close()
    await until(lambda: second.send_ids(beside, [1, 2], sequence=1))  # its client counts the refused one as used
    assert await second.send_ids(beside, [3], sequence=3) == 0
    assert await world.ids(beside) == [1, 2, 3]


async def test_a_name_that_nobody_used_for_years_is_still_known(room: Room, topic: str) -> None:
    """A nightly job: its name was forgotten after six hours, and it wrote everything twice."""
    assert (await write(room.connect("billing"), topic, 1))[0] == 0
    ids = ids_of(room, topic)
    ids.of(0).marks.learn(Mark(b"nightly", 7, 0, 0))
    await ids.forget_gone()
    assert ids.of(0).marks.persisted(b"nightly") == 7


async def test_a_node_that_lost_a_topic_without_noticing_knows_what_another_one_stored_and_forgot(world: World) -> None:
    """It went on with its memory: a name that was forgotten came back, and what was stored since was not read."""
    async with world.room() as first, world.room(node_id=2) as second:
        topic = await world.govern(first, 1, deduplication=True)
        for name in ("billing", "audit"):
            party = first.connect(name)
            assert (await write(party, topic, *range(10)))[0] == 0
            await leave(party, first, topic)
        await first.gives_up(topic)
        other = second.connect("audit")
        await until(lambda: other.send_ids(topic, [10], sequence=0))
        assert await ids_of(second, topic).forget(b"billing")
        await ids_of(second, topic).save_all()
        await world.delete_records(topic)
        await leave(other, second, topic)
        await hand_over(second, topic)
        again = first.connect("billing")
        await until(lambda: again.send_ids(topic, [0], sequence=0))
        await leave(again, first, topic)
        assert await write(first.connect("audit"), topic, 10) == (0, -1)
        assert (await world.ids(topic))[-2:] == [10, 0]


async def hand_over(room: Room, topic: str) -> None:
    """Whoever asks next may serve the topic."""
    await room.topic(topic).hand_back()
    await room.governed.env.services.store.hand_over(topic, room.governed.env.node_id, room.boot)


@pytest.mark.parametrize("client_id", ["billing", "billing;generation=1"])
async def test_an_owner_goes_on_behind_a_batch_whose_name_found_no_room(
    room: Room, world: World, topic: str, client_id: str
) -> None:
    """Its client counts the refused sequence as used. One that asks for a generation was out of order for ever."""
    ids = ids_of(room, topic)
    ids.services = ids.services._replace(names_limit=1)
    owner = room.connect(client_id)
    assert (await write(owner, topic, 1, name=b"one"))[0] == 0
    assert (await write(owner, topic, 1, name=b"two"))[0] == 44
    assert (await write(owner, topic, 2, name=b"one"))[0] == 0
    assert await world.ids(topic) == [1, 2]


async def test_the_names_of_a_slots_former_sessions_are_known_to_the_next_node(world: World) -> None:
    async with world.room() as first:
        topic = await world.govern(first, 1, mode=AccessMode.SHARED, deduplication=True)
        for number in range(12):
            party = first.connect(f"worker-{number % 4}", plain=True)  # a slot is free once its session is gone
            assert (await write(party, topic, number))[0] == 0
            party.close()
        first.crash()
    world.redis.empty()
    async with world.room(node_id=2, grace=0.1) as second:
        for number in range(4):
            party = second.connect(f"worker-{number}")
            await until(lambda: party.send_ids(topic, [8 + number, 20 + number], sequence=0))  # noqa: B023
    assert await world.ids(topic) == [*range(12), *range(20, 24)]


# What was not written when it came first ------------------------------------------------------------------------------


async def test_what_was_refused_to_a_client_that_did_not_hear_of_it_is_no_duplicate_later(
    room: Room, world: World, topic: str
) -> None:
    """Its connection broke with the answers. A batch behind the refused ones had been written, so what the client
    numbered anew passed for a duplicate, and was nowhere.
    """
    owner, billing = room.connect("owner"), room.connect("billing")
    assert (await write(owner, topic, 0))[0] == 0
    assert [await billing.send_ids(topic, [number], sequence=number) for number in range(2)] == [44, 44]
    await leave(owner, room, topic)
    assert await billing.send_ids(topic, [2], sequence=2) == 5
    again = room.connect("billing", producer_id=billing.producer_id)
    billing.close()
    assert await again.send_ids(topic, [0], sequence=0) == 44
    for number in (1, 2):
        await until(lambda number=number: again.send_ids(topic, [number], sequence=number - 1, epoch=1))
    assert await world.ids(topic) == [0, 1, 2]


async def test_what_comes_behind_a_batch_of_a_plain_client_that_failed_is_written_after_it(
    room: Room, world: World, topic: str
) -> None:
    """The one behind it was written, and the first one passed for a duplicate when it came again."""
    billing = room.connect("billing", plain=True)
    assert (await write(billing, topic, 0))[0] == 0
    leader = world.kafka.cluster.brokers[world.kafka.cluster.leader(topic, 0)]
    leader.freeze()
    assert await billing.send_ids(topic, [1], timeout_ms=500) in (5, 6, 7)
    leader.thaw()
    for _ in range(10):
        assert await billing.send_ids(topic, [2]) in (5, 6)
        await world.kafka.pause(0.5)
    for number in (1, 2):
        await until(lambda: billing.send_ids(topic, [number]))  # noqa: B023
    assert await world.ids(topic) == [0, 1, 2]


async def test_what_was_refused_in_the_middle_of_a_pipeline_is_not_acknowledged_later(
    room: Room, world: World, beside: str
) -> None:
    """Higher ids of the same pipeline had been written since: it passed for a duplicate, and was nowhere."""
    first, second = room.connect("billing"), room.connect("billing")
    assert (await write(first, beside, 0))[0] == 0
    assert await second.send_ids(beside, [1], sequence=0) == 44  # another live session
    first.close()
    await until(lambda: second.send_ids(beside, [2], sequence=1))
    assert await second.send_ids(beside, [1], sequence=2) == 44  # its application sends again what failed
    assert await world.ids(beside) == [0, 2]


async def test_what_a_session_was_refused_in_anothers_partition_is_no_business_of_its_own(
    room: Room, world: World
) -> None:
    """Its place there is written down once it owns that one: until then it was taken over again without end."""
    topic = await world.govern(room, deduplication=True, scope=Scope.PARTITION)
    neighbour, owner = room.connect("shipping"), room.connect("billing")
    assert (await write(neighbour, topic, 1, partition=0))[0] == 0
    assert (await write(owner, topic, 1, partition=1))[0] == 0
    owner.sequence = 0
    assert (await write(owner, topic, 2, partition=0))[0] == 44
    assert (await write(owner, topic, 2, partition=1))[0] == 0
    assert await world.ids(topic, 1) == [1, 2]


async def test_an_id_of_the_former_topic_is_no_reason_to_drop_a_record_once_another_partition_met_the_new_one(
    room: Room, world: World
) -> None:
    """An owner that had not written since went on with what it knew of the former topic: acknowledged, and lost."""
    topic = await world.govern(room, deduplication=True, scope=Scope.PARTITION)
    first, second = room.connect("shipping"), room.connect("billing")
    assert (await write(first, topic, 1, partition=0))[0] == 0
    assert (await write(second, topic, 1, partition=1))[0] == 0
    await world.create_anew(topic)
    rival = room.connect("rival;mode=exclusive_with_fencing")
    await until(lambda: rival.send_ids(topic, [1], partition=0, sequence=0))  # its takeover finds the new topic
    await until(lambda: second.send_ids(topic, [1], partition=1, sequence=1))  # its application repeats it
    assert await world.ids(topic, 1) == [1]


@pytest.mark.parametrize(
    ("mode", "plain"), [(AccessMode.EXCLUSIVE, False), (AccessMode.SHARED, True)], ids=["owner", "plain beside others"]
)
async def test_what_fails_while_the_storage_is_away_can_be_sent_again_and_is_there_once(
    room: Room, world: World, plain: bool, mode: AccessMode
) -> None:
    """Pulsar's testClientDeduplicationWithBkFailure: some fail and fail again, more follow once it is back."""
    topic = await world.govern(room, 1, mode=mode, deduplication=True)
    billing = room.connect("billing", plain=plain)
    assert (await write(billing, topic, 0))[0] == 0
    leader = world.kafka.cluster.brokers[world.kafka.cluster.leader(topic, 0)]
    leader.freeze()
    failed = [billing.begin(topic, ids=[number], timeout_ms=500) for number in (1, 2, 3)]
    assert {(await answer).error for answer in failed} <= {5, 6, 7}
    leader.thaw()
    for number in (1, 2, 3, 4):
        await until(lambda: billing.send_ids(topic, [number], sequence=number))  # noqa: B023
    assert await world.ids(topic) == [0, 1, 2, 3, 4]


async def test_a_partition_that_is_added_is_read_before_a_new_session_writes_beside_others(
    room: Room, world: World, beside: str
) -> None:
    """The holder of the master slot reads ids; it was taken without that partition."""
    first, second = room.connect("billing"), room.connect("shipping")
    assert (await write(first, beside, 1))[0] == 0
    master = room.topic(beside).shared.master
    await world.grow(beside, 2)
    await until(lambda: second.send_ids(beside, [5], partition=1, sequence=0), 5)
    again = room.topic(beside).shared.master
    assert master is not None
    assert again is not None
    assert (master.partitions, again.partitions) == ((0,), (0, 1))
    await until(lambda: second.send_ids(beside, [5], partition=1, sequence=0))
    assert (await write(second, beside, 5, partition=1))[0] == 0
    assert await world.ids(beside, 1) == [5], "the second one is a duplicate"


# The policy -----------------------------------------------------------------------------------------------------------


async def test_a_topic_that_gets_ids_while_it_is_written_knows_what_is_in_its_log(room: Room, world: World) -> None:
    topic = await world.govern(room, 1)
    billing = room.connect("billing")
    assert await billing.send(topic, b"0") == 0
    await world.delete_records(topic)  # what retention took was written without ids
    assert (await write(billing, topic, 3, 4))[0] == 0
    assert (await write(billing, topic, 2))[0] == 0  # nobody looks yet
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
    sequence = billing.sequence
    await until(lambda: billing.send_ids(topic, [4], sequence=sequence))  # the higher id counts, not the newer one
    assert await billing.send_ids(topic, [5], sequence=sequence + 1) == 0
    assert await world.ids(topic) == [0, 3, 4, 2, 5]


async def test_without_the_policy_nobody_looks_and_with_it_again_all_is_known(
    room: Room, world: World, topic: str
) -> None:
    billing = room.connect("billing")
    assert (await write(billing, topic, 1))[0] == 0
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=False))
    await until(lambda: billing.send_ids(topic, [1], sequence=1))
    assert await billing.send_ids(topic, [7], sequence=2) == 0
    await room.governed.env.catalog.set(topic, PolicyFields(deduplication=True))
    await until(lambda: billing.send_ids(topic, [7], sequence=3))
    assert await billing.send_ids(topic, [8], sequence=4) == 0
    assert await world.ids(topic) == [1, 1, 7, 8]


@pytest.mark.parametrize("snapshot", [False, True])
async def test_ids_that_cannot_be_known_any_more_stop_the_topic_until_somebody_decides(
    world: World, snapshot: bool
) -> None:
    """Retention took the log behind the newest snapshot: never a guess. What that snapshot has is known afterwards."""
    async with world.room() as first:
        topic = await world.govern(first, 1, mode=AccessMode.SHARED, deduplication=True)
        assert (await write(first.connect("other"), topic, 7))[0] == 0
        if snapshot:
            await ids_of(first, topic).save_all()
        assert (await write(first.connect("billing"), topic, 1))[0] == 0
        first.crash()
    await world.delete_records(topic)
    async with world.room(node_id=2, grace=0.1) as second:
        billing = second.connect("billing")
        await until(lambda: billing.send_ids(topic, [1], sequence=0), 5)
        await wait_until(lambda: second.told.lost, "the ids to be called lost")
        result = await billing.begin(topic, ids=[1], sequence=0)
        assert (result.error, "no snapshot is left" in (result.message or "")) == (5, True), result
        await decide(second, topic)
        assert ((await write(second.connect("other"), topic, 7)) == (0, -1)) is snapshot
        await until(lambda: billing.send_ids(topic, [1], sequence=0))  # it was in neither: documented
    assert (await world.ids(topic)).count(1) == 2


# Sessions that come and go --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [80, pytest.param(1_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_many_short_lived_sessions_of_many_names_leave_a_bounded_trace(
    room: Room, beside: str, number: int
) -> None:
    ids = ids_of(room, beside)
    room.sent = deque(maxlen=100)  # the test's own memory
    await come_and_go(room, beside, range(number))
    opened = dict(room.governed.env.changelog.view.opened(beside))
    assert len(opened) <= 66
    assert max(entry.value.ByteSize() for entry in opened.values()) < 20_000
    assert len(ids.of(0).marks) == number
    await ids.save_all()
    assert all(ids.is_covered(entry.value.producer_id, entry.value.producer_epoch) for entry in opened.values())
