"""A topic with sequence ids from end to end: what clients are answered, and what is in logs and snapshots after it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from metadata.errors import MetadataUnavailable
from sidecar.dedup import recovery
from sidecar.dedup.cleaning import LAG_MS, SNAPSHOT_S, Pace
from sidecar.dedup.snapshots import Saved
from sidecar.network.aside import Opened
from sidecar.protocol import limits
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.logs import FetchPartition, ProduceBatch
from sidecar.protocol.errors import KafkaError
from tests.sim.kafka import errors
from tests.unit.dedup.paper import Rec
from tests.unit.dedup.served import FIRST, PRODUCE, TOPIC, Answer, World, WorldLoop, ids_by_name

AGAIN, TOO_LATE, OUT_OF_ORDER, REFUSED, INVALID = 5, 7, 45, 44, 87
SNAPSHOTS = "__sidecar_c_snapshots"


async def answered(*waiting: asyncio.Future[Answer]) -> list[int]:
    """The errors of batches."""
    return [error for error, _ in await asyncio.gather(*waiting)]


async def written(world: World) -> Saved:
    """The newest snapshot."""
    saved = await world.snapshot()
    assert saved is not None
    return saved


# What clients are answered --------------------------------------------------------------------------------------------


async def test_what_the_log_has_is_acknowledged_and_not_written_again(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert await client.send(1, 2) == (0, 1)
    assert await client.send(2) == (0, -1)
    assert await client.send(2, 3) == (0, -1)
    assert await client.send(5) == (0, 4)
    assert world.ids() == [1, 2, 3, 5]
    assert world.sequences() == [0, 2, 3]
    assert node.dropped == 2
    assert node.held == 0


async def test_what_is_in_flight_twice_is_written_once(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    node.flows.clear()
    batches = [client.send(*ids) for ids in ((1,), (1,), (1, 2), (3,))]
    await world.kafka.pause(1)
    assert not any(batch.done() for batch in batches)
    node.flows.set()
    assert await answered(*batches) == [0, 0, 0, 0]
    assert world.ids() == [1, 2, 3]


async def test_what_waits_for_two_seconds_is_answered_with_an_error_and_written_when_it_comes_again(
    world: World,
) -> None:
    node = await world.serving()
    client = await node.client()
    node.flows.clear()
    first, second = client.send(1), client.send(1, 2)
    await world.kafka.pause(1.9)
    third = client.send(3)
    assert not second.done()
    await world.kafka.pause(0.2)
    assert await answered(second, third) == [AGAIN, AGAIN]
    assert node.undecided == 2
    node.flows.set()
    assert await first == (0, 1)
    assert await answered(client.send(1, 2, first=1), client.send(3, first=3)) == [0, 0]
    assert world.ids() == [1, 2, 3]


async def test_a_name_has_one_live_session(world: World) -> None:
    node = await world.serving(1, "1")
    one, other = await node.client(), await node.client("pid:2", slot="1")
    assert await one.send(1) == (0, 2)
    assert (await other.send(2)).error == REFUSED
    assert other.refusals == [(0, 1)]
    node.leave(one)
    assert (await other.send(2, first=0)).error == 0
    assert world.ids() == [1, 2]


async def test_what_a_session_that_is_gone_has_under_way_is_waited_for(world: World) -> None:
    node = await world.serving(1, "1")
    one, other = await node.client(), await node.client("pid:2", slot="1")
    node.flows.clear()
    sent = one.send(5)
    node.leave(one)
    behind = other.send(5, 6)
    await world.kafka.pause(1)
    assert not behind.done()
    node.flows.set()
    assert await answered(sent, behind) == [0, 0]
    assert world.ids() == [5, 6]


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_fence_decides_what_another_sessions_slot_left_in_doubt(world: World, is_there: bool) -> None:
    node = await world.serving(2, "1", "2")
    one, other = await node.client(slot="1"), await node.client("pid:2", slot="2")
    assert (await one.send(4)).error == 0
    if is_there:
        node.loses = 1
    else:
        world.kafka.refuse(PRODUCE, errors.NOT_LEADER_OR_FOLLOWER)
    assert (await one.send(5, timeout_ms=0)).error
    node.leave(one)
    assert (await other.send(5, 6)).error == AGAIN
    behind = other.send(6, first=0)
    await world.kafka.pause(1)
    assert not behind.done(), "whatever its ids are"
    assert node.fences
    assert node.ids.is_ready
    node.reads()
    await node.fence_slot("1")
    assert {partition for partition, _ in node.reads()} == {0}
    assert (await behind).error == 0
    assert world.ids() == ([4, 5, 6] if is_there else [4, 6])


async def test_a_slot_without_anything_under_way_is_fenced_without_reading(world: World) -> None:
    node = await world.serving(1, "1", "2")
    client = await node.client(slot="1")
    node.flows.clear()
    sent = client.send(1)
    node.reads()
    await node.fence_slot("2")
    assert node.reads() == []
    node.flows.set()
    assert (await sent).error == 0


@pytest.mark.parametrize("fenced", ["1", "2"])
async def test_a_fence_of_one_slot_leaves_what_another_one_has_in_doubt(world: World, fenced: str) -> None:
    node = await world.serving(1, "1", "2")
    clients = {slot: await node.client(f"pid:{slot}", f"name {slot}", slot=slot) for slot in ("1", "2")}
    node.loses = 2
    for client in clients.values():
        assert (await client.send(5, timeout_ms=0)).error
        node.leave(client)
    await node.fence_slot(fenced)
    third = await node.client("pid:3", "name 3")
    later = {slot: third.send(Rec(6, b"name %d" % int(slot))) for slot in (fenced, "2" if fenced == "1" else "1")}
    assert (await later.pop(fenced)).error == 0
    (behind,) = later.values()
    await world.kafka.pause(1)
    assert not behind.done()
    assert node.fences
    await node.ids.save_all()
    assert await world.snapshot() is not None
    assert (await written(world)).covered < world.end()


async def test_what_another_slot_has_in_doubt_under_another_name_needs_no_fence(world: World) -> None:
    node = await world.serving(1, "1", "2")
    one, other = await node.client("pid:1", "a", slot="1"), await node.client("pid:2", "b", slot="2")
    node.loses = 1
    assert (await one.send(5, timeout_ms=0)).error
    assert await answered(other.send(1), other.send(1, 2), other.send(2)) == [0, 0, 0]
    assert world.ids() == [5, 1, 2]
    assert not node.fences


async def test_what_other_slots_write_while_one_is_read_stays_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end that is read up to was asked for before: what is behind it is not lost, though the log begins there."""
    node = await world.serving(1, "1", "2")
    one, other = await node.client("pid:1", "a", slot="1"), await node.client("pid:2", "b", slot="2")
    assert await answered(one.send(1), other.send(1)) == [0, 0]
    await node.ids.save_all()
    await world.delete_before(world.end())
    told = asyncio.Event()

    async def held(request: object, _: object) -> None:
        if isinstance(request, ProduceBatch):
            await told.wait()

    node.upstream.behind = held
    under_way = one.send(2)
    await world.kafka.pause(1)
    node.flows.clear()
    sent = other.send(2)

    newest = node.ids._newest

    async def and_then_it_lands(extents: Any) -> Any:
        found = await newest(extents)
        node.flows.set()
        told.set()
        assert await answered(under_way, sent) == [0, 0]
        return found

    monkeypatch.setattr(node.ids, "_newest", and_then_it_lands)
    await node.fence_slot("1")
    assert node.known() == {b"a": 2, b"b": 2}
    await node.ids.save_all()
    assert (await written(world)).covered == world.end()


async def test_what_a_slot_had_under_way_is_looked_for_once_where_it_is_lost(world: World) -> None:
    """It was read again as fast as Kafka answers, for ever."""
    node = await world.serving(1, "1")
    one = await node.client(slot="1")
    assert (await one.send(1)).error == 0
    node.loses = 1
    assert (await one.send(2, timeout_ms=0)).error
    await world.delete_before(world.end())
    with pytest.raises(KafkaError, match="begins at offset"):
        await node.fence_slot("1")
    await world.kafka.pause(1)
    assert len(node.lost) == 1


async def test_two_slots_that_are_fenced_one_after_the_other_are_both_read(world: World) -> None:
    node = await world.serving(1, "1", "2")
    clients = [await node.client(f"pid:{slot}", f"name {slot}", slot=slot) for slot in ("1", "2")]
    node.loses = 2
    assert all([(await client.send(5, timeout_ms=0)).error for client in clients])
    assert not node.ids.is_covered(node.stamps["1"].producer_id, 0)
    producers = [node.stamps[slot].producer_id for slot in ("1", "2")]
    await asyncio.gather(node.fence_slot("1"), node.fence_slot("2"))
    assert node.known() == {b"name 1": 5, b"name 2": 5}
    await node.ids.save_all()
    assert all(node.ids.is_covered(producer, 0) for producer in producers)
    assert len(node.recovered) in (2, 3)


async def test_the_rest_of_a_batch_that_cannot_be_written_ends_the_epoch(world: World) -> None:
    """Its base is in the changelog, and another batch than the rest of this one may come next."""
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    node.loses = 1
    assert (await client.send(1, 2, timeout_ms=0)).error
    assert client.is_fenced


async def test_batches_of_a_partition_whose_ids_are_unknown_wait_in_order(world: World) -> None:
    node = await world.serving()
    await node.serve(waits=False)
    client = await node.client()
    batches = [client.send(sequence_id) for sequence_id in (1, 2, 2, 3)]
    assert await answered(*batches) == [0, 0, 0, 0]
    assert world.ids() == [1, 2, 3]


@pytest.mark.parametrize("live", [True, False])
async def test_names_make_room_for_new_ones_but_none_in_use(world: World, live: bool) -> None:
    node = await world.serving(1, "1", "2", names_limit=2)
    first, second = await node.client("pid:1", "a", slot="1"), await node.client("pid:2", "b", slot="2")
    assert (await first.send(1)).error == 0
    assert node.ids.crowded is None
    assert (await second.send(1)).error == 0
    assert node.ids.crowded is node.ids.of(0)
    if not live:
        node.leave(first)
    third = await node.client("pid:3", "c")
    assert (await third.send(1)).error == (REFUSED if live else 0)
    assert node.known().keys() == ({b"a", b"b"} if live else {b"b", b"c"})
    assert node.forgotten == (0 if live else 1)


async def test_a_name_that_was_forgotten_for_room_leaves_the_next_snapshot_though_nothing_is_written(
    world: World,
) -> None:
    node = await world.serving(1, "1", names_limit=1)
    first = await node.client("pid:1", "a", slot="1")
    assert (await first.send(1)).error == 0
    await node.ids.save_all()
    node.leave(first)
    second = await node.client("pid:2", "b")
    world.kafka.refuse(PRODUCE, errors.MESSAGE_TOO_LARGE)
    assert (await second.send(1)).error == errors.MESSAGE_TOO_LARGE
    await world.kafka.pause(SNAPSHOT_S - 5)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"a": 1}
    await world.kafka.pause(6)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {}
    await world.kafka.pause(SNAPSHOT_S)
    number = (await written(world)).number
    await node.ids.save_due()
    assert (await written(world)).number == number


# Large batches --------------------------------------------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> tuple[int, ...]:
    """Ids of a batch that is too large to be opened at once."""
    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", 300)
    return tuple(range(10, 20))


@pytest.mark.parametrize("codec", [0, 1])
async def test_a_large_batch_is_written_before_what_comes_behind_it(
    world: World, large: tuple[int, ...], codec: int
) -> None:
    node = await world.serving()
    client = await node.client()
    before = Opened.size
    batches = [client.send(*large, codec=codec), client.send(20), client.send(*large, codec=codec), client.send(21)]
    assert await answered(*batches) == [0, 0, 0, 0]
    assert world.ids() == [*large, 20, 21]
    assert node.dropped == len(large)
    assert Opened.size > before
    assert node.held == 0


async def test_of_a_large_batch_the_new_records_are_written(world: World, large: tuple[int, ...]) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(9, 10, 11)).error == 0
    assert await answered(client.send(*large), client.send(20)) == [0, 0]
    assert world.ids() == [9, *large, 20]
    assert node.dropped == 2
    names = [Rec(30, b"a"), *(Rec(sequence_id, b"b") for sequence_id in large)]
    assert await client.send(*names) == (0, 13)
    assert await answered(client.send(*names), client.send(Rec(31, b"a"), *names)) == [0, 0]
    assert world.ids()[12:] == [30, *large, 31]


async def test_a_large_batch_with_an_invalid_id_is_refused_when_it_is_first(
    world: World, large: tuple[int, ...]
) -> None:
    node = await world.serving()
    client = await node.client()
    first, wrong, behind = client.send(1), client.send(*large, b"x"), client.send(20)
    assert await answered(first, wrong, behind) == [0, INVALID, OUT_OF_ORDER]
    assert world.ids() == [1]
    assert node.held == 0


async def test_what_would_block_the_loop_is_done_by_a_thread(world: World, large: tuple[int, ...]) -> None:
    """Large batches are opened, taken apart and rewritten there, small ones never."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, WorldLoop)
    node = await world.serving()
    client = await node.client()

    async def pieces(*ids: int) -> int:
        before = loop.pieces
        assert (await client.send(*ids)).error == 0
        return loop.pieces - before

    assert await pieces(8, 9, 10) == 0
    assert await pieces(*large) == 3
    assert await pieces(*large) == 1
    assert await pieces(19, 20) == 0
    assert await pieces(*range(30, 40)) == 1
    assert await pieces(*reversed(range(40, 50))) == 2
    assert world.ids() == [8, 9, *range(10, 21), *range(30, 40), 49]


# Takeovers ------------------------------------------------------------------------------------------------------------


async def test_a_takeover_reads_the_ids_of_all_partitions(world: World) -> None:
    node = await world.serving(2)
    client = await node.client(name="billing")
    assert await answered(client.send(1, 2), client.send(Rec(7, b"audit")), client.send(5, partition=1)) == [0, 0, 0]
    other = await world.node()
    await other.serve(waits=False)
    assert not other.ids.is_ready
    with pytest.raises(KafkaError, match="being read"):
        await other.ids.known(0)
    await other.ids.known(30)
    assert other.known(0) == {b"billing": 2, b"audit": 7}
    assert other.known(1) == {b"billing": 5}
    assert other.recovered == [4]
    records, done, total = other.ids.progress
    assert records == 4
    assert done == total
    assert (await (await other.client(name="billing", bases={0: 3, 1: 1})).send(2)) == (0, -1)
    assert world.ids() == [1, 2, 7]


async def test_a_node_that_takes_over_again_reads_what_is_new_alone(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert await client.send(1, 2) == (0, 1)
    node.reads()
    await node.serve()
    assert node.reads() == [(0, 3)]
    assert node.reads(SNAPSHOTS) == []
    assert node.known() == {b"me": 2}


async def test_a_log_is_read_in_portions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other work gets the thread in between. Markers count, too."""
    monkeypatch.setattr(recovery, "_PORTION_RECORDS", 3)
    node = await world.serving()
    client = await node.client()
    for ids in ((1,), (2,), (3,), (4, 5, 6, 7), (8, 9)):
        assert (await client.send(*ids)).error == 0
    other = await world.node()
    await other.serve()
    assert other.known() == {b"me": 9}
    assert other.portions == [2, 5, 2]


async def test_a_snapshot_in_redis_that_cannot_be_read_is_none(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    await node.ids.save_all()
    await node.store.keep_snapshot(TOPIC, 0, await world.topic_id(), (1_000, 1), b"\xff")
    await world.delete_before(2)
    other = await world.node()
    await other.serve()
    assert other.known() == {b"me": 1}


@pytest.mark.parametrize("is_rebuilt", [True, False])
async def test_a_node_goes_on_with_another_ones_snapshot_but_writes_its_own_behind_a_rebuilt_one(
    world: World, is_rebuilt: bool
) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1, 2)).error == 0
    if is_rebuilt:
        await world.rebuild(3, 4, {b"me": 2})
        await world.delete_before(3)
    else:
        await node.ids.save_all()
    other = await world.node()
    await other.serve()
    assert other.known() == {b"me": 2}
    assert await other.ids.cover({0: 3}, 5.0) == {0: 3}
    saved = await written(world)
    assert (saved.number, saved.covered, saved.rebuilt) == ((5, 4, False) if is_rebuilt else (1, 3, False))


async def test_a_topic_that_is_not_served_any_more_answers_nothing(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    node.ids.end()
    assert not node.ids.is_begun
    assert not node.ids.is_ready
    await node.ids.save_all()
    assert await world.snapshot() is None


async def test_a_recovery_that_fails_is_tried_again(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    other = await world.node()
    asked: list[float] = []

    async def before(request: object) -> None:
        if isinstance(request, FetchPartition) and request.partition == FIRST:
            asked.append(world.kafka.now())
            if len(asked) == 1:
                raise DisconnectedError("no answer")

    other.upstream.before = before
    await other.serve()
    assert len(other.failures) == 1
    assert asked[1] - asked[0] >= 0.5
    assert other.known() == {b"me": 1}
    assert other.recovered == [1]


async def test_a_recovery_that_another_one_overtakes_reports_nothing(world: World) -> None:
    node = await world.serving()
    other = await world.node()
    await other.serve(waits=False)
    other.ids.end()
    await world.kafka.pause(5)
    assert not other.ids.is_ready
    assert other.recovered == []
    assert not node.failures


@pytest.mark.parametrize("distrusts", [True, False])
async def test_a_name_that_another_node_forgot_stays_forgotten_where_the_ids_in_memory_are_distrusted(
    world: World, distrusts: bool
) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    other = await world.node()
    await other.serve()
    assert await other.ids.forget(b"me")
    if distrusts:
        node.ids.distrust()
    await node.serve()
    assert node.known() == ({} if distrusts else {b"me": 1})


@pytest.mark.parametrize("has_redis", [True, False])
async def test_another_node_goes_on_from_the_snapshot(world: World, has_redis: bool) -> None:
    node = await world.serving()
    client = await node.client()
    assert await client.send(1, 2) == (0, 1)
    await node.ids.save_all()
    assert (await client.send(3)).error == 0
    await world.delete_before(3)
    other = await world.node()
    other.store.is_away = not has_redis
    await other.serve()
    assert other.known() == {b"me": 3}
    assert other.reads()[0] == (0, 3)
    assert not other.lost


async def test_what_the_snapshot_topic_has_behind_the_copy_in_redis_is_read(world: World) -> None:
    """Redis may have been restored to an older state."""
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    await node.ids.save_all()
    node.store.is_away = True
    assert (await client.send(2)).error == 0
    await node.ids.save_all()
    await world.delete_before(3)
    assert ids_by_name(await world.stored()) == {b"me": 1}
    other = await world.node()
    await other.serve()
    assert other.known() == {b"me": 2}
    assert [offset for _, offset in other.reads(SNAPSHOTS) if offset] != []
    await other.ids.save_all()
    assert (await written(world)).number > 2


async def test_ids_that_are_lost_stop_their_partition_until_an_operator_decides(world: World) -> None:
    node = await world.serving(2)
    client = await node.client()
    assert await answered(client.send(1, 2), client.send(1, partition=1)) == [0, 0]
    await world.delete_before(3)
    other = await world.node()
    with pytest.raises(KafkaError, match="begins at offset 3"):
        await other.serve()
    await world.kafka.pause(5)
    assert len(other.lost) == 1
    assert other.ids.problem is not None
    their = await other.client(bases={0: 2, 1: 1})
    assert await answered(their.send(3), their.send(2, partition=1)) == [AGAIN, 0]
    assert other.undecided == 1
    other.ids.urge()
    await world.kafka.pause(2)
    await other.ids.save_due()
    assert other.ids.is_urged, "of one partition there is none yet"
    await other.serve(ids_from=3)
    assert other.ids.problem is None
    assert other.known(0) == {}
    assert (await (await other.client(bases={0: 2, 1: 2})).send(3)).error == 0


@pytest.mark.parametrize("records", [0, 5])
async def test_a_topic_that_was_created_again_has_no_ids_of_the_former_one(world: World, records: int) -> None:
    """However long its log is by then."""
    node = await world.serving()
    client = await node.client()
    assert (await client.send(5)).error == 0
    await node.ids.save_all()
    await world.kafka.delete(TOPIC)
    await world.topic()
    if records:
        assert not (await world.kafka.produce(FIRST, None, count=records)).error
    await node.serve()
    assert node.known() == {}
    assert await (await node.client()).send(1) == (0, records + 1)


async def test_a_topic_that_is_created_again_behind_its_fence_needs_another_one(world: World) -> None:
    """The ids of what was fenced are nowhere any more: a client that waits for them would wait for ever."""
    node = await world.serving()
    assert (await (await node.client()).send(5)).error == 0

    async def created_again() -> None:
        await world.kafka.delete(TOPIC)
        await world.topic()

    await node.serve(waits=False, meanwhile=created_again)
    client = await node.client()
    sent = client.send(1)
    await world.kafka.pause(3)
    assert node.fences
    assert not node.ids.is_ready
    assert (await sent).error == AGAIN
    await node.serve()
    assert node.known() == {}


@pytest.mark.parametrize("is_other", [True, False])
async def test_a_snapshot_of_more_than_the_log_has_left_counts_for_nothing(world: World, is_other: bool) -> None:
    """After an unclean election no snapshot was written until the log was as long as before, and what was deleted until
    then was in none.
    """
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    await node.ids.save_all()
    assert (await client.send(2, 3, 4, 5)).error == 0
    await node.ids.save_all()
    world.lose(2)
    if is_other:
        node = await world.node()
    await node.serve()
    assert node.known() == {b"me": 1}
    await node.ids.save_all()
    assert (await written(world)).covered == world.end() == 3
    await world.delete_before(3)
    other = await world.node()
    other.store.is_away = True
    await other.serve()
    assert other.known() == {b"me": 1}


# Snapshots ------------------------------------------------------------------------------------------------------------


async def test_a_snapshot_is_due_after_so_many_batches_or_seconds(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    node.ids.pace = Pace(20.0, 3)
    await node.ids.save_all()
    for sequence_id in (1, 2):
        assert (await client.send(sequence_id)).error == 0
    await world.kafka.pause(2)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {}
    assert (await client.send(3)).error == 0
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 3}
    for sequence_id in (4, 5, 6):
        assert (await client.send(sequence_id)).error == 0
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 3}, "one a second"
    await world.kafka.pause(1)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 6}
    assert (await client.send(7)).error == 0
    await world.kafka.pause(19)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 6}
    await world.kafka.pause(1)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 7}


async def test_a_snapshot_is_due_once_the_log_begins_behind_the_last_one(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert await client.send(1, 2) == (0, 1)
    await node.ids.save_all()
    await world.kafka.pause(2)
    await world.delete_before(3)
    assert (await client.send(3)).error == 0
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 2}
    await world.delete_before(4)
    assert (await client.send(4)).error == 0
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot()) == {b"me": 4}


@pytest.mark.parametrize("moved", [0, 1])
async def test_an_urged_snapshot_is_of_every_partition_that_changed(world: World, moved: int) -> None:
    node = await world.serving(2)
    client = await node.client()
    await node.ids.save_all()
    assert (await client.send(1, partition=moved)).error == 0
    await world.kafka.pause(5)
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot(moved)) == {}
    node.ids.urge()
    assert node.ids.is_urged
    await node.ids.save_due()
    assert ids_by_name(await world.snapshot(moved)) == {b"me": 1}
    assert not node.ids.is_urged


async def test_markers_at_the_end_of_a_log_are_covered_too(world: World) -> None:
    """They remain when retention has deleted everything that a snapshot covers."""
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    await node.ids.save_all()
    await world.kafka.pause(SNAPSHOT_S)
    await node.keep_alive()
    await node.ids.save_due()
    assert (await written(world)).covered == world.end()
    await node.keep_alive()
    await node.ids.save_all()
    assert (await written(world)).covered == world.end()
    await node.keep_alive()
    assert await node.ids.cover({0: -1}, 0.0) == {0: world.end()}
    assert (await written(world)).covered == world.end()
    await node.keep_alive()
    node.flows.clear()
    sent = client.send(2)
    await node.ids.save_all()
    assert (await written(world)).covered == world.end() - 1, "a batch is under way"
    node.flows.set()
    assert (await sent).error == 0


async def test_nothing_is_saved_twice(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    await node.ids.save_all()
    number = (await written(world)).number
    await node.ids.save_all()
    assert (await written(world)).number == number
    assert (await client.send(2)).error == 0
    await node.ids.save_all()
    assert (await written(world)).number == number + 1


async def test_a_node_whose_topic_was_taken_writes_no_snapshot(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    other = await world.node()
    await other.serve()
    await node.ids.save_all()
    assert await world.snapshot() is None
    assert not node.fences
    await other.ids.save_all()
    assert ids_by_name(await world.snapshot()) == {b"me": 1}


async def test_a_snapshot_whose_outcome_is_unknown_needs_a_fence(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    world.kafka.refuse(PRODUCE, errors.REQUEST_TIMED_OUT, times=1000)
    await node.ids.save_all(120.0)
    assert node.fences == 1
    assert node.failures
    await node.ids.save_all(120.0)
    assert node.fences == 1, "the journal is closed"


async def test_a_snapshot_that_is_refused_is_tried_again_under_another_number(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    world.kafka.refuse(PRODUCE, errors.MESSAGE_TOO_LARGE)
    await node.ids.save_all()
    assert node.failures
    assert await world.snapshot() is None
    assert not node.fences
    await node.ids.save_all()
    assert (await written(world)).number == 3
    assert (await client.send(2)).error == 0
    await node.ids.save_all()
    assert (await written(world)).number == 4


async def test_offsets_that_may_be_deleted_are_in_a_snapshot_first(world: World) -> None:
    node = await world.serving(2)
    client = await node.client()
    assert await client.send(1, 2, 3) == (0, 1)
    assert await node.ids.cover({0: 5}, 5.0) == {0: -1}, "no log has such an offset"
    assert await world.snapshot() is None
    assert await node.ids.cover({0: 0}, 5.0) == {0: 0}
    assert await node.ids.cover({0: 2}, 5.0) == {0: 2}
    assert (await written(world)).covered == 4
    assert await node.ids.cover({0: 4}, 5.0) == {0: 4}
    node.flows.clear()
    sent = client.send(4)
    assert await node.ids.cover({0: -1, 1: -1}, 5.0) == {0: 4, 1: 1}
    node.flows.set()
    assert await sent == (0, 4)
    assert await node.ids.cover({0: -1}, 5.0) == {0: 5}
    assert ids_by_name(await world.snapshot()) == {b"me": 4}


async def test_what_no_snapshot_covers_in_time_is_left_out(world: World) -> None:
    node = await world.serving(2)
    client = await node.client()
    assert await answered(client.send(1), client.send(1, partition=1)) == [0, 0]
    node.loses = 1
    assert (await client.send(2, timeout_ms=0)).error
    began = world.kafka.now()
    assert await node.ids.cover({0: -1, 1: -1}, 3.0) == {1: 2}
    assert 3 <= world.kafka.now() - began < 4
    node.ids.end()
    began = world.kafka.now()
    assert await node.ids.cover({0: -1}, 3.0) == {}
    assert world.kafka.now() - began < 1


async def test_numbers_of_snapshots_go_on_from_the_copy_in_redis(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    for sequence_id in (1, 2):
        assert (await client.send(sequence_id)).error == 0
        await node.ids.save_all()
    world.lose(0, node.changelog.snapshots_of(TOPIC))
    other = await world.node()
    await other.serve()
    assert other.known() == {b"me": 2}
    await other.ids.save_all()
    assert (await written(world)).number == 3


async def test_whether_a_producer_id_is_covered(world: World) -> None:
    node = await world.serving(1, "1")
    other = await world.node()
    await other.serve(waits=False)
    assert not other.ids.is_covered(other.stamps["0"].producer_id, 0)
    await node.serve("1")
    producer, beside = node.stamps["0"].producer_id, node.stamps["1"].producer_id
    assert not node.ids.is_covered(producer, 0)
    await node.ids.save_all()
    assert node.ids.is_covered(producer, 0)
    client = await node.client()
    assert (await client.send(1)).error == 0
    assert node.ids.is_covered(beside, 0)
    assert not node.ids.is_covered(producer, 0)
    await node.ids.save_all()
    assert node.ids.is_covered(producer, 0)
    node.flows.clear()
    sent = client.send(2)
    assert not node.ids.is_covered(producer, 0)
    node.flows.set()
    assert (await sent).error == 0


# Names ----------------------------------------------------------------------------------------------------------------


async def test_a_name_is_forgotten_for_good(world: World) -> None:
    node = await world.serving(2)
    client = await node.client()
    records = client.send(Rec(1, b"a"), Rec(4, b"b")), client.send(Rec(2, b"b"), partition=1)
    assert await answered(*records) == [0, 0]
    assert not await node.ids.forget(b"nobody")
    assert await world.snapshot() is None
    assert await node.ids.forget(b"a")
    assert node.known() == ids_by_name(await world.snapshot()) == ids_by_name(await world.stored()) == {b"b": 4}
    assert await world.snapshot(1) is None
    other = await world.node()
    await other.serve()
    assert other.known() == {b"b": 4}


@pytest.mark.parametrize("why", ["under way", "not written", "no Redis"])
async def test_a_name_that_cannot_be_forgotten_for_good_is_not_forgotten(world: World, why: str) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    if why == "under way":
        node.flows.clear()
        assert not client.send(2).done()
        assert node.ids.is_in_use(b"me")
    elif why == "not written":
        world.kafka.refuse(PRODUCE, errors.MESSAGE_TOO_LARGE)
    else:
        node.store.is_away = True
    with pytest.raises(MetadataUnavailable if why == "no Redis" else TimeoutError):
        await node.ids.forget(b"me")
    assert node.known() == {b"me": 1}
    node.flows.set()


async def test_a_name_is_in_use_while_its_session_is_connected(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    assert node.ids.is_in_use(b"me")
    assert not node.ids.is_in_use(b"other")
    node.leave(client)
    assert not node.ids.is_in_use(b"me")


async def test_names_count_as_used_while_their_sessions_are_connected(world: World) -> None:
    """They are forgotten by their last use, so those that a session holds are not forgotten when it ends."""
    node = await world.serving(1, "1")
    one, other = await node.client("pid:1", "a"), await node.client("pid:2", "b", slot="1")
    assert await answered(one.send(1), other.send(1)) == [0, 0]
    node.leave(one)
    await world.kafka.pause(200)
    await node.ids.forget_gone()
    await world.kafka.pause(200)
    node.flows.clear()
    sent = other.send(2)
    node.leave(other)
    await node.ids.forget_gone()
    seen = {mark.name: mark.seen for mark in node.ids.of(0).marks}
    assert 390 <= seen[b"b"] - seen[b"a"] <= 410
    node.flows.set()
    assert (await sent).error == 0
    assert not node.ids.is_in_use(b"b")


async def test_a_clock_that_may_be_wrong_makes_no_name_used(world: World) -> None:
    node = await world.serving()
    client = await node.client()
    assert (await client.send(1)).error == 0
    node.changelog.clock.is_confirmed = False
    (before,) = node.ids.of(0).marks
    await world.kafka.pause(100)
    node.changelog.clock.is_confirmed = False
    await node.ids.forget_gone()
    assert list(node.ids.of(0).marks) == [before]


async def test_a_topic_that_is_taken_over_again_is_protected_from_compaction_again(world: World) -> None:
    """Somebody else served it meanwhile, or it was created anew."""
    node = await world.serving()
    node.ids.protected_ms = LAG_MS
    await node.serve()
    assert node.ids.protected_ms == 0


async def test_a_topic_has_nothing_to_save_until_a_snapshot_or_the_end_of_a_log_is_due(world: World) -> None:
    node = await world.serving(1)
    client = await node.client()
    node.ids.pace = Pace(SNAPSHOT_S, 2)
    await node.ids.save_due()
    assert not node.ids.is_due
    for number in (1, 2):
        assert (await client.send(number)).error == 0
        await world.kafka.pause(1.5)
        assert node.ids.is_due is (number == 2), "so many batches"
    await node.ids.save_due()
    assert not node.ids.is_due
    node.ids.urge()
    assert node.ids.is_due
    await node.ids.save_due()
    assert not node.ids.is_due
    await world.kafka.pause(SNAPSHOT_S - 3.5)
    assert not node.ids.is_due
    await world.kafka.pause(1)
    assert node.ids.is_due, "markers may have come"
    node.ids.of(0).is_ready = False
    assert not node.ids.is_due
