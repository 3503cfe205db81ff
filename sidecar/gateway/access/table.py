"""The rights that each API requires in Kafka, and a broker's answers if they are missing: one row per API. Pure.

The facts are those of `KafkaApis`, `ControllerApis`, `AclApis` and `ConfigHelper` (Kafka 3.9 and 4.1). A request is
refused as a whole, or forwarded without its refused elements: `Divided` has the allowed part, and makes the client's
answer from the broker's. Modules of hot APIs check the operation of their row themselves.

A broker's answer may depend on whether a topic exists: when it is deleted, created by Metadata, or added to a
transaction. Then the row names these topics, and the caller looks them up before the check.
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
"""The rows by API key: one for each API of `sidecar.protocol.api`, and for the two of a login."""
