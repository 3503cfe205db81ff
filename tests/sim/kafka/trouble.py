"""`Talk` with a cluster that can be broken: the same verbs on simulated brokers and on real processes."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.real import Real
from tests.sim.kafka.settings import ClusterSettings
from tests.sim.kafka.talk import Talk

if TYPE_CHECKING:
    from sidecar.local import Kafka


class Trouble(Talk):
    """Three brokers, 1 to 3. A test that ends one starts it again."""

    @abstractmethod
    def kill(self, broker: int) -> None:
        """The process is gone, as by SIGKILL."""

    @abstractmethod
    def stop(self, broker: int) -> None:
        """A controlled shutdown, as by SIGTERM."""

    @abstractmethod
    def freeze(self, broker: int) -> None:
        """The process stands still, as by SIGSTOP."""

    @abstractmethod
    def thaw(self, broker: int) -> None:
        """It goes on."""

    @abstractmethod
    def start(self, broker: int) -> None:
        """A new process on the old disk."""


class SimulatedTrouble(Simulated, Trouble):
    """On a simulated cluster."""

    def __init__(self, version: tuple[int, int]) -> None:
        super().__init__(1, ClusterSettings(version, session=3.0, heartbeat=0.5))

    def kill(self, broker: int) -> None:
        self.cluster.brokers[broker].kill()

    def stop(self, broker: int) -> None:
        self.cluster.brokers[broker].stop()

    def freeze(self, broker: int) -> None:
        self.cluster.brokers[broker].freeze()

    def thaw(self, broker: int) -> None:
        self.cluster.brokers[broker].thaw()

    def start(self, broker: int) -> None:
        self.cluster.brokers[broker].start()


class RealTrouble(Real, Trouble):
    """On processes of this machine."""

    def __init__(self, kafka: Kafka) -> None:
        super().__init__(kafka.bootstrap)
        self._kafka = kafka
        self.down: set[int] = set()
        self._frozen: set[int] = set()

    def kill(self, broker: int) -> None:
        self.down.add(broker)
        self._kafka.kill(broker)

    def stop(self, broker: int) -> None:
        self.down.add(broker)
        self._kafka.child(broker).stop(20)

    def freeze(self, broker: int) -> None:
        self._frozen.add(broker)
        self._kafka.pause(broker)

    def thaw(self, broker: int) -> None:
        self._kafka.resume(broker)
        self._frozen.discard(broker)

    def start(self, broker: int) -> None:
        self._kafka.restart(broker)
        self.down.discard(broker)

    def mend(self) -> None:
        """All brokers run, whatever a scenario has left."""
        for broker in tuple(self._frozen):
            self.thaw(broker)
        for broker in tuple(self.down):
            self.start(broker)
