"""deploy/compose/secured.yaml, its program and its Prometheus: true to compose.yaml, to `sidecar up --secure`, and to
themselves.
"""

from __future__ import annotations

import importlib.util
import os
import stat
import tomllib
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
import yaml

from sidecar.local.kafka_config import BrokerSecurity, KafkaConfig, Ports, broker_properties
from sidecar.local.secured import SUPER_USERS
from sidecar.settings import Settings, load
from tests.unit.deploy.files import ROOT, SETTINGS, load_yaml, resolved
from tests.unit.deploy.test_compose import schema_check

FILE = ROOT / "deploy" / "compose" / "secured.yaml"
PROGRAM = FILE.with_suffix(".py")
SECURED = load_yaml(FILE)["services"]
PLAIN = yaml.safe_load(resolved((ROOT / "compose.yaml").read_text(encoding="utf-8")))["services"]
PROMETHEUS = ROOT / "grafana" / "prometheus"
NODES = ("sidecar-1", "sidecar-2")
ONCE = {"keys", "users"}


def mounts(service: Any) -> dict[str, PurePosixPath]:
    """By volume."""
    return {each.split(":")[0]: PurePosixPath(each.split(":")[1]) for each in service["volumes"]}


def paths(values: Any) -> list[PurePosixPath]:
    return [PurePosixPath(value) for value in values if str(value).startswith("/")]


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the program makes of keys, on this machine: `/keys…` is `tmp_path/keys…`."""
    specification = importlib.util.spec_from_file_location("deploy_compose_secured", PROGRAM)
    assert specification is not None
    assert specification.loader is not None
    program = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(program)
    monkeypatch.setattr(program, "KEPT", tmp_path / "keys")
    for target in mounts(SECURED["keys"]).values():
        (tmp_path / target.name).mkdir()
    for name, value in SECURED["keys"]["environment"].items():
        monkeypatch.setenv(name, str(os.getuid()) if name.endswith("_UID") else value or "")
    monkeypatch.setenv("ADVERTISED_HOST", "kafka.example.com")
    monkeypatch.setenv("NODE_2_PORT", "39093")
    program.make_keys()
    return tmp_path


def node_settings(name: str, tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What a node of this service is told by its environment and by the file in its container."""
    for key, value in {**PLAIN[name]["environment"], **SECURED[name]["environment"]}.items():
        if value is not None:
            monkeypatch.setenv(key, str(value))
    file = tmp_path / "read.toml"
    file.write_bytes((made / "keys-of-node" / "sidecar.toml").read_bytes())
    return load({}, file)


def test_it_follows_the_compose_schema():
    result = schema_check(FILE)
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_changes_services_that_there_are_and_tells_nodes_settings_that_there_are():
    assert SECURED.keys() - ONCE <= PLAIN.keys()
    for name in NODES:
        assert SECURED[name]["environment"].keys() <= SETTINGS


@pytest.mark.parametrize("name", NODES)
def test_a_node_takes_logins_on_both_listeners_and_has_a_token(
    name: str, tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
):
    told = node_settings(name, tmp_path, made, monkeypatch)
    assert {(each.name, each.security_protocol) for each in told.all_listeners} == {
        ("INSIDE", "SASL_SSL"),
        ("OUTSIDE", "SASL_SSL"),
    }
    assert told.kafka_security_protocol == "SASL_SSL"
    assert told.redis_url.startswith("rediss://sidecar:")
    assert told.admin_token
    assert told.admin_read_token
    assert f"{told.super_users}" == ";".join(SUPER_USERS)


def test_kafka_is_told_what_an_embedded_one_is_told():
    environment = {**PLAIN["kafka"]["environment"], **SECURED["kafka"]["environment"]}
    told = {
        name.removeprefix("KAFKA_").lower().replace("_", ".").replace("...", "-").replace("..", "_"): value
        for name, value in environment.items()
    }
    keys = Path("/etc/kafka/secrets")
    security = BrokerSecurity(keys / "kafka.pem", keys / "ca.pem", SUPER_USERS)
    embedded = broker_properties(KafkaConfig(security=security), 1, {1: Ports(9092, 9093, 9094)}, Path("/data"))
    shared = {
        *security.properties(),
        *("listener.security.protocol.map", "inter.broker.listener.name", "controller.listener.names"),
    }
    assert {name: told[name] for name in shared} == {name: embedded[name] for name in shared}
    assert told["listeners"] == embedded["listeners"].replace("127.0.0.1", "")
    assert told["advertised.listeners"] == embedded["advertised.listeners"].replace("127.0.0.1", "kafka")
    assert "SSL://" not in told["advertised.listeners"]  # the image's script would ask for key stores of its own


def test_the_files_that_are_named_are_made_and_mounted_where_they_are_named(made: Path):
    job = load_yaml(PROMETHEUS / "secured.yml")["scrape_configs"][0]
    of_job = (job["tls_config"]["ca_file"], job["authorization"]["credentials_file"])
    health = SECURED["redis"]["healthcheck"]["test"]
    named = {
        "kafka-keys": [("kafka", paths(SECURED["kafka"]["environment"].values()))],
        "redis-keys": [("redis", paths([*SECURED["redis"]["command"], *health]))],
        "node-keys": [(name, paths(SECURED[name]["environment"].values())) for name in NODES],
        "prometheus-keys": [("prometheus", paths(of_job))],
    }
    for volume, services in named.items():
        there = made / mounts(SECURED["keys"])[volume].name
        for service, files in services:
            assert {path.parent for path in files} == {mounts(SECURED[service])[volume]}
            assert {path.name for path in files} == {path.name for path in there.iterdir()} - {"sidecar.toml"}
    url = tomllib.loads((made / "keys-of-node" / "sidecar.toml").read_text())["redis_url"]
    assert url.endswith("?ssl_ca_certs=/etc/sidecar/ca.pem")


def test_each_server_has_its_own_keys_alone_and_only_users_has_all():
    own = {name: mounts(service).keys() & mounts(SECURED["keys"]).keys() for name, service in SECURED.items()}
    del own["keys"]
    assert {name: {each for each in found if not each.startswith(".")} for name, found in own.items()} == {
        "users": {"keys"},
        "kafka": {"kafka-keys"},
        "redis": {"redis-keys"},
        "sidecar-1": {"node-keys"},
        "sidecar-2": {"node-keys"},
        "prometheus": {"prometheus-keys"},
    }
    assert [
        each
        for service in SECURED.values()
        for each in service["volumes"]
        if "-keys:/etc" in each and not each.endswith(":ro")
    ] == []


def test_keys_are_for_their_owner_alone_and_stay(made: Path):
    files = [path for path in made.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    clients = made / "keys-of-clients"
    assert "bootstrap.servers=kafka.example.com:19292,kafka.example.com:39093\n" in (clients / "app.conf").read_text()
    assert "ssl.truststore.location=ca.pem\n" in (clients / "app.properties").read_text()


def test_redis_does_the_same_as_without_but_for_tls_and_users():
    before, own = PLAIN["redis"]["command"], SECURED["redis"]["command"]
    assert own[: len(before)] == before
    assert own[own.index("--port") + 1] == "0"


def test_prometheus_does_the_same_as_without_but_for_tls_and_the_token():
    plain, secured = (load_yaml(PROMETHEUS / f"{name}.yml") for name in ("prometheus", "secured"))
    job = secured["scrape_configs"][0]
    for added in ("scheme", "tls_config", "authorization"):
        del job[added]
    assert secured == plain
    own, before = (each["prometheus"]["command"] for each in (SECURED, PLAIN))
    assert own == [each.replace("prometheus.yml", "secured.yml") for each in before]


def test_no_secret_stands_in_an_environment():
    for name in NODES:
        environment = SECURED[name]["environment"]
        assert [environment[f"SIDECAR_{each}"] for each in ("REDIS_URL", "ADMIN_TOKEN")] == ["", ""]
    told = [name for service in SECURED.values() for name in service.get("environment", {})]
    assert [name for name in told if "PASSWORD" in name and not name.endswith("_FILE")] == []


def test_what_runs_once_has_no_more_rights_than_it_needs():
    for name in ONCE:
        service = SECURED[name]
        assert service["cap_drop"] == ["ALL"]
        assert service["read_only"]
        assert service["entrypoint"] == ["python", "/deploy/secured.py", name]
    assert SECURED["keys"]["cap_add"] == ["CHOWN"]
    assert SECURED["keys"]["network_mode"] == "none"
    assert SECURED["users"]["networks"] == ["backend"]
