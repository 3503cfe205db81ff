"""What a node is made of, as the modules that compose, serve and show it see it. `node.Node` has all of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from metadata import MetadataStore
from metadata.nodes import Node as Registration
from sidecar.changelog import Changelog
from sidecar.cluster.membership import Membership
from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.keeper import Keeper
from sidecar.forwarder.forwarder import Forwarder
from sidecar.gateway.enforcement import AclMirror
from sidecar.gateway.handler import Gateway
from sidecar.gateway.owners import CatchingUp
from sidecar.network.loops import Loops
from sidecar.node.hooks import NodeHooks
from sidecar.node.one_redis import OneRedis
from sidecar.node.port import ListenerFacts, NodeState
from sidecar.resources.coordinator import Coordinator
from sidecar.resources.readers import ReaderClaims
from sidecar.settings import Settings
from sidecar.settings.loaded import LoadedSettings
from sidecar.shadow.catalog import ShadowCatalog
from sidecar.shadow.cursor_room import CursorRoom
from sidecar.shadow.keeper import ShadowKeeper
from sidecar.telemetry.hooks import NodeMetrics


class Parts(Protocol):
    """What is there before the node serves."""

    settings: Settings
    boot: str
    metrics: NodeMetrics
    hooks: NodeHooks
    upstream: KafkaUpstream
    store: MetadataStore
    resolver: NameResolver
    nodes: NodeDirectory
    settings_read: float
    """When the settings were read last, in Unix seconds."""
    settings_good: bool
    """Whether they could be taken over then."""

    def registration(self) -> Registration:
        """What each heartbeat shows other nodes of this one."""
        ...


@dataclass(slots=True)
class Rooms:
    """What a serving node is made of."""

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
    """None where Kafka's ACLs are not enforced on clients."""


class Running(Parts, Protocol):
    """The same, and how it is now. `problem`: why the node does not serve; `rooms`: None before it does."""

    loaded: LoadedSettings
    started_ms: int
    state: NodeState
    problem: str
    rooms: Rooms | None
    one_redis: OneRedis | None

    @property
    def listeners(self) -> list[ListenerFacts]:
        """Every listener, with its address and protocol."""
        ...
