"""What `sidecar doctor` says of a Kafka with TLS and logins: that all is well, or in plain words what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from sidecar.cli.checks.finding import Level
from sidecar.cli.checks.kafka import check_kafka
from sidecar.settings import resolve
from tests.kafka.security.secured import NODE, PASSWORD, Secured

if TYPE_CHECKING:
    from pathlib import Path


def settings(secured: Secured, listener: str, **given: Any) -> Any:
    values = {f"kafka_{name}": value for name, value in given.items()}
    return resolve(
        {"bootstrap_servers": f"127.0.0.1:{secured.ports[listener]}", "redis_url": "redis://127.0.0.1:1", **values},
        None,
    ).settings


def login(mechanism: str = "PLAIN", password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_mechanism": mechanism, "sasl_username": NODE, "sasl_password": password}


async def test_a_node_could_log_in(secured: Secured) -> None:
    found = await check_kafka(settings(secured, "SASL_PLAINTEXT", security_protocol="SASL_PLAINTEXT", **login()), [])
    assert [each.detail for each in found if each.level is Level.FAIL] == []
    assert found[0].detail == "1 broker in the cluster"


PLAINTEXT = {"security_protocol": "PLAINTEXT"}
TLS = {"security_protocol": "SSL", "ssl_ca": True}
WITHOUT_CA = {"security_protocol": "SASL_SSL", **login("SCRAM-SHA-256")}
WRONG = {"security_protocol": "SASL_PLAINTEXT", **login(password="not the secret")}
PLAIN = {"security_protocol": "SASL_PLAINTEXT", **login()}
PLAIN_OVER_TLS = {"security_protocol": "SASL_SSL", "ssl_ca": True, **login()}
WRONG_SETTINGS = {
    "wrong password": ("SASL_PLAINTEXT", WRONG, "Invalid username or password"),
    "untrusted": ("SASL_SSL", WITHOUT_CA, "its certificate is not trusted"),
    "TLS at a plaintext port": ("PLAINTEXT", TLS, "is this a port without TLS?"),
    "plaintext at a TLS port": ("SASL_SSL", PLAINTEXT, "the port may require a login or TLS"),
    "no login where one is asked for": ("SASL_PLAINTEXT", PLAINTEXT, "the port may require a login or TLS"),
    "a login where there is none": ("PLAINTEXT", PLAIN, "there is no login at this port"),
    "another mechanism": ("SASL_SSL", PLAIN_OVER_TLS, "it offers SCRAM-SHA-256"),
    "no certificate": ("SSL", TLS, "certificate shown to it, or wants one"),
}


@pytest.mark.parametrize(("listener", "given", "said"), WRONG_SETTINGS.values(), ids=WRONG_SETTINGS)
async def test_what_is_wrong_is_said(secured: Secured, listener: str, given: dict[str, Any], said: str) -> None:
    if given.get("ssl_ca"):
        given = {**given, "ssl_ca": str(secured.authority.ca)}
    (finding,) = await check_kafka(settings(secured, listener, **given), [])
    assert finding.level is Level.FAIL
    assert said in finding.detail
    assert f"SIDECAR_KAFKA_SECURITY_PROTOCOL={given['security_protocol']}" in finding.remedy
    assert "secret" not in finding.detail


async def test_a_file_that_cannot_be_used_is_named(secured: Secured, tmp_path: Path) -> None:
    missing = tmp_path / "ca.pem"
    (finding,) = await check_kafka(settings(secured, "SSL", security_protocol="SSL", ssl_ca=str(missing)), [])
    assert str(missing) in finding.detail
    assert "SIDECAR_KAFKA_SSL_" in finding.remedy
