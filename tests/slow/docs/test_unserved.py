"""What the pages say that this version does not serve: it is refused by name, or has the effect that they tell of."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.services import Services
from tests.wait import wait_for

pytestmark = pytest.mark.smoke

_PATIENCE = 20.0


def ask(node: NodeProcess, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and decoded answer."""
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(node.admin_url + path, data, method=method)
        with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.fixture
def topic(services: Services, unique: Unique) -> str:
    name = unique("unserved")
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(_PATIENCE)
    return name


@pytest.fixture
def node(node: NodeProcess, topic: str) -> NodeProcess:
    """The node, once it has heard of the topic."""
    wait_for(lambda: ask(node, "GET", f"/v1/topics/{topic}")[0] == 200, "the topic to be known")
    return node


def test_no_owner_of_a_single_partition_can_be_fenced(node: NodeProcess, topic: str) -> None:
    assert ask(node, "PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive"})[0] == 200
    status, answer = ask(node, "POST", f"/v1/topics/{topic}/fence?partition=0")
    assert (status, answer["message"]) == (400, f"{topic} has the scope topic: leave partition out")
