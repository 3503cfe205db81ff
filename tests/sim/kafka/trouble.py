"""`Talk` with a cluster that can be broken: the same verbs on simulated brokers and on real processes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

    @abstractmethod
    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """These replicas in this order, or begin with it (KIP-455)."""

    @abstractmethod
    def elect(self, topic: str, partition: int) -> None:
        """The first replica leads, if it is in sync (KIP-460)."""


class SimulatedTrouble(Simulated, Trouble):
    """On a simulated cluster."""

    def __init__(self, version: tuple[int, int], **more: Any) -> None:
        super().__init__(1, ClusterSettings(version, session=3.0, heartbeat=0.5, **more))

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

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """As Kafka's controller: the new ones are added, and once they are in sync the others go."""
        wanted, controller = tuple(replicas), self.cluster.controller
        now = controller.topics[topic].partitions[partition]
        if not set(wanted) <= set(now.isr):
            union = (*wanted, *(each for each in now.replicas if each not in wanted))
            controller.reassign(topic, partition, union)
            self.heap.run(60, lambda: set(wanted) <= set(controller.topics[topic].partitions[partition].isr))
        controller.reassign(topic, partition, wanted)

    def elect(self, topic: str, partition: int) -> None:
        self.cluster.elect(topic, partition, self.cluster.controller.topics[topic].partitions[partition].replicas[0])


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

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        parts = [{"partition_index": partition, "replicas": list(replicas)}]
        fields = {"timeout_ms": 20_000, "topics": [{"name": topic, "partitions": parts}]}
        answer = self.ask(None, 45, 0, fields)
        assert not answer["error_code"], answer
        assert not answer["responses"][0]["partitions"][0]["error_code"], answer

    def elect(self, topic: str, partition: int) -> None:
        fields = {
            "election_type": 0, "topic_partitions": [{"topic": topic, "partitions": [partition]}], "timeout_ms": 20_000,
        }  # fmt: skip
        self.ask(None, 43, 1, fields)

    def mend(self) -> None:
        """All brokers run, whatever a scenario has left."""
        for broker in tuple(self._frozen):
            self.thaw(broker)
        for broker in tuple(self.down):
            self.start(broker)
