"""compose.yaml as it is, on a Docker engine: built, healthy, governed, fenced, watched, restarted and taken away.

Skipped with a reason where there is no engine. What needs none is tested in tests/unit/deploy and beside this file.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from tests.services import BACKENDS
from tests.unit.deploy.files import DASHBOARDS, ROOT, RULES, load_json, load_yaml
from tests.wait import wait_for

NODES = "127.0.0.1:19092,127.0.0.1:19093"
ADMIN = "http://127.0.0.1:18080"
PROMETHEUS = "http://127.0.0.1:9090"
GRAFANA = "http://127.0.0.1:3000"
PATIENCE_S = 180.0

pytestmark = pytest.mark.timeout(1800)


def refusal() -> str | None:
    """Why compose.yaml cannot be started here; None where it can."""
    if reason := BACKENDS["docker"].refusal():
        return reason
    docker = shutil.which("docker")
    if docker is None:
        return "no docker command"
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=60).returncode:
        return "the docker command knows no compose"
    return None


class Stack:
    """The services of compose.yaml under a project name of their own, so that nobody's volumes are touched."""

    def __init__(self, compose: Any, token: str) -> None:
        self.compose = compose
        self._token = token

    def call(self, url: str, method: str = "GET", body: object = None, *, token: bool = True) -> tuple[int, Any]:
        """Status and decoded answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=30
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, None

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What Prometheus knows now."""
        url = f"{PROMETHEUS}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        status, answer = self.call(url, token=False)
        assert status == 200, answer
        return answer["data"]["result"]

    def run(self, *arguments: str) -> str:
        """`docker compose …`."""
        command = [*self.compose.docker_compose_command(), *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=600).stdout

    def exclusive(self, topic: str) -> None:
        """A topic of one partition under the policy."""
        admin = AdminClient({"bootstrap.servers": NODES})  # one that nothing refers to takes its requests with it
        admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
        status, answer = self.call(f"{ADMIN}/v1/topics/{topic}/policy", "PUT", {"access_mode": "exclusive"})
        assert status == 200, answer


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    if reason := refusal():
        pytest.skip(reason)
    from testcontainers.compose import DockerCompose  # noqa: PLC0415  slow to import

    project, token = f"sidecar-test-{uuid.uuid4().hex[:8]}", uuid.uuid4().hex
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COMPOSE_PROJECT_NAME", project)
        environment.setenv("SIDECAR_ADMIN_TOKEN", token)
        environment.setenv("DEMO_TEMPO", "10")
        compose = DockerCompose(ROOT, "compose.yaml", build=True, wait=True, profiles=["demo"])
        with compose:
            yield Stack(compose, token)
        left = ["docker", "volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={project}"]
        assert subprocess.run(left, capture_output=True, text=True, check=True, timeout=60).stdout == ""


def write(producer: Producer, topic: str, value: bytes) -> KafkaError | int:
    """The offset of a record, or why it is not in the log."""
    outcome: list[KafkaError | int] = []
    producer.produce(topic, value, on_delivery=lambda error, message: outcome.append(error or message.offset() or 0))
    assert producer.flush(120) == 0
    return outcome[0]


def producer_called(name: str) -> Producer:
    return Producer({"bootstrap.servers": NODES, "client.id": name, "enable.idempotence": True})


def test_every_service_is_healthy_and_kafka_and_redis_are_not_published(stack: Stack):
    containers = {each.Service: each for each in stack.compose.get_containers()}

    expected = {"kafka", "redis", "sidecar-1", "sidecar-2", "demo", "prometheus", "grafana"}
    assert set(containers) == expected
    assert {each.Health for each in containers.values()} == {"healthy"}
    for name in ("kafka", "redis"):
        assert [port for port in containers[name].Publishers or [] if port.PublishedPort] == []


def test_a_node_runs_unprivileged_on_a_file_system_that_it_cannot_write_to(stack: Stack):
    assert stack.run("exec", "-T", "sidecar-1", "id", "-u").strip() == "10001"
    with pytest.raises(subprocess.CalledProcessError) as refused:
        stack.run("exec", "-T", "sidecar-1", "touch", "/app/file")
    assert "Read-only file system" in refused.value.stderr


def test_writes_over_http_from_outside_of_the_containers_need_the_token(stack: Stack):
    status, _ = stack.call(f"{ADMIN}/v1/topics/anything/policy", "PUT", {"access_mode": "exclusive"}, token=False)

    assert status == 401


@pytest.mark.parametrize("node", ["sidecar-1", "sidecar-2"])
def test_either_node_takes_a_fence_from_inside_its_container(stack: Stack, node: str):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.run("exec", "-T", node, "sidecar", "topic", "set", topic, "--access", "exclusive")
    owner = producer_called("owner")
    assert isinstance(write(owner, topic, b"first"), int)

    assert "fenced" in stack.run("exec", "-T", node, "sidecar", "producer", "fence", topic, "--yes")


def test_a_governed_topic_has_one_writer_until_it_is_fenced(stack: Stack):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    owner, rival = producer_called("owner"), producer_called("rival")

    assert isinstance(write(owner, topic, b"first"), int)
    refused = write(rival, topic, b"second")
    assert isinstance(refused, KafkaError)
    assert refused.code() == 44
    status, answer = stack.call(f"{ADMIN}/v1/topics/{topic}/fence", "POST")
    assert (status, answer["owner"]) == (200, None)
    lost = write(owner, topic, b"third")
    assert isinstance(lost, KafkaError)
    assert lost.code() in {KafkaError._FENCED, KafkaError._FATAL, 90}
    assert isinstance(write(producer_called("next"), topic, b"fourth"), int)
    wait_for(
        lambda: [
            each for each in stack.query(f'sidecar_produce_fenced_total{{topic="{topic}"}}') if each["value"][1] != "0"
        ],
        "the refusals in Prometheus",
        PATIENCE_S,
    )


def test_prometheus_scrapes_both_nodes_and_has_every_alert(stack: Stack):
    wait_for(lambda: len(stack.query('up{job="sidecar"} == 1')) == 2, "two scraped nodes", PATIENCE_S)
    status, answer = stack.call(f"{PROMETHEUS}/api/v1/rules", token=False)

    loaded = {rule["name"] for group in answer["data"]["groups"] for rule in group["rules"]}
    assert status == 200
    assert loaded == {rule["alert"] for group in load_yaml(RULES)["groups"] for rule in group["rules"]}


def test_grafana_has_every_dashboard_and_asks_prometheus(stack: Stack):
    _, found = stack.call(f"{GRAFANA}/api/search?type=dash-db", token=False)
    assert {each["uid"] for each in found} == {load_json(path)["uid"] for path in DASHBOARDS}

    query = {"refId": "A", "datasource": {"uid": "prometheus"}, "expr": "count(sidecar_build_info)", "instant": True}
    body = {"queries": [query], "from": "now-5m", "to": "now"}

    def counted() -> bool:
        status, answer = stack.call(f"{GRAFANA}/api/ds/query", "POST", body, token=False)
        frames = answer["results"]["A"].get("frames", []) if status == 200 else []
        return bool(frames) and frames[0]["data"]["values"][-1:] == [[2]]

    wait_for(counted, "two nodes in Grafana", PATIENCE_S)


@pytest.mark.parametrize(
    "metric",
    [
        'sidecar_takeovers_total{mode="wait_for_exclusive"}',
        'sidecar_produce_duplicates_total{topic="demo-payments"}',
        'sidecar_produce_fenced_total{topic="demo-orders"}',
        'sidecar_shadow_read_bytes_total{shadow="demo-orders-audit"}',
    ],
)
def test_the_demo_moves_what_the_dashboards_show(stack: Stack, metric: str):
    wait_for(lambda: stack.query(f"sum({metric}) > 0"), metric, PATIENCE_S)


def test_records_owners_and_nodes_outlive_a_restart_of_kafka(stack: Stack):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    owner = producer_called("owner")
    first = write(owner, topic, b"before")
    started = {each.Service: each.ID for each in stack.compose.get_containers()}

    stack.run("restart", "kafka")
    second = write(owner, topic, b"after")

    assert isinstance(first, int)
    assert isinstance(second, int)
    assert second > first
    assert {each.Service: each.ID for each in stack.compose.get_containers()} == started
    assert read(topic) == [b"before", b"after"]


def read(topic: str) -> list[bytes | None]:
    """Two values of a topic's only partition, from its beginning."""
    consumer = Consumer({"bootstrap.servers": NODES, "group.id": topic, "enable.auto.commit": False})
    values: list[bytes | None] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + PATIENCE_S
        while len(values) < 2 and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
    finally:
        consumer.close()
    return values
