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
    from tests.sim.kafka.talk import Talk

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


def by_id(talk: Talk) -> list[list[tuple[str, int, int, int]]]:
    """Batches for topics by their ids (Produce v13, from Kafka 4.1 on)."""
    topic, other = talk.topic(partitions=1), talk.topic(partitions=1)
    told: list[list[tuple[str, int, int, int]]] = []
    nobodys = b"nobody's id 1234"
    ids = {
        each["name"]: each["topic_id"]
        for each in talk.ask(None, 3, 12, {"topics": [{"name": name} for name in (topic, other)]})["topics"]
    }
    names = {ids[topic]: "topic", ids[other]: "other", nobodys: "nobody's"}
    for asked in ([ids[topic]], [nobodys], [ids[topic], nobodys, ids[other]], [ids[topic]]):
        fields = talk.produce_fields(topic, [b"value"])
        (data,) = fields["topic_data"]
        batch = data["partition_data"]
        fields["topic_data"] = [{"topic_id": each, "partition_data": batch} for each in asked]
        answer = talk.ask(talk.leader_of(topic), 0, 13, fields)
        rows: list[tuple[str, int, int, int]] = []
        for found in answer["responses"]:
            (row,) = found["partition_responses"]
            rows.append((names[found["topic_id"]], row["error_code"], row["base_offset"], row["log_start_offset"]))
        told.append(sorted(rows))
    return told


def test_topics_are_known_by_their_ids_as_by_the_real_one(real: Real) -> None:
    told = by_id(real)
    assert told == by_id(_simulated(default_version()))
    assert {code for rows in told for _, code, *_ in rows} == {0, 100}
