"""Produce, api key 0 (`KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords`, `DelayedProduce`)."""

from __future__ import annotations

import gzip
import zlib
from functools import partial
from typing import Any, Final

from sidecar.protocol.schema import Values
from tests.sim.kafka import batches, errors
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.cleaner import parse
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.replica import Appended, Replica, Waiting

_GZIP: Final = 1
_HEADER_BYTES: Final = 61


class _Produce:
    """One request. With acks=all it is answered when each partition is replicated, or the client's timeout is over."""

    __slots__ = ("acks", "broker", "left", "request", "rows", "topics", "waiting")

    def __init__(self, broker: Broker, request: Request) -> None:
        self.broker = broker
        self.request = request
        self.acks: int = request.values["acks"]
        self.topics: list[Values] = []
        self.rows: list[Values] = []
        self.waiting: dict[int, tuple[Replica, Waiting]] = {}
        self.left = 1

    def run(self) -> None:
        for topic in self.request.values["topic_data"]:
            rows = [self._append(topic["name"], each["index"], each["records"]) for each in topic["partition_data"]]
            self.topics.append({"name": topic["name"], "partition_responses": rows})
        if self.acks == 0:
            if any(row["error_code"] for row in self.rows):
                self.request.channel.close()
            else:
                self.request.no_answer()
            return
        if self.left > 1:
            self.broker.later(max(0, self.request.values["timeout_ms"]) / 1000, self._overdue)
        self._one_less()

    def _append(self, topic: str, index: int, records: bytes | None) -> Values:
        row: Values = {
            "index": index,
            "error_code": 0,
            "base_offset": -1,
            "log_append_time_ms": -1,
            "log_start_offset": -1,
        }
        self.rows.append(row)
        try:
            if self.acks not in (-1, 0, 1):
                raise RefusedError(errors.INVALID_REQUIRED_ACKS)
            replica = self._replica(topic, index)
            batch = batches.read(records or b"")
            self._check(replica, batch, topic, index)
            found = replica.append_data(batch, self.acks)
        except RefusedError as error:
            row["error_code"] = error.code
            row["error_message"] = error.why or None
            return row
        self._landed(row, replica, found)
        return row

    def _landed(self, row: Values, replica: Replica, found: Appended) -> None:
        row["base_offset"], row["log_append_time_ms"] = found.base, found.time
        row["log_start_offset"] = replica.log.start
        if self.acks == -1:
            number = len(self.rows) - 1
            self.left += 1
            waiting = replica.when_replicated(found.last, partial(self._replicated, number))
            if waiting is not None:
                self.waiting[number] = replica, waiting

    def _replica(self, topic: str, index: int) -> Replica:
        replica = self.broker.hosted(topic, index)
        if replica is None:
            known = self.broker.image.partition(topic, index) is not None
            raise RefusedError(errors.NOT_LEADER_OR_FOLLOWER if known else errors.UNKNOWN_TOPIC_OR_PARTITION)
        return replica

    def _check(self, replica: Replica, batch: Batch, topic: str, index: int) -> None:
        """What the log does not say: keys of a compacted topic, a transaction that holds the partition (KIP-890)."""
        if replica.config.compacted and any(key is None for _, key, _, _ in parse(batch)):
            raise RefusedError(errors.INVALID_RECORD, "a record without a key on a compacted topic")
        if batch.data[22] & 0x7 == _GZIP:
            try:
                gzip.decompress(batch.data[_HEADER_BYTES:])
            except (OSError, EOFError, zlib.error):
                # `GzipCompression.wrapForInput` raises KafkaException, for which there is no code of its own
                raise RefusedError(errors.UNKNOWN_SERVER_ERROR, "records that cannot be decompressed") from None
        name: str | None = self.request.values.get("transactional_id")
        if batch.transactional:
            entry = replica.producers.entries.get(batch.pid)
            if entry is None or entry.txn_start < 0:
                self._verify(name or "", batch, topic, index)

    def _verify(self, name: str, batch: Batch, topic: str, index: int) -> None:
        """`AddPartitionsToTxnManager`, without the way to the coordinator and back."""
        cluster = self.broker.cluster
        coordinator = cluster.leader("__transaction_state", cluster.transaction_partition(name))
        if coordinator < 0:
            raise RefusedError(errors.COORDINATOR_NOT_AVAILABLE)
        code = cluster.brokers[coordinator].transactions.holds(name, batch.pid, batch.producer_epoch, (topic, index))
        if code == errors.PRODUCER_FENCED:
            code = errors.INVALID_PRODUCER_EPOCH
        if code:
            raise RefusedError(code, "the partition is not in the transaction")

    def _replicated(self, number: int, error: int) -> None:
        self.waiting.pop(number, None)
        if error:
            self._fail(self.rows[number], error)
        self._one_less()

    def _overdue(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for number, (replica, each) in waiting.items():
            replica.forget(each)
            self.broker.cluster.effect("produce_timed_out")
            self._fail(self.rows[number], errors.REQUEST_TIMED_OUT)
            self._one_less()

    def _fail(self, row: Values, error: int) -> None:
        """`ProducePartitionStatus.responseStatus.error`: offsets stay as they were given, as with Kafka."""
        row["error_code"] = error

    def _one_less(self) -> None:
        self.left -= 1
        if not self.left:
            answer: dict[str, Any] = {"responses": self.topics}
            self.request.answer(answer)


@serves(0)
def produce(broker: Broker, request: Request) -> None:
    _Produce(broker, request).run()
