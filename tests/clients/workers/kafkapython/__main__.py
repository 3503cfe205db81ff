"""`python -m …workers.kafkapython`: the worker process of the kafka-python column."""

from importlib.metadata import version

from ..runtime import serve
from . import admin, cluster, consume, groups, operate, produce, transactions
from .kit import scenarios

ROOMS = (admin, cluster, consume, groups, operate, produce, transactions)

if __name__ == "__main__":
    serve(scenarios, f"kafka-python {version('kafka-python')}")
