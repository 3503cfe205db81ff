from __future__ import annotations

from collections import Counter

import pytest

from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement

TOPICS = [b"orders-%d" % number for number in range(300)]


def node(number: int) -> NodeAddress:
    return NodeAddress(number, "127.0.0.1", 19_000 + number)


def placed(*numbers: int) -> Placement:
    return Placement([node(number) for number in numbers])


@pytest.mark.parametrize("numbers", [(1, 2), (1, 2, 3), (7, 8, 9, 40, 1001)])
def test_partitions_are_spread_evenly_over_the_nodes(numbers: tuple[int, ...]) -> None:
    found = Counter(placed(*numbers).of_partition(topic, index) for topic in TOPICS for index in range(10))
    share = 3000 / len(numbers)
    assert set(found) == set(numbers)
    assert all(0.85 * share < count < 1.15 * share for count in found.values())


def test_every_node_computes_the_same_placement() -> None:
    one, other = placed(3, 1, 2), placed(1, 2, 3)
    assert all(one.of_partition(topic, 0) == other.of_partition(topic, 0) for topic in TOPICS)
    assert all(one.of_key(topic) == other.of_key(topic) for topic in TOPICS)


def test_when_a_node_goes_only_its_own_partitions_move() -> None:
    before, after = placed(1, 2, 3), placed(1, 3)
    for topic in TOPICS:
        for index in range(3):
            old = before.of_partition(topic, index)
            assert old == 2 or after.of_partition(topic, index) == old


def test_partitions_of_one_topic_do_not_all_lie_on_one_node() -> None:
    assert len({placed(1, 2, 3).of_partition(b"orders", index) for index in range(12)}) == 3


def test_the_lowest_live_node_is_the_controller() -> None:
    assert placed(9, 4, 6).controller == 4


def test_there_is_no_placement_without_a_node() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Placement([])


def test_each_broker_belongs_to_one_node() -> None:
    placement = placed(1, 2)
    found = [broker for number in (1, 2) for broker in placement.brokers_of(number, [30, 10, 20])]
    assert sorted(found) == [10, 20, 30]
    assert placed(1, 2, 3).brokers_of(3, [10]) == []


def test_a_governed_topic_is_led_by_the_node_that_serves_it_while_it_lives() -> None:
    directory = NodeDirectory(node(1))
    directory.placement = placed(1, 2, 3)
    directory.serving = {b"orders": 2, b"bills": 44}
    assert {directory.leader(b"orders", index, True) for index in range(9)} == {2}
    assert {directory.leader(b"bills", index, True) for index in range(9)} == {directory.placement.of_topic(b"bills")}
    assert len({directory.leader(b"orders", index, False) for index in range(9)}) > 1
