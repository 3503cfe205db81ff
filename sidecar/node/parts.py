"""The parts of a node, for the modules that compose, serve and show it; and its rooms, once they are composed."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass

from metadata import MetadataStore
from metadata.nodes import Node as Registration
from sidecar import __version__
from sidecar.changelog import Changelog
from sidecar.cluster.nodes import Membership, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.keeper import Keeper
from sidecar.forwarder.forwarder import Forwarder
from sidecar.gateway.apis.table import ALL_APIS
from sidecar.gateway.enforcement import AclMirror
from sidecar.gateway.handler import Gateway
from sidecar.gateway.kafka_quotas import KafkaQuotas
from sidecar.gateway.owners import CatchingUp
from sidecar.network.tasks import Loops
from sidecar.node.connecting import access_to_kafka, advertised, listener_facts
from sidecar.node.hooks import NodeHooks
from sidecar.node.one_redis import OneRedis
from sidecar.node.port import ListenerFacts, NodeState, UnavailableError
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.readers import ReaderClaims
from sidecar.settings.loaded import LoadedSettings
from sidecar.shadow.catalog import ShadowCatalog
from sidecar.shadow.cursor_room import CursorRoom
from sidecar.shadow.keeper import ShadowKeeper
from sidecar.telemetry.hooks import NodeMetrics


@dataclass(slots=True)
class Rooms:
    """The rooms of a serving node."""

    loops: Loops
    changelog: Changelog
    governed: GovernedTopics
    forwarder: Forwarder
    claims: Coordinator
    membership: Membership
    catching_up: CatchingUp
    shadows: ShadowCatalog
    cursors: CursorRoom
    reader_claims: ReaderClaims
    gateway: Gateway
    keeper: Keeper
    shadow_keeper: ShadowKeeper
    acls: AclMirror | None
    """None if Kafka's ACLs are not enforced on clients."""
    quotas: KafkaQuotas | None
    """None if Kafka's client quotas are not enforced."""


class Parts:
    """The parts that a node has from its settings on, and its state. `problem`: why it does not serve; `rooms`: None
    before they are composed. `settings_read`: when settings were last read successfully, in Unix seconds;
    `settings_good`: whether the last reading succeeded. Raises `StartError`.
    """

    def __init__(self, loaded: LoadedSettings) -> None:
        self.loaded = loaded
        self.settings = settings = loaded.settings
        self.boot = secrets.token_hex(8)
        self.started_ms = int(time.time() * 1000)
        self.state = NodeState.STARTING
        self.metrics = NodeMetrics({key: api.name for key, api in ALL_APIS.items()}, __version__)
        self.hooks = NodeHooks(self.metrics, settings.log_limit)
        self.upstream = KafkaUpstream(
            [(server.host, server.port) for server in settings.bootstrap_servers],
            connect_timeout=settings.kafka_connect_timeout_ms / 1000,
            request_timeout=settings.kafka_request_timeout_ms / 1000,
            access=access_to_kafka(settings),
        )
        self.upstream.on_connection_error = self.hooks.upstream_error
        self.store = MetadataStore(
            settings.redis_url,
            settings.cluster,
            lease_ms=settings.lease_ms,
            connect_timeout_ms=min(500, settings.redis_timeout_ms),
            command_timeout_ms=settings.redis_timeout_ms,
        )
        self.store.on_script = self.metrics.redis_command
        self.resolver = NameResolver()
        self.nodes = NodeDirectory(advertised(settings))
        self.rooms: Rooms | None = None
        self.one_redis: OneRedis | None = None
        self.problem = "starting"
        self.settings_read, self.settings_good = time.time(), True

    @property
    def listeners(self) -> list[ListenerFacts]:
        """For each listener where it listens, and the address that its clients get."""
        return listener_facts(self.settings, self.nodes.me)

    def registration(self) -> Registration:
        """Return the facts about this node that each heartbeat publishes."""
        rooms = self.rooms
        return Registration(
            node_id=self.settings.node_id,
            boot=self.boot,
            host=self.nodes.me.host,
            port=self.nodes.me.port,
            admin=str(self.settings.admin_advertise),
            position=rooms.changelog.position - 1 if rooms else -1,
            policy_version=rooms.governed.env.catalog.version if rooms else 0,
            version=__version__,
            draining=self.state is NodeState.DRAINING,
            listeners=self.nodes.me.listeners,
        )


def rooms_of(node: Parts) -> Rooms:
    """Return the node's rooms. Raises `UnavailableError`, with the reason, before they are composed."""
    if node.rooms is None:
        raise UnavailableError(node.problem)
    return node.rooms
