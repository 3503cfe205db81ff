"""What handlers of APIs are made of, where no topic is governed and no client connects."""

from __future__ import annotations

from typing import Any, cast

from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.apis.spec import Services
from sidecar.gateway.apis.table import SHARED_LINKS
from sidecar.gateway.coordinators import Coordinators
from sidecar.gateway.fetch import FetchApi
from sidecar.gateway.metadata import ClusterApi
from sidecar.gateway.share import ShareApi
from sidecar.network.tasks import Tasks
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset
from sidecar.shadow.cursor_room import Readers


def not_looked_at(*_: object) -> None:
    """Nothing is reported."""


def services(upstream: KafkaUpstream, resolver: NameResolver) -> Services:
    nothing: Any = cast("Any", None)
    nodes, tasks = NodeDirectory(NodeAddress(1, "node-1", 19092)), Tasks(not_looked_at)
    claims = ReaderClaims(lambda _: False)
    return Services(
        upstream,
        nodes,
        resolver,
        claims,
        nothing,
        AutoReset(upstream, resolver, not_looked_at, not_looked_at),
        tasks,
        ClusterApi(upstream, nodes, resolver, tasks),
        FetchApi(upstream, nodes, resolver, claims, tasks, Readers(resolver), longest_wait_s=1.0),
        ShareApi(upstream, nodes, resolver, claims),
        nothing,
        Coordinators(upstream, SHARED_LINKS),
    )
