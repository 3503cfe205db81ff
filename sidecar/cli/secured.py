"""What `--secure` adds to `sidecar up` and `sidecar demo`: settings of the node, users in Kafka, files for clients, and
output.

Users in Kafka and their ACLs are created by requests to a broker that accepts a certificate. Passwords are sent as
SCRAM defines them, salted and hashed, over TLS; Kafka's own tool would take them as arguments. All of it may be
repeated.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import field
from hashlib import pbkdf2_hmac
from pathlib import Path
from typing import Any, Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.local import Endpoints, Stack
from sidecar.local.errors import LocalError
from sidecar.local.ports import HOST
from sidecar.local.secured import ADMIN, APPLICATION, NODE, PREFIX, SUPER_USERS, USERS, Secrets
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.messages import security
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View
from sidecar.security.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.scram import MIN_ITERATIONS, SALT_BYTES, Hash
from sidecar.settings import ENV_PREFIX, find_config, read_toml

_SCRAM_SHA_512: Final = 2
"""Kafka's number of SCRAM-SHA-512 (`ScramMechanism`)."""
_TIMEOUT_S: Final = 10.0
_OF_APPLICATIONS: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE),
    ResourceType.GROUP: (Operation.READ,),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE,),
}


class _SetPasswords(View[None], of=security.ALTER_USER_SCRAM_CREDENTIALS, version=0):
    """Set a password for each user, by SCRAM-SHA-512. Raises KafkaError."""

    passwords: Mapping[str, str] = field(repr=False)

    def asked(self) -> Values:
        return {"deletions": [], "upsertions": [_salted(*each) for each in self.passwords.items()]}

    def answered(self, values: Values) -> None:
        for each in values["results"]:
            _check(each, f"the password of {each['user']}")


class _CreateAcls(View[None], of=security.CREATE_ACLS, version=2):
    """Create ACLs; existing ones are allowed. Raises KafkaError."""

    bindings: Sequence[AclBinding]

    def asked(self) -> Values:
        return {
            "creations": [
                {
                    "resource_type": each.resource_type,
                    "resource_name": each.resource_name,
                    "resource_pattern_type": each.pattern_type,
                    "principal": each.principal,
                    "host": each.host,
                    "operation": each.operation,
                    "permission_type": each.permission,
                }
                for each in self.bindings
            ]
        }

    def answered(self, values: Values) -> None:
        for each in values["results"]:
            _check(each, "an ACL")


def may_everything(user: str) -> list[AclBinding]:
    """The ACLs of a user who operates the cluster."""
    resources = {
        ResourceType.TOPIC: WILDCARD,
        ResourceType.GROUP: WILDCARD,
        ResourceType.TRANSACTIONAL_ID: WILDCARD,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return [_allowed(user, kind, name, PatternType.LITERAL, Operation.ALL) for kind, name in resources.items()]


def may_use(user: str, prefix: str) -> list[AclBinding]:
    """The ACLs of an application whose topics, groups and transactional ids begin with `prefix`."""
    return [
        _allowed(user, kind, prefix, PatternType.PREFIXED, operation)
        for kind, operations in _OF_APPLICATIONS.items()
        for operation in operations
    ]


async def make_users(
    broker: tuple[str, int], context: ssl.SSLContext, passwords: Mapping[str, str], acls: Sequence[AclBinding]
) -> None:
    """Create these users and ACLs at `broker`. `context` has the certificate of a super user.

    Raises UpstreamError, KafkaError.
    """
    access = BrokerAccess(lambda: context)
    upstream = KafkaUpstream([broker], connect_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S, access=access)
    try:
        await upstream.call(None, _SetPasswords(passwords))
        await upstream.call(None, _CreateAcls(acls))
    finally:
        await upstream.close()


def _salted(user: str, password: str) -> Values:
    salt = os.urandom(SALT_BYTES)
    return {
        "name": user,
        "mechanism": _SCRAM_SHA_512,
        "iterations": MIN_ITERATIONS,
        "salt": salt,
        "salted_password": pbkdf2_hmac(Hash.SCRAM_SHA_512.value, password.encode(), salt, MIN_ITERATIONS),
    }


def _allowed(user: str, kind: ResourceType, name: str, pattern: PatternType, operation: Operation) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", WILDCARD, operation, Permission.ALLOW)


def _check(result: Values, what: str) -> None:
    if result["error_code"]:
        raise KafkaError(result["error_code"], f"{what}: {result['error_message']}")


_FILE: Final = "sidecar.toml"


def node_settings(directory: Path) -> dict[str, str]:
    """The settings that secure a node, without secrets; `directory`: of the stack, which need not exist yet."""
    kept = directory.absolute() / "secured"
    ca, own = str(kept / "ca.pem"), str(kept / f"{NODE}.pem")
    return {
        "security_protocol": "SASL_SSL",
        "ssl_certificate": own,
        "sasl_mechanisms": "SCRAM-SHA-512",
        "super_users": ";".join(SUPER_USERS),
        "kafka_security_protocol": "SASL_SSL",
        "kafka_ssl_ca": ca,
        "kafka_sasl_mechanism": "SCRAM-SHA-512",
        "kafka_sasl_username": NODE,
        "kafka_sasl_password_file": str(kept / f"{NODE}.password"),
        "admin_ssl_certificate": own,
        "admin_client_ssl_ca": ca,
    }


def prepare_node(
    stack: Stack, endpoints: Endpoints, config: Path | None, listen: str, admin_listen: str, advertised: str
) -> tuple[list[str], dict[str, None]]:
    """Create users in Kafka, and the files of the node and of clients. Returns the arguments of `serve`, and the
    variables to remove from its environment: the settings with passwords are in a file, which environment variables
    would override.

    `config`: the user's own file, if any; `advertised`: the node's address for clients. Raises LocalError.
    """
    security = stack.kafka.config.security
    assert security is not None
    let_users_in(stack.secrets, security.context(), (HOST, stack.kafka.inner_port(1)))
    said = node_settings(stack.config.directory) | {"listen": listen, "admin_listen": admin_listen}
    file = write_settings(stack, endpoints, config, said)
    write_for_people(stack.secrets, advertised)
    return ["--config", str(file)], {f"{ENV_PREFIX}{name.upper()}": None for name in read_toml(file)}


def write_settings(stack: Stack, endpoints: Endpoints, config: Path | None, said: Mapping[str, str]) -> Path:
    """Write the file from which the node and tools read their settings: the user's own file, overridden by `said` and
    by what the stack needs.
    """
    secrets = stack.secrets
    own = find_config(config)
    table: dict[str, Any] = {} if own is None else read_toml(own)
    table |= {
        **said,
        "bootstrap_servers": endpoints.kafka,
        "redis_url": endpoints.redis.replace("//", f"//{NODE}:{secrets.text('redis.password')}@", 1),
        "admin_token": secrets.text("admin.token"),
        "admin_read_token": secrets.text("read.token"),
    }
    # A JSON string is a TOML string.
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in table.items()]
    return secrets.write(_FILE, "".join(lines))


def let_users_in(secrets: Secrets, context: ssl.SSLContext, broker: tuple[str, int]) -> None:
    """Create users for the node, an administrator and an application. `context`: trusts the brokers' certificate;
    `broker`: the broker's address for it.

    Raises LocalError.
    """
    passwords = {user: secrets.password(user) for user in USERS}
    acls = [*may_everything(ADMIN), *may_use(APPLICATION, PREFIX)]
    try:
        asyncio.run(make_users(broker, context, passwords, acls))
    except (UpstreamError, KafkaError) as error:
        raise LocalError(f"Kafka does not take the users: {error}") from None


def write_for_people(secrets: Secrets, bootstrap: str) -> None:
    """Write the files with which clients and curl connect."""
    token = secrets.text("admin.token")
    curl = f'cacert = "{secrets.ca}"\nheader = "Authorization: Bearer {token}"\n'
    for name, content in {**secrets.client_files(bootstrap, str(secrets.ca)), "curl.conf": curl}.items():
        secrets.write(name, content)


def facts(secrets: Secrets) -> dict[str, str]:
    """What a new user has to know besides addresses."""
    return {
        "login": f"SASL_SSL with SCRAM-SHA-512; what follows is in {secrets.directory}",
        f"user {APPLICATION}": f"{_files(APPLICATION)}   topics, groups, transactional ids that begin with {PREFIX}",
        f"user {ADMIN}": f"{_files(ADMIN)}   everything",
        "authority": secrets.ca.name,
        "tokens": f"{secrets.file('admin.token').name} to operate, {secrets.file('read.token').name} to read",
    }


def _files(user: str) -> str:
    return f"{user}.properties for Java, {user}.conf for librdkafka from 2.6.1 on (kcat, Python)"


def examples(secrets: Secrets, bootstrap: str, url: str, program: str) -> list[str]:
    """Commands to try; none has a secret among its arguments."""
    there, topic = secrets.directory, f"{PREFIX}orders"
    java, librdkafka = there / f"{APPLICATION}.properties", there / f"{APPLICATION}.conf"
    return [
        f"{program} topic set {topic} --access exclusive --config {there / _FILE}",
        f"{program} doctor --config {there / _FILE}",
        f"curl -K {there / 'curl.conf'} {url}/v1/topics",
        f"kafka-console-producer.sh --bootstrap-server {bootstrap} --producer.config {java} --topic {topic}",
        f"kcat -F {librdkafka} -C -t {topic}",
        f'Python: Producer(dict(line.strip().split("=", 1) for line in open("{librdkafka}")))',
    ]
