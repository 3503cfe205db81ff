"""Prepares the servers of secured.yaml, in two steps, each in a container of the sidecar's image.

    secured.py keys     makes certificates, passwords and tokens once; each server gets copies for its user only
    secured.py users    creates Kafka's users and ACLs, with the brokers' certificate

/keys has all files, and only root may read it. A server has only the volume with its own files.

    ADVERTISED_HOST             name or address of this machine for clients; also in the nodes' certificate
    NODE_1_PORT, NODE_2_PORT    ports of the nodes on this machine
    KAFKA_UID …                 the users of the servers' processes
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from sidecar.cli.secured import let_users_in
from sidecar.local.certificates import write_private
from sidecar.local.kafka_config import BrokerSecurity
from sidecar.local.secured import BROKER, NODE, Secrets

KEPT: Final = Path("/keys")
KAFKA: Final = ("kafka", 9094)
"""The address at which Kafka accepts certificates."""


def give(service: str, files: dict[str, bytes | str]) -> None:
    """Files for one server, in the volume that it has."""
    owner = int(os.environ[f"{service.upper()}_UID"])
    for name, content in files.items():
        os.chown(write_private(KEPT.with_name(f"keys-of-{service}") / name, content), owner, -1)


def make_keys() -> None:
    """For everybody."""
    secrets = Secrets(KEPT)
    host = os.environ.get("ADVERTISED_HOST") or "127.0.0.1"
    ca = secrets.ca.read_bytes()
    give("kafka", {"ca.pem": ca, "kafka.pem": secrets.broker_security("kafka").keys.read_bytes()})
    redis = secrets.certificate("redis", ["redis"]).read_bytes()
    give("redis", {"ca.pem": ca, "redis.pem": redis, "users.acl": secrets.redis_users().read_bytes()})
    settings = {
        "redis_url": f"rediss://{NODE}:{secrets.text('redis.password')}@redis:6379/0?ssl_ca_certs=/etc/sidecar/ca.pem",
        "admin_token": secrets.text("admin.token"),
        "admin_read_token": secrets.text("read.token"),
    }
    node = {
        "ca.pem": ca,
        "node.pem": secrets.certificate(NODE, ["sidecar-1", "sidecar-2", host]).read_bytes(),
        "kafka.password": secrets.password(NODE),
        "sidecar.toml": "".join(f'{name} = "{value}"\n' for name, value in settings.items()),
    }
    give("node", dict(node))
    give("prometheus", {"ca.pem": ca, "read-token": secrets.text("read.token")})
    ports = (os.environ.get("NODE_1_PORT") or "19292", os.environ.get("NODE_2_PORT") or "19293")
    nodes = ",".join(f"{host}:{port}" for port in ports)
    give("clients", {"ca.pem": ca, **secrets.client_files(nodes, "ca.pem")})


def make_users() -> None:
    """At a Kafka that runs."""
    secrets = Secrets(KEPT)
    security = BrokerSecurity(KEPT / f"{BROKER}.pem", secrets.ca, ())
    let_users_in(secrets, security.context(), KAFKA)


if __name__ == "__main__":
    {"keys": make_keys, "users": make_users}[sys.argv[1]]()
