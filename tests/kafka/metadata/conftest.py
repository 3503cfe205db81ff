from __future__ import annotations

import itertools
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from metadata import AccessMode, ClaimRequest, Generation, MetadataStore, Node, Ownership, new_boot_id, new_token
from tests.kafka.metadata.servers import OwnServer, RedisSide

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from tests.conftest import OwnValkey
    from tests.services import Services

LEASE_MS = 3000


@pytest.fixture
def redis_side(services: Services) -> RedisSide:
    """The server that all tests share: each test has a cluster name, thus keys, of its own."""
    return RedisSide(services.redis_url)


@pytest.fixture
def start_own(own_valkey: OwnValkey) -> Callable[..., OwnServer]:
    """Starts a server for this test alone: `start_own(maxmemory="1mb")`."""

    def start(**directives: str) -> OwnServer:
        return OwnServer(own_valkey(overrides={"appendonly": "no", "repl-diskless-sync-delay": "0"} | directives))

    return start


@pytest.fixture
def own(start_own: Callable[..., OwnServer]) -> OwnServer:
    return start_own()


@pytest.fixture
def cluster() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
async def store(redis_side: RedisSide, cluster: str) -> AsyncIterator[MetadataStore]:
    # A shared machine can take a second over anything; what the bound is for is tested where the server is stopped.
    async with MetadataStore(redis_side.url, cluster, lease_ms=LEASE_MS, command_timeout_ms=10_000) as opened:
        yield opened


@pytest.fixture
def make_node() -> Callable[..., Node]:
    def make(node_id: int, **fields: Any) -> Node:
        return Node(
            **{"node_id": node_id, "boot": new_boot_id(), "host": "127.0.0.1", "port": 19092 + node_id} | fields
        )

    return make


@pytest.fixture
def make_claim() -> Callable[..., ClaimRequest]:
    def make(session: str, **fields: Any) -> ClaimRequest:
        defaults: dict[str, Any] = {
            "resource": "orders",
            "token": new_token(),
            "node_id": 1,
            "boot": "aa",
            "session": session,
            "name": f"name of {session}",
            "mode": AccessMode.EXCLUSIVE,
            "lease_ms": 60_000,
        }
        return ClaimRequest(**defaults | fields)

    return make


@pytest.fixture
def make_owner() -> Callable[..., Ownership]:
    positions = itertools.count(100)

    def make(generation: int, session: str | None, **fields: Any) -> Ownership:
        defaults: dict[str, Any] = {
            "resource": "orders",
            "generation": Generation(generation),
            "position": next(positions),
            "session": session,
            "name": f"name of {session}",
            "since_ms": 1_750_000_000_000,
            "node_id": 1,
            "producer_id": 4000,
            "producer_epoch": 7,
        }
        return Ownership(**defaults | fields)

    return make
