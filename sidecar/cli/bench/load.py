"""The measurements: records per second with several batches in flight, and round trips of single records one at a time.

Only acknowledged records count. A batch that cannot be appended ends the measurement: nothing is sent a second time.
"""

from __future__ import annotations

import gc
import random
import string
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, Self

from sidecar.cli.bench.client import CLIENT_ID, OPEN, PASSING, BatchFrame, Connection, RefusedError, new_producer
from sidecar.pipeline.security import Security
from sidecar.protocol.codec import Codec
from sidecar.protocol.ids import Stamp, TopicPartition
from sidecar.protocol.new_batch import NewRecord, build_batch

_SETTLE_S: Final = 30.0
_WARM: Final = 3
_MODULUS: Final = 2**31
_RECORD_OVERHEAD: Final = 12
"""The most bytes that a record without key and headers needs besides its value."""


@dataclass(frozen=True, slots=True)
class Load:
    """The data to send. Sizes are bytes of values and of whole batches before compression; `acks` is 1 or -1 (all)."""

    record_bytes: int
    batch_bytes: int
    acks: int
    codec: Codec
    in_flight: int
    seconds: float
    """Seconds after which a measurement ends with what it has."""

    @property
    def per_batch(self) -> int:
        """Records of a full batch, at least one."""
        return max(1, self.batch_bytes // (self.record_bytes + _RECORD_OVERHEAD))

    def batch(self, records: int) -> bytearray:
        """A batch of `records` records, compressed, without a producer id and a time.

        Values are random letters, as kafka-producer-perf-test sends them; the same in every run.
        """
        source = random.Random(0)
        values = ("".join(source.choices(string.ascii_uppercase, k=self.record_bytes)) for _ in range(records))
        made = [NewRecord(b"", value.encode(), (), 0) for value in values]
        return build_batch(made, -1, -1, -1, self.codec)


_batch = lru_cache(maxsize=8)(Load.batch)
"""Random letters take longer to make than to append: each batch is made once, for all partitions of all writers."""


class _LoadPartition:
    """One partition under one producer id: its sequence, and the connection to its leader."""

    def __init__(self, connection: Connection, stamp: Stamp, partition: TopicPartition, load: Load) -> None:
        self._connection = connection
        self._stamp = stamp
        self._partition = partition
        self._load = load
        self._frames: dict[int, BatchFrame] = {}
        self._sequence = 0

    def send(self, records: int) -> None:
        """Send the next batch."""
        self._connection.send(self.frame(records))
        self._sequence = (self._sequence + records) % _MODULUS

    def frame(self, records: int) -> bytearray:
        """The frame of the next batch."""
        self.prepare(records)
        return self._frames[records].stamped(self._stamp, self._sequence, int(time.time() * 1000))

    def prepare(self, records: int) -> None:
        """Make the frame for batches of `records` records, unless it exists."""
        if records not in self._frames:
            self._frames[records] = BatchFrame(self._partition, _batch(self._load, records), acks=self._load.acks)

    def receive(self, records: int) -> None:
        """Receive the answer to the oldest batch in flight, which has `records` records. Raises
        RefusedError, OSError.
        """
        self._frames[records].check(self._connection.receive())

    def settle(self) -> None:
        """Append a record; retry while the topic is still unknown, or is being claimed."""
        deadline = time.monotonic() + _SETTLE_S
        while True:
            try:
                self._connection.send(self.frame(1))
                self.receive(1)
            except RefusedError as error:
                if error.code not in PASSING or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
            else:
                self._sequence += 1
                return

    def round_trip(self) -> int:
        """Nanoseconds from sending a record to its answer."""
        frame = self.frame(1)
        start = time.perf_counter_ns()
        answer = self._connection.exchange(frame)
        took = time.perf_counter_ns() - start
        self._frames[1].check(answer)
        self._sequence = (self._sequence + 1) % _MODULUS
        return took


class Writer:
    """One idempotent client, with a connection to each leader of its partitions. Raises RefusedError, OSError."""

    def __init__(
        self, topic: str, leaders: Mapping[int, tuple[str, int]], load: Load, security: Security = OPEN
    ) -> None:
        """`leaders`: the leader's address of each partition of this writer."""
        self._load = load
        self._connections: dict[tuple[str, int], Connection] = {}
        try:
            for address in set(leaders.values()):
                self._connections[address] = Connection(address, CLIENT_ID, security)
            stamp = new_producer(next(iter(self._connections.values())))
            self._partitions = [
                _LoadPartition(self._connections[address], stamp, TopicPartition(topic, partition), load)
                for partition, address in leaders.items()
            ]
            for its in self._partitions:
                its.settle()
        except BaseException:
            self.close()
            raise

    def prepare(self, records: int) -> None:
        """Build the frames for `append` in advance, so that it measures no time for them."""
        sizes = self._sizes(records)
        last = range(len(sizes))[-1:]  # only the last batch may be smaller
        for index in (*range(min(len(sizes), len(self._partitions))), *last):
            self._partitions[index % len(self._partitions)].prepare(sizes[index])

    def _sizes(self, records: int) -> list[int]:
        """The number of records in each batch."""
        full, rest = divmod(records, self._load.per_batch)
        return [self._load.per_batch] * full + [rest] * bool(rest)

    def append(self, records: int, stop: threading.Event) -> int:
        """Append `records` records, or fewer if the time is over; returns how many were acknowledged."""
        sizes = self._sizes(records)
        in_flight: deque[tuple[_LoadPartition, int]] = deque()
        acknowledged, deadline = 0, time.monotonic() + self._load.seconds
        for index, size in enumerate(sizes):
            if stop.is_set() or time.monotonic() > deadline:
                break
            if len(in_flight) == self._load.in_flight:
                acknowledged += _take(in_flight)
            its = self._partitions[index % len(self._partitions)]
            its.send(size)
            in_flight.append((its, size))
        while in_flight:
            acknowledged += _take(in_flight)
        return acknowledged

    def round_trips(self, calls: int) -> list[int]:
        """Nanoseconds of `calls` round trips; a few more before them warm up and do not count."""
        its = self._partitions[0]
        return [its.round_trip() for _ in range(_WARM + calls)][_WARM:]

    def close(self) -> None:
        """Close its connections, even while a thread waits for an answer."""
        for connection in self._connections.values():
            connection.close()


def _take(in_flight: deque[tuple[_LoadPartition, int]]) -> int:
    its, size = in_flight.popleft()
    its.receive(size)
    return size


class Rate(NamedTuple):
    """Records that were acknowledged, and in how many seconds."""

    records: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Records a second."""
        return self.records / self.seconds


class Clients:
    """All writers of one target, kept for all rounds, because they own an exclusive topic. A context manager."""

    def __init__(
        self,
        topic: str,
        leaders: Mapping[int, tuple[str, int]],
        load: Load,
        clients: int,
        security: Security = OPEN,
    ) -> None:
        """Partition p belongs to client p modulo `clients`. If there are more clients than partitions, several clients
        share a partition.
        """
        self._writers: list[Writer] = []
        self._stop = threading.Event()
        partitions = sorted(leaders)
        try:
            for index in range(clients):
                mine = partitions[index::clients] or [partitions[index % len(partitions)]]
                self._writers.append(Writer(topic, {each: leaders[each] for each in mine}, load, security))
        except BaseException:
            self.close()
            raise

    def append(self, records: int) -> Rate:
        """Have all writers together append `records` records, each its share."""
        shares = [len(range(index, records, len(self._writers))) for index in range(len(self._writers))]
        for writer, share in zip(self._writers, shares, strict=True):
            writer.prepare(share)
        with ThreadPoolExecutor(len(self._writers)) as threads:
            start = time.perf_counter()
            try:
                running = [
                    threads.submit(writer.append, share, self._stop)
                    for writer, share in zip(self._writers, shares, strict=True)
                ]
                return Rate(sum(each.result() for each in running), time.perf_counter() - start)
            except BaseException:
                self.close()  # so that no thread waits any longer, and the pool ends
                raise

    def round_trips(self, calls: int) -> list[int]:
        """Nanoseconds of round trips of the first writer."""
        return self._writers[0].round_trips(calls)

    def close(self) -> None:
        """End all connections."""
        self._stop.set()
        for writer in self._writers:
            writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def alternate(targets: Mapping[str, Clients], calls: int, block: int = 50) -> dict[str, list[int]]:
    """Round trips by target, in nanoseconds. Targets alternate many times a second, so that other load on the machine
    affects all targets equally.
    """
    found: dict[str, list[int]] = {name: [] for name in targets}
    order: Sequence[str] = list(targets)
    gc.collect()
    gc.disable()
    try:
        for start in range(0, calls, block):
            for name in order:
                found[name] += targets[name].round_trips(min(block, calls - start))
            order = order[::-1]
    finally:
        gc.enable()
    return found
