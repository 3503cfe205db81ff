"""One node for the tests that need nothing special of it, and topics with deduplication."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nodes import NodeProcess
from tests.own import OwnClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


@pytest.fixture
def own(node: NodeProcess) -> Iterator[OwnClient]:
    with OwnClient(node.bootstrap) as client:
        yield client


def deduplicate(rest: Rest, topic: str, **policy: object) -> None:
    """Give a topic sequence ids."""
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"deduplication": True, **policy})
    assert status == 200, answer


@pytest.fixture
def topic(services: Services, rest: Rest) -> str:
    """Two partitions, with deduplication."""
    name = create_topic(services.kafka_bootstrap)
    deduplicate(rest, name)
    return name
