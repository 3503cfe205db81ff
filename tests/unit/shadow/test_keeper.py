"""What becomes of shadows when topics change in Kafka directly: one node acts, on the second of two equal answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.cluster.nodes import Placement
from sidecar.protocol.calls.admin import CreatePartitions
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import MetadataCall
from sidecar.shadow.keeper import HALF_MADE_MS
from sidecar.v1 import state_pb2 as state
from tests.unit.shadow.paper import Node, Nodes

METADATA, CREATE_PARTITIONS = 3, 37


@pytest.fixture
async def node(nodes: Nodes) -> Node:
    """A node with the shadow `audit` of `orders`."""
    found = await nodes.start()
    await found.catalog.create("orders", "audit")
    await nodes.kafka.pause(1)
    return found


async def recreated(nodes: Nodes, topic: str, partitions: int = 2) -> None:
    await nodes.kafka.delete(topic)
    await nodes.kafka.create(topic, partitions)
    await nodes.kafka.pause(1)


async def test_a_shadow_grows_with_its_source_at_once(nodes: Nodes, node: Node) -> None:
    await nodes.kafka.upstream.call(None, CreatePartitions("orders", 5, 1_000))
    await nodes.kafka.pause(1)
    await node.look(1)
    assert nodes.partitions("audit") == 5
    await nodes.kafka.pause(1)
    await node.look(3)
    assert len(node.upstream.requests(CreatePartitions)) == 1
    assert node.hooks.reported == []


async def test_a_shadow_is_closed_when_its_source_is_gone_and_when_another_has_its_name(
    nodes: Nodes, node: Node
) -> None:
    other = await nodes.start()
    node.directory.placement = Placement([node.directory.me])
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    await node.look(1)
    assert node.hooks.reported == []
    await node.look(1)
    gone = "its source orders was deleted: delete the shadow too"
    assert node.hooks.reported == [("shadow_closed", "audit", gone)]
    assert (other.catalog.closed, other.catalog.all()[0].closed) == (1, gone)
    await node.look(3)
    await nodes.kafka.create("orders", 5)
    await nodes.kafka.pause(1)
    await node.look(4)
    again = "its source orders was created again: delete the shadow and create it again"
    assert node.hooks.reported[1:] == [("shadow_closed", "audit", again)]
    assert other.catalog.all()[0].closed == again
    assert nodes.partitions("audit") == 2, "it grows with no other topic"
    events = await nodes.events("audit")
    assert [event.detail for event in events[1:]] == [f"closed: {gone}", f"closed: {again}"]
    assert [event.details.closed for event in events[1:]] == [gone, again]


async def test_a_shadow_whose_source_is_there_after_all_is_opened_again(nodes: Nodes, node: Node) -> None:
    """Two lagging answers in a row have closed it."""
    await node.records.change("audit", lambda record: setattr(record, "closed", "a broker lagged"))
    await node.look(1)
    assert node.catalog.closed == 1
    await node.look(3)
    assert node.catalog.closed == 0
    assert node.hooks.reported == [("shadow_opened", "audit")]
    event = (await nodes.events("audit"))[-1]
    assert (event.detail, event.details.closed) == ("open again", "")


@pytest.mark.parametrize("how", ["deleted", "created again"])
async def test_a_shadow_whose_own_topic_is_gone_is_forgotten(nodes: Nodes, node: Node, how: str) -> None:
    await (nodes.kafka.delete("audit") if how == "deleted" else recreated(nodes, "audit"))
    await nodes.kafka.pause(1)
    await node.look(1)
    assert node.catalog.all() != []
    await node.look(3)
    reason = "its own topic was deleted in Kafka directly"
    assert node.catalog.all() == []
    assert node.hooks.reported == [("shadow_forgotten", "audit", reason)]
    event = (await nodes.events("audit"))[-1]
    assert (event.detail, event.details.deleted, event.details.reason) == (f"forgotten: {reason}", True, reason)
    assert nodes.partitions("audit") == (0 if how == "deleted" else 2), "somebody's topic stays"


async def test_a_creation_that_was_never_finished_is_forgotten_after_a_while(nodes: Nodes, node: Node) -> None:
    record = state.Shadow(source="orders", source_topic_id=bytes(16), created_ms=node.records.now_ms())
    await node.records.add("copy", record)
    await node.look(3)
    await nodes.kafka.pause(HALF_MADE_MS / 1000 - 5)
    await node.look(3)
    assert len(node.catalog.all()) == 2
    await nodes.kafka.pause(10)
    await node.look()
    assert [shadow.name for shadow in node.catalog.all()] == ["audit"]
    assert node.hooks.reported == [("shadow_forgotten", "copy", "its creation was never finished")]


async def test_a_broker_that_lags_behind_now_and_then_closes_and_forgets_nothing(nodes: Nodes, node: Node) -> None:
    for _ in range(4):
        nodes.kafka.refuse(METADATA, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await node.look(1)
        assert nodes.kafka.cluster.effects["refused"]
        for broker in nodes.kafka.cluster.brokers.values():
            broker.refusals.clear()
        await node.look(1)
    assert (node.hooks.reported, node.catalog.closed, len(node.catalog.all())) == ([], 0, 1)


async def test_a_record_that_changed_behind_the_question_is_judged_anew(nodes: Nodes, node: Node) -> None:
    """The topic of the name is another shadow's by now."""
    await nodes.kafka.delete("audit")
    await nodes.kafka.pause(1)
    await node.look(1)

    async def anew(request: object, answer: object) -> None:
        if isinstance(request, MetadataCall) and "orders" in (request.request.topics or ()):
            node.upstream.behind = None
            await node.records.forget("audit", node.record("audit"))
            await node.catalog.create("orders", "audit")

    node.upstream.behind = anew
    await node.look(3)
    assert node.upstream.behind is None
    assert node.hooks.reported == []
    assert len(node.catalog.all()) == 1


async def test_a_record_that_was_changed_needs_two_new_answers(nodes: Nodes, node: Node) -> None:
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    for number in (1, 2, 3):
        await node.look(1)
        await node.catalog.change("audit", auto_reset_backlog_entries=number)
    assert node.hooks.reported == []
    await node.look(2)
    assert node.hooks.names == ["shadow_closed"]


async def test_one_node_looks_after_a_shadow(nodes: Nodes, node: Node) -> None:
    both = [node, await nodes.start()]
    for number in range(6):
        await node.catalog.create("orders", f"audit-{number}")
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    for _ in range(3):
        await asyncio.gather(*(each.look(1) for each in both))
    closed = [[report[1] for report in each.hooks.reported] for each in both]
    assert all(closed)
    assert sorted([*closed[0], *closed[1]]) == ["audit", *(f"audit-{number}" for number in range(6))]
    assert len([event for event in await nodes.events() if event.details.closed]) == 7


async def test_a_node_that_dies_between_its_event_and_its_record_reports_the_same_event_again(
    nodes: Nodes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Died(BaseException): ...

    async def die(*_: object) -> Any:
        raise Died

    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    with monkeypatch.context() as patch:
        patch.setattr(node.records, "change", die)
        with pytest.raises(Died):
            await node.look()
    await node.look()
    first, again = (await nodes.events("audit"))[1:]
    assert first.id == again.id
    assert node.hooks.names == ["shadow_closed"]
    await nodes.kafka.create("orders")
    await nodes.kafka.pause(1)
    await node.look()
    assert (await nodes.events("audit"))[-1].id != first.id


async def test_a_shadow_that_was_deleted_meanwhile_is_not_reported_as_closed(
    nodes: Nodes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_event = node.records.add_event

    async def deleted(*arguments: Any) -> None:
        await add_event(*arguments)
        await node.records.forget("audit", node.record("audit"))

    monkeypatch.setattr(node.records, "add_event", deleted)
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    await node.look(4)
    assert node.hooks.reported == []


async def test_another_shadow_that_was_made_under_the_name_meanwhile_is_not_closed(
    nodes: Nodes, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_event = node.records.add_event

    async def anew(*arguments: Any) -> None:
        await add_event(*arguments)
        other = state.Shadow(source="orders", source_topic_id=bytes(16), topic_id=b"i" * 16)
        await node.records.forget("audit", node.record("audit"))
        await node.records.add("audit", other)

    monkeypatch.setattr(node.records, "add_event", anew)
    await nodes.kafka.delete("orders")
    await nodes.kafka.pause(1)
    await node.look(2)
    assert node.record("audit").closed == ""


async def test_what_fails_is_reported_and_the_next_shadow_has_its_turn(nodes: Nodes, node: Node) -> None:
    for name in ("copy", "a", "z"):
        await node.catalog.create("orders", name)
    await nodes.kafka.upstream.call(None, CreatePartitions("orders", 3, 1_000))
    await nodes.kafka.pause(1)
    nodes.kafka.refuse(CREATE_PARTITIONS, ErrorCode.POLICY_VIOLATION)
    await node.look(1)
    assert {(name, error.code) for name, _, error in node.hooks.reported} == {
        ("shadow_failed", ErrorCode.POLICY_VIOLATION)
    }
    failed = {shadow for _, shadow, _ in node.hooks.reported}
    assert {name for name in ("audit", "copy", "a", "z") if nodes.partitions(name) == 2} == failed
    assert len(node.upstream.requests(CreatePartitions)) == 4
    for broker in nodes.kafka.cluster.brokers.values():
        broker.refusals.clear()
    await nodes.kafka.pause(1)
    await node.look(1)
    assert {nodes.partitions(name) for name in ("audit", "copy", "a", "z")} == {3}


async def test_while_kafka_does_not_answer_this_is_reported_and_tried_again(nodes: Nodes, node: Node) -> None:
    for broker in nodes.kafka.cluster.brokers.values():
        broker.kill()
    keeping = asyncio.create_task(node.keeper.run())
    await nodes.kafka.pause(21)
    assert {report[:2] for report in node.hooks.reported} == {("shadow_failed", "")}
    assert 3 <= len(node.hooks.reported) <= 10, "every two seconds, and what it takes"
    for broker in nodes.kafka.cluster.brokers.values():
        broker.start()
    await nodes.kafka.pause(10)
    node.hooks.reported.clear()
    await nodes.kafka.upstream.call(None, CreatePartitions("orders", 3, 1_000))
    await nodes.kafka.pause(5)
    assert nodes.partitions("audit") == 3
    keeping.cancel()


async def test_a_node_without_shadows_asks_nothing(nodes: Nodes) -> None:
    node = await nodes.start()
    node.upstream.asked.clear()
    await node.look()
    assert node.upstream.requests(MetadataCall) == []
