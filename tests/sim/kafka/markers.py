"""Transaction markers on their way from the coordinator to the partitions' leaders (`TransactionMarkerChannelManager`,
`TransactionMarkerRequestCompletionHandler`).

Each marker travels by itself and in any order; the transaction is complete when every leader has replicated its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.kafka import batches, errors
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.topics import CONSUMER_OFFSETS
from tests.sim.kafka.transaction import Facts, State

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.coordinator import Shard, Transaction, Transactions

_FENCED: Final = frozenset({errors.INVALID_PRODUCER_EPOCH, errors.TRANSACTION_COORDINATOR_FENCED})


class Sending:
    """The markers of one transaction that have not been written yet. `ended`: the end is being written, or given up."""

    __slots__ = ("commit", "ended", "epoch", "left", "preparation", "producer_id", "shard", "transaction")

    def __init__(self, shard: Shard, transaction: Transaction, preparation: Facts) -> None:
        facts = transaction.facts
        self.shard = shard
        self.transaction = transaction
        self.preparation = preparation
        self.left = set(facts.partitions)
        self.producer_id = facts.producer_id
        self.epoch = facts.epoch
        self.commit = facts.state is State.PREPARE_COMMIT
        self.ended = False


class Markers:
    """Of one coordinator."""

    def __init__(self, coordinator: Transactions) -> None:
        self._coordinator = coordinator

    @property
    def _broker(self) -> Broker:
        return self._coordinator.broker

    def send(self, shard: Shard, transaction: Transaction, preparation: Facts) -> None:
        """`addTxnMarkersToSend`; `preparation` is what will be written when all are there."""
        sending = Sending(shard, transaction, preparation)
        if not sending.left:
            self._complete(sending)
            return
        cluster = self._broker.cluster
        for partition in sorted(sending.left):
            self._broker.later(cluster.delay(cluster.settings.markers), self._send, sending, partition)

    def _is_current(self, sending: Sending, partition: tuple[str, int]) -> bool:
        shard = sending.shard
        here = self._coordinator.shards.get(shard.replica.index) is shard
        return here and not sending.ended and partition in sending.left

    def _send(self, sending: Sending, partition: tuple[str, int]) -> None:
        if not self._is_current(sending, partition):
            return
        broker, cluster = self._broker, self._broker.cluster
        topic, index = partition
        life = broker.life

        def released() -> None:
            broker.run(life, self._send, (sending, partition))

        if cluster.holds_marker(topic, index, sending.transaction.facts.transactional_id, released):
            return
        image = broker.image.partition(topic, index)
        if image is None:  # TMCM 406-430: unknown to this broker's metadata counts as deleted
            cluster.effect("marker_dropped")
            self._written(sending, partition, errors.NONE)
            return
        broker.later(
            cluster.settings.request_timeout if image.leader >= 0 else cluster.delay(cluster.settings.retry),
            self._send, sending, partition,
        )  # fmt: skip
        if image.leader >= 0:
            leader = cluster.brokers[image.leader]
            answer = lambda error: cluster.post(leader.id, broker.id, self._written, sending, partition, error)  # noqa: E731
            if not leader.alive:  # its connection is closed: tried again soon, with newer metadata
                broker.later(cluster.delay(cluster.settings.retry), self._send, sending, partition)
                return
            cluster.post(broker.id, leader.id, write, leader, partition, sending, answer)

    def _written(self, sending: Sending, partition: tuple[str, int], error: int) -> None:
        if not self._is_current(sending, partition):
            return
        if error in _FENCED:
            # TMRCH 159-166: sending is cancelled, and the transaction stays prepared until the coordinator is reloaded
            sending.ended = True
            self._broker.cluster.effect("markers_cancelled")
            return
        if error:
            cluster = self._broker.cluster
            self._broker.later(cluster.delay(cluster.settings.retry), self._send, sending, partition)
            return
        sending.left.discard(partition)
        if not sending.left:
            self._complete(sending)

    def _complete(self, sending: Sending) -> None:
        """`maybeWriteTxnCompletion`, `tryAppendToLog`: tried again while the log has too few replicas."""
        sending.ended = True

        def done(error: int) -> None:
            if error and error != errors.NOT_COORDINATOR:
                sending.transaction.pending = sending.preparation.state
                cluster = self._broker.cluster
                self._broker.later(cluster.delay(cluster.settings.retry), self._complete, sending)

        if self._coordinator.shards.get(sending.shard.replica.index) is sending.shard:
            self._coordinator.write(sending.shard, sending.transaction, sending.preparation, done)


def write(leader: Broker, partition: tuple[str, int], sending: Sending, answer: object) -> None:
    """WriteTxnMarkers at a leader, as from a coordinator (KA 1703)."""
    coordinator_epoch = sending.shard.epoch
    append(leader, partition, (sending.producer_id, sending.epoch), coordinator_epoch, sending.commit, answer)


def append(
    leader: Broker,
    partition: tuple[str, int],
    stamp: tuple[int, int],
    coordinator_epoch: int,
    commit: bool,
    done: object,
) -> None:
    """Append one marker with acks=all; `done` is called with the error code."""
    assert callable(done)
    replica = leader.hosted(*partition)
    if replica is None:  # also of a partition that others have
        done(errors.UNKNOWN_TOPIC_OR_PARTITION)
        return
    if stamp[1] < 0:  # `MemoryRecordsBuilder.appendEndTxnMarker`: IllegalArgumentException
        done(errors.UNKNOWN_SERVER_ERROR)
        return

    def written(error: int) -> None:
        if not error and replica.topic.name == CONSUMER_OFFSETS:
            leader.groups.marked(replica, stamp[0], commit=commit)
        done(error)

    try:
        found = replica.append_marker(batches.marker(*stamp, commit, coordinator_epoch, leader.wall_ms()))
    except RefusedError as error:
        written(error.code)
        return
    waiting = replica.when_replicated(found.last, written)
    if waiting is not None:

        def overdue() -> None:
            if waiting in replica.waiting:
                replica.forget(waiting)
                written(errors.REQUEST_TIMED_OUT)

        leader.later(leader.cluster.settings.request_timeout, overdue)
