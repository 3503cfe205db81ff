"""What each API takes of Kafka's rights, and how a broker answers where they are missing: one row for each API. Pure.

The facts are those of `KafkaApis`, `ControllerApis`, `AclApis` and `ConfigHelper` (Kafka 3.9 and 4.1). A request is
refused as a whole, or goes on without what its client may not have: `Divided` says what is left of it, and how the
answer to that becomes the client's. Hot APIs ask for themselves, by the operation in their row.

A broker's answer may depend on whether a topic exists: to delete it, to create it by a mere look, to add it to a
transaction. Then the row names the topics in doubt, and the caller looks them up before it asks.
"""

from collections.abc import Mapping
from typing import Final

from sidecar.gateway.access import cluster, groups, topics
from sidecar.gateway.access.asked import Asked, Open, PerTopic
from sidecar.protocol.api import LOGIN_APIS
from sidecar.security.acls import Operation

_OWN: Final = Open(
    "Own, DescribeOwners and LastSequence ask for rights on what they name; a token is the right to the others"
)

ACCESS: Final[Mapping[int, Asked | PerTopic | Open]] = {
    0: PerTopic(Operation.WRITE),
    1: PerTopic(Operation.READ),
    2: PerTopic(Operation.DESCRIBE),
    18: Open("a client asks for it before it has logged in"),
    **dict.fromkeys(LOGIN_APIS, Open("what a client logs in with")),
    21: PerTopic(Operation.DELETE),
    75: PerTopic(Operation.DESCRIBE),
    78: PerTopic(Operation.READ),
    79: PerTopic(Operation.READ),
    23: PerTopic(Operation.DESCRIBE, instead=Operation.CLUSTER_ACTION),
    **{row.message.key: row for row in (*cluster.ROWS, *topics.ROWS, *groups.ROWS)},
    **dict.fromkeys(range(1000, 1005), _OWN),
}
"""By API key: every row of `sidecar.protocol.api` has one here, and so have the two of a login."""
