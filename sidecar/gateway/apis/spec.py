"""The row of an API: `ApiSpec`, and what its parts are made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.producers import Producers
from sidecar.gateway.access.asked import Asked, Open, PerTopic
from sidecar.gateway.apis.audited import Audited, OwnAudited
from sidecar.gateway.client import ColdApi, HotApi
from sidecar.gateway.coordinators import Coordinators, Keyed, SharedLinks
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.groups import OneKey
from sidecar.gateway.guarded_cursors import GuardedCursors
from sidecar.gateway.merged import Listed, MergedApi
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.purging import Purging
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.share import ShareApi
from sidecar.gateway.topics import Change
from sidecar.network.tasks import Tasks
from sidecar.protocol.api import ApiKey, api_name
from sidecar.protocol.messages.by_key import MESSAGES
from sidecar.protocol.schema import NEVER, Message
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset


class Route(Enum):
    """Which broker answers a request."""

    LOCAL = "this node answers by itself"
    LEADERS = "the leaders of the partitions named; split and merged"
    GROUP = "the coordinator of the group named"
    GROUPS = "the coordinators of the groups named; split and merged"
    TRANSACTION = "the coordinator of the transactional id named"
    TRANSACTIONS = "the coordinators of the transactional ids named; split and merged"
    CONTROLLER = "the controller, or the broker that upstream names as such"
    ANY = "any broker"
    OWN_BROKERS = "the upstream brokers that belong to this node; merged"
    ALL_BROKERS = "all brokers; the answer has what FindCoordinator places on this node"
    CLIENT_INSTANCE = "one broker for each client instance id"
    BROKER_CONFIG = "any broker, or the broker behind the node that a BROKER resource names"


@dataclass(frozen=True, slots=True)
class Services:
    """What handlers are made of: the objects of a node that several APIs share."""

    upstream: KafkaUpstream
    nodes: NodeDirectory
    resolver: NameResolver
    claims: ReaderClaims
    sessions: Producers
    auto_reset: AutoReset
    tasks: Tasks
    cluster: ClusterApi
    fetch: FetchApi
    shares: ShareApi
    purging: Purging
    coordinators: Coordinators
    own: Mapping[int, ColdApi] = field(default_factory=dict[int, ColdApi])

    @property
    def guards(self) -> GuardedCursors:
        return GuardedCursors(self.upstream, self.resolver, self.claims)

    @property
    def merged(self) -> MergedApi:
        return MergedApi(self.upstream, self.nodes)


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One API as served.

    `versions`: the first and the last one served. `route`: which broker answers; an API without a handler of its own
    is relayed to it (`relays`), and `form` says what of a request and an answer is looked at on the way. `shadow`:
    REFUSED by default, so that an API that is added later cannot write to a shadow; handlers take the rule from here,
    except those of Fetch, Metadata and DescribeTopicPartitions, which can treat shadows in one way only. `access`: the
    rights that it takes in Kafka. `audit`: how its requests are shown in the audit log; None if they are not. `hot`,
    `cold`: the handler.

    `for_super_users`: also without ACLs the rights are checked of clients that are no super users, for whatever
    changes the cluster for all clients. `changes_acls`: the ACLs are read again after it. `links`: its requests may go
    on connections that all clients share.

    `reason`: why no other versions are served, or what is different here. `newest`: the newest version that brokers
    of Kafka 4.4 offer, unless it is the last one served. `advertised_first`: the first version in ApiVersions, lower
    only if a client library needs it. `flexible_since`: the first version with tagged fields in the header (KIP-482),
    of an API whose messages have no table.
    """

    key: ApiKey
    versions: tuple[int, int]
    route: Route
    access: Asked | PerTopic | Open
    shadow: ShadowRule = ShadowRule.REFUSED
    form: OneKey | Keyed | Change | Listed | None = None
    audit: Audited | OwnAudited | None = None
    for_super_users: bool = False
    changes_acls: bool = False
    links: SharedLinks | None = None
    hot: Callable[[ApiSpec, Services], HotApi] | None = None
    cold: Callable[[ApiSpec, Services], ColdApi] | None = None
    reason: str = "newest known"
    newest: int | None = None
    advertised_first: int | None = None
    flexible_since: int = NEVER

    @property
    def name(self) -> str:
        return api_name(self.key)

    @property
    def first(self) -> int:
        return self.versions[0]

    @property
    def last(self) -> int:
        return self.versions[1]

    @property
    def message(self) -> Message:
        """The table of its messages. Raises `KeyError` for an API that has none."""
        return MESSAGES[self.key]

    @property
    def lowest_advertised(self) -> int:
        return self.first if self.advertised_first is None else self.advertised_first

    def is_flexible(self, version: int) -> bool:
        return version >= (MESSAGES[self.key].flexible if self.key in MESSAGES else self.flexible_since)


class NotServed(NamedTuple):
    """An API that brokers offer clients and nodes do not serve, and why. A client falls back, or reports an unsupported
    version. `newest`: as in `ApiSpec`. `kip`: names the proposal beside the API.
    """

    key: ApiKey
    newest: int
    why: str
    kip: str = ""
