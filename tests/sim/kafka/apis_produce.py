"""Produce, api key 0 (`KafkaApis.handleProduceRequest`, `ReplicaManager.appendRecords`, `DelayedProduce`).

What is not here of version 12: no batch adds its partition to a transaction (KIP-890), and no answer says who leads
(KIP-951), as no client of the simulation asks for it.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from sidecar.protocol.schema import Values
from tests.sim.kafka import batches, errors
from tests.sim.kafka.batches import Batch
from tests.sim.kafka.broker import Broker, serves
from tests.sim.kafka.channel import Request
from tests.sim.kafka.coordinator import verify
from tests.sim.kafka.errors import RefusedError
from tests.sim.kafka.replica import Appended, Replica, Waiting

_VERIFYING: Final[dict[int, int]] = {
    errors.CONCURRENT_TRANSACTIONS: errors.NOT_ENOUGH_REPLICAS,
    errors.COORDINATOR_LOAD_IN_PROGRESS: errors.NOT_ENOUGH_REPLICAS,
    errors.COORDINATOR_NOT_AVAILABLE: errors.NOT_ENOUGH_REPLICAS,
    errors.NOT_COORDINATOR: errors.NOT_ENOUGH_REPLICAS,
}
"""What clients try again without new metadata (`ReplicaManager.handleProduceAppend`)."""
_FIRST_ABORTABLE: Final = 11
_FIRST_BY_ID: Final = 13
_NOTHING_KNOWN: Final = frozenset(
    {
        errors.UNKNOWN_TOPIC_OR_PARTITION,
        errors.NOT_LEADER_OR_FOLLOWER,
        errors.MESSAGE_TOO_LARGE,
        errors.CORRUPT_MESSAGE,
        errors.KAFKA_STORAGE_ERROR,
    }
)
"""Errors without a log start offset; all others of the log have one (`ReplicaManager.appendRecordsToLeader`)."""


def _row(index: int, error: int = errors.NONE) -> Values:
    return {
        "index": index, "error_code": error, "base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1,
    }  # fmt: skip


def _parsed(records: bytes, version: int) -> Batch | RefusedError:
    try:
        return batches.read(records, version)
    except RefusedError as error:
        return error


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
        wanted = self.request.values["topic_data"]
        if any(each["records"] is None for topic in wanted for each in topic["partition_data"]):
            return  # `ProduceRequest.validateRecords` stumbles over null, and nobody answers (ran on 3.9.1 to 4.3.1)
        by_id = self.request.version >= _FIRST_BY_ID
        called = "topic_id" if by_id else "name"
        batch_of = [
            (topic[called], each["index"], _parsed(each["records"], self.request.version))
            for topic in wanted
            for each in topic["partition_data"]
        ]
        refused = self._refusal(batch_of)
        for topic, index, batch in batch_of:
            if not self.topics or self.topics[-1][called] != topic:
                self.topics.append({called: topic, "partition_responses": []})
            row = _row(index, refused)
            if refused:
                self.rows.append(row)
            else:
                row = self._append(self._name(topic), index, batch)
            self.topics[-1]["partition_responses"].append(row)
        if self.acks == 0:
            if any(row["error_code"] for row in self.rows):
                self.request.channel.close()
            else:
                self.request.no_answer()
            return
        if self.left > 1:
            self.broker.later(max(0, self.request.values["timeout_ms"]) / 1000, self._overdue)
        self._one_less()

    def _refusal(self, batch_of: list[tuple[bytes | str, int, Batch | RefusedError]]) -> int:
        """Why the whole request is refused: transactional batches without an id, or of several producers."""
        transactional = [each for each in batch_of if isinstance(each[2], Batch) and each[2].transactional]
        if transactional and self.request.values.get("transactional_id") is None:
            return errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        stamps = {
            (batch.pid, batch.producer_epoch)
            for topic, index, batch in transactional
            if isinstance(batch, Batch) and self.broker.image.partition(self._name(topic) or "", index) is not None
        }
        return errors.INVALID_PRODUCER_ID_MAPPING if len(stamps) > 1 else errors.NONE  # `handleProduceAppend`

    def _name(self, topic: bytes | str) -> str | None:
        if isinstance(topic, str):
            return topic
        found = self.broker.image.by_id.get(topic)
        return None if found is None else found.name

    def _append(self, topic: str | None, index: int, batch: Batch | RefusedError) -> Values:
        row = _row(index)
        self.rows.append(row)
        replica = None
        try:
            if topic is None:
                raise RefusedError(errors.UNKNOWN_TOPIC_ID)
            if self.broker.image.partition(topic, index) is None:
                raise RefusedError(errors.UNKNOWN_TOPIC_OR_PARTITION)
            if isinstance(batch, RefusedError):
                raise batch
            there = self._replica(topic, index)
            if batch.transactional:
                there.check_leader()
                entry = there.producers.entries.get(batch.pid)
                is_open = entry is not None and entry.txn_start >= 0
                if entry is not None and self.broker.cluster.settings.version >= (4, 0):
                    is_open = is_open and entry.epoch == batch.producer_epoch
                    if batch.producer_epoch < entry.epoch:  # seen in the log: the coordinator is not asked
                        raise RefusedError(errors.INVALID_PRODUCER_EPOCH, f"epoch {batch.producer_epoch}")
                if not is_open:  # `UnifiedLog.hasOngoingTransaction`
                    there.producers.verified_from(batch)
                    self._verify(batch, (topic, index))
            if self.acks not in (-1, 0, 1):
                raise RefusedError(errors.INVALID_REQUIRED_ACKS)
            replica = there
            found = replica.append_data(batch, self.acks)
        except RefusedError as error:
            row["error_code"] = error.code
            row["error_message"] = error.why or None
            if replica is not None and error.code not in _NOTHING_KNOWN:
                row["log_start_offset"] = replica.log.start
            return row
        self._landed(row, replica, found)
        return row

    def _verify(self, batch: Batch, partition: tuple[str, int]) -> None:
        """Since version 11 clients know an error after which they may abort and go on (KIP-890)."""
        name = self.request.values["transactional_id"] or ""
        try:
            verify(self.broker.cluster, name, (batch.pid, batch.producer_epoch), partition)
        except RefusedError as error:
            if error.code == errors.INVALID_TXN_STATE and self.request.version >= _FIRST_ABORTABLE:
                raise RefusedError(errors.TRANSACTION_ABORTABLE, error.why) from None
            raise RefusedError(_VERIFYING.get(error.code, error.code), error.why) from None

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
