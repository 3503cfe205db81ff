"""Two nodes with two listeners each: INSIDE without TLS or logins, OUTSIDE with both."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.local.ports import HOST, free_ports
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.users import user_line
from tests.certificates import Authority
from tests.wait import wait_for

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import StartNode
    from tests.nodes import NodeProcess

NAME, PASSWORD = "alice", "the secret of alice"
PROTOCOLS = "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL"


@dataclass
class Place:
    """A node and where its listeners are."""

    process: NodeProcess
    inside: str
    outside: str

    @property
    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.process.admin_url}/v1/status") as answer:
            return json.load(answer)

    @property
    def metrics(self) -> str:
        with urllib.request.urlopen(f"{self.process.admin_url}/metrics") as answer:
            return answer.read().decode()


@dataclass
class Pair:
    """Both nodes, and what a client needs at OUTSIDE."""

    one: Place
    two: Place
    authority: Authority

    @property
    def inside(self) -> set[str]:
        return {self.one.inside, self.two.inside}

    @property
    def outside(self) -> set[str]:
        return {self.one.outside, self.two.outside}

    def librdkafka(self, bootstrap: str, **more: Any) -> dict[str, Any]:
        """Settings of librdkafka at a listener OUTSIDE."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": NAME,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.authority.ca),
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def aiokafka(self, bootstrap: str) -> dict[str, Any]:
        """Settings of aiokafka at a listener OUTSIDE."""
        context: ssl.SSLContext = client_context(TlsFiles(ca=self.authority.ca))
        return {
            "bootstrap_servers": bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": NAME,
            "sasl_plain_password": PASSWORD,
            "ssl_context": context,
        }


def outside_settings(authority: Authority, directory: Path) -> dict[str, str]:
    """What the listener OUTSIDE of a node is told."""
    certificate, key = authority.issue("node", file="node")
    users = directory / "users.toml"
    if not users.exists():
        users.write_text(f"[users]\n{user_line(NAME, PASSWORD)}\n")
    return {
        "LISTENER_OUTSIDE_SSL_CERTIFICATE": str(certificate),
        "LISTENER_OUTSIDE_SSL_KEY": str(key),
        "LISTENER_OUTSIDE_SASL_AUTHENTICATION": "file",
        "LISTENER_OUTSIDE_SASL_USERS_FILE": str(users),
        "AUTHORIZER": "none",
    }


class Starter:
    """Starts nodes of one cluster with both listeners, or with INSIDE alone."""

    def __init__(self, node_process: StartNode, directory: Path, cluster: str) -> None:
        self.authority = Authority(directory)
        self._node_process, self._directory, self._cluster = node_process, directory, cluster

    def __call__(self, number: int, *, outside: bool = True, **settings: str) -> Place:
        addresses = [f"{HOST}:{port}" for port in free_ports(2)]
        listeners = f"INSIDE://{addresses[0]}" + (f",OUTSIDE://{addresses[1]}" if outside else "")
        told: dict[str, Any] = {"LISTEN": "", "LISTENERS": listeners, "LISTENER_SECURITY_PROTOCOL_MAP": PROTOCOLS}
        told |= outside_settings(self.authority, self._directory) if outside else {}
        process = self._node_process(cluster=self._cluster, node_id=number, **{**told, **settings})
        return Place(process, *addresses)

    def both(self, *, second_outside: bool = True) -> Pair:
        """Two nodes that know each other."""
        found = Pair(self(1), self(2, outside=second_outside), self.authority)
        for place in (found.one, found.two):
            wait_for(lambda at=place: is_with_two(at), "both nodes to know each other")
        return found


def is_with_two(place: Place) -> bool:
    page = place.metrics
    return "sidecar_live_nodes 2.0" in page


@pytest.fixture
def start(node_process: StartNode, tmp_path: Path, unique: Callable[[str], str]) -> Starter:
    return Starter(node_process, tmp_path, unique("c"))


@pytest.fixture
def pair(start: Starter) -> Pair:
    return start.both()
