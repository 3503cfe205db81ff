"""Which module handles which API outside the hot path; the table of APIs itself is `sidecar.protocol.api`.

APIs that are forwarded unchanged have no module. Any broker answers DescribeAcls (0-3) and DescribeClientQuotas (0-1).
The controller answers CreateAcls, DeleteAcls (0-3), AlterClientQuotas (0-1), DescribeUserScramCredentials and
AlterUserScramCredentials (0). None of them names a broker or an address in its answer, so nothing is rewritten.
"""

from functools import partial

from sidecar.cluster.nodes import NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.producers import Producers
from sidecar.gateway import asking, groups, topics, transactions
from sidecar.gateway.configs import ConfigsApi
from sidecar.gateway.coordinators import Coordinators, KeyedApi
from sidecar.gateway.groups import GroupsApi
from sidecar.gateway.handler import ColdApi
from sidecar.gateway.merged import MergedApi
from sidecar.gateway.offset_fetch import GuardedCursors, OffsetFetchApi
from sidecar.gateway.share import ShareApi
from sidecar.gateway.topics import TopicsApi
from sidecar.gateway.transactions import TransactionsApi
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset

_ANY_BROKER = (29, 48)
_CONTROLLER = (30, 31, 49, 50, 51)


def cold_apis(
    upstream: KafkaUpstream,
    nodes: NodeDirectory,
    resolver: NameResolver,
    claims: ReaderClaims,
    sessions: Producers,
    shadows: AutoReset,
    shares: ShareApi,
) -> dict[int, ColdApi]:
    """The handlers of all groups', transactions' and admin APIs by key."""
    coordinators = Coordinators(upstream)
    guards = GuardedCursors(upstream, resolver, claims)
    grouped = GroupsApi(upstream, coordinators, guards, resolver)
    changes = TopicsApi(upstream, resolver)
    merged = MergedApi(upstream, nodes, resolver)
    configs = ConfigsApi(upstream, nodes, resolver)
    producers = TransactionsApi(upstream, coordinators, resolver, sessions)
    keyed = {form.message.key: form for form in (*groups.keyed(claims), transactions.DESCRIBED)}
    return {
        **dict.fromkeys(groups.SINGLE_KEYS, grouped.handle),
        **dict.fromkeys(keyed, KeyedApi(coordinators, resolver, keyed).handle),
        **dict.fromkeys(topics.TOPIC_KEYS, changes.handle),
        **dict.fromkeys(_ANY_BROKER, partial(asking.pass_to_any, upstream)),
        **dict.fromkeys(_CONTROLLER, partial(asking.pass_to_controller, upstream)),
        **dict.fromkeys(groups.HEARTBEAT_KEYS, grouped.handle_heartbeat),
        9: OffsetFetchApi(coordinators, guards, shadows).handle,
        16: merged.handle_list,
        22: producers.handle_init_producer_id,
        24: producers.handle_add_partitions,
        32: configs.handle_describe,
        33: configs.handle_alter,
        35: merged.handle_log_dirs,
        44: configs.handle_alter,
        45: changes.handle_reassign,
        46: changes.handle_list,
        61: merged.handle_describe_producers,
        66: merged.handle_list,
        74: configs.handle_list,
        78: shares.handle_fetch,
        79: shares.handle_acknowledge,
    }
