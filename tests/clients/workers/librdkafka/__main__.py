"""`python -m …workers.librdkafka`: the worker process of the confluent-kafka column."""

from importlib.metadata import version

from confluent_kafka import libversion

from ..runtime import serve
from . import admin, cluster, consume, groups, produce, transactions
from .kit import scenarios

ROOMS = (admin, cluster, consume, groups, produce, transactions)

if __name__ == "__main__":
    serve(scenarios, f"confluent-kafka {version('confluent-kafka')}, librdkafka {libversion()[0]}")
