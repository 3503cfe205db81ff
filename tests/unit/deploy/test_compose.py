"""compose.yaml: valid for the schema and for Docker, with settings and files that are there, closed to the network."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from sidecar.local import StackConfig
from sidecar.settings import Settings, load
from tests.unit.deploy.files import COMPOSE, ROOT, SETTINGS, Tree, load_yaml, resolved

FILES = (COMPOSE, ROOT / "deploy" / "compose" / "secured.yaml")

SERVICES: Tree = yaml.safe_load(resolved(COMPOSE.read_text(encoding="utf-8")))["services"]


def node_settings(name: str) -> Settings:
    """What a node of this service is told."""
    given = {key: str(value) for key, value in SERVICES[name]["environment"].items() if value is not None}
    return load({key.removeprefix("SIDECAR_").lower(): value for key, value in given.items()})


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    text = resolved(path.read_text(encoding="utf-8"))
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    command += ["--default-filetype", "yaml", "-"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, input=text)


def test_the_compose_file_follows_the_compose_schema():
    result = schema_check(COMPOSE)

    assert result.returncode == 0, result.stdout + result.stderr


def test_what_services_are_told_are_settings():
    named = set(re.findall(r"\bSIDECAR_[A-Z_]+", str(SERVICES)))

    assert named <= SETTINGS


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_from_the_repository_is_there(name: str):
    sources = {each.split(":")[0] for each in SERVICES[name].get("volumes", []) if each.startswith(".")}

    assert [source for source in sources if not (ROOT / source).exists()] == []


def test_nothing_is_published_beyond_this_machine_and_kafka_and_redis_not_at_all():
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert published.keys().isdisjoint({"kafka", "redis"})
    assert [port for ports in published.values() for port in ports if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", ["sidecar-1", "sidecar-2"])
def test_a_node_advertises_what_is_published_for_it(name: str):
    inside, outside = node_settings(name).all_listeners

    assert f"{outside.advertise}:{outside.listen.port}" in SERVICES[name]["ports"]
    assert (inside.advertise.host, inside.advertise.port) == (name, inside.listen.port)
    assert [port for port in SERVICES[name]["ports"] if port.endswith(f":{inside.listen.port}")] == []


def test_every_published_port_is_a_variable_and_by_default_none_of_sidecar_up():
    published = [port for each in load_yaml(COMPOSE)["services"].values() for port in each.get("ports", [])]
    found = [re.fullmatch(r".+:\$\{(\w+)_PORT:-(\d+)\}:\d+", port) for port in published]
    up, stack = load({}), StackConfig(Path())

    assert len({each[1] for each in found if each}) == len(published)
    taken = {up.listen.port, up.admin_listen.port, stack.kafka_port, stack.redis_port}
    assert {int(each[2]) for each in found if each}.isdisjoint(taken)


@pytest.mark.parametrize("name", ["sidecar-1", "sidecar-2"])
def test_a_node_advertises_the_port_that_a_variable_gives_it(name: str):
    number = name[-1]
    text = re.sub(rf"\$\{{NODE_{number}_PORT:-\d+\}}", "7777", COMPOSE.read_text(encoding="utf-8"))
    service = yaml.safe_load(resolved(text))["services"][name]

    assert service["environment"]["SIDECAR_ADVERTISED_LISTENERS"].endswith("OUTSIDE://127.0.0.1:7777")
    assert "127.0.0.1:7777:19093" in service["ports"]


@pytest.mark.parametrize("file", FILES)
def test_no_health_check_needs_a_newer_engine_than_is_asked_for(file: Path):
    checks = [each["healthcheck"] for each in load_yaml(file)["services"].values() if "healthcheck" in each]

    assert [check for check in checks if "start_interval" in check] == []  # Engine 25


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_has_a_bound_for_its_memory(name: str):
    assert re.fullmatch(r"\d+[mg]", SERVICES[name]["mem_limit"])


def test_redis_refuses_claims_before_the_kernel_ends_it():
    command = SERVICES["redis"]["command"]
    most = int(command[command.index("--maxmemory") + 1].removesuffix("mb"))

    assert most < int(SERVICES["redis"]["mem_limit"].removesuffix("m"))


def test_an_image_of_ours_is_built_by_one_service_alone():
    ours = {name: each["image"] for name, each in SERVICES.items() if each["image"].startswith("kafka-sidecar")}
    built = [ours[name] for name in ours if "build" in SERVICES[name]]

    assert sorted(built) == sorted(set(ours.values()))
    assert {SERVICES[name]["pull_policy"] for name in ours} == {"never"}


@pytest.mark.parametrize("name", ["demo", "load"])
def test_a_client_in_a_container_goes_by_the_listener_for_containers(name: str):
    inside = [str(node_settings(node).all_listeners[0].advertise) for node in ("sidecar-1", "sidecar-2")]

    assert SERVICES[name]["environment"]["CLIENT_BOOTSTRAP"] == ",".join(inside)
    assert {"network_mode", "ports"}.isdisjoint(SERVICES[name])
    assert set(SERVICES[name]["networks"]) < set(SERVICES["sidecar-1"]["networks"])


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


@pytest.mark.parametrize("more", [(), ("deploy/compose/secured.yaml",)])
def test_docker_compose_accepts_the_file(more: tuple[str, ...]):
    words = compose_command()
    if words is None:
        pytest.skip("no `docker compose` here; the schema has checked the file")

    files = [word for file in (COMPOSE, *more) for word in ("--file", str(file))]
    command = [*words, "--profile", "*", *files, "config", "--quiet"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert (result.returncode, result.stderr) == (0, "")
