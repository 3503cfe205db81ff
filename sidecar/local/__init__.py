"""A real Apache Kafka and a real Valkey as child processes, from package registries alone: no Docker, no installation.

What `sidecar up`, `sidecar demo`, the tests and the benchmarks run on. Nothing in here is part of a node: it imports no
other room and no other room imports it.
"""

from sidecar.local.errors import LocalError, PortInUseError, StartError
from sidecar.local.kafka import Kafka, KafkaConfig
from sidecar.local.valkey import Valkey, ValkeyConfig

__all__ = [
    "Kafka",
    "KafkaConfig",
    "LocalError",
    "PortInUseError",
    "StartError",
    "Valkey",
    "ValkeyConfig",
]
