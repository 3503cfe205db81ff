"""The simulated cluster answers as three real brokers do while brokers come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local.kafka_config import default_version, parse_version
from tests.sim.kafka.real import warm
from tests.sim.kafka.scenarios.faults import FAULTS
from tests.sim.kafka.trouble import RealTrouble, SimulatedTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sidecar.local import Kafka


def _simulated() -> SimulatedTrouble:
    major, minor, _ = parse_version(default_version())
    return SimulatedTrouble((major, minor))


@pytest.fixture
def real(kafka_cluster: Kafka) -> Iterator[RealTrouble]:
    talk = RealTrouble(kafka_cluster)
    warm(talk)
    yield talk
    talk.mend()
    talk.close()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_plays_on_the_simulation(name: str) -> None:
    assert FAULTS[name](_simulated())


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", FAULTS)
def test_the_real_cluster_answers_alike(real: RealTrouble, name: str) -> None:
    assert FAULTS[name](real) == FAULTS[name](_simulated())
