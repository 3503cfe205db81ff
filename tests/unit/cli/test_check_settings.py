"""Which Kafka and Redis the doctor looks at, by the settings here and those that a node shows."""

import os
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.checks.finding import Level
from sidecar.cli.doctor import looked_at
from sidecar.settings import resolve
from sidecar.settings.loaded import LoadedSettings


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a variable nor a file says anything."""
    for name in [each for each in os.environ if each.startswith("SIDECAR_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def node(**given: Any) -> list[dict[str, Any]]:
    return [each._asdict() for each in resolve(given).shown]


def here(**given: Any) -> LoadedSettings:
    return resolve(given)


def test_the_nodes_kafka_and_redis_stand_in_for_the_defaults_here() -> None:
    shown = node(bootstrap_servers="kafka:9092", redis_url="redis://redis:6379/1", cluster="blue")
    found = looked_at(here(), "", shown)
    assert [str(each) for each in found.settings.bootstrap_servers] == ["kafka:9092"]
    assert (found.settings.redis_url, found.settings.cluster) == ("redis://redis:6379/1", "blue")
    assert [(each.level, "those of the node" in each.detail) for each in found.findings] == [(Level.OK, True)]
    assert not found.unknown


def test_without_a_node_the_settings_here_are_looked_at() -> None:
    found = looked_at(here(cluster="green"), "Kafka and Redis are those of `sidecar up`", [])
    assert found.settings.cluster == "green"
    assert found.findings[0].detail == "the settings are valid; Kafka and Redis are those of `sidecar up`"


def test_where_the_settings_here_say_something_else_than_the_nodes_it_is_warned_of() -> None:
    found = looked_at(here(bootstrap_servers="old:1"), "", node(bootstrap_servers="new:1"))
    (finding,) = found.findings
    assert (finding.level, finding.blocks) == (Level.WARN, "")
    assert "SIDECAR_BOOTSTRAP_SERVERS is new:1 at the node, not old:1" in finding.detail
    assert [str(each) for each in found.settings.bootstrap_servers] == ["new:1"]


def test_what_the_node_does_not_set_is_not_set() -> None:
    login = {"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "PLAIN", "kafka_sasl_username": "me"}
    found = looked_at(here(**login, kafka_sasl_password="hidden"), "", node())
    assert (found.settings.kafka_security_protocol, found.settings.kafka_sasl_username) == ("PLAINTEXT", None)


@pytest.mark.parametrize(
    ("secret", "unknown"),
    [
        ({"redis_url": "redis://:hidden@redis:6379/0"}, "redis"),
        ({"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "PLAIN", "kafka_sasl_username": "me",
          "kafka_sasl_password": "hidden"}, "kafka"),
    ],
)  # fmt: skip
def test_what_takes_a_secret_that_is_not_known_here_is_not_looked_at(secret: dict[str, Any], unknown: str) -> None:
    found = looked_at(here(), "", node(**secret))
    assert found.unknown == {unknown}
    assert [each.level for each in found.findings] == [Level.WARN]
    assert "hidden" not in str(found.findings)
    known = looked_at(here(**secret), "", node(**secret))
    assert (known.unknown, [each.level for each in known.findings]) == (frozenset(), [Level.OK])


def test_settings_of_the_node_that_cannot_be_used_here_are_named() -> None:
    shown = [{"setting": "SIDECAR_KAFKA_REQUEST_TIMEOUT_MS", "value": "never"}]
    found = looked_at(here(), "", shown)
    assert found.unknown == {"kafka", "redis"}
    assert "SIDECAR_KAFKA_REQUEST_TIMEOUT_MS" in found.findings[0].detail
