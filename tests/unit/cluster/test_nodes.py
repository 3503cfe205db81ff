from __future__ import annotations

from collections import Counter

import pytest

from metadata.nodes import ListenerAddress
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


@pytest.mark.parametrize("nodes", [2, 3, 4])
@pytest.mark.parametrize("name", ["orders-audit-{}", "{}-orders", "shadow{}"])
def test_the_shadows_of_a_topic_with_one_partition_are_spread_over_all_nodes(nodes: int, name: str) -> None:
    """Each is a topic of its own, so 100,000 readers of 100 of them do not meet at the node that leads the source."""
    found = Counter(placed(*range(1, nodes + 1)).of_partition(name.format(index).encode(), 0) for index in range(100))
    assert len(found) == nodes
    assert max(found.values()) <= 1.4 * 100 / nodes


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
    assert directory.serves(b"orders") == 2
    assert directory.serves(b"bills") == directory.placement.of_topic(b"bills")


def named(number: int, *listeners: str) -> NodeAddress:
    addresses = tuple(ListenerAddress(name, f"{name.lower()}-{number}", 9092) for name in listeners)
    return NodeAddress(number, addresses[0].host, 9092, addresses)


def hosts(directory: NodeDirectory, listener: str) -> dict[int, str]:
    return {number: found.host for number, found in directory.at(listener).nodes.items()}


def test_clients_see_nodes_at_the_addresses_of_their_listener() -> None:
    directory = NodeDirectory(named(1, "INSIDE", "OUTSIDE"))
    directory.placement = Placement([directory.me, named(2, "OUTSIDE", "INSIDE")])
    assert hosts(directory, "INSIDE") == {1: "inside-1", 2: "inside-2"}
    assert hosts(directory, "OUTSIDE") == {1: "outside-1", 2: "outside-2"}


def test_a_node_without_a_listener_is_left_out_there_alone() -> None:
    directory = NodeDirectory(named(2, "INSIDE", "OUTSIDE"))
    directory.placement = Placement([directory.me, named(1, "INSIDE"), named(3, "INSIDE", "OUTSIDE")])
    assert hosts(directory, "OUTSIDE") == {2: "outside-2", 3: "outside-3"}
    assert (directory.without("INSIDE"), directory.without("OUTSIDE")) == ([], [1])
    led = {directory.at("OUTSIDE").of_partition(b"orders", index) for index in range(50)}
    assert led == {2, 3}
    assert directory.at("OUTSIDE").controller == 2


def test_brokers_are_dealt_out_to_the_nodes_that_a_client_sees() -> None:
    directory = NodeDirectory(named(2, "INSIDE", "OUTSIDE"))
    directory.placement = Placement([directory.me, named(1, "INSIDE"), named(3, "INSIDE", "OUTSIDE")])
    seen = directory.at("OUTSIDE")
    assert sorted(broker for number in seen.nodes for broker in seen.brokers_of(number, range(4))) == [0, 1, 2, 3]


def test_the_address_of_an_older_node_is_that_of_the_first_listener() -> None:
    directory = NodeDirectory(named(1, "INSIDE", "OUTSIDE"))
    directory.placement = Placement([directory.me, NodeAddress(2, "older", 9092)])
    assert hosts(directory, "INSIDE") == {1: "inside-1", 2: "older"}
    assert hosts(directory, "OUTSIDE") == {1: "outside-1"}


def test_a_node_that_goes_is_still_named_where_no_other_has_the_listener() -> None:
    directory = NodeDirectory(named(1, "INSIDE", "OUTSIDE"))
    directory.placement = Placement([named(2, "INSIDE")])
    assert hosts(directory, "OUTSIDE") == {1: "outside-1"}


def test_what_clients_see_follows_the_live_nodes() -> None:
    directory = NodeDirectory(named(1, "INSIDE"))
    assert hosts(directory, "INSIDE") == {1: "inside-1"}
    directory.placement = Placement([directory.me, named(2, "INSIDE")])
    assert hosts(directory, "INSIDE") == {1: "inside-1", 2: "inside-2"}
