"""Statistics of shadows on a node: whose numbers they are, how old, and what a reset of a cursor leaves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.nodes import Placement
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.calls.groups import CommitOffsets, ListGroups
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import TopicPartition
from sidecar.shadow.cursor_room import Numbers, Reading
from sidecar.shadow.cursors import Lag
from tests.unit.shadow.paper import Node, Nodes

LIST_GROUPS = 16
NOTHING = Reading(0, 0, 0)


@pytest.fixture
async def node(nodes: Nodes) -> Node:
    """A node with the shadows `audit` and `copy` of `orders`; a group is 20 records behind in `audit`."""
    found = await nodes.start()
    for name in ("copy", "audit"):
        await found.catalog.create("orders", name)
        await nodes.kafka.pause(1)
    assert not (await nodes.kafka.produce(TopicPartition("orders", 0), None, count=20)).error
    upstream, error = nodes.kafka.upstream, {0: 1}
    while any(error.values()):
        broker = await upstream.coordinator("g", CoordinatorKind.GROUP)
        error = await upstream.call(broker, CommitOffsets("g", "audit", {0: 0}))
        await nodes.kafka.pause(0.1)
    return found


async def test_the_metrics_are_those_of_the_last_round_by_age_of_the_shadow(nodes: Nodes, node: Node) -> None:
    numbers = node.cursors.statistics
    assert numbers.all() == [Numbers("copy", NOTHING, 0, None), Numbers("audit", NOTHING, 0, None)]
    keeping = asyncio.create_task(node.cursors.keep())
    await nodes.kafka.pause(1)
    lags = {"copy": Lag(0, 0, 0), "audit": Lag(1, 20, 20)}
    assert [(found.name, found.lag) for found in numbers.all()] == [*lags.items()]
    assert not (await nodes.kafka.produce(TopicPartition("orders", 0), None)).error
    await nodes.kafka.pause(28)
    assert numbers.all()[1].lag == Lag(1, 20, 20)
    await nodes.kafka.pause(2)
    assert numbers.all()[1].lag == Lag(1, 21, 21)
    nodes.kafka.refuse(LIST_GROUPS, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    await nodes.kafka.pause(30)
    assert numbers.all()[0].lag is None, "an old number is none"
    failed = [report for report in node.hooks.reported if report[0] == "cursors_failed"]
    assert failed[0][1] == "copy"
    await node.catalog.delete("audit")
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(30)
    assert [(found.name, found.lag) for found in numbers.all()] == [("copy", None)]
    assert [report for report in node.hooks.reported if report[0] == "cursors_failed"] == failed, "closed is no failure"
    keeping.cancel()


async def test_rounds_take_a_twentieth_of_the_time_at_most(nodes: Nodes, node: Node) -> None:
    async def slow(request: object) -> None:
        await nodes.kafka.pause(5 if isinstance(request, ListGroups) else 0)

    node.upstream.before = slow
    keeping = asyncio.create_task(node.cursors.keep())
    await nodes.kafka.pause(90)
    assert len(node.upstream.requests(ListGroups)) == 3
    await nodes.kafka.pause(60)
    assert len(node.upstream.requests(ListGroups)) == 6
    keeping.cancel()


async def test_of_two_nodes_one_has_the_lag_of_a_shadow_in_its_metrics(nodes: Nodes, node: Node) -> None:
    other = await nodes.start()
    keeping = [asyncio.create_task(each.cursors.keep()) for each in (node, other)]
    await nodes.kafka.pause(1)
    for shadow in (0, 1):
        assert [each.cursors.statistics.all()[shadow].lag is None for each in (node, other)].count(False) == 1
    for each in (node, other):
        each.directory.placement = Placement([node.directory.me])
    await nodes.kafka.pause(31)
    assert [found.lag is None for found in node.cursors.statistics.all()] == [False, False]
    assert [found.lag is None for found in other.cursors.statistics.all()] == [True, True]
    for task in keeping:
        task.cancel()


async def test_whoever_asks_gets_the_lag_of_now_from_any_node_or_none_in_time(nodes: Nodes, node: Node) -> None:
    other = await nodes.start()
    for each in (node, other):
        each.cursors.readers.answered_one(7, b"audit", 300)
        found = await each.cursors.statistics.of("audit")
        assert (found.name, found.lag, found.reading.record_bytes) == ("audit", Lag(1, 20, 20), 300)
    await nodes.kafka.pause(5)

    async def never(request: object) -> None:
        await nodes.kafka.pause(3600)

    node.upstream.before = never
    began = nodes.kafka.now()
    found = await node.cursors.statistics.of("audit")
    assert (found.lag, found.reading.record_bytes) == (None, 300)
    assert nodes.kafka.now() - began == pytest.approx(5, abs=0.1)
    assert (await other.cursors.statistics.of("nothing")).lag is None


async def test_a_deleted_shadow_leaves_no_numbers_to_the_next_of_its_name(nodes: Nodes, node: Node) -> None:
    keeping = asyncio.create_task(node.cursors.keep())
    await nodes.kafka.pause(1)
    node.cursors.readers.answered_one(7, b"audit", 300)
    node.cursors.readers.answered_one(7, b"orders", 300)
    node.cursors.statistics.reset("audit", 2)
    node.cursors.statistics.reset("audit", 1)
    assert node.cursors.readers.of(b"orders") == NOTHING, "it is no shadow"
    found = node.cursors.statistics.all()[1]
    assert (found.resets, found.reading.readers, found.lag) == (3, 1, Lag(1, 20, 20))
    await node.catalog.delete("audit")
    await nodes.kafka.pause(1)
    await node.catalog.create("orders", "audit")
    assert node.cursors.statistics.all()[1] == Numbers("audit", NOTHING, 0, None)
    keeping.cancel()


async def test_a_shadow_that_is_deleted_while_it_is_looked_at_has_no_number(nodes: Nodes, node: Node) -> None:
    async def delete(request: object, answer: object) -> None:
        if isinstance(request, ListGroups):
            node.upstream.behind = None
            await node.catalog.delete("copy")
            await nodes.kafka.pause(1)
            await node.catalog.create("orders", "copy")

    node.upstream.behind = delete
    keeping = asyncio.create_task(node.cursors.keep())
    await nodes.kafka.pause(8)
    assert {found.name: found.lag is None for found in node.cursors.statistics.all()} == {"audit": False, "copy": True}
    keeping.cancel()


async def test_a_reset_is_counted_reported_and_in_the_history(nodes: Nodes, node: Node) -> None:
    assert await node.cursors.auto_reset.reset("g", "audit", {0: 0}) == {}, "it has no limit"
    await node.catalog.change("audit", auto_reset_backlog_entries=5)
    assert await node.cursors.auto_reset.reset("g", "audit", {0: 0}) == {0: 20}
    await nodes.kafka.pause(1)
    text = "cursor of group g reset to the end: more than 5 records lay behind it (partition 0: 0 to 20)"
    assert node.hooks.reported == [("cursors_reset", "audit", "g", text)]
    assert (await node.cursors.statistics.of("audit")).resets == 1
    event = (await nodes.events("audit"))[-1]
    assert (event.detail, event.details.reset.group, [*event.details.reset.to_offset]) == (text, "g", [20])
    await node.catalog.change("audit", auto_reset_backlog_entries=0)
    assert await node.cursors.auto_reset.reset("other", "audit", {0: 0}) == {}


async def test_a_reset_that_cannot_be_written_down_is_reported(nodes: Nodes, node: Node, monkeypatch: Any) -> None:
    async def refuse(*_: object) -> None:
        raise TimeoutError("no leader")

    monkeypatch.setattr(node.records, "add_event", refuse)
    await node.log.tailer.read_to_end(10)
    node.cursors.auto_reset.limits = {"audit": 5}
    assert await node.cursors.auto_reset.reset("g", "audit", {0: 0}) == {0: 20}
    await nodes.kafka.pause(1)
    assert node.hooks.names == ["cursors_reset", "cursors_failed"]
