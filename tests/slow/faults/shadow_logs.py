"""A log as it is on the wire, read again and again while brokers die: batches, and which of them Fetch says to drop."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from sidecar.protocol.batch import batch_sizes, read_header
from sidecar.protocol.errors import ErrorCode
from tests import raw
from tests.raw import RawClient

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
_SLICE = 32 * 1024
"""Bytes of a partition asked for at a time: a pass over a log takes many answers."""
_PACE_S = 0.01
_CONTROL, _TRANSACTIONAL = 0x20, 0x10
_MARKER_TYPE = slice(61 + 7, 61 + 9)
"""A marker's key: behind five one-byte varints and the key's version. 0 is an abort."""
_PASSING = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # a broker that was started a moment ago
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
}


@dataclass
class PartitionLog:
    """What was read of a partition: batches by base offset, the aborted transactions that were told, and what a
    reader of committed records dropped by them.
    """

    batches: dict[int, bytes] = field(default_factory=dict)
    dropped: dict[int, bool] = field(default_factory=dict)
    aborted: set[tuple[int, int]] = field(default_factory=set)
    position: int = 0

    def take(self, records: bytes, aborted: Iterable[tuple[int, int]]) -> None:
        """Add one answer. Raises AssertionError where it differs from an earlier one."""
        told = sorted(aborted, key=lambda transaction: transaction[1])
        self.aborted.update(told)
        open_aborted: set[int] = set()
        for start, size in batch_sizes(records, 0, len(records)):
            batch = records[start : start + size]
            header = read_header(batch, 0, size)
            last = header.base_offset + header.last_offset_delta
            while told and told[0][1] <= last:
                open_aborted.add(told.pop(0)[0])
            dropped = False
            if header.attributes & _CONTROL:
                if batch[_MARKER_TYPE] == b"\0\0":
                    open_aborted.discard(header.producer_id)
            elif header.attributes & _TRANSACTIONAL:
                dropped = header.producer_id in open_aborted
            if last >= self.position:
                self._agree(header.base_offset, batch, dropped=dropped)
                self.position = last + 1

    def _agree(self, base: int, batch: bytes, *, dropped: bool) -> None:
        before = self.batches.setdefault(base, batch)
        assert before == batch, f"the batch at {base} has changed: {before[:70].hex()} … {batch[:70].hex()}"
        assert self.dropped.setdefault(base, dropped) == dropped, f"the batch at {base} is told aborted now and then"

    @property
    def leader_epochs(self) -> set[int]:
        return {int.from_bytes(batch[12:16], "big") for batch in self.batches.values()}

    @property
    def codecs(self) -> set[int]:
        return {batch[22] & 7 for batch in self.batches.values()}

    @property
    def markers(self) -> int:
        return sum(bool(batch[22] & _CONTROL) for batch in self.batches.values())

    @property
    def records(self) -> int:
        """Without markers."""
        counts = (int.from_bytes(batch[57:61], "big") for batch in self.batches.values() if not batch[22] & _CONTROL)
        return sum(counts)

    def hole(self) -> int | None:
        """The first offset in no batch, None where there is none in front of the end."""
        expected = 0
        for base, batch in sorted(self.batches.items()):
            if base != expected:
                return expected
            expected = base + int.from_bytes(batch[23:27], "big") + 1
        return None


def differences(direct: Mapping[int, PartitionLog], shadow: Mapping[int, PartitionLog]) -> list[str]:
    """What two readings of a log do not have in common."""
    found: list[str] = []
    for partition in sorted({*direct, *shadow}):
        left, right = direct.get(partition, PartitionLog()), shadow.get(partition, PartitionLog())
        bases = sorted({*left.batches, *right.batches})
        other = [base for base in bases if left.batches.get(base) != right.batches.get(base)]
        dropped = [base for base in bases if left.dropped.get(base) != right.dropped.get(base)]
        if other:
            found.append(f"partition {partition}: {len(other)} batches differ, the first at {other[0]}")
        if dropped:
            found.append(f"partition {partition}: {len(dropped)} batches are dropped by one, the first at {dropped[0]}")
        if left.aborted != right.aborted:
            found.append(f"partition {partition}: aborted transactions {left.aborted ^ right.aborted} told to one")
    return found


class LogReader(threading.Thread):
    """Reads a topic from its beginning to its end and over again, until it was told the end and has been there."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation: int) -> None:
        super().__init__(name=f"{topic} at {bootstrap}, isolation {isolation}")
        self.logs = {partition: PartitionLog() for partition in range(partitions)}
        self.passes = 0
        self.troubles = 0
        """Times that it was told of another leader, or lost a connection."""
        self.answers = 0
        self.failure: BaseException | None = None
        self._seeds = bootstrap.split(",")
        self._topic = topic
        self._isolation = isolation
        self._ends: dict[int, int] | None = None
        self._stop_now = threading.Event()
        self._clients: dict[str, RawClient] = {}

    def finish(self, ends: Mapping[int, int], timeout: float = 60.0) -> dict[int, PartitionLog]:
        """Have it read to these offsets, and end."""
        self._ends = dict(ends)
        self.join(timeout)
        reached = {partition: log.position for partition, log in self.logs.items()}
        assert not self.is_alive(), f"{self.name} is at {reached}, not at {ends}"
        if self.failure is not None:
            raise self.failure
        return self.logs

    def stop(self) -> None:
        """End at once, in a test that failed."""
        self._stop_now.set()
        self.join(30)

    def run(self) -> None:
        try:
            self._read()
        except BaseException as error:  # noqa: BLE001  told to the test by `finish`
            self.failure = error
        finally:
            self._close()

    def _read(self) -> None:
        leaders: dict[int, str] = {}
        while not self._stop_now.wait(_PACE_S):
            try:
                leaders = leaders or self._find_leaders()
                answers = [self._fetch(address, leaders) for address in sorted({*leaders.values()})]
            except OSError:  # a broker that died
                self._trouble()
                leaders = {}
                continue
            if any(partition not in leaders for partition in self.logs):
                self._trouble()
                leaders = {}
            elif self._ends is not None and self._ends.items() <= self._positions().items():
                return
            elif all(answers) and self._ends is None:
                self.passes += 1
                for log in self.logs.values():
                    log.position = 0

    def _positions(self) -> dict[int, int]:
        return {partition: log.position for partition, log in self.logs.items()}

    def _trouble(self) -> None:
        self.troubles += 1
        self._close()

    def _close(self) -> None:
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, address: str) -> RawClient:
        if address not in self._clients:
            self._clients[address] = RawClient(address)
        return self._clients[address]

    def _find_leaders(self) -> dict[int, str]:
        """The address of each partition's leader, as the first tells that can be reached."""
        self._seeds.append(self._seeds.pop(0))
        answer = self._client(self._seeds[0]).ask(raw.metadata([self._topic]))
        addresses = {broker.node_id: f"{broker.host}:{broker.port}" for broker in answer.brokers}
        (topic,) = answer.topics
        return {
            found.partition_index: addresses[found.leader_id]
            for found in topic.partitions
            if found.leader_id in addresses
        }

    def _fetch(self, address: str, leaders: dict[int, str]) -> bool:
        """Ask one broker for all that it leads; whether there was nothing. Forgets the leaders that are none."""
        asked = {
            (self._topic, partition): self.logs[partition].position
            for partition, leader in leaders.items()
            if leader == address
        }
        limits = {"partition_max_bytes": _SLICE, "max_wait": 20, "isolation_level": self._isolation}
        answer = self._client(address).ask(raw.fetch(asked, **limits))
        self.answers += 1
        empty = True
        for (topic, partition), found in raw.fetched(answer).items():
            assert (topic, partition) in asked, f"an answer for {topic} {partition}"
            if raw.code(found):
                assert raw.code(found) in _PASSING, found
                del leaders[partition]
                continue
            records = bytes(found.records or b"")
            aborted = [(told.producer_id, told.first_offset) for told in found.aborted_transactions or ()]
            self.logs[partition].take(records, aborted)
            empty = empty and not records
        return empty


Record = tuple[int, int]


class ClientReader(threading.Thread):
    """A librdkafka consumer that reads a topic once, from its beginning to where it is told that the end is."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, isolation: int) -> None:
        super().__init__(name=f"librdkafka of {topic} at {bootstrap}")
        self.records: dict[int, list[Record]] = {partition: [] for partition in range(partitions)}
        """Offset and a hash of everything else, by partition."""
        self.failure: BaseException | None = None
        self._ends: dict[int, int] | None = None
        self._stop_now = threading.Event()
        self._topic = topic
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-of-{topic}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "isolation.level": ("read_uncommitted", "read_committed")[isolation],
            "log_level": 0,
        }

    def finish(self, ends: Mapping[int, int], timeout: float = 60.0) -> dict[int, list[Record]]:
        self._ends = dict(ends)
        self.join(timeout)
        assert not self.is_alive(), f"{self.name} has not come to {ends}"
        if self.failure is not None:
            raise self.failure
        return self.records

    def stop(self) -> None:
        self._stop_now.set()
        self.join(30)

    def run(self) -> None:
        consumer = Consumer(self._settings)
        read_to: dict[int | None, int | None] = {}
        try:
            consumer.assign([TopicPartition(self._topic, partition, 0) for partition in self.records])
            while not self._stop_now.is_set() and (self._ends is None or read_to != self._ends):
                for message in consumer.consume(500, timeout=0.2):
                    error = message.error()
                    if error is None:
                        self._take(message)
                        continue
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    read_to[message.partition()] = message.offset()
        except BaseException as error:  # noqa: BLE001  told to the test by `finish`
            self.failure = error
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        rest = (message.key(), message.value(), message.timestamp(), message.headers())
        self.records[message.partition() or 0].append((message.offset() or 0, zlib.crc32(repr(rest).encode())))
