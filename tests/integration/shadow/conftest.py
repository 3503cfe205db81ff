"""A node whose topics get shadows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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


def without_stats(answer: tuple[int, Any]) -> tuple[int, Any]:
    """What a shadow is, and nothing of how it is read: as lists and changes tell it."""
    status, found = answer
    return status, {name: value for name, value in found.items() if name != "stats"}
