"""Assigns each client API to the room that answers it."""

from __future__ import annotations

from sidecar.exclusive.owning import TopicOwners
from sidecar.gateway.apis.spec import Services
from sidecar.gateway.apis.table import SHARED_LINKS, handlers, served_versions
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.own.answers import GrantingRooms
from sidecar.gateway.own.apis import OwnApis
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.purging import Purging
from sidecar.gateway.sequence_ids import SequenceIds
from sidecar.gateway.share import ShareApi
from sidecar.node.connecting import check_tokens
from sidecar.node.limits import audiences
from sidecar.node.parts import Parts, Rooms


async def open_gateway(node: Parts, rooms: Rooms) -> Ownerships:
    """Start to answer clients. The caller must `run` the returned object while the node runs."""
    cluster = ClusterApi(node.upstream, node.nodes, node.resolver, rooms.gateway.tasks)
    cluster.served = sorted(served_versions(await node.upstream.api_versions()))
    await check_tokens(node.upstream)
    await cluster.learn_features()
    gateway, tasks = rooms.gateway, rooms.gateway.tasks
    readers, claims = rooms.cursors.readers, rooms.reader_claims
    limits = audiences(node.settings, gateway)
    readers.took = None if limits is None else limits.took
    fetches = FetchApi(
        node.upstream,
        node.nodes,
        node.resolver,
        claims,
        tasks,
        readers,
        longest_wait_s=node.settings.shared_fetch_max_wait_ms / 1000,
        least_readers=node.settings.shared_fetch_min_readers,
        audiences=limits,
    )
    node.metrics.read_gauge("fanout_polls", lambda: float(fetches.tails.polls))
    node.metrics.read_gauge("fanout_waiting", lambda: float(fetches.tails.waiting))
    ids = SequenceIds(node.upstream, node.nodes, rooms.governed, rooms.catching_up)
    owners = TopicOwners(rooms.governed)
    granting = GrantingRooms(node.upstream, node.nodes, node.resolver, rooms.governed, rooms.claims, owners)
    own = OwnApis(granting, rooms.catching_up, gateway.clients, tasks)
    shares = ShareApi(node.upstream, node.nodes, node.resolver, claims)
    services = Services(
        node.upstream,
        node.nodes,
        node.resolver,
        claims,
        rooms.governed.producers,
        rooms.cursors.auto_reset,
        tasks,
        cluster,
        fetches,
        shares,
        Purging(rooms.governed, ids),
        Coordinators(node.upstream, SHARED_LINKS),
        own.handlers(),
    )
    gateway.closed_callbacks.append(fetches.client_closed)
    gateway.closed_callbacks.append(shares.client_closed)
    gateway.closed_callbacks.append(lambda client: rooms.governed.producers.connection_closed(client.connection.id))
    gateway.closed_callbacks.append(lambda client: rooms.claims.connection_closed(client.connection.id))
    gateway.closed_callbacks.append(own.ownerships.connection_closed)
    gateway.serve(handlers(services), cluster.served)
    return own.ownerships
