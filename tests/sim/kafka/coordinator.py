"""The transaction coordinator of one broker (`TransactionCoordinator`, `TransactionStateManager`).

It coordinates the ids of those partitions of `__transaction_state` that this broker leads; the leader epoch is the
coordinator epoch of its markers. Its records are replicated like any others, so a coordinator that moves knows what was
committed and nothing else. Requests are served as transaction version 1 (EndTxn up to version 4, KIP-890).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from tests.sim.kafka import batches, errors
from tests.sim.kafka.controller import CONTROLLER
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.markers import Markers
from tests.sim.kafka.topics import TRANSACTION_STATE
from tests.sim.kafka.transaction import (
    AT_REST,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREPARED,
    Facts,
    Partitions,
    State,
    Transaction,
    is_exhausted,
)

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.cluster import Cluster
    from tests.sim.kafka.replica import Replica

Stamped = Callable[[int, int, int], object]
"""Called with error, producer id, epoch."""
Done = Callable[[int], object]
"""Called with the error."""

_ERRORS = {
    errors.UNKNOWN_TOPIC_OR_PARTITION: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: errors.COORDINATOR_NOT_AVAILABLE,
    errors.REQUEST_TIMED_OUT: errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_LEADER_OR_FOLLOWER: errors.NOT_COORDINATOR,
}
"""`TransactionStateManager.appendTransactionToLog`."""
_FIRST_WITH_FORMER_ID: Final = (4, 3)


def verify(cluster: Cluster, name: str, stamp: tuple[int, int], partition: tuple[str, int]) -> None:
    """`AddPartitionsToTxnManager`, without the way to the coordinator and back: that the transaction has this
    partition (KIP-890). Raises `RefusedError`.
    """
    coordinator = cluster.leader(TRANSACTION_STATE, cluster.transaction_partition(name))
    if coordinator < 0:
        raise RefusedError(errors.COORDINATOR_NOT_AVAILABLE)
    code = cluster.brokers[coordinator].transactions.holds(name, *stamp, partition)
    if code:
        code = errors.INVALID_PRODUCER_EPOCH if code == errors.PRODUCER_FENCED else code
        raise RefusedError(code, "the partition is not in the transaction")


class Shard:
    """One partition of `__transaction_state` that this broker leads. `loading` until it has been read."""

    __slots__ = ("epoch", "ids", "loading", "replica")

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.epoch = replica.epoch
        self.loading = True
        self.ids: dict[str, Transaction] = {}


class Transactions:
    """See the module. What a client asks for is answered by a callback: records are replicated first."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.shards: dict[int, Shard] = {}
        self.markers = Markers(self)
        self._free: Iterator[int] | None = None
        self._asking_ids = False

    # Elections -----------------------------------------------------------------------------------------------------

    def elected(self, replica: Replica) -> None:
        """`onElection`: load the partition, then send the markers of what was prepared."""
        shard = self.shards[replica.index] = Shard(replica)
        if not replica.log.end:
            self._loaded(shard)
            return
        self.broker.later(self.broker.cluster.delay(self.broker.cluster.settings.load), self._load, shard)

    def resigned(self, replica: Replica) -> None:
        """`onResignation`."""
        self.shards.pop(replica.index, None)

    def _load(self, shard: Shard) -> None:
        if self.shards.get(shard.replica.index) is shard:
            if shard.replica.high_watermark < shard.replica.log.end:  # it reads what is committed only
                self.broker.later(0.01, self._load, shard)
                return
            self._loaded(shard)

    def _loaded(self, shard: Shard) -> None:
        for batch in shard.replica.log.batches:
            facts: Facts = batch.note
            if facts.state is State.DEAD:
                shard.ids.pop(facts.transactional_id, None)
            else:
                shard.ids[facts.transactional_id] = Transaction(self._read(facts))
        shard.loading = False
        for transaction in shard.ids.values():
            self._watch_timeout(shard, transaction)
            if transaction.facts.state in PREPARED:
                preparation = transaction.finish(self.broker.wall_ms())
                self.markers.send(shard, transaction, preparation)

    def _read(self, facts: Facts) -> Facts:
        """What a record says: nothing of the last epoch, so a retry that spans a change of the coordinator is refused.
        The former producer id is in it by 4.3.1, and not yet in 4.1.1 (`TransactionLog.valueToBytes`).
        """
        has_former = self.broker.cluster.settings.version >= _FIRST_WITH_FORMER_ID
        return facts._replace(
            last_epoch=NO_EPOCH, previous_producer_id=facts.previous_producer_id if has_former else NO_PRODUCER_ID
        )

    def find(self, transactional_id: str) -> tuple[Shard, Transaction | None]:
        """Raises `RefusedError` 16 or 14."""
        shard = self.shards.get(self.broker.cluster.transaction_partition(transactional_id))
        if shard is None:
            raise RefusedError(errors.NOT_COORDINATOR)
        if shard.loading:
            raise RefusedError(errors.COORDINATOR_LOAD_IN_PROGRESS)
        return shard, shard.ids.get(transactional_id)

    # Producer ids --------------------------------------------------------------------------------------------------

    def new_producer_id(self) -> int:
        """`RPCProducerIdManager`: blocks from the controller. Raises `RefusedError` 14 until one has come."""
        found = next(self._free, None) if self._free is not None else None
        if found is None:
            if not self._asking_ids:
                self._asking_ids = True
                self.broker.cluster.post(self.broker.id, CONTROLLER, self._give_block)
                self.broker.later(self.broker.cluster.settings.request_timeout, self._no_block)
            raise RefusedError(errors.COORDINATOR_LOAD_IN_PROGRESS, "no block of producer ids")
        return found

    def _give_block(self) -> None:
        cluster = self.broker.cluster
        first = cluster.controller.next_producer_id
        cluster.controller.next_producer_id += cluster.settings.producer_id_block
        cluster.post(CONTROLLER, self.broker.id, self._take_block, first)

    def _take_block(self, first: int) -> None:
        self._asking_ids = False
        self._free = iter(range(first, first + self.broker.cluster.settings.producer_id_block))

    def _no_block(self) -> None:
        self._asking_ids = False

    # InitProducerId ------------------------------------------------------------------------------------------------

    def init(self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int], done: Stamped) -> None:
        """`handleInitProducerId`; `expected` is (-1, -1) where the client names nothing."""
        try:
            self._init(transactional_id, timeout_ms, None if expected == (-1, -1) else expected, done)
        except RefusedError as error:
            done(error.code, -1, -1)

    def _init(
        self, transactional_id: str | None, timeout_ms: int, expected: tuple[int, int] | None, done: Stamped
    ) -> None:
        if transactional_id is None:
            done(errors.NONE, self.new_producer_id(), 0)
            return
        if not transactional_id:
            raise RefusedError(errors.INVALID_REQUEST)
        if not 0 < timeout_ms <= self.broker.cluster.settings.max_transaction_timeout_ms:
            raise RefusedError(errors.INVALID_TRANSACTION_TIMEOUT)
        shard, transaction = self.find(transactional_id)
        now = self.broker.wall_ms()
        if transaction is None:
            transaction = shard.ids[transactional_id] = Transaction(
                Facts(
                    transactional_id, self.new_producer_id(), NO_PRODUCER_ID, NO_EPOCH, NO_EPOCH, timeout_ms,
                    State.EMPTY, frozenset(), -1, now,
                )
            )  # fmt: skip
        self._may_init(transaction, expected)
        if transaction.facts.state is State.ONGOING:
            # abort the open transaction first; the client tries again, and the epoch is raised a second time
            epoch = transaction.fence()
            self._end(shard, transaction, transaction.facts.producer_id, epoch, State.PREPARE_ABORT, client=False,
                      done=lambda error: done(error or errors.CONCURRENT_TRANSACTIONS, -1, -1))  # fmt: skip
            return
        if transaction.facts.exhausted and (expected is None or expected[1] == transaction.facts.epoch):
            facts = transaction.rotate(self.new_producer_id(), timeout_ms, now, record_last=expected is not None)
        else:
            facts = transaction.increment(timeout_ms, None if expected is None else expected[1], now)
        self._write(
            shard, transaction, facts,
            lambda error: done(error, -1, -1) if error else done(0, facts.producer_id, facts.epoch),
        )  # fmt: skip

    def _may_init(self, transaction: Transaction, expected: tuple[int, int] | None) -> None:
        """`prepareInitProducerIdTransit`."""
        facts = transaction.facts
        if transaction.pending is not None:
            raise RefusedError(errors.CONCURRENT_TRANSACTIONS)
        if expected is not None and facts.epoch != NO_EPOCH and expected[0] != facts.producer_id:
            retry = expected[0] == facts.previous_producer_id and is_exhausted(expected[1])
            if not retry:
                raise RefusedError(errors.PRODUCER_FENCED)
        if facts.state in PREPARED:
            raise RefusedError(errors.CONCURRENT_TRANSACTIONS)

    # AddPartitionsToTxn, EndTxn ------------------------------------------------------------------------------------

    def add(self, transactional_id: str, producer_id: int, epoch: int, partitions: Partitions, done: Done) -> None:
        """`handleAddPartitionsToTransaction`."""
        try:
            shard, transaction = self._known(transactional_id, producer_id)
            facts = transaction.facts
            if facts.epoch != epoch:
                raise RefusedError(errors.PRODUCER_FENCED)
            if transaction.pending is not None or facts.state in PREPARED:
                raise RefusedError(errors.CONCURRENT_TRANSACTIONS)
        except RefusedError as error:
            done(error.code)
            return
        if facts.state is State.ONGOING and partitions <= facts.partitions:
            done(errors.NONE)
            return
        self._write(shard, transaction, transaction.add(partitions, self.broker.wall_ms()), done)

    def holds(self, transactional_id: str, producer_id: int, epoch: int, partition: tuple[str, int]) -> int:
        """Whether a partition is in the open transaction (`handleVerifyPartitionsInTransaction`): an error code."""
        try:
            _, transaction = self._known(transactional_id, producer_id)
        except RefusedError as error:
            return error.code
        facts = transaction.facts
        if facts.epoch != epoch:
            return errors.PRODUCER_FENCED
        if facts.state in PREPARED:
            return errors.CONCURRENT_TRANSACTIONS
        return errors.NONE if partition in facts.partitions else errors.INVALID_TXN_STATE

    def end(self, transactional_id: str, producer_id: int, epoch: int, done: Done, *, commit: bool) -> None:
        """`endTransactionWithTV1`. The answer comes before the markers are sent (TC 668-670)."""
        try:
            shard, transaction = self._known(transactional_id, producer_id)
            state = State.PREPARE_COMMIT if commit else State.PREPARE_ABORT
            self._end(shard, transaction, producer_id, epoch, state, client=True, done=done)
        except RefusedError as error:
            done(error.code)

    def _known(self, transactional_id: str, producer_id: int) -> tuple[Shard, Transaction]:
        if not transactional_id:
            raise RefusedError(errors.INVALID_REQUEST)
        shard, transaction = self.find(transactional_id)
        if transaction is None or transaction.facts.producer_id != producer_id:
            raise RefusedError(errors.INVALID_PRODUCER_ID_MAPPING)
        return shard, transaction

    def _end(
        self, shard: Shard, transaction: Transaction, producer_id: int, epoch: int, wanted: State, *, client: bool,
        done: Done,
    ) -> None:  # fmt: skip
        facts = transaction.facts
        if (client and epoch != facts.epoch) or epoch < facts.epoch:
            raise RefusedError(errors.PRODUCER_FENCED)
        fencing = transaction.pending is State.PREPARE_EPOCH_FENCE
        if transaction.pending is not None and (client or not fencing):
            raise RefusedError(errors.CONCURRENT_TRANSACTIONS)
        complete = State.COMPLETE_COMMIT if wanted is State.PREPARE_COMMIT else State.COMPLETE_ABORT
        if facts.state is complete:
            done(errors.NONE)
            return
        if facts.state is wanted:
            raise RefusedError(errors.CONCURRENT_TRANSACTIONS)
        if facts.state is not State.ONGOING:
            raise RefusedError(errors.INVALID_TXN_STATE)
        if fencing:
            transaction.pending = None
            transaction.facts = facts._replace(epoch=epoch, last_epoch=self._last_epoch(facts))
        prepared = transaction.end(wanted, self.broker.wall_ms())

        def written(error: int) -> None:
            if error and fencing:
                transaction.failed_fence = True
            if error:
                done(error)
                return
            preparation = transaction.finish(self.broker.wall_ms())
            done(errors.NONE)
            self.markers.send(shard, transaction, preparation)

        self._write(shard, transaction, prepared, written)

    def _last_epoch(self, facts: Facts) -> int:
        """Since transaction version 2 the producer that was fenced may still come for the raised epoch (KIP-890)."""
        return facts.epoch if self.broker.cluster.settings.version >= (4, 0) else NO_EPOCH

    # Its own log ---------------------------------------------------------------------------------------------------

    def write(self, shard: Shard, transaction: Transaction, facts: Facts, done: Done) -> None:
        """`appendTransactionToLog`; `done` once it is replicated, or failed."""
        self._write(shard, transaction, facts, done)

    def _write(self, shard: Shard, transaction: Transaction, facts: Facts, done: Done) -> None:
        def replicated(error: int) -> None:
            if self.shards.get(shard.replica.index) is not shard:
                done(errors.NOT_COORDINATOR)
                return
            if error:
                transaction.pending = None
                done(_ERRORS.get(error, error))
                return
            transaction.complete(self._completed(transaction, facts))
            if facts.state is State.DEAD:
                shard.ids.pop(facts.transactional_id, None)
            self._watch_timeout(shard, transaction)
            done(errors.NONE)

        try:
            appended = shard.replica.append_note(batches.noted(facts, facts.updated_ms))
        except RefusedError as error:
            replicated(error.code)
            return
        self.broker.trace(
            "transaction", facts.transactional_id, facts.state.value, f"{facts.producer_id}@{facts.epoch}"
        )
        waiting = shard.replica.when_replicated(appended.last, replicated)
        if waiting is not None:
            self.broker.later(self.broker.cluster.settings.request_timeout, self._overdue, shard, waiting)

    def _completed(self, transaction: Transaction, facts: Facts) -> Facts:
        """Before 4.0 a coordinator kept the start of the last transaction when an epoch was raised."""
        if facts.state is State.EMPTY and self.broker.cluster.settings.version < (4, 0):
            return facts._replace(started_ms=transaction.facts.started_ms)
        return facts

    def _overdue(self, shard: Shard, waiting: object) -> None:
        for each in shard.replica.waiting:
            if each is waiting:
                shard.replica.waiting.remove(each)
                each.done(errors.REQUEST_TIMED_OUT)
                return

    # Time ----------------------------------------------------------------------------------------------------------

    def _watch_timeout(self, shard: Shard, transaction: Transaction) -> None:
        """An open transaction is aborted some time after its timeout (`abortTimedOutTransactions`, each 10 s)."""
        facts = transaction.facts
        if facts.state is not State.ONGOING:
            return
        left = (facts.started_ms + facts.timeout_ms - self.broker.wall_ms()) / 1000
        scan = self.broker.cluster.scheduler.rng.uniform(0.0, self.broker.cluster.settings.abort_check)
        self.broker.later(max(0.0, left) + scan, self._time_out, shard, transaction, facts.started_ms)

    def _time_out(self, shard: Shard, transaction: Transaction, started_ms: int) -> None:
        facts = transaction.facts
        if (
            self.shards.get(shard.replica.index) is not shard
            or facts.state is not State.ONGOING
            or facts.started_ms != started_ms
        ):
            return
        if transaction.pending is not None:
            self.broker.later(self.broker.cluster.settings.abort_check, self._time_out, shard, transaction, started_ms)
            return
        self.broker.cluster.effect("transaction_timed_out")
        epoch = transaction.fence()
        self._end(shard, transaction, facts.producer_id, epoch, State.PREPARE_ABORT, client=False,
                  done=lambda error: self._retry_time_out(error, shard, transaction, started_ms))  # fmt: skip

    def _retry_time_out(self, error: int, shard: Shard, transaction: Transaction, started_ms: int) -> None:
        if error:
            self.broker.later(self.broker.cluster.settings.abort_check, self._time_out, shard, transaction, started_ms)

    def expire(self) -> None:
        """`enableTransactionalIdExpiration`: ids at rest that nothing has happened to for a week are forgotten."""
        now, limit = self.broker.wall_ms(), self.broker.cluster.settings.transactional_id_expiration_ms
        for shard in list(self.shards.values()):
            for transaction in list(shard.ids.values()):
                facts = transaction.facts
                if transaction.pending is None and facts.state in AT_REST and now - facts.updated_ms >= limit:
                    self.broker.cluster.effect("transactional_id_expired")
                    self._write(shard, transaction, transaction.die(now), lambda error: None)
