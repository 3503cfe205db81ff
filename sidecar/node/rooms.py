"""The rooms of a node, made and tied together. Nothing in here waits for anything."""

from __future__ import annotations

from sidecar.access.services import NodeServices
from sidecar.changelog import Changelog
from sidecar.cluster.membership import Membership
from sidecar.cluster.resolver import NameResolver
from sidecar.dedup.content import Headers
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.keeper import Keeper
from sidecar.fencing import RecordWriter
from sidecar.forwarder.forwarder import Forwarder
from sidecar.gateway.enforcement import AclMirror, Enforcement
from sidecar.gateway.handler import Gateway
from sidecar.gateway.owners import CatchingUp
from sidecar.gateway.severing import Severing
from sidecar.network.loops import Loops
from sidecar.node.leases import Leases
from sidecar.node.parts import Parts, Rooms
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.readers import ReaderClaims
from sidecar.resources.state import ClaimsState
from sidecar.security.acls import Operation, Rules, parse_super_users
from sidecar.shadow.catalog import ShadowCatalog
from sidecar.shadow.cursor_room import CursorRoom
from sidecar.shadow.keeper import ShadowKeeper
from sidecar.shadow.records import SHADOW_SLOT, ShadowRecords


def compose(node: Parts, gateway: Gateway, changelog: Changelog) -> Rooms:
    """All rooms of a node whose changelog is read; they follow it from here on."""
    settings = node.settings
    forwarder = Forwarder(
        node.upstream,
        linger=settings.linger_ms / 1000,
        buffer_bytes=settings.retry_buffer_bytes,
        request_bytes=settings.linger_bytes,
    )
    services = NodeServices(settings.node_id, node.boot, settings.cluster, node.upstream, changelog, node.store)
    governed = GovernedTopics(
        services,
        forwarder,
        gateway.tasks,
        node.hooks,
        node.resolver,
        node.nodes,
        reconnect_grace=settings.reconnect_grace_ms / 1000,
        disconnect_grace=settings.disconnect_grace_ms / 1000,
        queue_limit=settings.queue_limit,
        headers=Headers(settings.sequence_id_header.encode(), settings.producer_name_header.encode()),
        names_limit=settings.producer_names_limit,
        deduplication=settings.deduplication,
    )
    governed.catalog.clients_govern = settings.govern_by_client_id
    governed.start()
    gateway.refusals.write = governed.events.client_refused
    known_claims = ClaimsState(
        services,
        node.nodes,
        gateway.tasks,
        node.hooks,
        reconnect_grace=settings.reconnect_grace_ms / 1000,
        disconnect_grace=settings.disconnect_grace_ms / 1000,
        queue_limit=settings.queue_limit,
    )
    claims = Coordinator(known_claims)
    loops = Loops(gateway.tasks, node.hooks.loop_failed)
    membership = Membership(
        node.store,
        node.nodes,
        node.registration,
        Leases(governed, claims.lease),
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
    severing.follow()
    acls = None
    super_users = parse_super_users(settings.super_users)
    if settings.enforces_acls:
        rules = Rules(super_users, settings.allow_if_no_acl_found)
        acls = AclMirror(node.upstream, rules, node.hooks, Operation[settings.take_over_operation])
        acls.changed = severing.rights_changed
    gateway.enforcement = Enforcement(node.upstream, acls, super_users)
    reader_claims.start(changelog.tailer)
    keeper = Keeper(node.upstream, gateway.tasks, governed, node.hooks.operation_failed)
    governed.catalog.attach(beat=membership.beat_now, settings_changed=keeper.read_soon)
    shadow_keeper = ShadowKeeper(node.upstream, records, node.nodes, node.hooks)
    return Rooms(
        loops,
        changelog,
        governed,
        forwarder,
        claims,
        membership,
        CatchingUp(
            lambda seconds: changelog.tailer.read_to_end(seconds),  # noqa: PLW0108 - looked up at each call
            membership.beat_now,
            gateway.tasks,
        ),
        shadows,
        cursors,
        reader_claims,
        gateway,
        keeper,
        shadow_keeper,
        acls,
    )


def _has_exclusive_reader(governed: GovernedTopics, resolver: NameResolver, name: bytes) -> bool:
    """Whether Fetch under a name goes by the claims of readers: a shadow's by the policy of its source."""
    source = resolver.source(name)
    topic = name if source is None else source.topic
    policy = governed.catalog.book.effective(topic.decode(errors="replace"))
    return policy is not None and bool(policy.exclusive_reader)
