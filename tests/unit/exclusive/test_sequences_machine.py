"""Idempotent clients through nodes to a Kafka on paper: pipelining, retries, giving up, raised epochs, reconnects;
leaders that move, answers that get lost, batches that come late; takeovers and other owners in between.

What must hold whatever happens is in `Sessions.check`; that nobody is blocked for ever, in `Sessions.teardown`. The
numbering begins just below a limit (`STARTS`) and the client's epoch just below 2^15, so both are crossed in most runs.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from sidecar.changelog import Position, pack_positions
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import EPOCH_RECORDS, MODULUS
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.session import Session
from sidecar.v1 import state_pb2 as state
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
from tests.unit.exclusive.paper_kafka import OUT_OF_ORDER, STALE
from tests.unit.exclusive.paper_node import SLOT_ID, TOO_LARGE, PaperNode, claim_of

SESSION, OTHER = Session("pid:1"), Session("conn:other")
EPOCHS = 2**15
FIRST_EPOCH = EPOCHS - 1
DUPLICATE = 46

RETRIABLE = {3, 5, 6, 7, 9, 19, 20, 56, -1, OUT_OF_ORDER}


class Start(NamedTuple):
    """Where a run begins: the client's next sequence, how many records its slot epoch has in each partition, and after
    how many it is replaced.
    """

    sequence: int
    begun: int = 0
    limit: int = EPOCH_RECORDS


STARTS = [
    Start(MODULUS - 7),
    Start(MODULUS - 7, limit=5),
    Start(2**28 - 7, 2**28 - 7),
    Start(2**30 - 7, 2**28 - 7),
    Start(2**31 - 7, 2**28 - 7),
    Start(2**30 - 7, 2**30 - 7),
]


@dataclass(eq=False)
class Sent:
    """A batch of the client: `attempt` is the one whose answer it waits for, 0 where there is none."""

    values: tuple[int, ...]
    epoch: int
    sequence: int
    attempt: int = 0
    code: int | None = None
    acked: bool = False
    failed: bool = False

    @property
    def open(self) -> bool:
        return not (self.acked or self.failed)


class Late(NamedTuple):
    """A batch that is stuck on its way to the node."""

    partition: int
    epoch: int
    number: int
    arrive: Callable[[], None]


@dataclass
class ClientPartition:
    """What the client knows of one partition. `broken`: a batch failed, so it raises its epoch before it goes on."""

    epoch: int = FIRST_EPOCH
    sequence: int = 0
    batches: list[Sent] = field(default_factory=list)
    broken: bool = False

    @property
    def out(self) -> list[Sent]:
        """In flight, given up or not."""
        return [sent for sent in self.batches if sent.attempt]

    @property
    def again(self) -> list[Sent]:
        return [sent for sent in self.batches if sent.open and not sent.attempt]

    @property
    def may_raise(self) -> bool:
        """As Java: not before it is known of every batch in flight that it is not in the log."""
        return (
            not self.out and all(sent.code == OUT_OF_ORDER for sent in self.again) and (self.broken or bool(self.again))
        )


class Sessions(Network):
    """One idempotent client."""

    def __init__(self) -> None:
        super().__init__()
        self.client: list[ClientPartition] = []
        self.attempts = self.values = self.others = 0
        self.answers: dict[int, int] = {}
        self.connection: deque[int] = deque()
        """Attempts that the client waits for, in the order in which it sent them."""
        self.outcomes: dict[int, tuple[int, Sent, Outcome]] = {}
        self.stuck = False
        self.connections = 0
        self.newest: dict[tuple[int, int], int] = {}
        """The last connection that carried batches of a partition and epoch."""
        self.late: deque[Late] = deque()

    @initialize(start=st.sampled_from(STARTS))
    def begin(self, start: Start) -> None:
        base, self.cluster.epoch_records = start.sequence - start.begun, start.limit
        place = {index: Position(FIRST_EPOCH, Client(base)) for index in range(PARTITIONS)}
        left = [state.LeftSession(session=SESSION, next=pack_positions(place))]
        self.cluster.serving = state.Serving(session="", producer_epoch=-1, left=left)
        self.node.take_over(claim_of(SESSION))
        self.client = [ClientPartition(sequence=start.sequence) for _ in range(PARTITIONS)]
        assert self.node.epoch is not None
        for index, partition in enumerate(self.cluster.partitions):
            space = self.node.epoch._spaces[index]
            if start.begun:
                partition.wrote(SLOT_ID, self.cluster.slot_epoch, start.begun - 1)
                space.appended(Client(base), start.begun)

    # The client -------------------------------------------------------------------------------------------------------

    def _send(self, partition: int, sent: Sent, timeout: float) -> None:
        self.attempts += 1
        attempt = sent.attempt = self.attempts
        self.connection.append(attempt)
        connection = self.connection

        def done(outcome: Outcome) -> None:
            self.answers[attempt] += 1
            self._judge(partition, sent, outcome)
            if connection is not self.connection:
                return  # the client is gone from there
            self.outcomes[attempt] = partition, sent, outcome
            while connection and connection[0] in self.outcomes:
                self._answered(*self.outcomes.pop(connection.popleft()))

        epoch, sequence = sent.epoch, sent.sequence

        def arrive() -> None:
            self.answers[attempt] = 0
            self.node.offer(SESSION, partition, epoch, sequence, sent.values, timeout, done)

        self.newest[partition, sent.epoch] = self.connections
        if self.stuck:
            self.late.append(Late(partition, epoch, self.connections, arrive))
        else:
            arrive()

    def _judge(self, partition: int, sent: Sent, outcome: Outcome) -> None:
        """What a node says is true, whether or not it reaches the client."""
        log = self.cluster.partitions[partition]
        if outcome.error == 0:
            assert log.at(outcome.offset) == sent.values, "a wrong offset"
        if outcome.error in (0, DUPLICATE):
            assert set(sent.values) <= set(log.values), "acknowledged and not in the log"

    def _answered(self, partition: int, sent: Sent, outcome: Outcome) -> None:
        """The answers of a connection come in the order of its requests."""
        if not sent.open:
            sent.attempt = 0
            return
        sent.attempt, sent.code = 0, outcome.error
        if outcome.error in (0, DUPLICATE):
            sent.acked = True
            self._acknowledged(partition, sent)
        elif outcome.error not in RETRIABLE:
            assert outcome.error in (STALE, TOO_LARGE), f"no client would survive {outcome.error}"
            sent.failed = self.client[partition].broken = True

    def _acknowledged(self, partition: int, sent: Sent) -> None:
        """librdkafka takes every earlier batch of the epoch for delivered too."""
        log = set(self.cluster.partitions[partition].values)
        for earlier in self.client[partition].batches:
            if earlier is sent:
                break
            if earlier.epoch == sent.epoch:
                assert set(earlier.values) <= log, "overtaken by a batch that was acknowledged"
                earlier.acked = earlier.acked or earlier.open

    @rule(partition=partitions, sizes=batch_sizes, timeout=timeouts)
    def send_more(self, partition: int, sizes: list[int], timeout: float) -> None:
        self.send(partition, sizes, timeout)

    @rule(partition=partitions, sizes=batch_sizes, timeout=timeouts)
    def send(self, partition: int, sizes: list[int], timeout: float) -> None:
        """What failed goes first; new batches behind it, as many as may be in flight."""
        of = self.client[partition]
        for sent in of.again[: 5 - len(of.out)]:
            self._send(partition, sent, timeout)
        for records in sizes:
            if of.broken or of.again or len(of.out) >= 5:
                return
            values = tuple(range(self.values, self.values + records))
            self.values += records
            sent = Sent(values, of.epoch, of.sequence)
            of.sequence = (of.sequence + records) % MODULUS
            of.batches.append(sent)
            self._send(partition, sent, timeout)

    @rule(partition=partitions, happens=seldom)
    def give_up(self, partition: int, happens: bool) -> None:
        """The delivery timeout of the oldest batch is over."""
        if not happens:
            return
        of = self.client[partition]
        oldest = next((sent for sent in of.batches if sent.open), None)
        if oldest is not None:
            oldest.failed = of.broken = True

    @rule(partition=partitions)
    def raise_epoch(self, partition: int) -> None:
        of = self.client[partition]
        if of.may_raise:
            of.epoch, of.sequence, of.broken = (of.epoch + 1) % EPOCHS, 0, False
            for sent in of.again:
                sent.epoch, sent.sequence, sent.code = of.epoch, of.sequence, None
                of.sequence += len(sent.values)

    @rule(happens=seldom)
    def reconnect(self, happens: bool) -> None:
        """Answers to what is on its way reach nobody any more."""
        if happens:
            self.connection, self.stuck = deque(), False
            self.connections += 1
            for of in self.client:
                for sent in of.out:
                    sent.attempt, sent.code = 0, None

    @rule(happens=seldom)
    def get_stuck(self, happens: bool) -> None:
        """From now on nothing of this connection gets through to the node, until the client connects again."""
        self.stuck = self.stuck or happens

    @precondition(lambda self: self.late)
    @rule(count=st.integers(1, 5))
    def arrive_late(self, count: int) -> None:
        """What was stuck on its way to the node is there after all, in order.

        Not behind newer batches of the same epoch: see `paper_node` on what nobody can tell apart.
        """
        for _ in range(count):
            if self.late:
                late = self.late.popleft()
                if self.newest[late.partition, late.epoch] == late.number:
                    late.arrive()

    # The topic --------------------------------------------------------------------------------------------------------

    @rule(happens=seldom)
    def take_over(self, happens: bool) -> None:
        """The same session under the next epoch: a failover, a fence that nobody meant."""
        if happens or self.node.needs_takeover:
            self.node.take_over(claim_of(SESSION))

    @rule(happens=seldom)
    def fail_over(self, happens: bool) -> None:
        """Another node takes over while this one stalls; the client finds it."""
        if happens and len(self.nodes) < 3:
            self.nodes.append(PaperNode(self.cluster))
            self.node.take_over(claim_of(SESSION))
            self.reconnect(happens=True)

    @rule(batches=st.lists(st.tuples(partitions, st.integers(1, 2)), max_size=3), happens=seldom)
    def interlude(self, batches: list[tuple[int, int]], happens: bool) -> None:
        """Somebody else owns the topic for a while, then the session comes back to its place."""
        if not happens:
            return
        self.node.take_over(claim_of(OTHER))
        for partition, records in batches:
            self.others -= records
            self.node.offer(OTHER, partition, -1, -1, tuple(range(self.others, self.others + records)), 0.0, _ignored)
            for link in self.node.forwarder.links.values():
                while link.undelivered() is not None:
                    self.node.forwarder.deliver(link, None)
        self.node.take_over(claim_of(SESSION))

    # What must hold ---------------------------------------------------------------------------------------------------

    @invariant()
    def check(self) -> None:
        for of, partition in zip(self.client, self.cluster.partitions, strict=True):
            mine = [value for value in partition.values if value >= 0]
            assert mine == sorted(set(mine)), "out of order, or there twice"
            acked = {value for sent in of.batches if sent.acked for value in sent.values}
            assert acked <= set(mine), "acknowledged and lost"
        assert all(count <= 1 for count in self.answers.values()), "answered twice"

    def heal(self) -> None:
        """Whatever was not given up gets through, and nothing is left behind."""
        while self.late:
            self.arrive_late(count=1)
        self.reconnect(happens=self.stuck)
        for _ in range(300):
            self.settle_network()
            self.check()
            if self.node.needs_takeover:
                self.take_over(happens=True)
            for partition, of in enumerate(self.client):
                if of.may_raise:
                    self.raise_epoch(partition)
                for sent in of.again[: 5 - len(of.out)]:
                    self._send(partition, sent, 30.0)
            if not any(sent.open for of in self.client for sent in of.batches):
                break
        assert not any(sent.open for of in self.client for sent in of.batches), "blocked for ever"
        self.settle_network()
        assert all(count == 1 for count in self.answers.values()), "never answered"
        self.check_at_rest()


def _ignored(outcome: Outcome) -> None:
    """Nobody waits for the other owner's answers here."""


TestSessions = Sessions.TestCase
TestSessions.settings = settings(stateful_step_count=60)


@pytest.mark.parametrize("seed", range(8))
def test_long_walks(seed: int) -> None:
    for step in range(40):
        dice, machine = random.Random(f"{seed} {step}"), Sessions()
        machine.begin(STARTS[step % len(STARTS)])

        def partition(dice: random.Random = dice) -> int:
            return dice.randrange(PARTITIONS)

        def sizes(dice: random.Random = dice) -> list[int]:
            return [dice.randint(1, 3) for _ in range(dice.randint(1, 5))]

        def others(dice: random.Random = dice) -> list[tuple[int, int]]:
            return [(dice.randrange(PARTITIONS), dice.randint(1, 2)) for _ in range(dice.randrange(3))]

        of = [
            (20, lambda: machine.send(partition(), sizes(), dice.choice([0.0, 0.5, 30.0]))),  # noqa: B023
            (3, lambda: machine.give_up(partition(), happens=True)),  # noqa: B023
            (8, lambda: machine.raise_epoch(partition())),  # noqa: B023
            (1.5, lambda: machine.reconnect(happens=True)),  # noqa: B023
            (2, lambda: machine.get_stuck(happens=True)),  # noqa: B023
            (4, lambda: machine.arrive_late(dice.randint(1, 5))),  # noqa: B023
            (1.5, lambda: machine.take_over(happens=True)),  # noqa: B023
            (1, lambda: machine.fail_over(happens=True)),  # noqa: B023
            (1, lambda: machine.interlude(others(), happens=True)),  # noqa: B023
        ]
        walk(machine, [*of, *network_menu(machine, dice)], dice, 120, machine.check)
