"""What `sidecar pipeline rebuild` refuses before it starts Spark: by which exit code, and what it says."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from sidecar.cli.root import cli
from tests.conftest import OwnValkey
from tests.kafka.dedup.conftest import deduplicate
from tests.kafka.dedup.ids import IdProducer
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.pipeline.snapshot_topics import chunks_of
from tests.topics import create_topic, delete_records

Rebuild = Callable[..., Result]


@pytest.fixture
def topic(services: Services, node: NodeProcess, rest: Rest) -> str:
    """Two partitions; partition 0 has ids."""
    name = create_topic(services.kafka_bootstrap)
    deduplicate(rest, name)
    with IdProducer(node.bootstrap, f"billing-{uuid.uuid4().hex}") as producer:
        for number in range(3):
            assert producer.write(name, number).error == 0
    return name


@pytest.fixture
def rebuild(services: Services, node: NodeProcess) -> Rebuild:
    def run(topic: str, *more: str, bootstrap: str = "", redis: str = "", cluster: str = "") -> Result:
        where = ("--bootstrap", bootstrap or services.kafka_bootstrap, "--redis-url", redis or services.redis_url)
        options = (*where, "--cluster", cluster or node.cluster, "--master", "nowhere")  # Spark would fail
        return CliRunner().invoke(cli, ["pipeline", "rebuild", topic, *options, *more])

    return run


def test_a_topic_that_there_is_not(rebuild: Rebuild) -> None:
    result = rebuild("no-such-topic")
    assert (result.exit_code, "there is no topic no-such-topic" in result.stderr) == (3, True), result.stderr


@pytest.mark.smoke
def test_a_topic_without_deduplication(services: Services, rebuild: Rebuild) -> None:
    name = create_topic(services.kafka_bootstrap)
    result = rebuild(name)
    assert (result.exit_code, f"sidecar topic set {name} --dedup" in result.stderr) == (1, True), result.stderr


def test_a_shadow_says_of_which_topic(rest: Rest, rebuild: Rebuild, topic: str) -> None:
    shadow = f"{topic}-audit"
    status, answer = rest.call("POST", f"/v1/topics/{topic}/shadows", {"name": shadow})
    assert status == 201, answer
    result = rebuild(shadow)
    assert (result.exit_code, f"rebuild {topic}" in result.stderr) == (1, True), result.stderr


@pytest.mark.parametrize(
    ("until", "problem"),
    [
        ('{"0": 1000}', "offset 1000 is behind the end of its log"),
        ('{"7": 0}', "there is no partition 7"),
        ("[1]", "give `latest`, or offsets"),
        ("tomorrow", "give `latest`, or offsets"),
    ],
)
def test_offsets_that_the_log_does_not_hold(rebuild: Rebuild, topic: str, until: str, problem: str) -> None:
    result = rebuild(topic, "--until", until)
    assert (result.exit_code, problem in result.stderr) == (2, True), result.stderr


def test_offsets_that_retention_took(services: Services, rebuild: Rebuild, topic: str) -> None:
    delete_records(services.kafka_bootstrap, topic)
    result = rebuild(topic, "--until", '{"0": 0}')
    assert (result.exit_code, "is in front of its log, which begins at" in result.stderr) == (2, True), result.stderr


def test_a_log_whose_beginning_is_lost_and_no_snapshot_tells_of(
    services: Services, node: NodeProcess, rebuild: Rebuild, topic: str
) -> None:
    delete_records(services.kafka_bootstrap, topic)
    result = rebuild(topic, "--until", '{"1": 0}')
    assert result.exit_code == 1, result.stderr
    assert f"{topic}-0: the log of {topic}-0 begins at offset" in result.stderr
    assert "Bring back the snapshots" in result.stderr
    assert not any(
        key.startswith(f"{topic}/0/".encode()) for key in chunks_of(services.kafka_bootstrap, node.cluster, topic)
    )


def test_another_kafkas_redis(rebuild: Rebuild, topic: str, node: NodeProcess, own_valkey: OwnValkey) -> None:
    valkey = own_valkey()
    client = Redis.from_url(valkey.url)
    client.set(f"sidecar:{{{node.cluster}}}:kafka", "another-kafka")
    result = rebuild(topic, redis=valkey.url)
    assert (result.exit_code, "another-kafka" in result.stderr) == (1, True), result.stderr
    assert [key for key in client.scan_iter("*") if b"snapshots" in key] == []
    client.close()


def test_a_node_in_the_place_of_kafka(rebuild: Rebuild, topic: str, node: NodeProcess) -> None:
    """It would not let anybody write what its kind wrote down."""
    result = rebuild(topic, "--until", '{"0": 0}', bootstrap=node.bootstrap)
    assert (result.exit_code, "--bootstrap names a node" in result.stderr) == (1, True), result.stderr


def test_a_cluster_of_nodes_that_kafka_does_not_know(rebuild: Rebuild, topic: str) -> None:
    result = rebuild(topic, cluster="nobodys")
    assert (result.exit_code, "name that by --bootstrap" in result.stderr) == (3, True), result.stderr


def test_a_kafka_that_does_not_answer(rebuild: Rebuild, topic: str) -> None:
    result = rebuild(topic, bootstrap="127.0.0.1:1")
    assert (result.exit_code, "is Kafka up" in result.stderr) == (5, True), result.stderr


def test_a_redis_that_is_away_is_told_of_in_the_end(rebuild: Rebuild, topic: str) -> None:
    """All is known up to there: nothing is to be read, so Spark is not asked."""
    result = rebuild(topic, "--until", '{"0": 0, "1": 0}', redis="redis://127.0.0.1:1/0")
    assert result.exit_code == 1, result.stderr
    assert "Redis cannot be reached: it lacks what is known of partitions 0, 1" in result.stderr
    assert "run this again to fill Redis" in result.stderr
