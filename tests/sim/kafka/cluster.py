"""The simulated cluster: brokers, controller, the links between them, and what tests do to it.

Imitates Apache Kafka in KRaft mode, 4.1 unless `ClusterSettings.version` names another release, with requests in the
versions that a node sends (`tables`). Independent of asyncio: time and chance come from a `Scheduler`, bytes go to a
`Peer`. See `faults` for what can be done to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tests.sim.kafka.broker import Broker
from tests.sim.kafka.controller import CONTROLLER, Controller
from tests.sim.kafka.faults import Faults
from tests.sim.kafka.settings import ClusterSettings
from tests.sim.kafka.topics import CONSUMER_OFFSETS, TRANSACTION_STATE

if TYPE_CHECKING:
    from tests.sim.kafka.batches import Batch
    from tests.sim.kafka.channel import Channel
    from tests.sim.kafka.replica import Replica
    from tests.sim.kafka.settings import Peer, Scheduler


class Cluster(Faults):
    """See the module. `effects` counts each fault that took effect; `trace` is called with the moment and a line for
    each thing that happens.
    """

    def __init__(self, scheduler: Scheduler, settings: ClusterSettings | None = None) -> None:
        super().__init__()
        self.scheduler = scheduler
        self.settings = settings = settings or ClusterSettings()
        self.brokers: dict[int, Broker] = {}
        self.client_quotas: Mapping[Any, Mapping[str, float]] | None = {}
        """Values by key, of each entity (type and name, None for the default); None: a node may not see them."""
        self.controller = Controller(self)
        for each in settings.brokers:
            self.brokers[each] = Broker(self, each)
        self._create_internal()
        image = self.controller.image()
        for broker in self.brokers.values():
            broker.feed.clear()
            broker.apply(image, set(image.topics))
            broker.housekeeping()

    def _create_internal(self) -> None:
        settings = self.settings
        replication = min(3, len(settings.brokers))
        configs = {"min.insync.replicas": str(min(settings.internal_min_isr, replication)), "cleanup.policy": "compact"}
        self.controller.create(TRANSACTION_STATE, settings.transaction_partitions, replication, configs)
        self.controller.create(CONSUMER_OFFSETS, settings.offsets_partitions, replication, configs)

    # For the world -------------------------------------------------------------------------------------------------

    def accept(self, broker_id: int, peer: Peer) -> Channel:
        """A client has connected to a broker. Raises `ConnectionRefusedError` where no process listens."""
        return self.brokers[broker_id].accept(peer)

    @property
    def addresses(self) -> dict[tuple[str, int], int]:
        """Which broker listens where."""
        return {broker.address: broker.id for broker in self.brokers.values()}

    def create_topic(
        self, name: str, partitions: int = 1, replication: int = -1, *, configs: Mapping[str, str] | None = None,
        assignment: Mapping[int, Iterable[int]] | None = None,
    ) -> None:  # fmt: skip
        """As by CreateTopics, at once; the brokers hear of it later."""
        self.controller.create(name, partitions, replication, configs or {}, assignment)

    def leader(self, topic: str, partition: int) -> int:
        """Whom the controller calls the leader, -1 for nobody."""
        return self.controller.topics[topic].partitions[partition].leader

    def replica(self, topic: str, partition: int, broker: int | None = None) -> Replica | None:
        """The replica on a broker, or the leader's (None: its broker is down, or does not know yet)."""
        found = self.controller.topics[topic]
        broker = found.partitions[partition].leader if broker is None else broker
        return self.brokers[broker].replicas.get((found.id, partition)) if broker >= 0 else None

    def committed(self, topic: str, partition: int) -> list[Batch]:
        """The batches below the leader's high watermark, for a checker. Empty without a leader."""
        replica = self.replica(topic, partition)
        if replica is None:
            return []
        return [batch for batch in replica.log.batches if batch.last < replica.high_watermark]

    def history(self, topic: str, partition: int) -> list[Batch]:
        """As `committed`, with what was cleaned away. Of that, what an unclean election lost before is not of the
        leader's log: it began a later epoch in front of it.
        """
        replica = self.replica(topic, partition)
        found = {batch.base: batch for batch in self.committed(topic, partition)}
        named = self.controller.topics.get(topic)
        log = None if replica is None else replica.log
        for batch in () if named is None else self.before_cleaning(named.id, partition):
            if log is not None and (batch.last < log.start or log.epoch_of(batch.base) <= batch.epoch):
                found[batch.base] = batch
        return [found[base] for base in sorted(found)]

    # Links ---------------------------------------------------------------------------------------------------------

    def post(self, source: int, target: int, call: Callable[..., object], *args: Any) -> None:
        """Call something at a broker, or the controller, after the way of a message. Lost where that one dies first."""
        arrives = self.delay(self.settings.link)
        if target == CONTROLLER:
            self.scheduler.call_later(arrives, self._arrive, source, target, 0, call, args)
        else:
            self.scheduler.call_later(arrives, self._arrive, source, target, self.brokers[target].life, call, args)

    def _arrive(self, source: int, target: int, life: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self.cuts and self.is_cut(source, target):
            self.hold(source, target, lambda: self._arrive(source, target, life, call, args))
        elif target == CONTROLLER:
            call(*args)
        else:
            self.brokers[target].run(life, call, args)
