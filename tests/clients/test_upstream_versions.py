"""The core of the matrix against other Kafkas behind the node: two older ones, and three brokers."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.local import KafkaConfig
from sidecar.local.jars import Jars
from sidecar.local.java import find_java

from . import setting
from .features import CLIENTS
from .further import KAFKA
from .outcome import Route
from .run import CellId, MatrixRun
from .setting import AUTHORIZED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CORE = (
    "cluster",
    "acks-all",
    "compression-zstd",
    "idempotent",
    "large-5m",
    "txn-commit",
    "txn-abort",
    "txn-offsets",
    "rebalance",
    "static-membership",
    "commit-sync",
    "seek-timestamp",
    "many-partitions",
    "topics",
    "partitions",
    "topic-configs",
    "broker-configs",
    "list-offsets",
    "delete-records",
    "log-dirs",
    "groups",
    "group-offsets",
    "transactions",
)


@pytest.mark.parametrize(
    ("config", "nodes"),
    [
        pytest.param(KafkaConfig(version="3.9.1", overrides=AUTHORIZED), 1, id="kafka-3.9.1"),
        pytest.param(KafkaConfig(version="4.1.1", overrides=AUTHORIZED), 1, id="kafka-4.1.1"),
        pytest.param(KafkaConfig(version=KAFKA, brokers=3, overrides=AUTHORIZED), 2, id="three-brokers"),
    ],
)
def test_all_clients_do_the_core_of_the_matrix(
    config: KafkaConfig, nodes: int, jars: Jars, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    route = Route.DIRECT if pytestconfig.getoption("--through", "node") == "direct" else Route.NODE
    cells = [CellId(route, client.name, feature) for client in CLIENTS for feature in CORE]
    count = nodes if route is Route.NODE else 0
    with setting.own_servers(tmp_path, config) as behind, setting.nodes_before(behind, tmp_path, count) as running:
        targets = {route: setting.through(behind, running) if running else setting.direct(behind)}
        run = MatrixRun(targets, setting.commands(find_java(), jars), jars.paths, tmp_path)
        run.start(cells)
        try:
            results = {cell: run.result(cell) for cell in cells}
        finally:
            run.close()
    failures = [
        f"{cell.client}-{cell.feature}: {result.detail}" for cell, result in results.items() if not result.passed
    ]
    assert not failures, "\n".join(failures)
