"""Random programs: the simulated Kafka answers them as a real one does. `make differential` plays more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.kafka_config import default_version
from tests.sim.kafka.differential.compare import OVERRIDES, Sides
from tests.sim.kafka.differential.generate import program
from tests.sim.kafka.real import Real
from tests.sim.kafka.trouble import RealTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services import Services

_SEEDS = range(6)
_LENGTH = 60


@pytest.fixture(scope="module")
def sides(services: Services) -> Iterator[Sides]:
    real = Real(services.kafka_bootstrap)
    yield Sides(real, default_version(), 1)
    real.close()


@pytest.mark.parametrize("seed", _SEEDS)
def test_random_requests_are_answered_alike(sides: Sides, seed: int) -> None:
    found = sides.play(program(seed, sides.release, 1, _LENGTH))
    assert found is None, str(sides.shrink(found))


def test_a_wrong_answer_of_the_simulation_is_shown(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the window of a producer one batch too short."""
    monkeypatch.setattr("tests.sim.kafka.producers._WINDOW", 1)
    found = next(
        found for seed in range(40) if (found := sides.play(program(seed, sides.release, 1, _LENGTH))) is not None
    )
    shown = str(sides.shrink(found))
    assert "error_code: real 0, simulated 45" in shown
    assert shown.count("\n  ") < 30


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_three_brokers_with_faults_answer_alike(tmp_path_factory: pytest.TempPathFactory) -> None:
    with Kafka(tmp_path_factory.mktemp("three"), KafkaConfig(brokers=3, overrides=OVERRIDES)) as kafka:
        real = RealTrouble(kafka)
        sides = Sides(real, default_version(), 3)
        for seed in range(5):
            found = sides.play(program(seed, sides.release, 3, _LENGTH))
            assert found is None, str(sides.shrink(found, 20))
        real.close()
