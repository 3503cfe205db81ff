"""`python -m …workers.aio`: the worker process of the aiokafka column."""

from importlib.metadata import version

from ..runtime import serve
from . import admin, cluster, consume, groups, produce, transactions
from .kit import scenarios

ROOMS = (admin, cluster, consume, groups, produce, transactions)

if __name__ == "__main__":
    serve(scenarios, f"aiokafka {version('aiokafka')}")
