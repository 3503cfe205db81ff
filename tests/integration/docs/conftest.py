"""One node for all tests of the pages: each takes topics of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.nodes import NodeProcess
from tests.services import Services


@pytest.fixture(scope="session")
def node(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    process = NodeProcess(
        tmp_path_factory.mktemp("node"),
        services.kafka_bootstrap,
        services.redis_url,
        cluster=f"doc-{uuid.uuid4().hex[:8]}",
    )
    process.start()
    yield process
    process.stop()
    process.check_log()
