"""A node for producers of the SDK, one behind a proxy, and topics with deduplication, with an owner, or with both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sidecar.local.ports import free_ports
from tests.kafka.client.proxy import HOST, Proxy, proxy
from tests.nodes import NodeProcess, running_node
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic

Topic = Callable[..., str]


@pytest.fixture(scope="session")
def hidden(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[NodeProcess, int]]:
    """A node that tells clients another port: the one where a test puts its proxy."""
    port, directory = free_ports(1)[0], tmp_path_factory.mktemp("node")
    advertised = f"{HOST}:{port}"
    with running_node(directory, services.kafka_bootstrap, services.redis_url, ADVERTISE=advertised) as process:
        yield process, port


@pytest.fixture
async def behind(hidden: tuple[NodeProcess, int]) -> AsyncIterator[Proxy]:
    """The proxy in front of `hidden`."""
    process, port = hidden
    async with proxy(port, process.bootstrap) as found:
        yield found


@pytest.fixture
def hidden_rest(hidden: tuple[NodeProcess, int]) -> Rest:
    return Rest(hidden[0].admin_url)


@pytest.fixture
def new_topic(services: Services) -> Topic:
    """`new_topic(rest, deduplication=True, …)`: a topic under this policy; without any, one without a policy."""

    def create(rest: Rest, partitions: int = 1, config: dict[str, str] | None = None, **policy: object) -> str:
        name = create_topic(services.kafka_bootstrap, partitions, **(config or {}))
        if policy:
            status, answer = rest.call("PUT", f"/v1/topics/{name}/policy", policy)
            assert status == 200, answer
        return name

    return create
