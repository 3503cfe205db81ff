"""Checks which batches a governed topic accepts (message format v2, KIP-98), and which partitions exist. Both checks
come before all others. `protocol.batch.read_numbers` is the short form of the first check.

A client may name any partition number. A partition that does not exist is answered 3 UNKNOWN_TOPIC_OR_PARTITION at
once: it starts no operation and leaves no state, and a flood of such names costs Kafka a few requests a second in total
(`tests/unit/exclusive/test_strangers.py`).
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from sidecar.forwarder.outcome import Outcome
from sidecar.network.tasks import Tasks
from sidecar.protocol import batch as record_batch
from sidecar.protocol.batch import BatchHeader
from sidecar.protocol.caller import Upstream
from sidecar.protocol.errors import ErrorCode, KafkaError

_MISSING: Final = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
NO_TRANSACTIONS: Final = (
    "a topic with a policy takes no transactions: write to it by a producer without transactional.id, "
    "or remove its policy (sidecar topic unset)"
)
"""Why is in docs/decisions/no-transactions-on-governed-topics.md."""
_UNASKED: Final = Outcome(ErrorCode.LEADER_NOT_AVAILABLE, message="Kafka cannot be asked for this topic now; try again")


def checked_header(batch: memoryview) -> BatchHeader:
    """The header of a batch for a governed topic. Raises `KafkaError` with the code that the client gets."""
    header = record_batch.read_header(batch, 0, len(batch))
    if header.size != len(batch):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a Produce request carries exactly one record batch per partition")
    if header.is_special:
        if header.is_transactional:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, NO_TRANSACTIONS)
        raise KafkaError(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if header.records <= 0 or header.last_offset_delta != header.records - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD, f"{header.records} records with a last offset delta of {header.last_offset_delta}"
        )
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise KafkaError(ErrorCode.INVALID_RECORD, "a producer id without an epoch or a sequence")
    if not record_batch.crc_matches(batch, 0, header.size):
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "the CRC of the batch does not match its bytes")
    return header


class ExistingPartitions:
    """The partitions that exist, by the newest Metadata of this node. Batches for an unknown topic wait, in order,
    until a broker has answered.
    """

    def __init__(self, upstream: Upstream, tasks: Tasks, missing: Callable[[bytes], None]) -> None:
        """`missing` is called with a topic that Kafka does not know. `waiting`: batches by their topic, in order. No
        batch of such a topic overtakes them, even if other Metadata makes its partitions known.
        """
        self._upstream = upstream
        self._tasks = tasks
        self._missing = missing
        self.waiting: dict[bytes, deque[Callable[[Outcome | None], None]]] = {}

    def admits(self, topic: bytes, partition: int, later: Callable[[Outcome | None], None]) -> Outcome | None:
        """None if the partition exists. `PENDING` if that is not known: then `later` will be called, with None if the
        topic exists. Otherwise the answer to the batch.
        """
        if partition < 0:
            return _MISSING
        if self.waiting and topic in self.waiting:
            self.waiting[topic].append(later)
            return PENDING
        found = self._upstream.has_partition(topic, partition)
        if found:
            return None
        if found is None:
            self.waiting[topic] = deque([later])
            self._tasks.start(self._ask(topic))
            return PENDING
        self._upstream.refresh_soon((topic,))  # it may have been added just now: its client retries
        return _MISSING

    async def _ask(self, topic: bytes) -> None:
        asked = False
        try:
            asked = await self._upstream.learn(topic)
        finally:
            waiting = self.waiting.pop(topic)
            is_there = self._upstream.has_partition(topic, 0) is not None
            answer = None if is_there else _MISSING if asked else _UNASKED
            if answer is _MISSING:
                self._missing(topic)
            for later in waiting:
                later(answer)


PENDING: Final = Outcome(ErrorCode.NONE)
"""No answer yet."""
