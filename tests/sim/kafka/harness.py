"""For the tests of this package: a scheduler that is a heap, and a client that asks and waits. Also a `Talk`."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from tests.sim.kafka import Cluster, ClusterSettings
from tests.sim.kafka.batches import encode
from tests.sim.kafka.channel import Channel
from tests.sim.kafka.tables import MESSAGES

_EPOCH_MS: Final = 1_700_000_000_000
_SIZE: Final = Struct(">i")


class _Timer:
    __slots__ = ("args", "call", "cancelled")

    def __init__(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.call = call
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Heap:
    """`Scheduler` of virtual time, without an event loop."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = random.Random(seed)
        self.events = 0
        self._now = 0.0
        self._heap: list[tuple[float, int, _Timer]] = []
        self._numbers = 0

    def now(self) -> float:
        return self._now

    def wall_ms(self) -> int:
        return _EPOCH_MS + int(self._now * 1000)

    def call_later(self, delay: float, call: Callable[..., object], *args: Any) -> _Timer:
        self._numbers += 1
        timer = _Timer(call, args)
        heapq.heappush(self._heap, (self._now + delay, self._numbers, timer))
        return timer

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, until something is so. True if it is."""
        end = self._now + seconds
        while not until():
            if not self._heap or self._heap[0][0] > end:
                self._now = end
                return until()
            self._now, _, timer = heapq.heappop(self._heap)
            if not timer.cancelled:
                self.events += 1
                timer.call(*timer.args)
        return True


class Connection:
    """A client's connection to one broker; answers are kept in their order."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        self.answers: list[bytes] = []
        self.ended = False
        self._buffer = b""
        self.channel: Channel = cluster.accept(broker, self)

    def send(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = _SIZE.unpack_from(self._buffer)[0] + 4
            if len(self._buffer) < size:
                break
            self.answers.append(self._buffer[:size])
            self._buffer = self._buffer[size:]

    def close(self) -> None:
        self.ended = True


class Pending:
    """A request under way. `answer` is None until it is there."""

    def __init__(self, connection: Connection, key: int, version: int, fields: dict[str, Any], correlation: int) -> None:
        message = MESSAGES[key]
        self._connection = connection
        self._message = message
        self._version = version
        self._number = len(connection.answers) + getattr(connection, "owed", 0)
        connection.channel.received(message.encode_request(version, correlation, b"test", fields))

    @property
    def answer(self) -> dict[str, Any] | None:
        if len(self._connection.answers) <= self._number:
            return None
        frame = self._connection.answers[self._number]
        return without_tags(self._message.decode_answer(frame, 0, len(frame), self._version))


def without_tags(value: Any) -> Any:
    """Answers as plain values that can be compared."""
    if isinstance(value, dict):
        return {name: without_tags(each) for name, each in value.items() if name != "tags"}
    return [without_tags(each) for each in value] if isinstance(value, list) else value


class Simulated:
    """`scenarios.Talk` on a simulated cluster, and what tests need beside it."""

    def __init__(self, seed: int = 0, settings: ClusterSettings | None = None) -> None:
        self.heap = Heap(seed)
        self.cluster = Cluster(self.heap, settings or ClusterSettings())
        self._connections: dict[int, Connection] = {}
        self._correlation = 0
        self._names = 0

    def connection(self, broker: int) -> Connection:
        found = self._connections.get(broker)
        if found is None or found.ended:
            found = self._connections[broker] = Connection(self.cluster, broker)
        return found

    def begin(self, broker: int, key: int, version: int, fields: dict[str, Any]) -> Pending:
        """Send on a connection of its own and do not wait."""
        self._correlation += 1
        return Pending(Connection(self.cluster, broker), key, version, fields, self._correlation)

    def finish(self, pending: Pending, seconds: float = 60.0) -> dict[str, Any]:
        assert self.heap.run(seconds, lambda: pending.answer is not None), "no answer"
        assert pending.answer is not None
        return pending.answer

    def ask(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """See `scenarios.Talk`."""
        if broker is None:
            broker = next(each.id for each in self.cluster.brokers.values() if each.listening and not each.frozen)
        self._correlation += 1
        return self.finish(Pending(self.connection(broker), key, version, fields, self._correlation))

    def wall_ms(self) -> int:
        return self.heap.wall_ms()

    def pause(self, seconds: float) -> None:
        self.heap.run(seconds)

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic that every broker knows."""
        self._names += 1
        name = f"topic-{self._names}"
        self.cluster.create_topic(name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()})
        self.pause(1.0)
        return name

    # Shorthands of the tests ---------------------------------------------------------------------------------------

    def produce_fields(
        self, topic: str, values: list[bytes], *, pid: int = -1, epoch: int = -1, seq: int = -1, partition: int = 0,
        acks: int = -1, timestamp: int | None = None, attributes: int = 0, key: bytes | None = None,
        timeout_ms: int = 5000, transactional_id: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        at = self.wall_ms() if timestamp is None else timestamp
        batch = encode([(key, value) for value in values], at, pid, epoch, seq, attributes)
        data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        return {"transactional_id": transactional_id, "acks": acks, "timeout_ms": timeout_ms, "topic_data": data}

    def produce(self, topic: str, *values: bytes, broker: int | None = None, **more: Any) -> tuple[int, int]:
        """(error, base offset) of one batch sent to the leader, or to a broker."""
        broker = self.cluster.leader(topic, more.get("partition", 0)) if broker is None else broker
        answer = self.ask(broker, 0, 8, self.produce_fields(topic, list(values), **more))
        row = answer["responses"][0]["partition_responses"][0]
        return row["error_code"], row["base_offset"]

    def fetch(self, topic: str, offset: int = 0, *, broker: int | None = None, **more: Any) -> dict[str, Any]:
        broker = self.cluster.leader(topic, more.get("partition", 0)) if broker is None else broker
        return self.ask(broker, 1, 11, fetch_fields(topic, offset, **more))["responses"][0]["partitions"][0]

    def latest(self, topic: str, partition: int = 0, *, broker: int | None = None, version: int = 5) -> tuple[int, int]:
        """(error, offset)."""
        broker = self.cluster.leader(topic, partition) if broker is None else broker
        part = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": -1}
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [part]}]}
        row = self.ask(broker, 2, version, fields)["topics"][0]["partitions"][0]
        return row["error_code"], row["offset"]

    def coordinator(self, transactional_id: str) -> int:
        return self.ask(None, 10, 1, {"key": transactional_id, "key_type": 1})["node_id"]

    def init(self, transactional_id: str | None, pid: int = -1, epoch: int = -1, timeout_ms: int = 60_000) -> tuple[int, int, int]:
        """(error, producer id, epoch), tried again while the coordinator is not ready (14, 15, 16, 51)."""
        for _ in range(100):
            broker = None if transactional_id is None else self.coordinator(transactional_id)
            fields = {
                "transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, "producer_id": pid,
                "producer_epoch": epoch,
            }  # fmt: skip
            answer = self.ask(broker, 22, 4, fields)
            if answer["error_code"] not in (14, 15, 16, 51):
                return answer["error_code"], answer["producer_id"], answer["producer_epoch"]
            self.pause(0.05)
        raise AssertionError("the coordinator is never ready")

    def add(self, transactional_id: str, pid: int, epoch: int, topic: str, *partitions: int) -> int:
        fields = {
            "transactional_id": transactional_id, "producer_id": pid, "producer_epoch": epoch,
            "topics": [{"name": topic, "partitions": list(partitions or (0,))}],
        }  # fmt: skip
        answer = self.ask(self.coordinator(transactional_id), 24, 3, fields)
        return answer["results_by_topic"][0]["results_by_partition"][0]["partition_error_code"]

    def end(self, transactional_id: str, pid: int, epoch: int, *, commit: bool = False) -> int:
        fields = {"transactional_id": transactional_id, "producer_id": pid, "producer_epoch": epoch, "committed": commit}
        return self.ask(self.coordinator(transactional_id), 26, 3, fields)["error_code"]

    def fence(self, transactional_id: str, topic: str, *partitions: int) -> tuple[int, int]:
        """InitProducerId, then an empty transaction that is aborted: what a node does (DESIGN §2)."""
        error, pid, epoch = self.init(transactional_id)
        assert not error
        assert self.add(transactional_id, pid, epoch, topic, *partitions) == 0
        assert self.end(transactional_id, pid, epoch) == 0
        for _ in range(100):
            if self.end(transactional_id, pid, epoch) == 0:
                return pid, epoch
            self.pause(0.02)
        raise AssertionError("markers are never written")

    def producers(self, topic: str, partition: int = 0, *, broker: int | None = None) -> dict[int, dict[str, Any]]:
        broker = self.cluster.leader(topic, partition) if broker is None else broker
        fields = {"topics": [{"name": topic, "partition_indexes": [partition]}]}
        row = self.ask(broker, 61, 0, fields)["topics"][0]["partitions"][0]
        return {each["producer_id"]: each for each in row["active_producers"]}


def fetch_fields(
    topic: str, offset: int = 0, *, partition: int = 0, max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20, isolation: int = 0, epoch: int = -1,
) -> dict[str, Any]:  # fmt: skip
    part = {
        "partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset, "log_start_offset": -1,
        "partition_max_bytes": partition_max_bytes,
    }  # fmt: skip
    return {
        "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes,
        "isolation_level": isolation, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [part]}], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
