"""compose.yaml: valid for the schema, and true to itself."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.unit.deploy import compose_rules
from tests.unit.deploy.files import COMPOSE, ROOT, Tree, load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_compose_file_follows_the_compose_schema():
    result = schema_check(COMPOSE)

    assert result.returncode == 0, result.stdout + result.stderr


def test_the_schema_check_finds_a_condition_that_does_not_exist(tmp_path: Path):
    compose = load_yaml(COMPOSE)
    compose["services"]["sidecar-1"]["depends_on"]["kafka"]["condition"] = "healthy"
    broken = tmp_path / "compose.yaml"
    broken.write_text(yaml.safe_dump(compose), encoding="utf-8")

    assert schema_check(broken).returncode == 1


@pytest.mark.parametrize("rule", compose_rules.RULES, ids=lambda rule: rule.__name__)
def test_the_compose_file_keeps_the_rule(rule: Callable[[Tree], Iterator[str]]):
    assert list(rule(load_yaml(COMPOSE))) == []


DELETE = object()
MUTATIONS: tuple[tuple[Callable[[Tree], Iterator[str]], str, Any, str], ...] = (
    (compose_rules.references, "services.sidecar-1.networks", ["backend", "front"], "front is used but not defined"),
    (compose_rules.references, "volumes.left-over", None, "left-over is defined but not used"),
    (compose_rules.references, "services.redis.volumes", ["elsewhere:/data"], "elsewhere is used but not defined"),
    (compose_rules.references, "services.kafka", DELETE, "depends on kafka, which is not there"),
    (compose_rules.references, "services.redis.healthcheck", DELETE, "redis has no health check"),
    (compose_rules.mounts, "services.grafana.volumes", ["./grafana/gone:/x:ro"], "./grafana/gone, which is not there"),
    (compose_rules.mounts, "services.grafana.volumes", ["./grafana:/x"], "can write to ./grafana"),
    (compose_rules.images, "services.sidecar-2.build", {"context": "."}, "built 2 times"),
    (compose_rules.images, "services.kafka.image", "apache/kafka:4.1.1", "not of the form"),
    (compose_rules.images, "services.kafka.image", "${KAFKA_IMAGE:-apache/kafka:latest}", "no fixed tag"),
    (compose_rules.images, "services.kafka.image", "${KAFKA_IMAGE:-apache/kafka}", "no fixed tag"),
    (compose_rules.interpolation, "services.redis.image", "${REDIS_IMAGE}", "${REDIS_IMAGE} has no default"),
    (compose_rules.settings, "services.sidecar-1.environment.SIDECAR_ADVERTISED", "x:1", "SIDECAR_ADVERTISED is no"),
    (compose_rules.settings, "services.redis.image", "${SIDECAR_REDIS:-redis:8}", "SIDECAR_REDIS is no setting"),
    (compose_rules.references, "services.demo.profiles", ["demo", "more"], "depends on relay, which is not always"),
    (compose_rules.settings, "services.demo.environment.DEMO_SPEED", "2", "DEMO_SPEED, which it does not read"),
    (compose_rules.settings, "services.load.environment.LOAD_TOPICS", DELETE, "cannot be told LOAD_TOPICS"),
    (compose_rules.checks, "services.sidecar-1.healthcheck.test", ["CMD", "sidecar", "ping"], "no command"),
    (compose_rules.checks, "services.load.command", ["/clients/loads.py"], "/clients/loads.py, which is not there"),
    (compose_rules.checks, "services.demo.healthcheck.test", ["CMD", "python", "/progress.py"], "which is not there"),
    (compose_rules.builds, "services.pipeline.build.target", "pipelines", "which is no stage"),
    (compose_rules.builds, "services.sidecar-2.ports", ["127.0.0.1:19093:19093"], "does not expose"),
    (compose_rules.clients, "services.demo.network_mode", "bridge", "demo is not in the network of sidecar-1"),
    (compose_rules.clients, "services.relay.depends_on.sidecar-1", {"condition": "service_healthy"}, "relay stays"),
    (compose_rules.clients, "services.load.image", "python:3", "runs another image"),
    (compose_rules.clients, "services.sidecar-2.environment.SIDECAR_LISTEN", "0.0.0.0:19093", "relay leads"),
    (compose_rules.clients, "services.sidecar-2.environment.SIDECAR_ADVERTISE", "127.0.0.1:19094", "relay leads"),
    (
        compose_rules.clients,
        "services.sidecar-1.environment.SIDECAR_ADMIN_LISTEN",
        "0.0.0.0:1",
        "does not look whether",
    ),
    (compose_rules.clients, "services.sidecar-1.environment.SIDECAR_ADVERTISE", "127.0.0.1:1", "is not where it says"),
    (compose_rules.exposure, "services.kafka.ports", ["127.0.0.1:9092:9092"], "kafka publishes a port"),
    (compose_rules.exposure, "services.redis.networks", ["backend", "default"], "redis is in another network"),
    (compose_rules.exposure, "networks.backend.internal", False, "not internal"),
    (compose_rules.exposure, "services.grafana.ports", ["3000:3000"], "grafana publishes 3000 on 0.0.0.0"),
    (compose_rules.exposure, "services.grafana.ports", ["127.0.0.1:9090:3000"], "9090 is published 2 times"),
    (compose_rules.addresses, "services.sidecar-2.environment.SIDECAR_NODE_ID", "1", "node ids are ['1', '1']"),
    (compose_rules.addresses, "services.sidecar-2.environment.SIDECAR_ADVERTISE", "127.0.0.1:19092", "advertises"),
    (compose_rules.addresses, "services.sidecar-1.environment.SIDECAR_LISTEN", "127.0.0.1:19092", "nothing outside"),
    (compose_rules.addresses, "services.sidecar-1.environment.SIDECAR_ADMIN_LISTEN", "0.0.0.0:1", "not published"),
    (
        compose_rules.addresses,
        "services.sidecar-2.environment.SIDECAR_ADMIN_ADVERTISE",
        DELETE,
        "is asked by the other",
    ),
    (compose_rules.addresses, "services.sidecar-1.environment.SIDECAR_BOOTSTRAP_SERVERS", "kafka:1", "for Kafka at"),
    (compose_rules.addresses, "services.sidecar-1.environment.SIDECAR_REDIS_URL", "redis://r:1", "for Redis at"),
    (compose_rules.addresses, "services.sidecar-1.healthcheck.test", ["CMD", "true"], "not checked by"),
    (compose_rules.hardening, "services.prometheus.logging", DELETE, "does not rotate"),
    (compose_rules.hardening, "services.prometheus.restart", "no", "prometheus is restarted no"),
    (compose_rules.hardening, "services.pipeline.restart", "always", "pipeline is restarted always"),
    (compose_rules.hardening, "services.pipeline.profiles", DELETE, "pipeline belongs to the profiles None"),
    (compose_rules.hardening, "services.grafana.profiles", ["demo"], "grafana belongs to the profiles"),
    (compose_rules.hardening, "services.demo.network_mode", "host", "not kept apart"),
    (compose_rules.hardening, "services.redis.cap_drop", DELETE, "redis keeps capabilities"),
    (compose_rules.hardening, "services.pipeline.cap_drop", [], "keeps capabilities"),
    (compose_rules.hardening, "services.prometheus.security_opt", [], "can gain privileges"),
    (compose_rules.hardening, "services.prometheus.read_only", DELETE, "can write to its image"),
    (compose_rules.hardening, "services.prometheus.healthcheck", DELETE, "has no health check"),
    (compose_rules.hardening, "services.sidecar-1.cap_drop", [], "keeps capabilities"),
    (compose_rules.engines, "services.redis.healthcheck.start_interval", "1s", "redis needs Docker Engine 25"),
    (compose_rules.engines, "services.sidecar-1.healthcheck.interval", "10s", "sidecar-1 is healthy 10s after"),
    (compose_rules.arbitration, "services.redis.command", ["redis-server"], "without --maxmemory-policy noeviction"),
    (compose_rules.arbitration, "services.kafka.environment.KAFKA_LOG_DIRS", "/tmp/kafka", "not on its volume"),
)


def mutated(tree: Tree, path: str, value: Any) -> Tree:
    changed = copy.deepcopy(tree)
    *parents, last = path.split(".")
    place = changed
    for key in parents:
        place = place[key]
    if value is DELETE:
        del place[last]
    else:
        place[last] = value
    return changed


@pytest.mark.parametrize(("rule", "path", "value", "sentence"), MUTATIONS)
def test_a_fault_put_into_the_compose_file_is_found(
    rule: Callable[[Tree], Iterator[str]], path: str, value: Any, sentence: str
):
    found = list(rule(mutated(load_yaml(COMPOSE), path, value)))

    assert any(sentence in problem for problem in found), found


def test_every_rule_has_a_fault_that_it_finds():
    assert {rule for rule, *_ in MUTATIONS} == set(compose_rules.RULES)


PLUGINS = (
    ("docker", "compose"),
    ("docker-compose",),
    ("/usr/libexec/docker/cli-plugins/docker-compose", "compose"),
    ("/usr/lib/docker/cli-plugins/docker-compose", "compose"),
)


def compose_command() -> tuple[str, ...] | None:
    """Version 2 or later, wherever it is; the one before knows neither `name` nor `restart` of a dependency."""
    for words in PLUGINS:
        if shutil.which(words[0]) is not None:
            answer = subprocess.run(
                [*words, "version", "--short"], capture_output=True, text=True, check=False, timeout=60
            )
            if answer.returncode == 0 and not answer.stdout.startswith("1."):
                return words
    return None


def test_docker_compose_accepts_the_file():
    words = compose_command()
    if words is None:
        pytest.skip("no `docker compose` here; the schema and the rules above have checked the file")

    command = [*words, "--profile", "*", "--file", str(COMPOSE), "config", "--quiet"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert (result.returncode, result.stderr) == (0, "")
