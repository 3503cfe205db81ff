"""For the tests of this package: a scheduler that is a heap, and a client that asks and waits. Also a `Talk`."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from tests.sim.kafka import Cluster, ClusterSettings
from tests.sim.kafka.channel import Channel
from tests.sim.kafka.replica import Replica
from tests.sim.kafka.tables import MESSAGES
from tests.sim.kafka.talk import Talk, fetch_fields, without_tags

__all__ = ["Connection", "Heap", "Simulated", "fetch_fields"]

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

    def __init__(
        self, connection: Connection, key: int, version: int, fields: dict[str, Any], correlation: int
    ) -> None:
        message = MESSAGES[key]
        self._connection = connection
        self._message = message
        self._version = version
        self._number = len(connection.answers) + getattr(connection, "owed", 0)
        connection.channel.received(message.encode_request(version, correlation, b"test", fields))

    @property
    def ended(self) -> bool:
        """Whether the broker has closed the connection."""
        return self._connection.ended

    @property
    def answer(self) -> dict[str, Any] | None:
        if len(self._connection.answers) <= self._number:
            return None
        frame = self._connection.answers[self._number]
        return without_tags(self._message.decode_answer(frame, 0, len(frame), self._version))


class Simulated(Talk):
    """`Talk` on a simulated cluster, and what tests need beside it."""

    def __init__(self, seed: int = 0, settings: ClusterSettings | None = None) -> None:
        self.heap = Heap(seed)
        self.cluster = Cluster(self.heap, settings or ClusterSettings())
        self._connections: dict[int, Connection] = {}
        self._correlation = 0
        self._names = 0
        self._given: Counter[str] = Counter()

    def connection(self, broker: int) -> Connection:
        found = self._connections.get(broker)
        if found is None or found.ended:
            found = self._connections[broker] = Connection(self.cluster, broker)
        return found

    def begin(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> Pending:
        """Send on its own connection and do not wait."""
        self._correlation += 1
        return Pending(Connection(self.cluster, self._some(broker)), key, version, fields, self._correlation)

    def outcome(self, pending: Pending, seconds: float = 10.0) -> dict[str, Any] | str | None:
        """See `Talk`."""
        self.heap.run(seconds, lambda: pending.answer is not None or pending.ended)
        return "closed" if pending.answer is None and pending.ended else pending.answer

    def exchange(self, broker: int | None, frame: bytes) -> bytes | None:
        """See `Talk`."""
        connection = Connection(self.cluster, self._some(broker))
        connection.channel.received(frame)
        self.heap.run(10.0, lambda: bool(connection.answers) or connection.ended)
        return connection.answers[0] if connection.answers else None

    def _some(self, broker: int | None) -> int:
        if broker is not None:
            return broker
        return next(each.id for each in self.cluster.brokers.values() if each.listening and not each.frozen)

    def finish(self, pending: Pending, seconds: float = 60.0) -> dict[str, Any]:
        assert self.heap.run(seconds, lambda: pending.answer is not None), "no answer"
        assert pending.answer is not None
        return pending.answer

    def ask(self, broker: int | None, key: int, version: int, fields: dict[str, Any]) -> dict[str, Any]:
        """See `Talk`."""
        self._correlation += 1
        return self.finish(Pending(self.connection(self._some(broker)), key, version, fields, self._correlation))

    def wall_ms(self) -> int:
        return self.heap.wall_ms()

    def unique(self, name: str) -> str:
        """See `Talk`: the name itself where it is asked for once."""
        self._given[name] += 1
        return name if self._given[name] == 1 else f"{name}-{self._given[name]}"

    def pause(self, seconds: float) -> None:
        self.heap.run(seconds)

    def topic(self, partitions: int = 1, **configs: str) -> str:
        """A new topic that every broker knows."""
        self._names += 1
        name = f"topic-{self._names}"
        self.cluster.create_topic(
            name, partitions, configs={key.replace("_", "."): value for key, value in configs.items()}
        )
        self.pause(1.0)
        return name

    def at(self, topic: str, partition: int, broker: int | None = None) -> Replica:
        """A replica that is there; the leader's where no broker is named."""
        found = self.cluster.replica(topic, partition, broker)
        assert found is not None
        return found

    def leader_of(self, topic: str, partition: int = 0) -> int:
        return self.cluster.leader(topic, partition)
