"""The changes of the controller on their way to one broker: in order, each with its own delay (KIP-500)."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from tests.sim.kafka.controller import CONTROLLER

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.topics import Image


class Feed:
    """Of one broker. `lag` is added to each delay, in seconds."""

    __slots__ = ("_broker", "_due", "_queue", "_waiting", "lag")

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._queue: deque[tuple[float, Image, set[str]]] = deque()
        self._due = 0.0
        self._waiting = False
        self.lag = 0.0

    def clear(self) -> None:
        self._queue.clear()

    def put(self, image: Image, changed: set[str], delay: float) -> None:
        """A change, `delay` seconds from now, and never before the one that was put in front of it."""
        if not self._broker.listening:
            return  # the broker asks for everything when it starts
        self._due = max(self._due, self._broker.cluster.scheduler.now() + delay + self.lag)
        if self.lag:
            self._broker.cluster.effect("metadata_lag")
        self._queue.append((self._due, image, changed))
        self.pump()

    def pump(self) -> None:
        if self._queue and not self._waiting:
            self._waiting = True
            now = self._broker.cluster.scheduler.now()
            self._broker.later(max(0.0, self._queue[0][0] - now), self._deliver)

    def restart(self) -> None:
        """The broker is a new process: nothing waits."""
        self._waiting = False
        self._queue.clear()

    def _deliver(self) -> None:
        self._waiting = False
        broker = self._broker
        if broker.cluster.is_cut(CONTROLLER, broker.id):
            return  # `heal` pumps again
        if not self._queue:
            return
        _, image, changed = self._queue.popleft()
        image = broker.image = broker.read(image)
        self._waiting = True
        broker.later(broker.cluster.delay(broker.cluster.settings.apply), self._apply, image, changed)

    def _apply(self, image: Image, changed: set[str]) -> None:
        """Clients see metadata a little before replicas act on it (`BrokerMetadataPublisher`)."""
        self._waiting = False
        self._broker.apply(image, changed)
        self.pump()
