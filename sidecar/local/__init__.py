"""A real Apache Kafka and a real Valkey as child processes, from package registries alone: no Docker, no installation.

`sidecar up`, `sidecar demo`, the tests and the benchmarks run on them. Nothing in here is part of a node: this room
imports no other room, and only the command line imports it.
"""

from sidecar.local.errors import AlreadyRunningError, LocalError, PortInUseError, StartError, VariablesError
from sidecar.local.kafka import Kafka
from sidecar.local.kafka_config import KafkaConfig
from sidecar.local.stack import Endpoints, Stack, StackConfig, find_running
from sidecar.local.valkey import TlsKeys, Valkey, ValkeyConfig

__all__ = [
    "AlreadyRunningError",
    "Endpoints",
    "Kafka",
    "KafkaConfig",
    "LocalError",
    "PortInUseError",
    "Stack",
    "StackConfig",
    "StartError",
    "TlsKeys",
    "Valkey",
    "ValkeyConfig",
    "VariablesError",
    "find_running",
]
