"""Two groups of nodes of one name on one Kafka, with a Redis each: whoever comes second is told so, nobody else is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from http import HTTPStatus
from pathlib import Path
from urllib.request import urlopen

import pytest
from redis.asyncio import Redis

from metadata import MetadataStore
from sidecar.changelog import Changelog
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.local.errors import StartError
from sidecar.network.tasks import Tasks
from sidecar.node.one_redis import OneRedis, OtherRedisError
from tests.conftest import Unique
from tests.kafka.gates import REDIS_AWAY
from tests.nodes import NodeProcess
from tests.services import Services
from tests.wait import wait_for_async

OpenNode = Callable[[int, int], Awaitable[OneRedis]]


def _server(services: Services) -> str:
    """Without the number of a database: each stands for a Redis of its own here."""
    return services.redis_url.rsplit("/", 1)[0]


class Away(MetadataStore):
    is_away = False

    async def identity(self, proposed: str) -> str:
        if self.is_away:
            raise REDIS_AWAY
        return await super().identity(proposed)


@pytest.fixture
def cluster(unique: Unique) -> str:
    return unique("twice")


@pytest.fixture
async def open_node(services: Services, cluster: str) -> AsyncIterator[OpenNode]:
    """`await open_node(id, database)`: a node with a database of Redis for its Redis; it has not joined yet."""
    host, port = services.kafka_bootstrap.split(",", maxsplit=1)[0].rsplit(":", 1)
    async with AsyncExitStack() as stack:

        async def make(node_id: int, database: int) -> OneRedis:
            upstream = KafkaUpstream([(host, int(port))], connect_timeout=5.0, request_timeout=15.0)
            stack.push_async_callback(upstream.close)
            changelog = await Changelog.open(upstream, cluster)
            stack.push_async_callback(changelog.close)
            await changelog.tailer.read_to_end(30.0)
            store = Away(f"{_server(services)}/{database}", cluster, lease_ms=3000)
            stack.push_async_callback(store.aclose)
            unexpected: list[BaseException] = []
            tasks = Tasks(unexpected.append)
            stack.push_async_callback(tasks.cancel)
            return OneRedis(changelog, store, tasks, cluster, node_id)

        yield make


async def forget(services: Services, database: int, cluster: str) -> None:
    """Empty what nodes keep there."""
    async with Redis.from_url(f"{_server(services)}/{database}") as redis:
        await redis.delete(f"sidecar:{{{cluster}}}:identity")


async def test_a_node_with_another_redis_is_refused_while_one_runs(open_node: OpenNode, cluster: str) -> None:
    first, second = await open_node(1, 0), await open_node(2, 1)
    await first.join()
    with pytest.raises(OtherRedisError) as refused:
        await second.join()
    assert str(refused.value).startswith(f"node 1 of the cluster {cluster} on this Kafka uses another Redis")
    assert "SIDECAR_REDIS_URL" in str(refused.value)
    assert not second.is_settled
    assert first.problem == ""
    third = await open_node(3, 0)
    await third.join()
    assert (first.problem, third.problem) == ("", "")


async def test_an_emptied_redis_is_the_same_redis(open_node: OpenNode, services: Services, cluster: str) -> None:
    first = await open_node(1, 0)
    await first.join()
    await forget(services, 0, cluster)
    second = await open_node(2, 0)
    await second.join()
    assert (first.problem, second.problem) == ("", "")
    with pytest.raises(OtherRedisError):
        await (await open_node(3, 1)).join()
    await forget(services, 0, cluster)
    with pytest.raises(OtherRedisError):
        await (await open_node(3, 1)).join()


async def test_a_cluster_that_was_stopped_goes_on_with_another_redis(open_node: OpenNode) -> None:
    first = await open_node(1, 0)
    await first.join()
    first.close()
    moved = await open_node(1, 1)
    await moved.join()
    assert moved.is_settled
    with pytest.raises(OtherRedisError):
        await (await open_node(2, 0)).join()


async def test_a_node_that_could_not_ask_its_redis_meanwhile_says_that_another_one_counts(open_node: OpenNode) -> None:
    first, second = await open_node(1, 0), await open_node(2, 1)
    await first.join()
    assert isinstance(first._store, Away)
    first._store.is_away = True
    await second.join()

    async def told() -> bool:
        return bool(first.problem)

    await wait_for_async(told, "the first node to say so")
    first._store.is_away = False
    with pytest.raises(OtherRedisError, match="node 2"):
        await first.join()


def test_a_node_process_ends_with_what_to_do_about_it(tmp_path: Path, services: Services, cluster: str) -> None:
    first = NodeProcess(tmp_path, services.kafka_bootstrap, f"{_server(services)}/0", cluster=cluster)
    second = NodeProcess(tmp_path, services.kafka_bootstrap, f"{_server(services)}/1", cluster=cluster, node_id=2)
    try:
        first.start()
        with pytest.raises(StartError, match="uses another Redis"):
            second.start()
        assert "stop all of its nodes first" in second.log
        with urlopen(f"{first.admin_url}/readyz", timeout=10) as answer:
            assert answer.status == HTTPStatus.OK
    finally:
        second.stop()
        first.stop()
