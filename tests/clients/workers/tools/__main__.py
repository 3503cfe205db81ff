"""`python -m …workers.tools`: the worker process of the column of Kafka's tools."""

from ..runtime import serve
from . import admin, cluster, consume, groups, operate, produce, transactions
from .kit import host, scenarios

ROOMS = (admin, cluster, consume, groups, operate, produce, transactions)

if __name__ == "__main__":
    serve(scenarios, host().version)
