"""What every live node has to know before something is answered: time alone says of no node that it has read it."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from metadata import MetadataStore, MetadataUnavailable, Reason
from metadata.nodes import Beat, ListenerAddress, LiveNodes, Node
from sidecar.cluster.nodes import Membership, NodeAddress, NodeDirectory

ME, OTHER = Node(1, "aa", "here", 1, position=9), Node(2, "bb", "there", 2, position=6)


class PaperStore:
    """Answers heartbeats with these nodes, one picture after the other; the last one stays. None: no answer."""

    lease_ms = 1

    def __init__(self, *pictures: list[Node] | None) -> None:
        self.pictures = list(pictures)
        self.beats = 0

    async def heartbeat(self, node: Node, topics: object, owners: object) -> Beat:
        self.beats += 1
        found = self.pictures.pop(0) if len(self.pictures) > 1 else self.pictures[0]
        if found is None:
            raise MetadataUnavailable(Reason.AWAY, "no connection")
        live = LiveNodes({each.node_id: each for each in found}, {}, policy_version=0)
        return Beat(live, lost={}, restored=0)


class Nothing:
    """Nothing is asserted."""

    def served_topics(self) -> list[str]:
        return []

    def owned(self) -> list[Any]:
        return []

    def heard(self, live: LiveNodes, lost: set[str]) -> None: ...
    async def refill(self) -> None: ...


def member(store: PaperStore) -> Membership:
    nodes = NodeDirectory(NodeAddress(1, "here", 1))
    return Membership(cast("MetadataStore", store), nodes, lambda: ME, Nothing(), failed=lambda error: None)


async def test_a_node_that_lives_and_does_not_read_is_not_taken_for_one_that_knows(monkeypatch: pytest.MonkeyPatch):
    """It would serve the empty topic that bears a shadow's name."""
    monkeypatch.setattr("sidecar.cluster.nodes._READ_S", 0.05)
    with pytest.raises(TimeoutError, match="node 2 lives, and has not read it"):
        await member(PaperStore([ME, OTHER])).seen_by_all(7)


@pytest.mark.parametrize("after", [[ME, Node(2, "bb", "there", 2, position=7)], [ME]], ids=["read", "lease over"])
async def test_it_is_waited_for_until_it_reads_or_its_lease_is_over(after: list[Node]):
    store = PaperStore([ME, OTHER], [ME, OTHER], after)
    await member(store).seen_by_all(7)
    assert store.beats == 3


async def test_without_redis_nobody_knows_which_nodes_live(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sidecar.cluster.nodes._READ_S", 0.05)
    with pytest.raises(TimeoutError, match="Redis does not say which nodes live"):
        await member(PaperStore(None)).seen_by_all(7)


def at(number: int, *listeners: str) -> Node:
    addresses = tuple(ListenerAddress(name, f"{name.lower()}-{number}", 9092) for name in listeners)
    return Node(number, "aa", addresses[0].host, 9092, listeners=addresses)


async def test_a_peer_without_a_listener_is_told_of_once_and_again_when_it_comes_back_without():
    me = at(1, "INSIDE", "OUTSIDE")
    store = PaperStore([me, at(2, "INSIDE")], [me, at(2, "INSIDE")], [me, at(2, "INSIDE"), at(3, "INSIDE")], [me],
                       [me, at(2, "OUTSIDE")])  # fmt: skip
    nodes, told = NodeDirectory(NodeAddress(1, me.host, me.port, me.listeners)), list[tuple[str, int]]()
    joined = Membership(
        cast("MetadataStore", store),
        nodes,
        lambda: me,
        Nothing(),
        failed=lambda error: None,
        lacks_listener=lambda listener, node: told.append((listener, node)),
    )
    for _ in range(3):
        await joined.beat_now()
    assert told == [("OUTSIDE", 2), ("OUTSIDE", 3)]
    await joined.beat_now()
    await joined.beat_now()
    assert told[2:] == [("INSIDE", 2)]
    assert {number: found.host for number, found in nodes.at("OUTSIDE").nodes.items()} == {
        1: "outside-1",
        2: "outside-2",
    }


async def test_a_node_of_an_older_version_stands_at_the_first_listener():
    me = at(1, "INSIDE", "OUTSIDE")
    older = Node.decode(2, b'{"host":"older","port":9092,"boot":"bb"}')
    nodes = NodeDirectory(NodeAddress(1, me.host, me.port, me.listeners))
    store = cast("MetadataStore", PaperStore([me, older]))
    await Membership(store, nodes, lambda: me, Nothing(), failed=lambda error: None).beat_now()
    assert {number: found.host for number, found in nodes.at("INSIDE").nodes.items()} == {1: "inside-1", 2: "older"}
    assert list(nodes.at("OUTSIDE").nodes) == [1]


def test_what_a_node_publishes_is_read_by_every_version():
    node = at(1, "INSIDE", "OUTSIDE")
    assert Node.decode(1, node.encode().encode()) == node
    assert (json.loads(node.encode())["host"], json.loads(node.encode())["port"]) == ("inside-1", 9092)
