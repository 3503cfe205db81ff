"""Cursors of shadows: what groups have committed, how far behind the source's log that is, and where one is moved."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.protocol.caller import CoordinatorKind, UnknownTopicError
from sidecar.protocol.calls.groups import CommitOffsets, DescribedGroup, DescribeGroups, ListGroups, OffsetFetch
from sidecar.protocol.calls.logs import OffsetAt
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import Offset, TopicPartition
from sidecar.shadow.cursors import (
    AtOffset,
    AtTime,
    ClosedError,
    Cursor,
    InUseError,
    Lag,
    OutOfLogError,
    Position,
)
from tests.unit.shadow.paper import Node, Nodes

LIST_GROUPS, OFFSET_FETCH, OFFSET_COMMIT = 16, 9, 8


@pytest.fixture
async def node(nodes: Nodes) -> Node:
    """A node with the shadow `audit` of `orders`, whose partitions have 20 and 10 records."""
    found = await nodes.start()
    await found.catalog.create("orders", "audit")
    await nodes.kafka.pause(1)
    await write(nodes, 0, 20)
    await write(nodes, 1, 10)
    return found


async def write(nodes: Nodes, partition: int, count: int) -> None:
    answer = await nodes.kafka.produce(TopicPartition("orders", partition), None, count=count)
    assert not answer.error


async def commit(nodes: Nodes, group: str, topic: str, **offsets: int) -> None:
    """`commit(nodes, "g", "audit", p0=5)`."""
    upstream = nodes.kafka.upstream
    for _ in range(20):
        broker = await upstream.coordinator(group, CoordinatorKind.GROUP)
        wanted = {int(name[1:]): offset for name, offset in offsets.items()}
        errors = await upstream.call(broker, CommitOffsets(group, topic, wanted))
        if not any(errors.values()):
            return
        await nodes.kafka.pause(0.2)
    raise AssertionError(errors)


async def committed(nodes: Nodes, group: str, topic: str) -> list[int]:
    broker = await nodes.kafka.upstream.coordinator(group, CoordinatorKind.GROUP)
    answer = await nodes.kafka.upstream.call(broker, OffsetFetch([group], topic, [0, 1]))
    return [answer[group].offsets.get(partition, -1) for partition in (0, 1)]


async def fresh(nodes: Nodes) -> None:
    """Let what is remembered get old."""
    await nodes.kafka.pause(5.1)


async def test_cursors_are_those_of_the_shadow_with_their_lag_behind_the_source(nodes: Nodes, node: Node) -> None:
    assert await node.cursors.cursors.of("audit") == []
    assert await node.cursors.cursors.lag("audit") == Lag(0, 0, 0)
    await commit(nodes, "behind", "audit", p0=5)
    await commit(nodes, "ahead", "audit", p0=20, p1=3)
    await commit(nodes, "elsewhere", "orders", p0=1)
    await fresh(nodes)
    ahead, behind = await node.cursors.cursors.of("audit")
    assert behind == Cursor("behind", "Empty", 0, {0: Position(5, 20, 15)})
    assert ahead == Cursor("ahead", "Empty", 0, {0: Position(20, 20, 0), 1: Position(3, 10, 7)})
    assert await node.cursors.cursors.lag("audit") == Lag(2, 22, 15)
    (of_source,) = await node.cursors.of_topics.of("orders")
    assert of_source == Cursor("elsewhere", "Empty", 0, {0: Position(1, 20, 19)})


async def test_what_retention_deleted_is_no_lag_and_neither_is_what_lies_beyond_the_end(
    nodes: Nodes, node: Node
) -> None:
    await commit(nodes, "g", "audit", p0=5, p1=12)
    await nodes.kafka.delete_records(TopicPartition("orders", 0), Offset(8))
    (cursor,) = await node.cursors.cursors.of("audit")
    assert cursor.partitions == {0: Position(5, 20, 12), 1: Position(12, 10, 0)}
    assert cursor.lag == 12


async def test_answers_are_kept_for_five_seconds_and_shared_by_all_who_ask(nodes: Nodes, node: Node) -> None:
    cursors = node.cursors.cursors
    await commit(nodes, "g", "audit", p0=5)
    await asyncio.gather(cursors.of("audit"), cursors.lag("audit"), cursors.of("audit"))
    await nodes.kafka.pause(4.5)
    await commit(nodes, "g", "audit", p0=6)
    assert (await cursors.lag("audit")).total == 15
    assert len(node.upstream.requests(ListGroups)) == 3, "once for each broker"
    await nodes.kafka.pause(0.6)
    assert (await cursors.lag("audit")).total == 14


async def test_many_groups_of_a_broker_are_asked_for_in_portions(
    nodes: Nodes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"group-{number:02}" for number in range(25)]
    for number, name in enumerate(names):
        await commit(nodes, name, "audit", p0=number % 20)
    for limit, value in (("_GROUPS_AT_ONCE", 3), ("_MEMBERS_OF", 4)):
        monkeypatch.setattr(f"sidecar.shadow.cursors.{limit}", value)
    assert [cursor.group for cursor in await node.cursors.cursors.of("audit")] == names
    fetched = [request.groups for request in node.upstream.requests(OffsetFetch)]
    assert (max(map(len, fetched)), sorted(name for some in fetched for name in some)) == (3, names)
    described = [request.groups for request in node.upstream.requests(DescribeGroups)]
    assert (max(map(len, described)), sorted(name for some in described for name in some)) == (4, names)
    monkeypatch.setattr("sidecar.shadow.cursors._OFFSETS_AT_ONCE", 4)
    node.upstream.asked.clear()
    await fresh(nodes)
    await node.cursors.cursors.of("audit")
    assert max(len(request.groups) for request in node.upstream.requests(OffsetFetch)) == 2, "of two partitions each"
    monkeypatch.setattr("sidecar.shadow.cursors._OFFSETS_AT_ONCE", 1)
    await fresh(nodes)
    assert len(await node.cursors.cursors.of("audit")) == 25, "one group at least"


async def test_a_group_with_members_is_shown_with_them_and_one_that_is_gone_is_left_out(
    nodes: Nodes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are a Kafka's with consumers of both protocols (KIP-848): described as dead."""
    for name in ("connect", "classic", "dead", "gone", "new", "refused"):
        await commit(nodes, name, "audit", p0=1)

    async def answer(request: Any, answer: Any) -> None:
        match request:
            case DescribeGroups():
                shown = {"classic": (0, "Stable", 3), "new": (0, "Dead", 0), "refused": (16, "Odd", 9)}
                answer.update({name: DescribedGroup(*shown[name]) for name in answer if name in shown})
                answer.pop("dead", None)
            case ListGroups():
                answer.groups[:] = [
                    group._replace(protocol_type="connect") if group.name == "connect" else group
                    for group in answer.groups
                ]
            case OffsetFetch():
                answer.pop("gone", None)
            case _:
                pass

    node.upstream.behind = answer
    shown = [(cursor.group, cursor.state, cursor.members) for cursor in await node.cursors.cursors.of("audit")]
    assert shown == [("classic", "Stable", 3), ("dead", "Empty", 0), ("new", "Empty", 0), ("refused", "Empty", 0)]


@pytest.mark.parametrize("api", [LIST_GROUPS, OFFSET_FETCH])
async def test_a_coordinator_that_does_not_answer_for_its_groups_is_an_error_and_asked_again(
    nodes: Nodes, node: Node, api: int
) -> None:
    """What was listed by a broker that has resigned is asked for anew."""
    cursors = node.cursors.cursors
    await commit(nodes, "g", "audit", p0=5)
    assert (await cursors.lag("audit")).groups == 1
    await fresh(nodes)
    nodes.kafka.refuse(api, ErrorCode.NOT_COORDINATOR, times=2)
    with pytest.raises(KafkaError):
        await cursors.lag("audit")
    for broker in nodes.kafka.cluster.brokers.values():
        broker.refusals.clear()
    before = len(node.upstream.requests(ListGroups))
    assert (await cursors.lag("audit")).groups == 1
    assert len(node.upstream.requests(ListGroups)) == before + 3


async def test_a_shadow_without_its_log_has_no_cursors(nodes: Nodes, node: Node) -> None:
    cursors = node.cursors.cursors
    with pytest.raises(ClosedError, match="nothing is not created yet"):
        await cursors.of("nothing")
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    with pytest.raises(ClosedError, match="its source orders is gone"):
        await cursors.lag("audit")
    with pytest.raises(UnknownTopicError):
        await node.cursors.of_topics.lag("orders")
    await nodes.kafka.create("orders", 2)
    await nodes.kafka.pause(1)
    for failing in (cursors.lag("audit"), cursors.move("audit", "g", OffsetAt.EARLIEST, None)):
        with pytest.raises(ClosedError, match="orders was created again"):
            await failing


async def test_a_question_that_takes_too_long_ends(nodes: Nodes, node: Node) -> None:
    async def never(request: object) -> None:
        if isinstance(request, ListGroups):
            await nodes.kafka.pause(3600)

    node.upstream.before = never
    began = nodes.kafka.now()
    with pytest.raises(TimeoutError):
        await node.cursors.cursors.of("audit")
    assert nodes.kafka.now() - began == pytest.approx(30, abs=0.1)


# Moving -------------------------------------------------------------------------------------------------------------


async def test_a_cursor_is_moved_to_either_end_an_offset_or_a_time_and_no_other_moves(nodes: Nodes, node: Node) -> None:
    cursors = node.cursors.cursors
    await commit(nodes, "g", "orders", p0=7)
    await nodes.kafka.delete_records(TopicPartition("orders", 0), Offset(2))
    for to, partitions, offsets in (
        (OffsetAt.EARLIEST, None, [2, 0]),
        (OffsetAt.LATEST, [0], [20, 0]),
        (AtOffset(10), [1, 0, 1], [10, 10]),
        (AtOffset(2), [0], [2, 10]),
        (AtOffset(20), [0], [20, 10]),
    ):
        moved = await cursors.move("audit", "g", to, partitions)
        assert await committed(nodes, "g", "audit") == offsets
        assert (moved.group, moved.state, moved.members) == ("g", "Empty", 0)
        assert moved.partitions == {
            index: Position(offsets[index], (20, 10)[index], (20, 10)[index] - offsets[index])
            for index in sorted(set((0, 1) if partitions is None else partitions))
        }
        assert (await cursors.lag("audit")).total == 30 - sum(offsets), "what was remembered is forgotten"
    await nodes.kafka.pause(10)
    between = nodes.kafka.wall_ms() - 5_000
    await write(nodes, 0, 5)
    moved = await cursors.move("audit", "g", AtTime(between), None)
    assert moved.partitions == {0: Position(20, 25, 5), 1: Position(10, 10, 0)}, "nothing in 1 is that young: its end"
    moved = await cursors.move("audit", "g", AtTime(1), [1])
    assert await committed(nodes, "g", "audit") == [20, 0]
    assert await committed(nodes, "g", "orders") == [7, -1]


@pytest.mark.parametrize(
    ("group", "to", "partitions", "said"),
    [
        ("g", AtOffset(21), [0], "offset 21 is not in partition 0, which goes from 1 to 20"),
        ("g", AtOffset(0), [0], "goes from 1 to 20"),
        ("g", AtOffset(11), None, "partition 1, which goes from 0 to 10"),
        ("g", OffsetAt.LATEST, [0, 2], "audit has the partitions 0 to 1, not 2"),
        ("", OffsetAt.LATEST, None, "1 to 32767 bytes"),
        ("ö" * 16_384, OffsetAt.LATEST, None, "1 to 32767 bytes"),
    ],
)
async def test_a_cursor_is_moved_nowhere_outside_the_log(
    nodes: Nodes, node: Node, group: str, to: Any, partitions: Any, said: str
) -> None:
    await nodes.kafka.delete_records(TopicPartition("orders", 0), Offset(1))
    with pytest.raises(OutOfLogError, match=said):
        await node.cursors.cursors.move("audit", group, to, partitions)
    assert node.upstream.requests(CommitOffsets) == []


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, InUseError),
        (ErrorCode.ILLEGAL_GENERATION, InUseError),
        (ErrorCode.REBALANCE_IN_PROGRESS, InUseError),
        (ErrorCode.STALE_MEMBER_EPOCH, InUseError),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, KafkaError),
    ],
)
async def test_a_cursor_that_kafka_does_not_move_is_an_error(
    nodes: Nodes, node: Node, code: ErrorCode, error: type[Exception]
) -> None:
    await commit(nodes, "g", "audit", p0=1, p1=1)
    nodes.kafka.refuse(OFFSET_COMMIT, code)
    with pytest.raises(error):
        await node.cursors.cursors.move("audit", "g", OffsetAt.LATEST, None)
    assert await committed(nodes, "g", "audit") == [1, 1]
    assert len(node.upstream.requests(CommitOffsets)) == 1


async def test_a_partition_that_the_coordinator_does_not_answer_for_was_not_moved(nodes: Nodes, node: Node) -> None:
    async def silent(request: object, answer: Any) -> None:
        if isinstance(request, CommitOffsets):
            answer.pop(1, None)

    node.upstream.behind = silent
    with pytest.raises(KafkaError, match="the cursor of g in partition 1 of audit"):
        await node.cursors.cursors.move("audit", "g", OffsetAt.LATEST, None)


@pytest.mark.parametrize("times", [19, 20])
async def test_a_coordinator_that_moves_or_loads_is_looked_up_again_for_five_seconds(
    nodes: Nodes, node: Node, times: int
) -> None:
    await commit(nodes, "g", "audit", p0=1)
    for broker in nodes.kafka.cluster.brokers.values():
        broker.refuse(OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR, times - 10)
        broker.refuse(OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 10)
    began = nodes.kafka.now()
    moving = node.cursors.cursors.move("audit", "g", AtOffset(9), [0])
    if times == 19:
        await moving
        assert (await committed(nodes, "g", "audit"))[0] == 9
    else:
        with pytest.raises(KafkaError):
            await moving
    assert 4.7 < nodes.kafka.now() - began < 6


async def test_a_coordinator_that_dies_is_replaced_by_the_next(nodes: Nodes, node: Node) -> None:
    await commit(nodes, "g", "audit", p0=1)
    broker = await node.upstream.coordinator("g", CoordinatorKind.GROUP)
    nodes.kafka.cluster.brokers[broker].kill()
    await nodes.kafka.pause(4)
    await node.cursors.cursors.move("audit", "g", AtOffset(9), [0])
    nodes.kafka.upstream.forget_coordinator("g", CoordinatorKind.GROUP)
    assert (await committed(nodes, "g", "audit"))[0] == 9


async def test_closing_ends_the_questions(nodes: Nodes, node: Node) -> None:
    async def never(request: object) -> None:
        await nodes.kafka.pause(3600)

    node.upstream.before = never
    of = [asyncio.create_task(cursors.of("audit")) for cursors in (node.cursors.cursors, node.cursors.of_topics)]
    await nodes.kafka.pause(1)
    await node.cursors.close()
    assert all(isinstance(found, asyncio.CancelledError) for found in await asyncio.gather(*of, return_exceptions=True))
