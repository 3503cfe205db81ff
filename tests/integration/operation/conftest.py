"""A node whose REST interface is asked, and topics of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.exclusive.conftest import Rest
from tests.nodes import NodeProcess, running_node
from tests.services import Services


@pytest.fixture(scope="session")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(tmp_path_factory.mktemp("node"), services.kafka_bootstrap, services.redis_url) as process:
        yield process


@pytest.fixture
def rest(node: NodeProcess) -> Rest:
    return Rest(node.admin_url)
