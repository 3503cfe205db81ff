"""compose.yaml as it is, on a Docker engine: built, healthy, governed, fenced, watched, restarted and taken away.

Skipped with a reason where there is no engine. What needs none is tested in tests/unit/deploy and beside this file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from tests.slow.deploy.stack import PATIENCE_S, Stack, running, write
from tests.unit.deploy.files import DASHBOARDS, RULES, load_json, load_yaml
from tests.wait import wait_for

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running("demo", token=uuid.uuid4().hex, DEMO_TEMPO="10") as found:
        yield found


def test_every_service_is_healthy_and_kafka_and_redis_are_not_published(stack: Stack):
    containers = stack.containers()

    expected = {"kafka", "redis", "sidecar-1", "sidecar-2", "demo", "prometheus", "grafana"}
    assert set(containers) == expected
    assert stack.healthy()
    for name in ("kafka", "redis"):
        assert [port for port in containers[name]["NetworkSettings"]["Ports"].values() if port] == []


def test_the_engine_holds_every_service_to_its_bound_of_memory(stack: Stack):
    limits = {name: each["HostConfig"]["Memory"] for name, each in stack.containers().items()}

    assert [name for name, limit in limits.items() if not limit] == []
    files = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
    shown = stack.run("exec", "-T", "sidecar-1", "sh", "-c", f"cat {files[0]} || cat {files[1]}")
    assert int(shown) == 512 * 1024**2


def test_no_service_shares_the_network_of_another(stack: Stack):
    modes = {each["HostConfig"]["NetworkMode"] for each in stack.containers().values()}

    assert [mode for mode in modes if mode == "host" or mode.startswith("container:")] == []


def test_a_node_runs_unprivileged_on_a_file_system_that_it_cannot_write_to(stack: Stack):
    assert stack.run("exec", "-T", "sidecar-1", "id", "-u").strip() == "10001"
    assert "Read-only file system" in stack.run("exec", "-T", "sidecar-1", "touch", "/app/file", code=1)


def test_writes_over_http_from_outside_of_the_containers_need_the_token(stack: Stack):
    status, _ = stack.call(f"{stack.admin}/v1/topics/anything/policy", "PUT", {"access_mode": "exclusive"}, token=False)

    assert status == 401


@pytest.mark.parametrize("node", ["sidecar-1", "sidecar-2"])
def test_either_node_takes_a_fence_from_inside_its_container(stack: Stack, node: str):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.run("exec", "-T", node, "sidecar", "topic", "set", topic, "--access", "exclusive")
    owner = stack.producer("owner")
    assert isinstance(write(owner, topic, b"first"), int)

    assert "fenced" in stack.run("exec", "-T", node, "sidecar", "producer", "fence", topic, "--yes")


def test_a_governed_topic_has_one_writer_until_it_is_fenced(stack: Stack):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    owner, rival = stack.producer("owner"), stack.producer("rival")

    assert isinstance(write(owner, topic, b"first"), int)
    refused = write(rival, topic, b"second")
    assert isinstance(refused, KafkaError)
    assert refused.code() == 44
    status, answer = stack.call(f"{stack.admin}/v1/topics/{topic}/fence", "POST")
    assert (status, answer["owner"]) == (200, None)
    lost = write(owner, topic, b"third")
    assert isinstance(lost, KafkaError)
    assert lost.code() in {KafkaError._FENCED, KafkaError._FATAL, 90}
    assert isinstance(write(stack.producer("next"), topic, b"fourth"), int)
    wait_for(
        lambda: [
            each for each in stack.query(f'sidecar_produce_fenced_total{{topic="{topic}"}}') if each["value"][1] != "0"
        ],
        "the refusals in Prometheus",
        PATIENCE_S,
    )


def test_prometheus_scrapes_both_nodes_and_has_every_alert(stack: Stack):
    wait_for(lambda: len(stack.query('up{job="sidecar"} == 1')) == 2, "two scraped nodes", PATIENCE_S)
    status, answer = stack.call(f"{stack.prometheus}/api/v1/rules", token=False)

    loaded = {rule["name"] for group in answer["data"]["groups"] for rule in group["rules"]}
    assert status == 200
    assert loaded == {rule["alert"] for group in load_yaml(RULES)["groups"] for rule in group["rules"]}


def test_grafana_has_every_dashboard_and_asks_prometheus(stack: Stack):
    _, found = stack.call(f"{stack.grafana}/api/search?type=dash-db", token=False)
    assert {each["uid"] for each in found} == {load_json(path)["uid"] for path in DASHBOARDS}

    query = {"refId": "A", "datasource": {"uid": "prometheus"}, "expr": "count(sidecar_build_info)", "instant": True}
    body = {"queries": [query], "from": "now-5m", "to": "now"}

    def counted() -> bool:
        status, answer = stack.call(f"{stack.grafana}/api/ds/query", "POST", body, token=False)
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
    owner = stack.producer("owner")
    first = write(owner, topic, b"before")
    started = {name: each["Id"] for name, each in stack.containers().items()}

    stack.run("restart", "kafka")
    second = write(owner, topic, b"after")

    assert isinstance(first, int)
    assert isinstance(second, int)
    assert second > first
    assert {name: each["Id"] for name, each in stack.containers().items()} == started
    assert stack.read(topic, 2) == [b"before", b"after"]


def test_the_profile_load_writes_without_a_build(stack: Stack):
    stack.run("--profile", "load", "up", "--no-build", "--wait", "load")
    wait_for(lambda: stack.query('sum(sidecar_produce_records_total{topic=~"load-.*"}) > 0'), "a load", PATIENCE_S)
    stack.run("--profile", "load", "rm", "--stop", "--force", "load")


def test_the_profile_pipeline_audits_what_was_written_without_a_violation(stack: Stack):
    topic = f"docker-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    owner = stack.producer("owner")
    offsets = [write(owner, topic, b"value") for _ in range(3)]
    assert all(isinstance(offset, int) for offset in offsets), offsets

    stack.run("--profile", "pipeline", "build", "pipeline")  # not by `run --build`: its progress goes to stdout, too
    words = ("--profile", "pipeline", "run", "--rm", "-T", "pipeline", "audit", topic)
    found = json.loads(stack.run(*words, "--table", "/tables/audit", "-o", "json"))
    assert (found["topic"], found["records"], set(found["violations"].values())) == (topic, 3, {0})
