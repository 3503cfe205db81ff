"""Several nodes of the gateway in one thread, without Redis, in front of a real Kafka."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from metadata.ownership import AccessMode
from sidecar.cluster.nodes import NodeAddress, NodeDirectory, Placement
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.apis.spec import Services
from sidecar.gateway.apis.table import APIS, SHARED_LINKS, handlers, served_versions
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.handler import Gateway
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.purging import Purging
from sidecar.gateway.share import ShareApi
from sidecar.network.listening import close_server
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.produce import ProduceResult
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset, Moved
from sidecar.shadow.cursor_room import Readers
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine
    from types import TracebackType

    from sidecar.forwarder.forwarder import Asker
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Exchange
    from sidecar.protocol.errors import KafkaError
    from sidecar.protocol.produce import ProducePart, ProduceRequest

T = TypeVar("T")
_HOST = "127.0.0.1"
_REQUEST_LIMIT = 100 * 1024 * 1024


@dataclass
class Events:
    """What the gateways told: for tests that prove that nothing went wrong, or that it did."""

    rejected: list[tuple[str, str]] = field(default_factory=list)
    failed: list[tuple[str, BaseException]] = field(default_factory=list)
    crashed: list[BaseException] = field(default_factory=list)
    served: set[int] = field(default_factory=set)
    upstream_open: int = 0
    """Connections that nodes keep for their clients, each for one of them."""

    def client_connected(self, listener: str) -> None:
        """Not looked at."""

    def client_disconnected(self, cause: str, listener: str) -> None:
        """Not looked at."""

    def upstream_opened(self) -> None:
        self.upstream_open += 1

    def upstream_closed(self) -> None:
        self.upstream_open -= 1

    def client_rejected(self, peer: str, client_id: str, reason: str, detail: str) -> None:
        self.rejected.append((reason, detail))

    def request_done(
        self, key: int, seconds: float, bytes_in: int, bytes_out: int, upstream: float, request: Exchange
    ) -> None:
        self.served.add(key)

    def response_error(self, api: str, error: str) -> None:
        """Not looked at."""

    def request_failed(self, api: str, peer: str, error: BaseException) -> None:
        self.failed.append((api, error))

    def task_failed(self, error: BaseException) -> None:
        self.crashed.append(error)

    def operation_failed(self, topic: str, error: BaseException) -> None:
        self.failed.append((topic, error))

    def cursor_reset(self, shadow: str, group: str, limit: int, moved: Collection[Moved]) -> None:
        """Not looked at."""


class _NothingGoverned:
    """Refuses governed topics: none of these tests writes to one."""

    def deduplicates(self, _topic: str) -> bool:
        return False

    def append(
        self,
        client: Client,
        part: ProducePart,
        batch: memoryview,
        timeout_ms: int,
        done: Callable[[ProduceResult], None],
        topic_id: bytes,
    ) -> None:
        done(ProduceResult(part.topic, part.partition, ErrorCode.POLICY_VIOLATION))

    def append_whole(
        self, client: Client, request: ProduceRequest, frame: Frame, body: int, moved: int, asker: Asker
    ) -> bool:
        return False

    def policy_mode(self, topic: str) -> AccessMode:
        return AccessMode.SHARED

    async def govern(self, topics: Collection[bytes]) -> dict[bytes, KafkaError]:
        return {}


@dataclass
class Sessions(_NothingGoverned):
    """Stands where `exclusive` will: remembers what it was told, refuses the producer ids it is given."""

    refused: dict[int, KafkaError] = field(default_factory=dict)
    told: list[tuple[str, int, int | None]] = field(default_factory=list)

    def check(self, client: Client, producer_id: int, *, transactional: bool) -> KafkaError | None:
        return self.refused.get(producer_id)

    def initialised(
        self, client: Client, new_producer_id: int, named_producer_id: int | None, *, transactional: bool
    ) -> None:
        name = client.identity.name if client.identity else ""
        self.told.append((name, new_producer_id, named_producer_id))


class Node:
    """One node: a listening socket, its own view of Kafka."""

    def __init__(
        self,
        address: NodeAddress,
        server: asyncio.Server,
        gateway: Gateway,
        upstream: KafkaUpstream,
        fetches: FetchApi,
    ) -> None:
        self.id = address.id
        self.port = address.port
        self.bootstrap = f"{address.host}:{address.port}"
        self.gateway = gateway
        self.upstream = upstream
        self.fetches = fetches
        self._server = server

    async def close(self) -> None:
        await close_server(self._server)
        await self.gateway.close()
        await self.upstream.close()


class VirtualCluster:
    """`nodes` nodes in front of `kafka` (`host:port,…`), in a thread of their own; a context manager."""

    def __init__(self, kafka: str, nodes: int = 1, *, first_id: int = 1, request_timeout: float = 15.0) -> None:
        self.events = Events()
        self.sessions = Sessions()
        self.resolver = NameResolver()
        self.claims = ReaderClaims(lambda _: False)
        self.nodes: list[Node] = []
        self._kafka = [(host, int(port)) for host, port in (found.rsplit(":", 1) for found in kafka.split(","))]
        self._count = nodes
        self._first_id = first_id
        self._request_timeout = request_timeout
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)

    @property
    def bootstrap(self) -> str:
        """All nodes, comma-separated."""
        return ",".join(node.bootstrap for node in self.nodes)

    @property
    def ids(self) -> set[int]:
        return {node.id for node in self.nodes}

    def run(self, work: Coroutine[Any, Any, T], timeout: float = 30.0) -> T:
        """Run a coroutine where the nodes live."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    async def _start(self) -> None:
        loop = asyncio.get_running_loop()
        servers: list[asyncio.Server] = []
        gateways: list[Gateway] = []
        upstreams: list[KafkaUpstream] = []
        addresses: list[NodeAddress] = []
        for number in range(self._first_id, self._first_id + self._count):
            upstream = KafkaUpstream(self._kafka, connect_timeout=5.0, request_timeout=self._request_timeout)
            gateway = Gateway(upstream, number, "test", _REQUEST_LIMIT, self.events)
            server = await loop.create_server(gateway.new_connection, _HOST, 0)
            servers.append(server)
            gateways.append(gateway)
            upstreams.append(upstream)
            addresses.append(NodeAddress(number, _HOST, server.sockets[0].getsockname()[1]))
        for address, server, gateway, upstream in zip(addresses, servers, gateways, upstreams, strict=True):
            directory = NodeDirectory(address)
            directory.placement = Placement(addresses)
            readers = Readers(self.resolver)
            fetches = FetchApi(
                upstream,
                directory,
                self.resolver,
                self.claims,
                gateway.tasks,
                readers,
                longest_wait_s=5.0,
                least_readers=2,
            )
            gateway.closed_callbacks.append(fetches.client_closed)
            await self._compose(gateway, upstream, directory, fetches)
            self.nodes.append(Node(address, server, gateway, upstream, fetches))

    async def _compose(
        self, gateway: Gateway, upstream: KafkaUpstream, nodes: NodeDirectory, fetches: FetchApi
    ) -> None:
        cluster = ClusterApi(upstream, nodes, self.resolver, gateway.tasks)

        async def asked() -> bool:
            try:
                cluster.served = served_versions(await upstream.api_versions())
            except UpstreamError:
                return False  # a broker that was started again a moment ago
            return True

        await wait_for_async(asked, "what Kafka serves")
        await cluster.learn_features()
        governed: Any = SimpleNamespace(env=_NothingGoverned())
        auto_reset = AutoReset(upstream, self.resolver, self.events.operation_failed, self.events.cursor_reset)
        shares = ShareApi(upstream, nodes, self.resolver, self.claims)
        gateway.closed_callbacks.append(shares.client_closed)
        services = Services(
            upstream,
            nodes,
            self.resolver,
            self.claims,
            cast(Any, self.sessions),
            auto_reset,
            gateway.tasks,
            cluster,
            fetches,
            shares,
            Purging(governed, cast(Any, None)),
            Coordinators(upstream, SHARED_LINKS),
        )
        gateway.serve(handlers(services, APIS), cluster.served)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in self.nodes:
            self.run(node.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
