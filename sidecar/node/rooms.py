"""Creates the rooms of a node and connects them. This module does no I/O and awaits nothing."""

from __future__ import annotations

from collections.abc import Collection

from metadata.nodes import LiveNodes
from metadata.ownership import Ownership
from sidecar.access.services import NodeServices
from sidecar.changelog import Changelog
from sidecar.cluster.nodes import Membership
from sidecar.cluster.resolver import NameResolver
from sidecar.dedup.content import Headers
from sidecar.exclusive.environment import Environment
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.keeper import Keeper
from sidecar.fencing.record_writer import RecordWriter
from sidecar.forwarder.forwarder import Forwarder
from sidecar.gateway.enforcement import AclMirror, Enforcement
from sidecar.gateway.handler import Gateway
from sidecar.gateway.owners import CatchingUp
from sidecar.gateway.severing import Severing
from sidecar.network.tasks import Loops
from sidecar.node.limits import kafka_quotas
from sidecar.node.parts import Parts, Rooms
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.limits import ClaimLimits
from sidecar.resources.readers import ReaderClaims
from sidecar.security.acls import Operation, Rules, parse_super_users
from sidecar.shadow.catalog import ShadowCatalog
from sidecar.shadow.cursor_room import CursorRoom
from sidecar.shadow.keeper import ShadowKeeper
from sidecar.shadow.records import SHADOW_SLOT, ShadowRecords


def compose(node: Parts, gateway: Gateway, changelog: Changelog) -> Rooms:
    """Create all rooms of a node whose changelog has been read; they follow it from now on."""
    settings = node.settings
    forwarder = Forwarder(
        node.upstream,
        linger=settings.linger_ms / 1000,
        buffer_bytes=settings.retry_buffer_bytes,
        request_bytes=settings.linger_bytes,
    )
    services = NodeServices(settings.node_id, node.boot, settings.cluster, node.upstream, changelog, node.store)
    environment = Environment(
        services,
        forwarder,
        gateway.tasks,
        node.hooks.ownership,
        node.resolver,
        node.nodes,
        reconnect_grace=settings.reconnect_grace_ms / 1000,
        disconnect_grace=settings.disconnect_grace_ms / 1000,
        queue_limit=settings.queue_limit,
        headers=Headers(settings.sequence_id_header.encode(), settings.producer_name_header.encode()),
        names_limit=settings.producer_names_limit,
        deduplication=settings.deduplication,
    )
    governed = GovernedTopics(environment)
    governed.env.catalog.clients_govern = settings.govern_by_client_id
    governed.start()
    gateway.refusals.write = governed.env.events.client_refused
    claims = Coordinator(
        services,
        node.nodes,
        gateway.tasks,
        node.hooks.ownership,
        ClaimLimits(settings.queue_limit, settings.max_claims_per_principal),
        reconnect_grace=settings.reconnect_grace_ms / 1000,
        disconnect_grace=settings.disconnect_grace_ms / 1000,
    )
    loops = Loops(gateway.tasks, node.hooks.loop_failed)
    membership = Membership(
        node.store,
        node.nodes,
        node.registration,
        Leases(governed, claims),
        failed=node.hooks.redis_failed,
        restored=node.hooks.redis_restored,
        loops=loops,
        lacks_listener=node.hooks.peer_lacks_listener,
    )
    shadow_writer = RecordWriter(node.upstream, settings.cluster, changelog, SHADOW_SLOT)
    records = ShadowRecords(changelog, shadow_writer, node.nodes, membership)
    shadows = ShadowCatalog(node.upstream, changelog, node.resolver, records)
    cursors = CursorRoom(node.upstream, node.resolver, node.nodes, shadows, records, gateway.tasks, node.hooks)
    shadows.start()
    reader_claims = ReaderClaims(lambda name: _has_exclusive_reader(governed, node.resolver, name))
    severing = Severing(gateway.clients, reader_claims, node.resolver, gateway.tasks)
    acls = None
    super_users = parse_super_users(settings.super_users)
    if settings.enforces_acls:
        rules = Rules(super_users, settings.allow_if_no_acl_found)
        acls = AclMirror(node.upstream, rules, node.hooks, Operation[settings.take_over_operation])
        acls.changed = severing.rights_changed
    gateway.enforcement = Enforcement(node.upstream, acls, super_users)
    severing.follow(changelog.tailer)
    keeper = Keeper(node.upstream, gateway.tasks, governed, node.hooks.ownership.operation_failed)
    governed.env.catalog.beat, governed.env.catalog.settings_changed = membership.beat_now, keeper.read_soon
    shadow_keeper = ShadowKeeper(node.upstream, records, node.nodes, node.hooks)
    return Rooms(
        loops,
        changelog,
        governed,
        forwarder,
        claims,
        membership,
        CatchingUp(changelog.tailer, membership.beat_now, gateway.tasks),
        shadows,
        cursors,
        reader_claims,
        gateway,
        keeper,
        shadow_keeper,
        acls,
        kafka_quotas(node, gateway),
    )


def _has_exclusive_reader(governed: GovernedTopics, resolver: NameResolver, name: bytes) -> bool:
    """Return whether Fetch under a name is checked against reader claims; for a shadow its source's policy decides."""
    source = resolver.source(name)
    topic = name if source is None else source.topic
    policy = governed.env.catalog.book.effective(topic.decode(errors="replace"))
    return policy is not None and bool(policy.exclusive_reader)


class Leases:
    """Implements `sidecar.cluster.nodes.Asserted`."""

    def __init__(self, governed: GovernedTopics, claims: Coordinator) -> None:
        self._governed = governed
        self._claims = claims

    def served_topics(self) -> Collection[str]:
        return [*self._governed.served_topics(), *self._claims.served_topics()]

    def owned(self) -> Collection[Ownership]:
        return self._governed.owned()

    def heard(self, live: LiveNodes, lost: set[str]) -> None:
        self._governed.heard(live, lost)
        self._claims.heard(lost)

    async def refill(self) -> None:
        await self._governed.refill()
