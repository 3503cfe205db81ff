"""Two nodes that audits know of."""

from __future__ import annotations

import pytest

from tests.conftest import StartNode, Unique
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.audit.cluster import Nodes
from tests.wait import wait_for


@pytest.fixture
def nodes(services: Services, node_process: StartNode, unique: Unique) -> Nodes:
    cluster = unique("a")
    both = [
        node_process(cluster=cluster, node_id=number, LEASE_MS="1000", RECONNECT_GRACE_MS="20000") for number in (1, 2)
    ]
    wait_for(
        lambda: all(len(Rest(node.admin_url).call("GET", "/v1/status")[1]["nodes"]) == 2 for node in both),
        "both to know of each other",
    )
    return Nodes(both, services.kafka_bootstrap, services.redis_url, cluster)
