"""One scene for all: two nodes with a Redis of their own, and a Prometheus that scrapes them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sidecar.local import Valkey
from tests.nodes import NodeProcess
from tests.programs import program
from tests.services import Services
from tests.slow.observed.prometheus import Prometheus, running_prometheus
from tests.slow.observed.scene import Scene


@dataclass(frozen=True)
class Observed:
    """Everything has happened, and Prometheus has seen it."""

    scene: Scene
    prometheus: Prometheus


@pytest.fixture(scope="session")
def observed(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    program("prometheus", "prometheus")
    directory = tmp_path_factory.mktemp("observed")
    cluster = f"t-{uuid.uuid4().hex[:8]}"
    with Valkey(directory / "valkey") as redis:
        nodes = [
            NodeProcess(directory, services.kafka_bootstrap, redis.url, cluster=cluster, node_id=number)
            for number in (1, 2)
        ]
        scene = Scene(services, redis, nodes)
        try:
            scene.prepare()
            with running_prometheus(directory, nodes) as prometheus:
                scene.act(prometheus)
                yield Observed(scene, prometheus)
        finally:
            scene.close()
        for node in nodes:
            node.check_log()
