"""The simulated Kafka answers as the real one does: one scenario after the other on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.real import Real, warm
from tests.sim.kafka.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services import Services


@pytest.fixture(scope="module")
def real(services: Services) -> Iterator[Real]:
    talk = Real(services.kafka_bootstrap)
    warm(talk)
    yield talk
    talk.close()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_real_one_answers_alike(real: Real, name: str) -> None:
    simulated = SCENARIOS[name](Simulated(1, ClusterSettings(brokers=(1,), replication=1)))
    assert SCENARIOS[name](real) == simulated
