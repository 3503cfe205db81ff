"""A simulated Apache Kafka at the level of frames: see `cluster` for what it is, `faults` and `broker` for what can be
done to it, `settings` for what it needs of the world.

Comments cite files of Kafka 4.1 with line numbers: KA is KafkaApis.scala, UL UnifiedLog.java, PSM
ProducerStateManager.java, PAI ProducerAppendInfo.java, TC TransactionCoordinator.scala.
"""

from tests.sim.kafka import (
    apis_fetch,
    apis_groups,
    apis_offsets,
    apis_pages,
    apis_produce,
    apis_topics,
    apis_transactions,
)
from tests.sim.kafka.broker import Broker
from tests.sim.kafka.channel import Channel
from tests.sim.kafka.cluster import Cluster
from tests.sim.kafka.controller import CONTROLLER
from tests.sim.kafka.settings import Cancellable, ClusterSettings, Peer, Scheduler

_HANDLERS = (apis_fetch, apis_groups, apis_offsets, apis_pages, apis_produce, apis_topics, apis_transactions)
"""Each enters its handlers when it is imported."""

__all__ = ["CONTROLLER", "Broker", "Cancellable", "Channel", "Cluster", "ClusterSettings", "Peer", "Scheduler"]
