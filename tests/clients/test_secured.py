"""Each client over SASL_SSL, with each mechanism that it has: through a node that relays logins to a broker with ACLs,
and that logs in there itself over SASL_SSL.

The programs are those of docs/use/clients.md with the settings of a secured Kafka added (`secured_recipes`).
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from sidecar.local import Valkey
from sidecar.local.java import find_java
from tests.kafka.security.secured import NODE, PASSWORD, SCRAM, Secured, secured_kafka
from tests.nodes import NodeProcess
from tests.rest import Rest

from .over_tls import CELLS
from .recipes import CannotBuildError, Writer, read
from .secured_recipes import SecuredRecipes
from .test_recipes import CLIENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sidecar.local.jars import Jars

    Unique = Callable[[str], str]

pytestmark = [pytest.mark.clients, pytest.mark.timeout(900)]
ALICE = "alice"
RECORDS = [str(number) for number in range(20)]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    every = ",".join(("PLAIN", *SCRAM, "OAUTHBEARER"))
    with secured_kafka(tmp_path_factory.mktemp("secured"), tls_mechanisms=every, tls_session_ms=3_600_000) as running:
        for mechanism in SCRAM:
            running.scram_user(ALICE, mechanism)
        allowed = {
            ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE),
            ResourceType.GROUP: (AclOperation.READ,),
        }
        rules = [
            AclBinding(kind, "*", ResourcePatternType.LITERAL, f"User:{ALICE}", "*", operation, AclPermissionType.ALLOW)
            for kind, operations in allowed.items()
            for operation in operations
        ]
        for made in running.admin.create_acls(rules).values():
            made.result(30)
        yield running


@pytest.fixture(scope="module")
def node(secured: Secured, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory = tmp_path_factory.mktemp("node")
    certificate, key = secured.authority.issue("node", file="node")
    with Valkey(directory / "valkey") as valkey:
        started = NodeProcess(
            directory,
            f"127.0.0.1:{secured.ports['SASL_SSL']}",
            valkey.url,
            cluster="secured",
            SECURITY_PROTOCOL="SASL_SSL",
            SSL_CERTIFICATE=str(certificate),
            SSL_KEY=str(key),
            KAFKA_SECURITY_PROTOCOL="SASL_SSL",
            KAFKA_SSL_CA=str(secured.authority.ca),
            KAFKA_SASL_MECHANISM="PLAIN",
            KAFKA_SASL_USERNAME=NODE,
            KAFKA_SASL_PASSWORD=PASSWORD,
        )
        try:
            yield started.start()
        finally:
            started.stop()
        started.check_log()
        assert PASSWORD not in started.log


@pytest.fixture(scope="module")
def recipes(jars: Jars, tmp_path_factory: pytest.TempPathFactory) -> SecuredRecipes:
    return SecuredRecipes(tmp_path_factory.mktemp("secured-recipes"), find_java(), jars)


def unsigned_token(name: str) -> str:
    """A token that brokers take where they know no keys."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": name, "iat": now, "exp": now + 3_600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def command_of(recipes: SecuredRecipes, client: str, mechanism: str, secured: Secured) -> list[str]:
    try:
        command = recipes.command(client)
    except CannotBuildError as missing:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(missing))
    settings = {
        "MECHANISM": mechanism,
        "USER": ALICE,
        "PASSWORD": PASSWORD,
        "TOKEN": unsigned_token(ALICE),
        "CA": str(secured.authority.ca),
    }
    return ["env", *(f"SECURED_{name}={value}" for name, value in settings.items()), *command]


@pytest.mark.parametrize(("client", "mechanism"), CELLS)
def test_a_client_logs_in_over_tls_and_owns_writes_and_reads(
    client: str,
    mechanism: str,
    recipes: SecuredRecipes,
    secured: Secured,
    node: NodeProcess,
    unique: Unique,
    tmp_path: Path,
) -> None:
    topic = unique("orders")
    secured.topics(topic)
    command = command_of(recipes, client, mechanism, secured)
    log = tmp_path / "errors.log"
    with Writer(command, node.bootstrap, "billing;mode=exclusive", topic, log) as owner:
        assert [owner.send(int(number)) for number in RECORDS] == ["ok"] * len(RECORDS)
        found = Rest(node.admin_url).topic(topic)["owner"]
        assert found["name"] == "billing"
        with Writer(command, node.bootstrap, "rival;mode=exclusive", topic, log) as rival:
            assert rival.send(0) == CLIENTS[client].refused
        assert owner.send(len(RECORDS)) == "ok"
        owner.close()
    wanted = [*RECORDS, str(len(RECORDS))]
    assert read(command, node.bootstrap, topic, unique("group"), len(wanted)) == wanted
    metric = f'sidecar_authentications_total{{mechanism="{mechanism}",result="success"}}'
    with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
        assert metric in answer.read().decode()
