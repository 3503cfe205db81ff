"""What clients are told of the cluster by the listener that they came through (KIP-103), and whom it lets in."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from metadata.nodes import ListenerAddress
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.configs import show_as
from sidecar.gateway.handler import Apis, Gateway
from sidecar.gateway.logins import ClientListener, Logins
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.sequence_ids import IdsError, Why
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.metadata import ClusterState, PartitionState, TopicState
from sidecar.protocol.primitives import at_once
from tests.unit.network.peers import LOOPBACK, Peer, answer, request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecar.gateway.client import Client
    from sidecar.network.request import Exchange, Request

TOPIC = TopicState(
    "orders", 0, UUID(int=1), False, tuple(PartitionState(index, 0, 7, 3) for index in range(8)), -(2**31)
)
STATE = ClusterState(0, (), "kafka", 7, (TOPIC,), -(2**31))


def node(number: int, *listeners: str) -> NodeAddress:
    addresses = tuple(ListenerAddress(name, f"{name.lower()}-{number}", 9092) for name in listeners)
    return NodeAddress(number, addresses[0].host, 9092, addresses)


@pytest.fixture
def resolver() -> NameResolver:
    return NameResolver()


@pytest.fixture
def cluster(resolver: NameResolver) -> ClusterApi:
    """Node 1 is seen from: it and node 3 have both listeners, node 2 has INSIDE alone and serves `orders`."""
    nodes = NodeDirectory(node(1, "INSIDE", "OUTSIDE"))
    nodes.placement = Placement([nodes.me, node(2, "INSIDE"), node(3, "OUTSIDE", "INSIDE")])
    nodes.serve({b"orders": 2})
    upstream = KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
    return ClusterApi(upstream, nodes, resolver, cast(Any, None))


def virtual(cluster: ClusterApi, listener: str, version: int = 9) -> ClusterState:
    return at_once(cluster.virtual_steps(STATE, listener, version))


def leaders(state: ClusterState) -> set[tuple[int, int]]:
    return {(part.leader, part.error) for part in state.topics[0].partitions}


def test_brokers_are_the_nodes_at_the_addresses_of_the_listener(cluster: ClusterApi):
    inside, outside = virtual(cluster, "INSIDE"), virtual(cluster, "OUTSIDE")
    assert [(each.id, each.host) for each in inside.brokers] == [(1, "inside-1"), (2, "inside-2"), (3, "inside-3")]
    assert [(each.id, each.host) for each in outside.brokers] == [(1, "outside-1"), (3, "outside-3")]
    assert (inside.controller, outside.controller) == (1, 1)


def test_an_ordinary_partition_is_led_by_a_node_that_the_client_can_reach(cluster: ClusterApi):
    assert leaders(virtual(cluster, "INSIDE")) == {(1, 0), (2, 0), (3, 0)}
    assert leaders(virtual(cluster, "OUTSIDE")) == {(1, 0), (3, 0)}


# KIP-103; getPartitionMetadata of Kafka's KRaftMetadataCache
@pytest.mark.parametrize(("version", "error"), [(5, 5), (6, 72), (9, 72)])
def test_a_governed_topic_of_a_node_without_the_listener_has_no_leader(
    resolver: NameResolver, cluster: ClusterApi, version: int, error: int
):
    resolver.set_policies(["orders"], [])
    assert leaders(virtual(cluster, "OUTSIDE", version)) == {(-1, error)}
    assert leaders(virtual(cluster, "INSIDE", version)) == {(2, 0)}


@pytest.mark.parametrize(("version", "error"), [(5, 5), (6, 72)])
def test_a_partition_whose_leader_lacks_the_nodes_listener_has_the_error_of_the_clients_version(
    cluster: ClusterApi, version: int, error: int
):
    """The node's own Metadata has version 10, in which Kafka answers 72 LISTENER_NOT_FOUND."""
    topic = replace(TOPIC, partitions=(PartitionState(0, 72, -1, 3),))
    shown = at_once(cluster.virtual_steps(replace(STATE, topics=(topic,)), "INSIDE", version))
    assert leaders(shown) == {(-1, error)}


def test_a_configuration_shows_the_listener_of_the_client_alone():
    config = {"name": "listeners", "value": "PLAINTEXT://broker-9:9092,SSL://broker-9:9093"}
    show_as(NodeAddress(1, "outside-1", 9092), config, "OUTSIDE")
    assert config["value"] == "OUTSIDE://outside-1:9092"


def test_a_node_to_ask_is_named_at_the_address_that_the_client_has_for_it(cluster: ClusterApi):
    nodes = cluster._nodes
    error = IdsError(Why.ELSEWHERE, "node 3 serves orders: ask it", nodes.placement.nodes[3])
    assert error.message_for(nodes.at("INSIDE").nodes) == "node 3 serves orders: ask it, at inside-3:9092"
    assert error.message_for(nodes.at("OUTSIDE").nodes) == "node 3 serves orders: ask it, at outside-3:9092"
    assert error.message_for({}) == "node 3 serves orders: ask it"


# Logins ---------------------------------------------------------------------------------------------------------------


class Hooks:
    """Counts by listener, as the gateway tells it."""

    def __init__(self) -> None:
        self.events: list[tuple[str, ...]] = []

    def client_connected(self, listener: str) -> None:
        self.events.append(("connected", listener))

    def client_disconnected(self, cause: str, listener: str) -> None:
        self.events.append((cause, listener))

    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None:
        self.events.append((reason, detail))

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


async def _served(client: Client, exchange: Exchange, request: Request) -> None:
    exchange.answer(answer(request.correlation_id))


@asynccontextmanager
async def two_listeners(hooks: Any) -> AsyncIterator[dict[str, int]]:
    """A gateway with a listener that takes logins and one that does not: the ports of both."""
    upstream: Any = None
    authenticator: Any = Closed()
    inside = ClientListener("INSIDE")
    outside = ClientListener("OUTSIDE", logins=Logins(authenticator, hooks))
    gateway = Gateway(upstream, 1, "boot", 1024 * 1024, hooks, [inside, outside])
    gateway.serve(Apis({}, {3: _served}), [VersionRange(3, 0, 1)])
    loop = asyncio.get_running_loop()
    servers = {
        each.name: await loop.create_server(partial(gateway.new_connection, each), LOOPBACK, 0)
        for each in (inside, outside)
    }
    try:
        yield {name: server.sockets[0].getsockname()[1] for name, server in servers.items()}
    finally:
        await gateway.close()
        for server in servers.values():
            server.close()
        await asyncio.sleep(0.01)
    assert authenticator.closed


class Closed:
    """An `Authenticator` that nobody logs in with."""

    closed = False

    async def close(self) -> None:
        self.closed = True


async def test_a_login_is_asked_for_at_its_listener_alone():
    hooks = Hooks()
    async with two_listeners(hooks) as ports:
        for name, port in ports.items():
            peer = Peer(*await asyncio.open_connection(LOOPBACK, port))
            peer.writer.write(request(5, key=3))
            if name == "INSIDE":
                assert await peer.answers(1) == [5]
            else:
                assert await peer.ended()
            peer.close()
    assert ("connected", "INSIDE") in hooks.events
    assert ("connected", "OUTSIDE") in hooks.events
    assert ("rejected", "OUTSIDE") in hooks.events
    assert [event for event in hooks.events if event[0] == "not_logged_in"]


async def test_a_login_at_a_listener_without_closes_the_connection():
    hooks = Hooks()
    async with two_listeners(hooks) as ports:
        peer = Peer(*await asyncio.open_connection(LOOPBACK, ports["INSIDE"]))
        peer.writer.write(request(5, key=17, version=1))
        assert await peer.ended()
        peer.close()
    assert ("unsupported_version", "SaslHandshake: no login at listener INSIDE") in hooks.events
