"""A node that finds no Kafka when it starts: it does not end, and KafkaUnavailable goes off for it too."""

from __future__ import annotations

import urllib.request

from sidecar.local.ports import HOST, free_ports
from tests.conftest import StartNode


def test_a_node_that_has_not_reached_kafka_yet_says_so_in_its_metrics(node_process: StartNode) -> None:
    (nobody,) = free_ports(1)
    node = node_process(kafka=f"{HOST}:{nobody}", ready=False)
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=20) as answer:
        assert "sidecar_kafka_up 0.0" in answer.read().decode().splitlines()
