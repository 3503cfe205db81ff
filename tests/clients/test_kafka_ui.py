"""What Kafka UI (kafbat) asks of a cluster by Java's Admin: its `ReactiveAdminClient`. Brokers and nodes agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local.jars import resolve
from tests.conftest import Unique

from .applications import Application
from .further import KAFKA
from .outcome import Route
from .test_console import scene

if TYPE_CHECKING:
    from .stage import Stage

__all__ = ["scene"]

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
OF_BROKERS = {
    "alterPartitionReassignments": "InvalidReplicaAssignmentException",
    "alterReplicaLogDirs": "UnsupportedVersionException",
    "set a broker's config": "InvalidRequestException",
}
"""What nodes refuse because it is about one broker, and how."""


@pytest.fixture(scope="module")
def console() -> Application:
    return Application("Console", resolve(KAFKA))


@pytest.mark.further("kafka-ui-look", compares=True)
def test_what_it_sees_of_nodes_is_what_it_sees_of_brokers(console: Application, stage: Stage, scene: list[str]) -> None:
    topic, _, *groups = scene
    told = {route: console.run("look", stage.at(route), topic, *groups[:2]) for route in Route}
    brokers, nodes = (
        [line for line in told[route] if line.startswith("broker's configs: ")] for route in (Route.DIRECT, Route.NODE)
    )
    assert nodes == brokers * len(stage.nodes)
    through, direct = (
        dict(line.split(": ", 1) for line in told[route] if line not in brokers) for route in (Route.NODE, Route.DIRECT)
    )
    assert len(direct) > 12
    for call in direct:
        assert through[call] == direct[call], call
    assert through.keys() == direct.keys()


@pytest.mark.further("kafka-ui-edit", compares=True)
def test_what_it_changes_through_nodes_is_as_at_brokers(console: Application, stage: Stage, unique: Unique) -> None:
    names = {route: unique("edited") for route in Route}
    through, direct = (
        dict(
            line.replace(names[route], "NAME").split(": ", 1)
            for line in console.run("edit", stage.at(route), names[route])
        )
        for route in (Route.NODE, Route.DIRECT)
    )
    assert {call: through.pop(call) for call in OF_BROKERS} == OF_BROKERS
    assert {direct.pop("alterPartitionReassignments"), direct.pop("set a broker's config")} == {"null", "done"}
    assert direct.pop("alterReplicaLogDirs") not in OF_BROKERS.values()
    assert len(direct) > 20
    assert through == direct
