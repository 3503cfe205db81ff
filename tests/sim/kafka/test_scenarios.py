"""The scenarios on the simulation alone; `test_conformance` compares them with a real broker."""

import pytest

from tests.sim.kafka import ClusterSettings
from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.scenarios import ONE_BROKER, SCENARIOS


def test_there_are_enough_scenarios():
    assert len(SCENARIOS) >= 220


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_has_the_same_answers_with_one_broker_as_with_three(name: str):
    one = SCENARIOS[name](Simulated(1, ClusterSettings(brokers=(1,), replication=1, auto_create=True)))
    assert one
    if name not in ONE_BROKER:
        assert SCENARIOS[name](Simulated(2, ClusterSettings(auto_create=True))) == one
