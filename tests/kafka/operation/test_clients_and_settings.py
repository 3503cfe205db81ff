"""What a node tells of its clients and of its settings: a real node, real clients."""

from __future__ import annotations

from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

from sidecar.client import AdminClient
from sidecar.client.facts import ConnectedClient, Setting
from tests.conftest import StartNode
from tests.kafka.exclusive.producers import RawProducer
from tests.nodes import NodeProcess
from tests.raw import RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


async def clients_of(node: NodeProcess) -> dict[str, ConnectedClient]:
    async with AdminClient(node.admin_url) as admin:
        return {each.address: each async for each in admin.clients()}


async def test_a_client_is_told_with_its_name_mode_and_traffic(services: Services, node: NodeProcess) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    with RawProducer(node.bootstrap, "told;mode=exclusive") as producer:
        address = "{}:{}".format(*producer.socket.getsockname())
        assert producer.send(topic, [b"v"]).error == 0
        found = (await clients_of(node))[address]
        said = (found.node_id, found.client_id, found.name, found.mode)
        assert said == (1, "told;mode=exclusive", "told", "exclusive")
        assert (found.principal, found.listener) == ("User:ANONYMOUS", "PLAINTEXT")
        assert datetime.now(UTC) - found.since < timedelta(minutes=5)
        assert (found.in_flight, found.requests > 0) == (0, True)
        assert producer.send(topic, [b"w" * 1000]).error == 0
        later = (await clients_of(node))[address]
        assert later.requests == found.requests + 1
        assert later.bytes_in - found.bytes_in > 1000
        assert later.bytes_out > found.bytes_out
        assert later.since == found.since


def test_many_clients_come_in_pages_and_leave_the_list_with_their_connections(node: NodeProcess, rest: Rest) -> None:
    with ExitStack() as stack:
        names = {stack.enter_context(RawClient(node.bootstrap, f"many-{number}")).name for number in range(25)}
        found: list[str] = []
        wait_for(lambda: names <= set(addresses(rest, 1000)), "the connections")
        token: str | None = "0"
        while token is not None:
            status, page = rest.call("GET", f"/v1/clients?page_size=10&page_token={token}")
            assert (status, len(page["items"]) <= 10) == (200, True)
            found += [each["address"] for each in page["items"]]
            token = page["next_page_token"]
        assert names <= set(found)
        assert len(found) == len(set(found))
    wait_for(lambda: not names & set(addresses(rest, 1000)), "them to be gone")


def addresses(rest: Rest, size: int) -> list[str]:
    return [each["address"] for each in rest.call("GET", f"/v1/clients?page_size={size}")[1]["items"]]


async def test_a_node_tells_what_it_was_told_and_keeps_secrets(node_process: StartNode) -> None:
    registry = "http://user:hush-hush@127.0.0.1:1/registry"
    node = node_process(ADMIN_TOKEN="hush-hush", SCHEMA_REGISTRY_URL=registry, LINGER_MS="3")
    async with AdminClient(node.admin_url) as admin:
        found = {each.setting: each for each in await admin.settings()}
    assert found["SIDECAR_LINGER_MS"] == Setting("SIDECAR_LINGER_MS", "3", "environment", reloadable=False)
    assert (found["SIDECAR_QUEUE_LIMIT"].value, found["SIDECAR_QUEUE_LIMIT"].origin) == ("1000", "default")
    assert found["SIDECAR_ADMIN_TOKEN"].value == "***"
    assert found["SIDECAR_SCHEMA_REGISTRY_URL"].value == "http://user:***@127.0.0.1:1/registry"
    answer: tuple[int, Any] = Rest(node.admin_url).call("GET", "/v1/settings")
    assert "hush" not in str(answer)
