"""`sidecar bench` at a Kafka with TLS and logins, and at a node that has them too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.security.secured import NODE, PASSWORD, Secured

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import OwnValkey, StartNode

SMALL = ("--records", "500", "--rounds", "1", "--round-trips", "5", "--partitions", "1", "--seconds", "60")


def towards_kafka(secured: Secured, protocol: str, mechanism: str) -> dict[str, Any]:
    return {
        "KAFKA_SECURITY_PROTOCOL": protocol,
        "KAFKA_SASL_MECHANISM": mechanism,
        "KAFKA_SASL_USERNAME": NODE,
        "KAFKA_SASL_PASSWORD": PASSWORD,
        **({"KAFKA_SSL_CA": str(secured.authority.ca)} if protocol.endswith("SSL") else {}),
    }


def bench(settings: dict[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    ours = {f"SIDECAR_{name}": value for name, value in settings.items()}
    others = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
    command = [sys.executable, "-m", "sidecar", "bench", *SMALL, *arguments, "-o", "json"]
    return subprocess.run(command, env=others | ours, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.parametrize("listener", [pytest.param("PLAINTEXT", marks=pytest.mark.slow), "SASL_SSL"])
def test_what_nodes_are_told_is_enough(
    secured: Secured, own_valkey: OwnValkey, node_process: StartNode, listener: str, tmp_path: Path
) -> None:
    settings = towards_kafka(secured, "SASL_PLAINTEXT", "PLAIN")
    more: dict[str, Any] = {}
    if listener == "SASL_SSL":
        certificate, key = secured.authority.issue("node", file="listener")
        more = {"SECURITY_PROTOCOL": listener, "SSL_CERTIFICATE": str(certificate), "SSL_KEY": str(key)}
        settings["KAFKA_SSL_CA"] = str(secured.authority.ca)
        settings["KAFKA_SECURITY_PROTOCOL"] = "SASL_SSL"
        settings["KAFKA_SASL_MECHANISM"] = "SCRAM-SHA-256"
        secured.scram_user(NODE, "SCRAM-SHA-256")
        more["SUPER_USERS"] = f"User:{NODE}"
    kafka = f"127.0.0.1:{secured.ports[settings['KAFKA_SECURITY_PROTOCOL']]}"
    node = node_process(kafka=kafka, redis=own_valkey().url, **settings, **more)
    done = bench({**settings, "BOOTSTRAP_SERVERS": kafka, "ADMIN_URL": node.admin_url})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["throughput"].keys() == {"direct", "node"}
    assert PASSWORD not in done.stdout + done.stderr + node.log


def test_a_client_config_says_how_to_get_into_the_node(
    secured: Secured, own_valkey: OwnValkey, node_process: StartNode, tmp_path: Path
) -> None:
    settings = towards_kafka(secured, "SASL_PLAINTEXT", "PLAIN")
    kafka = f"127.0.0.1:{secured.ports['SASL_PLAINTEXT']}"
    node = node_process(
        kafka=kafka,
        redis=own_valkey().url,
        SECURITY_PROTOCOL="SASL_PLAINTEXT",
        SUPER_USERS=f"User:{NODE};User:alice",
        **settings,
    )
    config = tmp_path / "alice.properties"
    text = "# alice\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password="
    config.write_text(text + PASSWORD)
    arguments = ("--client-config", str(config), "--no-direct")
    told = {**settings, "BOOTSTRAP_SERVERS": kafka, "ADMIN_URL": node.admin_url}
    assert bench(told, *arguments).returncode == 0
    config.write_text(text + "a wrong one")
    refused = bench(told, *arguments)
    assert (refused.returncode, "the login is refused" in refused.stderr) == (5, True), refused.stderr
    assert "a wrong one" not in refused.stderr
