"""Plain clients (no idempotence) through nodes to a Kafka on paper: the node numbers their batches.

The client sends and never sends again, so whatever the node does shows: nothing twice, nothing out of order, nothing
acknowledged that is not there. What was answered with an error may be in the log all the same.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from sidecar.forwarder.outcome import Outcome
from sidecar.protocol.session import Session
from tests.unit.exclusive.network_rules import (
    PARTITIONS,
    Network,
    batch_sizes,
    network_menu,
    partitions,
    seldom,
    timeouts,
    walk,
)
from tests.unit.exclusive.paper_node import TOO_LARGE, PaperNode, claim_of

SESSION = Session("conn:1")
ANSWERS = {0, 3, 5, 6, 7, 9, 19, 20, -1, TOO_LARGE}


@dataclass(eq=False)
class Sent:
    """A batch and its answer."""

    partition: int
    values: tuple[int, ...]
    code: int | None = None


class PlainSession(Network):
    """One connection of a plain client."""

    def __init__(self) -> None:
        super().__init__()
        self.node.take_over(claim_of(SESSION))
        self.sent: list[Sent] = []
        self.values = 0

    @rule(partition=partitions, sizes=batch_sizes, timeout=timeouts)
    def send(self, partition: int, sizes: list[int], timeout: float) -> None:
        for records in sizes:
            sent = Sent(partition, tuple(range(self.values, self.values + records)))
            self.values += records
            self.sent.append(sent)

            def done(outcome: Outcome, sent: Sent = sent) -> None:
                assert sent.code is None, "answered twice"
                assert outcome.error in ANSWERS, f"a plain client has no sequences: {outcome.error}"
                sent.code = outcome.error
                log = self.cluster.partitions[sent.partition]
                if outcome.error == 0:
                    assert log.at(outcome.offset) == sent.values, "acknowledged with a wrong offset, or not there"

            self.node.offer(SESSION, partition, -1, -1, sent.values, timeout, done)

    @rule(happens=seldom)
    def take_over(self, happens: bool) -> None:
        """The next epoch: due when the numbering is lost."""
        if happens or self.node.needs_takeover:
            self.node.take_over(claim_of(SESSION))

    @rule(happens=seldom)
    def fail_over(self, happens: bool) -> None:
        """Another node takes over while this one stalls; what it still holds counts for no more."""
        if happens and len(self.nodes) < 3:
            self.nodes.append(PaperNode(self.cluster))
            self.node.take_over(claim_of(SESSION))

    @invariant()
    def check(self) -> None:
        for index, partition in enumerate(self.cluster.partitions):
            assert partition.values == sorted(set(partition.values)), "out of order, or there twice"
            acked = {value for sent in self.sent if sent.partition == index and sent.code == 0 for value in sent.values}
            assert acked <= set(partition.values), "acknowledged and lost"

    def heal(self) -> None:
        for _ in range(3):
            self.settle_network()
            self.check()
            self.take_over(happens=False)
        assert all(sent.code is not None for sent in self.sent), "never answered"
        self.check_at_rest()
        before = len(self.sent)
        for partition in range(PARTITIONS):
            self.send(partition, [1, 1, 1], 30.0)
        self.settle_network()
        assert all(sent.code == 0 for sent in self.sent[before:]), "the session cannot go on"
        self.check()
        self.check_at_rest()


TestPlainSession = PlainSession.TestCase
TestPlainSession.settings = settings(stateful_step_count=60)


@pytest.mark.parametrize("seed", range(8))
def test_long_walks(seed: int) -> None:
    for step in range(40):
        dice, machine = random.Random(f"{seed} {step}"), PlainSession()
        long_walk(machine, dice)


def long_walk(machine: PlainSession, dice: random.Random) -> None:
    def send() -> None:
        sizes = [dice.randint(1, 3) for _ in range(dice.randint(1, 5))]
        machine.send(dice.randrange(PARTITIONS), sizes, dice.choice([0.0, 0.5, 30.0]))

    of = [
        (25, send),
        (4, lambda: machine.take_over(happens=dice.random() < 0.2)),
        (0.5, lambda: machine.fail_over(happens=True)),
    ]
    walk(machine, [*of, *network_menu(machine, dice)], dice, 120, machine.check)


def test_a_stopped_broker_that_goes_on_takes_no_batch_whose_number_is_anothers_by_then() -> None:
    """The first batch is refused, the connection lost, and the second was under way: it may still be read."""
    machine = PlainSession()
    try:
        machine.send(0, [1, 1, 1], 30.0)
        machine.deliver(0, TOO_LARGE, 1)
        machine.answer(0, 1)
        machine.cut(0, linger=True)
        machine.wait(1.0)
        machine.flow(1)
        machine.zombie(0)
        machine.check()
        assert machine.node.needs_takeover
    finally:
        machine.teardown()
