"""One transactional id as its coordinator knows it, and its transitions (`TransactionMetadata`). Pure.

A transition is prepared, written to the coordinator's partition, and completed when that write is replicated; in
between the id is pending, and everybody else is answered 51 CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from tests.sim.kafka import errors
from tests.sim.kafka.errors import RefusedError

NO_EPOCH: Final = -1
NO_PRODUCER_ID: Final = -1
MAX_EPOCH: Final = 32_767


class State(Enum):
    """Values are the names in DescribeTransactions."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
AT_REST: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})

Partitions = frozenset[tuple[str, int]]


class Facts(NamedTuple):
    """What one record of the coordinator's partition says (`TransactionLogValue`). Times are Unix milliseconds."""

    transactional_id: str
    producer_id: int
    previous_producer_id: int
    epoch: int
    last_epoch: int
    timeout_ms: int
    state: State
    partitions: Partitions
    started_ms: int
    updated_ms: int

    @property
    def exhausted(self) -> bool:
        """`isProducerEpochExhausted`: the last epoch is kept for fencing."""
        return is_exhausted(self.epoch)


def is_exhausted(epoch: int) -> bool:
    return epoch >= MAX_EPOCH - 1


class Transaction:
    """The completed facts, and the state that a write under way leads to."""

    __slots__ = ("facts", "failed_fence", "pending")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.pending: State | None = None
        self.failed_fence = False
        """An epoch was raised to fence and its abort could not be written: the next try takes the same epoch."""

    def complete(self, facts: Facts) -> None:
        self.facts = facts
        self.pending = None

    def _prepare(self, facts: Facts) -> Facts:
        self.pending = facts.state
        return facts

    def increment(self, timeout_ms: int, expected_epoch: int | None, now: int) -> Facts:
        """`prepareIncrementProducerEpoch`: the next epoch, or the present one for a retry (KIP-360)."""
        facts = self.facts
        if expected_epoch is None:
            epoch, last = facts.epoch + 1, NO_EPOCH
        elif facts.epoch in (NO_EPOCH, expected_epoch):
            epoch, last = facts.epoch + 1, facts.epoch
        elif expected_epoch == facts.last_epoch:
            epoch, last = facts.epoch, facts.last_epoch
        else:
            raise RefusedError(errors.PRODUCER_FENCED, f"expected epoch {expected_epoch}, has {facts.epoch}")
        return self._prepare(
            facts._replace(
                epoch=epoch, last_epoch=last, timeout_ms=timeout_ms, state=State.EMPTY, partitions=frozenset(),
                started_ms=-1, updated_ms=now,
            )
        )  # fmt: skip

    def rotate(self, producer_id: int, timeout_ms: int, now: int, *, record_last: bool) -> Facts:
        """`prepareProducerIdRotation`: another producer id, epoch 0. The partitions are not informed."""
        facts = self.facts
        return self._prepare(
            facts._replace(
                producer_id=producer_id, previous_producer_id=facts.producer_id, epoch=0,
                last_epoch=facts.epoch if record_last else NO_EPOCH, timeout_ms=timeout_ms, state=State.EMPTY,
                partitions=frozenset(), started_ms=-1, updated_ms=now,
            )
        )  # fmt: skip

    def add(self, partitions: Partitions, now: int) -> Facts:
        """`prepareAddPartitions`."""
        facts = self.facts
        started = now if facts.state in AT_REST else facts.started_ms
        return self._prepare(
            facts._replace(
                state=State.ONGOING, partitions=facts.partitions | partitions, started_ms=started, updated_ms=now
            )
        )

    def fence(self) -> int:
        """`prepareFenceProducerEpoch`: the epoch under which the open transaction is to be aborted."""
        self.pending = State.PREPARE_EPOCH_FENCE
        return self.facts.epoch if self.failed_fence else self.facts.epoch + 1

    def end(self, state: State, now: int) -> Facts:
        """`prepareAbortOrCommit`. The epoch stays: a fence has raised it already, also in a cluster of transaction
        version 2 (ran on 4.1.1: `scenarios.fences.init_during_an_open_transaction`).
        """
        return self._prepare(self.facts._replace(state=state, updated_ms=now))

    def finish(self, now: int) -> Facts:
        """`prepareComplete`: every marker is written."""
        facts = self.facts
        self.failed_fence = False
        state = State.COMPLETE_COMMIT if facts.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        return self._prepare(facts._replace(state=state, partitions=frozenset(), updated_ms=now))

    def die(self, now: int) -> Facts:
        """`prepareDead`: expired."""
        return self._prepare(self.facts._replace(state=State.DEAD, partitions=frozenset(), updated_ms=now))
