"""Random programs: the simulated Kafka answers them as a real one does. `make differential` plays more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sidecar.local import Kafka, KafkaConfig
from sidecar.local.kafka_config import default_version
from tests.sim.kafka.differential.compare import OVERRIDES, Sides
from tests.sim.kafka.differential.generate import program
from tests.sim.kafka.differential.steps import Ask, Program, Records, Symbol
from tests.sim.kafka.real import Real
from tests.sim.kafka.trouble import RealTrouble

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services import Services

_SEEDS = range(6)
_OTHER_VERSIONS = ("3.9.1", "4.3.1")
_DIFFERED = (0, 1, 10, 34, 45, 77, 184)
"""Seeds that once showed a difference to 3.9."""
_LENGTH = 60


@pytest.fixture(scope="module")
def sides(services: Services) -> Iterator[Sides]:
    real = Real(services.kafka_bootstrap)
    yield Sides(real, default_version(), 1)
    real.close()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", _SEEDS)
def test_random_requests_are_answered_alike(sides: Sides, seed: int) -> None:
    found = sides.play(program(seed, sides.release, 1, _LENGTH))
    assert found is None, str(sides.shrink(found))


@pytest.mark.timeout(300)
def test_a_wrong_answer_of_the_simulation_is_shown(sides: Sides, monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer whose window is too short is a difference, and what it does not need is left out."""
    monkeypatch.setattr("tests.sim.kafka.producers._WINDOW", 2)
    begun = program(0, sides.release, 1, 0).steps
    sent = [_produced(again) for again in (None, None, None, 2)]
    looked = Ask(3, 9, ("any",), {"topics": [{"name": Symbol("topic", 0)}], "allow_auto_topic_creation": False})
    found = sides.play(Program(0, 1, (*begun, looked, *sent[:2], looked, *sent[2:], looked)))
    assert found is not None
    shrunk = sides.shrink(found)
    assert shrunk.program.steps[-1] == sent[-1]
    assert [each.key for each in shrunk.program.steps if isinstance(each, Ask)] == [19, 0, 0, 0, 0]
    assert "error_code: real 0, simulated 45" in str(shrunk)


def _produced(again: int | None) -> Ask:
    records = Records(0, 0, (60_000,), producer=0, key=0, again=again)
    topic = {"name": Symbol("topic", 0), "partition_data": [{"index": 0, "records": records}]}
    fields = {"transactional_id": None, "acks": -1, "timeout_ms": 5000, "topic_data": [topic]}
    return Ask(0, 8, ("leader", 0, 0), fields)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", _OTHER_VERSIONS)
def test_other_versions_answer_alike(version: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    with Kafka(tmp_path_factory.mktemp("other"), KafkaConfig(version=version, overrides=OVERRIDES)) as kafka:
        real = Real(kafka.bootstrap)
        sides = Sides(real, version, 1)
        for seed in _DIFFERED:
            found = sides.play(program(seed, sides.release, 1, _LENGTH))
            assert found is None, str(sides.shrink(found))
        real.close()


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
