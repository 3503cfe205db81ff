"""Which node serves a topic, and which sessions wait there: `serving`, against a store that answers as it was told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from metadata import MetadataUnavailable
from metadata.nodes import Holder, ServeAnswer, ServeStatus
from sidecar.changelog import View
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.exclusive.serving import Queues, ServingRights
from sidecar.network.tasks import Tasks
from sidecar.protocol.session import Session
from sidecar.takeover.requests import NothingDoneError
from sidecar.takeover.slots import SlotScope
from tests.unit.exclusive.paper_cluster import TOPIC, cluster
from tests.unit.takeover.test_arbitration import AWAY, BUSY, Store, served, services
from tests.wait import wait_until


class Nodes(NodeDirectory):
    """This node and others; every topic is placed on the last one."""

    __slots__ = ()

    def __init__(self, others: tuple[int, ...]) -> None:
        super().__init__(NodeAddress(1, "node", 9092))
        self.place(1, *others)

    def place(self, *nodes: int) -> None:
        self.placement = cast(Any, SimpleNamespace(nodes=dict.fromkeys(nodes), of_topic=lambda topic: nodes[-1]))


def rights(
    store: Store, view: View, *, live: tuple[int, ...] = (), applied: bool = True
) -> tuple[ServingRights, Nodes]:
    found = Nodes(live)
    catalog = SimpleNamespace(is_applied_everywhere=applied)
    return ServingRights(services(view, store), found, Tasks(print), cast(Any, catalog)), found


@pytest.mark.parametrize(
    ("status", "serves", "raises"),
    [
        (ServeStatus.GRANTED, True, False),
        (ServeStatus.HELD, False, False),
        (ServeStatus.SETTLING, False, True),
        (ServeStatus.UNREGISTERED, False, True),
    ],
)
async def test_redis_says_who_serves(status: ServeStatus, serves: bool, raises: bool) -> None:
    store = Store(ServeAnswer(status, Holder(1, "boot"), 0))
    its, nodes = rights(store, View())
    if raises:
        with pytest.raises(NothingDoneError) as busy:
            await its.take(TOPIC)
        assert busy.value.code == BUSY
    else:
        assert await its.take(TOPIC) is serves
    assert nodes.serving == ({b"orders": 1} if serves else {})
    assert store.asked == [(TOPIC, 1, "boot", {"last_node": None})]


@pytest.mark.parametrize(("last", "serves"), [(1, True), (2, False), (None, False)])
async def test_without_redis_the_node_that_served_last_serves(last: int | None, serves: bool) -> None:
    view = View()
    if last is not None:
        served(view, last)
    its, _ = rights(Store(AWAY), view)
    if serves:
        assert await its.take(TOPIC)
    else:
        with pytest.raises(MetadataUnavailable):
            await its.take(TOPIC)


async def test_nothing_is_taken_while_policies_differ_or_the_topic_is_being_handed_over() -> None:
    store = Store()
    its, _ = rights(store, View(), applied=False)
    with pytest.raises(NothingDoneError):
        await its.take(TOPIC)
    its.moving.add(TOPIC)
    assert not await its.take(TOPIC)
    assert store.asked == []


def test_where_a_topic_is_served() -> None:
    its, nodes = rights(Store(), View(), live=(2,))
    assert not its.is_elsewhere(TOPIC)
    its.heard({TOPIC: Holder(2, "x"), "own": Holder(1, "boot"), "dead": Holder(3, "x")})
    assert [its.is_elsewhere(name) for name in (TOPIC, "own", "dead")] == [True, False, False]
    its.forget(TOPIC)
    assert not its.is_elsewhere(TOPIC)
    assert not its.is_first_in_line(b"orders"), "it is placed on node 2"
    nodes.place(2, 1)
    assert [its.is_first_in_line(name) for name in (b"orders", b"dead")] == [True, False]
    holders = (None, Holder(1, "boot"), Holder(1, "before"), Holder(2, "boot"))
    assert [its.is_anothers(holder) for holder in holders] == [False, False, True, True]


async def test_topics_stay_where_they_are_while_the_set_of_nodes_is_not_settled() -> None:
    its, nodes = rights(Store(), View(), live=(2,))
    assert list(its.to_move([TOPIC])) == [(TOPIC, 2)]
    assert list(rights(Store(), View(), live=(1,))[0].to_move([TOPIC])) == [], "it is placed here"
    nodes.place(1, 2)
    assert list(its.to_move([TOPIC])) == []
    nodes.place(2, 1)
    assert list(its.to_move([TOPIC])) == []


async def test_a_topic_that_is_handed_over_is_served_there_also_if_redis_does_not_answer() -> None:
    store = Store(None, AWAY)
    its, nodes = rights(store, View(), live=(2,))
    its.moving |= {"a", "b"}

    async def hand_back() -> None:
        assert its.moving, "nobody takes it back meanwhile"

    for name in ("a", "b"):
        await its.hand_over(name, 2, hand_back)
    assert its.moving == set()
    assert [asked[0] for asked in store.asked] == ["a", "b"]
    assert nodes.serving == {b"a": 2}


# Queues -------------------------------------------------------------------------------------------------------------


async def test_queues_that_changed_are_stored_together_as_they_are_last() -> None:
    store = Store(None, None, None)
    queues, first = Queues(services(View(), store), Tasks(print)), SlotScope("a")
    queues.changed(first, (Session("pid:1"),))
    queues.changed(SlotScope.of_partition("b", 3), (Session("pid:3"),))
    queues.changed(first, (Session("pid:1"), Session("pid:2")))
    await wait_until(lambda: len(store.asked) == 2, "the queues")
    assert store.asked == [
        ("a", 1, "boot", ("pid:1", "pid:2"), {"resource": "a"}),
        ("b", 1, "boot", ("pid:3",), {"resource": SlotScope.of_partition("b", 3).resource}),
    ]
    queues.changed(first, ())
    await wait_until(lambda: len(store.asked) == 3, "the next one")


async def test_the_queue_of_the_last_node_is_empty_if_redis_does_not_answer() -> None:
    async with cluster() as paper:
        node = paper.node()
        paper.move(node)
        paper.redis.queued("pid:1", "pid:2")
        assert await node.env.queues.of(node.whole.scope) == ["pid:1", "pid:2"]
        paper.redis.is_away = True
        assert await node.env.queues.of(node.whole.scope) == []
