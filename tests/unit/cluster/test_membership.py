"""What every live node has to know before something is answered: time alone says of no node that it has read it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from metadata import MetadataStore, MetadataUnavailable, Reason
from metadata.nodes import Beat, LiveNodes, Node
from sidecar.cluster import membership
from sidecar.cluster.membership import Membership
from sidecar.cluster.nodes import NodeAddress, NodeDirectory

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
    monkeypatch.setattr(membership, "_READ_S", 0.05)
    with pytest.raises(TimeoutError, match="node 2 lives, and has not read it"):
        await member(PaperStore([ME, OTHER])).seen_by_all(7)


@pytest.mark.parametrize("after", [[ME, Node(2, "bb", "there", 2, position=7)], [ME]], ids=["read", "lease over"])
async def test_it_is_waited_for_until_it_reads_or_its_lease_is_over(after: list[Node]):
    store = PaperStore([ME, OTHER], [ME, OTHER], after)
    await member(store).seen_by_all(7)
    assert store.beats == 3


async def test_without_redis_nobody_knows_which_nodes_live(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(membership, "_READ_S", 0.05)
    with pytest.raises(TimeoutError, match="Redis does not say which nodes live"):
        await member(PaperStore(None)).seen_by_all(7)
