"""Nodes that can be made to fail, for all tests of faults."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Protocol

import pytest

from tests.services import Services
from tests.slow.faults.application import close_connections
from tests.slow.faults.failing import FailingNode
from tests.slow.faults.frame_proxy import FrameProxy

QUICK = {"LEASE_MS": "600", "RECONNECT_GRACE_MS": "300", "REDIS_TIMEOUT_MS": "500"}
"""Settings that `sidecar serve` has nothing to say of, so that a node is a fork."""


class StartFailing(Protocol):
    """Starts a node: `start_failing(mutant="shift-not-recorded")`; unless named, its cluster is a new one."""

    def __call__(
        self,
        *,
        kafka: str | None = None,
        cluster: str | None = None,
        node_id: int = 1,
        mutant: str = "",
        haste: bool = False,
        **settings: str,
    ) -> FailingNode: ...


@pytest.fixture(autouse=True)
def _no_connection_outlives_its_test() -> Iterator[None]:
    yield
    close_connections()


@pytest.fixture(scope="session")
def start_failing(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartFailing]:
    directory = tmp_path_factory.mktemp("failing")
    with ExitStack() as running:

        def start(
            *,
            kafka: str | None = None,
            cluster: str | None = None,
            node_id: int = 1,
            mutant: str = "",
            haste: bool = False,
            **settings: str,
        ) -> FailingNode:
            node = FailingNode(
                directory,
                kafka or services.kafka_bootstrap,
                services.redis_url,
                cluster=cluster or f"f-{uuid.uuid4().hex[:8]}",
                node_id=node_id,
                mutant=mutant,
                haste=haste,
                **{**QUICK, **settings},
            )
            running.callback(node.check_log)
            node.start()
            running.callback(node.stop)
            return node

        yield start


@pytest.fixture(scope="session")
def proxy(services: Services) -> Iterator[FrameProxy]:
    """In front of Kafka, for nodes that are told that Kafka is here."""
    with FrameProxy(services.kafka_bootstrap) as found:
        yield found


@pytest.fixture(scope="session")
def node_behind_proxy(start_failing: StartFailing, proxy: FrameProxy) -> FailingNode:
    """A sound node that reaches Kafka through the proxy."""
    return start_failing(kafka=proxy.address)


@pytest.fixture(scope="session")
def _failing_node(start_failing: StartFailing) -> FailingNode:
    return start_failing(haste=True)


@pytest.fixture
def failing_node(_failing_node: FailingNode) -> FailingNode:
    """One node that every test of crashes kills and starts again."""
    _failing_node.recover()
    return _failing_node
