"""The simulated Kafka answers as the real one does: one scenario after the other on both."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.kafka_config import default_version, parse_version
from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.real import Real, warm
from tests.sim.kafka.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services import Services

OTHER_VERSIONS = ("3.9.1", "4.3.1")


@pytest.fixture(scope="module")
def real(services: Services) -> Iterator[Real]:
    talk = Real(services.kafka_bootstrap)
    warm(talk)
    yield talk
    talk.close()


@pytest.fixture(scope="module", params=OTHER_VERSIONS)
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Real]]:
    """A broker of another version, and that version."""
    with Kafka(tmp_path_factory.mktemp("other"), KafkaConfig(version=request.param)) as kafka:
        talk = Real(kafka.bootstrap)
        warm(talk)
        yield request.param, talk
        talk.close()


def _simulated(version: str) -> Simulated:
    major, minor, _ = parse_version(version)
    return Simulated(1, ClusterSettings((major, minor), brokers=(1,), replication=1, auto_create=True))


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_real_one_answers_alike(real: Real, name: str) -> None:
    assert SCENARIOS[name](real) == SCENARIOS[name](_simulated(default_version()))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", SCENARIOS)
def test_another_version_answers_alike(other: tuple[str, Real], name: str) -> None:
    version, talk = other
    assert SCENARIOS[name](talk) == SCENARIOS[name](_simulated(version))
