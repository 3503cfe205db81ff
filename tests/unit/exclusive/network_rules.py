"""The rules that every machine over the paper network shares: what becomes of requests, who leads, how time passes."""

from __future__ import annotations

import random
from collections.abc import Callable

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.unit.exclusive.paper_node import TOO_LARGE, Cluster, Link, PaperNode
from tests.unit.forwarder.paper import manual_time

PARTITIONS = 2
FAULTS = [None, None, None, 6, 7, 19, 20, -1, TOO_LARGE]
partitions = st.integers(0, PARTITIONS - 1)
batch_sizes = st.lists(st.integers(1, 3), min_size=1, max_size=5)
timeouts = st.sampled_from([0.0, 0.5, 30.0])
seldom = st.integers(0, 5).map(lambda drawn: drawn == 5)
"""Rules are drawn alike; what happens once in a while asks this first."""


class Network(RuleBasedStateMachine):
    """A cluster and its nodes; the last one serves, those before it stalled and do not know it."""

    def __init__(self) -> None:
        super().__init__()
        self._time = manual_time()
        self.loop = self._time.__enter__()
        self.cluster = Cluster(PARTITIONS)
        self.nodes = [PaperNode(self.cluster)]

    def teardown(self) -> None:
        try:
            self.heal()
        finally:
            self._time.__exit__(None, None, None)

    def heal(self) -> None:
        """The network is well again: check that everything comes to rest."""
        raise NotImplementedError

    @property
    def node(self) -> PaperNode:
        return self.nodes[-1]

    def _links(self) -> list[tuple[PaperNode, Link]]:
        return [(node, link) for node in self.nodes for link in node.forwarder.links.values()]

    @rule(count=st.integers(1, 10))
    def flow(self, count: int) -> None:
        """Requests are delivered and answered as on a good day, as far as the node knows the leaders."""
        for _ in range(count):
            for node, link in self._links():
                if link.undelivered() is not None:
                    node.forwarder.deliver(link, None)
                if link.requests and link.requests[0].outcome:
                    node.forwarder.answer(link)
            self.loop.turn()

    @rule(count=st.integers(1, 10))
    def flow_on(self, count: int) -> None:
        self.flow(count)

    @rule(which=st.integers(0, 5), fault=st.sampled_from(FAULTS), count=st.integers(1, 5))
    def deliver(self, which: int, fault: int | None, count: int) -> None:
        found = [(node, link) for node, link in self._links() if link.undelivered() is not None]
        if found:
            node, link = found[which % len(found)]
            for _ in range(count):
                if link.undelivered() is not None:
                    node.forwarder.deliver(link, fault)

    @rule(which=st.integers(0, 5), count=st.integers(1, 5))
    def answer(self, which: int, count: int) -> None:
        for _ in range(count):
            found = [(node, link) for node, link in self._links() if link.requests and link.requests[0].outcome]
            if found:
                node, link = found[which % len(found)]
                node.forwarder.answer(link)

    @rule(which=st.integers(0, 5), linger=st.booleans())
    def cut(self, which: int, linger: bool) -> None:
        found = [(node, link) for node, link in self._links() if link.requests]
        if found:
            node, link = found[which % len(found)]
            node.forwarder.cut(link, linger=linger)

    @precondition(lambda self: self.cluster.zombies)
    @rule(which=st.integers(0, 5))
    def zombie(self, which: int) -> None:
        """A stopped broker goes on with what lay in a socket that the node has long closed."""
        if self.cluster.zombies:
            self.cluster.wake_zombie(which)

    @rule(partition=partitions, broker=st.integers(0, 2))
    def move_leader(self, partition: int, broker: int) -> None:
        self.cluster.leaders[partition] = broker

    @rule(partition=partitions, leaderless=st.booleans())
    def refresh(self, partition: int, leaderless: bool) -> None:
        view = None if leaderless else self.cluster.leaders[partition]
        self.node.forwarder.view[partition] = view

    @rule(seconds=st.sampled_from([0.0, 0.0, 0.03, 1.0]))
    def wait(self, seconds: float) -> None:
        for node in self.nodes:
            node.forwarder.settle_leaderless()
        self.loop.advance(seconds)

    def settle_network(self) -> None:
        """Deliver and answer everything, to the right leaders, until no lane wants anything."""
        while self.cluster.zombies:
            self.cluster.wake_zombie(0)
        for _ in range(100):
            for node in self.nodes:
                node.forwarder.view = list(self.cluster.leaders)
                node.forwarder.settle_leaderless()
            busy = [(node, link) for node, link in self._links() if link.requests]
            for node, link in busy:
                while link.undelivered() is not None:
                    node.forwarder.deliver(link, None)
                while link.requests and link.requests[0].outcome:
                    node.forwarder.answer(link)
            if not busy and not self.loop.timers:
                return
            self.loop.advance(1.0)
        raise AssertionError("a lane that never comes to rest")

    def check_at_rest(self) -> None:
        """No lane holds anything, or is muted for ever; every byte was given back."""
        for node in self.nodes:
            assert all(lane.idle for lane in node.forwarder.lanes), "left behind"
            assert all(not lane.muted for lane in node.forwarder.lanes if lane._closed is None), "muted for ever"
            assert node.forwarder.held == 0
        assert self.loop.timers == 0


Menu = list[tuple[float, Callable[[], object]]]


def network_menu(machine: Network, dice: random.Random) -> Menu:
    """The rules above by weight, for a walk by dice: longer and more evenly mixed than what Hypothesis draws."""
    return [
        (20, lambda: machine.flow(dice.randint(1, 6))),
        (10, lambda: machine.deliver(dice.randrange(6), dice.choice(FAULTS), dice.randint(1, 4))),
        (8, lambda: machine.answer(dice.randrange(6), dice.randint(1, 4))),
        (4, lambda: machine.cut(dice.randrange(6), linger=dice.random() < 0.6)),
        (4, lambda: machine.zombie(dice.randrange(6))),
        (3, lambda: machine.move_leader(dice.randrange(PARTITIONS), dice.randrange(3))),
        (5, lambda: machine.refresh(dice.randrange(PARTITIONS), leaderless=dice.random() < 0.2)),
        (8, lambda: machine.wait(dice.choice([0.0, 0.0, 0.03, 1.0]))),
    ]


def walk(machine: Network, menu: Menu, dice: random.Random, steps: int, check: Callable[[], None]) -> None:
    """Take `steps` from the menu, checking what must hold behind each, then heal."""
    weights, actions = [weight for weight, _ in menu], [action for _, action in menu]
    try:
        for action in dice.choices(actions, weights, k=steps):
            action()
            check()
    finally:
        machine.teardown()
