"""The application of deploy/kubernetes/application, two of it: one writes, the other waits for its turn."""

from __future__ import annotations

import sys
from pathlib import Path

from sidecar.local.process import Child, Command
from tests.nodes import NodeProcess
from tests.programs import stop_all
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.unit.deploy import manifests
from tests.wait import wait_for


def application(node: NodeProcess, topic: str, name: str, directory: Path) -> Child:
    """What the container runs, on this machine: another address, another topic, the pod's name."""
    [workload] = manifests.workloads(manifests.load("application"))
    [container] = manifests.pod_of(workload)["containers"]
    assert container["command"][0] == "python"
    [script] = container["args"]
    for there, here in (
        ("127.0.0.1:19092", node.bootstrap),
        ('"orders"', repr(topic)),
        ("socket.gethostname()", repr(name)),
    ):
        assert there in script
        script = script.replace(there, here)
    command = (sys.executable, *container["command"][1:], script)
    return Child.start(Command(name, command, directory / f"{name}.log", {}, directory))


def test_a_pod_takes_over_from_one_that_is_gone(node: NodeProcess, services: Services, tmp_path: Path):
    topic = create_topic(services.kafka_bootstrap, 1)
    govern(Rest(node.admin_url), topic)
    first = application(node, topic, "billing-a", tmp_path)
    second: Child | None = None
    try:
        wait_for(lambda: "generation=1" in first.log_text(), "the first one's record", 60)
        second = application(node, topic, "billing-b", tmp_path)
        waiting = f"/v1/topics/{topic}"
        wait_for(lambda: Rest(node.admin_url).call("GET", waiting)[1]["waiting"], "the second one in the queue", 60)
        assert "Receipt" not in second.log_text()

        first.kill()

        wait_for(lambda: "generation=2" in second.log_text(), "the second one's record", 60)
    finally:
        stop_all([child for child in (first, second) if child is not None], grace=10)
