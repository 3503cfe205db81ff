"""Assigns each client API to the room that answers it."""

from __future__ import annotations

from sidecar.exclusive.owning import TopicOwners
from sidecar.gateway.apis import cold_apis
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.handler import Apis, HotApi
from sidecar.gateway.metadata import ClusterApi, served_versions
from sidecar.gateway.own.answers import GrantingRooms
from sidecar.gateway.own.apis import OwnApis
from sidecar.gateway.own.owning import Ownerships
from sidecar.gateway.produce import ProduceApi
from sidecar.gateway.purging import Purging
from sidecar.gateway.sequence_ids import SequenceIds
from sidecar.gateway.share import ShareApi
from sidecar.gateway.tables import TablesApi
from sidecar.gateway.topic_partitions import TopicPartitionsApi
from sidecar.node.connecting import check_tokens
from sidecar.node.limits import audiences
from sidecar.node.parts import Parts, Rooms
from sidecar.protocol.api import ApiKey


async def open_gateway(node: Parts, rooms: Rooms) -> Ownerships:
    """Start to answer clients. The caller must `run` the returned object while the node runs."""
    cluster = ClusterApi(node.upstream, node.nodes, node.resolver, rooms.gateway.tasks)
    cluster.served = sorted(served_versions(await node.upstream.api_versions()))
    await check_tokens(node.upstream)
    await cluster.learn_features()
    gateway, tasks = rooms.gateway, rooms.gateway.tasks
    ids = SequenceIds(node.upstream, node.nodes, rooms.governed, rooms.catching_up)
    tables = TablesApi(node.upstream, node.resolver, tasks, Purging(rooms.governed, ids))
    longest_wait_s = node.settings.shared_fetch_max_wait_ms / 1000
    readers, claims = rooms.cursors.readers, rooms.reader_claims
    fetches = FetchApi(
        node.upstream,
        node.nodes,
        node.resolver,
        claims,
        tasks,
        readers,
        longest_wait_s=longest_wait_s,
        least_readers=node.settings.shared_fetch_min_readers,
    )
    fetches.audiences = audiences(node.settings, gateway)
    readers.took = None if fetches.audiences is None else fetches.audiences.took
    gateway.closed_callbacks.append(fetches.client_closed)
    node.metrics.read_gauge("fanout_polls", lambda: float(fetches.tails.polls))
    node.metrics.read_gauge("fanout_waiting", lambda: float(fetches.tails.waiting))
    hot: dict[int, HotApi] = {
        ApiKey.API_VERSIONS: cluster.handle_api_versions,
        ApiKey.PRODUCE: ProduceApi(node.upstream, node.nodes, node.resolver, rooms.governed.producers, tasks).handle,
        ApiKey.FETCH: fetches.handle,
        ApiKey.LIST_OFFSETS: tables.handle,
        ApiKey.DELETE_RECORDS: tables.handle,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: tables.handle,
    }
    owners = TopicOwners(rooms.governed)
    granting = GrantingRooms(node.upstream, node.nodes, node.resolver, rooms.governed, rooms.claims, owners)
    own = OwnApis(granting, rooms.catching_up, gateway.clients, tasks)
    reader_claims, auto_reset = rooms.reader_claims, rooms.cursors.auto_reset
    shares = ShareApi(node.upstream, node.nodes, node.resolver, reader_claims)
    gateway.closed_callbacks.append(shares.client_closed)
    producers = rooms.governed.producers
    cold = cold_apis(node.upstream, node.nodes, node.resolver, reader_claims, producers, auto_reset, shares)
    cold |= {
        ApiKey.METADATA: cluster.handle_metadata,
        ApiKey.FIND_COORDINATOR: cluster.handle_find_coordinator,
        ApiKey.DESCRIBE_CLUSTER: cluster.handle_describe_cluster,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: TopicPartitionsApi(node.upstream, node.resolver, cluster).handle,
        **own.handlers(),
    }
    gateway.closed_callbacks.append(lambda client: rooms.governed.producers.connection_closed(client.connection.id))
    gateway.closed_callbacks.append(lambda client: rooms.claims.connection_closed(client.connection.id))
    gateway.closed_callbacks.append(own.ownerships.connection_closed)
    gateway.serve(Apis(hot, cold), cluster.served)
    return own.ownerships
