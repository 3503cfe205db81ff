"""ElectLeaders (0-2): to the controller (KIP-460)."""

from sidecar.gateway.access.asked import Asked, Operation, ResourceType, takes
from sidecar.gateway.access.cluster import NOT_ON_CLUSTER, refused_topics
from sidecar.gateway.apis.audited import Audited, codes, named
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Change, Route

_ASKED, _ANSWERED = "topic_partitions", "replica_election_results"
_NOT_ELECTED = refused_topics(_ASKED, _ANSWERED, NOT_ON_CLUSTER, "partition_result", "partition_id")
SPEC = ApiSpec(
    ApiKey.ELECT_LEADERS, (0, 2), Route.CONTROLLER, Asked(takes(Operation.ALTER, ResourceType.CLUSTER, _NOT_ELECTED)),
    form=Change(_ASKED, _ANSWERED), audit=Audited(named(_ASKED, "topic"), codes(_ANSWERED, "partition_result")),
)  # fmt: skip
