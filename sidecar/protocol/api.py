"""The table of APIs that a node serves: versions, the reason for each cap, and which broker answers.

Everything else is refused: an unknown key or version closes the connection (ApiVersions answers error 35). So an API
that a later Kafka adds can never bypass the rules of the rooms above. Clients get the versions that are both in this
table and served by every upstream broker, and choose the highest of them.

The reason for a cap is *newest known* (`NEWEST`) unless `_REASONS` has another. A broker that offers more is of a
newer Kafka: the tests that query one fail until all that it adds is served or in `NOT_SERVED`.
"""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Final


class ApiKey(IntEnum):
    """All APIs that Kafka's brokers offer clients, under Kafka's names, and the sidecar's own."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94
    OWN = 1000
    RELEASE = 1001
    DESCRIBE_OWNERS = 1002
    LAST_SEQUENCE = 1003
    WATCH = 1004


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
    BROKER_CONFIG = "any broker, or the broker behind the node that a BROKER resource names"


class ShadowRule(Enum):
    """How a request that names a shadow topic is handled (PIP-180; docs/shadow-topics.md)."""

    REFUSED = "refused: TOPIC_AUTHORIZATION_FAILED (29)"
    READ = "answered from the source's log"
    SHOWN = "shown with the partitions and leader epochs of the source"
    TAKEN = "the name is taken: TOPIC_ALREADY_EXISTS (36)"
    OWN = "Kafka's own: the shadow is a topic like any other"
    UNNAMED = "names no topics"


_REASONS: Final = {
    0: "newest known; advertised from 0 as librdkafka needs it (KAFKA-18659)",
    10: "newest known; share coordinators, for which 6 can ask, are for brokers alone: INVALID_REQUEST (42)",
    15: "newest known; 6 reports unknown groups as errors (KIP-1043)",
    16: "newest known; 5 has group types, which kafka-groups shows",
    18: "5 names the broker that a client means, which nodes do not check yet (KIP-1242); features are announced as "
    "the cluster has them (KIP-584)",
    22: "newest known; 6 (two-phase commit, KIP-939) is not offered by Kafka 4.4 yet",
    24: "4 and 5 are for brokers: they name many transactions (KIP-890)",
    28: "6 names topics by id, which nodes do not translate yet (KIP-1319)",
    35: "newest known; named partitions: by the node that leads them, of all brokers",
    42: "3 adds messages to errors, about what nodes do not serve (StreamsGroupHeartbeat 1)",
    45: "always refused: it names brokers, which a virtual cluster does not show",
    46: "always empty: a virtual cluster has no replicas to move",
    60: "newest known; of no node it is said that it is fenced (2)",
    68: "newest known (KIP-848)",
    74: "newest known; brokers are listed as nodes",
    75: "newest known (KIP-966); a broker's page, with nodes as leaders and the only replicas",
    76: "newest known (KIP-932)",
    78: "newest known; new leaders in answers are nodes",
    79: "newest known; new leaders in answers are nodes",
    88: "1 asks members for a description of their topology, which nodes do not pass on yet (KIP-1071 is 0)",
    89: "1 shows the descriptions of topologies, which nodes do not pass on yet",
    1000: "the node that serves a topic grants it, one node of all the free strings and readers; others name it",
    1001: "the node that granted a claim takes it back",
    1002: "of topics served elsewhere: what the changelog holds; only that node knows the queue there",
    1003: "only the node that serves the topic knows its sequence ids; others name it",
    1004: "the node that granted a claim, or keeps a place for one, reports on it; parks its connection",
}
"""By API key; for all others the reason is "newest known"."""


@dataclass(frozen=True, slots=True)
class Api:
    """One API as served.

    `first`..`last` are the versions served, both included; `advertised_first` is the first version in ApiVersions
    (lower only if a client library needs it); `flexible` is the first version with tagged fields in the header
    (KIP-482). `shadow`: REFUSED by default, so that an API that is added later cannot write to a shadow.
    """

    key: int
    name: str
    first: int
    last: int
    flexible: int
    route: Route
    advertised_first: int | None = None
    shadow: ShadowRule = ShadowRule.REFUSED

    @property
    def reason(self) -> str:
        """Why no other versions are served, or what is different here."""
        return _REASONS.get(self.key, "newest known")

    @property
    def lowest_advertised(self) -> int:
        return self.first if self.advertised_first is None else self.advertised_first

    def is_flexible(self, version: int) -> bool:
        return version >= self.flexible


_NEVER: Final = 32_767

_TABLE: Final = (
    Api(0, "Produce", 3, 13, 9, Route.LEADERS, advertised_first=0),
    Api(1, "Fetch", 4, 18, 12, Route.LEADERS, shadow=ShadowRule.READ),
    Api(2, "ListOffsets", 1, 11, 6, Route.LEADERS, shadow=ShadowRule.READ),
    Api(3, "Metadata", 0, 13, 9, Route.LOCAL, shadow=ShadowRule.SHOWN),
    Api(8, "OffsetCommit", 2, 10, 8, Route.GROUP, shadow=ShadowRule.OWN),
    Api(9, "OffsetFetch", 1, 10, 6, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(10, "FindCoordinator", 0, 6, 3, Route.LOCAL, shadow=ShadowRule.UNNAMED),
    Api(11, "JoinGroup", 0, 9, 6, Route.GROUP, shadow=ShadowRule.OWN),
    Api(12, "Heartbeat", 0, 4, 4, Route.GROUP, shadow=ShadowRule.UNNAMED),
    Api(13, "LeaveGroup", 0, 5, 4, Route.GROUP, shadow=ShadowRule.UNNAMED),
    Api(14, "SyncGroup", 0, 5, 4, Route.GROUP, shadow=ShadowRule.OWN),
    Api(15, "DescribeGroups", 0, 6, 5, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(16, "ListGroups", 0, 5, 3, Route.ALL_BROKERS, shadow=ShadowRule.UNNAMED),
    Api(18, "ApiVersions", 0, 4, 3, Route.LOCAL, shadow=ShadowRule.UNNAMED),
    Api(19, "CreateTopics", 2, 7, 5, Route.CONTROLLER, shadow=ShadowRule.TAKEN),
    Api(20, "DeleteTopics", 1, 6, 4, Route.CONTROLLER),
    Api(21, "DeleteRecords", 0, 2, 2, Route.LEADERS),
    Api(22, "InitProducerId", 0, 5, 2, Route.TRANSACTION, shadow=ShadowRule.UNNAMED),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4, Route.LEADERS, shadow=ShadowRule.READ),
    Api(24, "AddPartitionsToTxn", 0, 3, 3, Route.TRANSACTION),
    Api(25, "AddOffsetsToTxn", 0, 4, 3, Route.TRANSACTION, shadow=ShadowRule.UNNAMED),
    Api(26, "EndTxn", 0, 5, 3, Route.TRANSACTION, shadow=ShadowRule.UNNAMED),
    Api(28, "TxnOffsetCommit", 0, 5, 3, Route.GROUP, shadow=ShadowRule.OWN),
    Api(29, "DescribeAcls", 0, 3, 2, Route.ANY, shadow=ShadowRule.OWN),
    Api(30, "CreateAcls", 0, 3, 2, Route.CONTROLLER, shadow=ShadowRule.OWN),
    Api(31, "DeleteAcls", 0, 3, 2, Route.CONTROLLER, shadow=ShadowRule.OWN),
    Api(32, "DescribeConfigs", 0, 4, 4, Route.BROKER_CONFIG, shadow=ShadowRule.OWN),
    Api(33, "AlterConfigs", 0, 2, 2, Route.BROKER_CONFIG),
    Api(35, "DescribeLogDirs", 0, 5, 2, Route.OWN_BROKERS, shadow=ShadowRule.OWN),
    Api(37, "CreatePartitions", 0, 3, 2, Route.CONTROLLER),
    Api(42, "DeleteGroups", 0, 2, 2, Route.GROUPS, shadow=ShadowRule.UNNAMED),
    Api(43, "ElectLeaders", 0, 2, 2, Route.CONTROLLER),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, Route.BROKER_CONFIG),
    Api(45, "AlterPartitionReassignments", 0, 1, 0, Route.LOCAL),
    Api(46, "ListPartitionReassignments", 0, 0, 0, Route.LOCAL, shadow=ShadowRule.OWN),
    Api(47, "OffsetDelete", 0, 0, _NEVER, Route.GROUP, shadow=ShadowRule.OWN),
    Api(48, "DescribeClientQuotas", 0, 1, 1, Route.ANY, shadow=ShadowRule.UNNAMED),
    Api(49, "AlterClientQuotas", 0, 1, 1, Route.CONTROLLER, shadow=ShadowRule.UNNAMED),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, Route.CONTROLLER, shadow=ShadowRule.UNNAMED),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, Route.CONTROLLER, shadow=ShadowRule.UNNAMED),
    Api(60, "DescribeCluster", 0, 2, 0, Route.LOCAL, shadow=ShadowRule.UNNAMED),
    Api(61, "DescribeProducers", 0, 0, 0, Route.LEADERS, shadow=ShadowRule.OWN),
    Api(65, "DescribeTransactions", 0, 0, 0, Route.TRANSACTIONS, shadow=ShadowRule.OWN),
    Api(66, "ListTransactions", 0, 2, 0, Route.ALL_BROKERS, shadow=ShadowRule.OWN),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 0, Route.GROUP, shadow=ShadowRule.OWN),
    Api(69, "ConsumerGroupDescribe", 0, 1, 0, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(74, "ListConfigResources", 0, 1, 0, Route.ANY, shadow=ShadowRule.OWN),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, Route.ANY, shadow=ShadowRule.SHOWN),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1, Route.GROUP),
    Api(77, "ShareGroupDescribe", 1, 1, 1, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(78, "ShareFetch", 1, 2, 1, Route.LEADERS),
    Api(79, "ShareAcknowledge", 1, 2, 1, Route.LEADERS),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0, Route.GROUP, shadow=ShadowRule.OWN),
    Api(89, "StreamsGroupDescribe", 0, 0, 0, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 0, Route.GROUPS, shadow=ShadowRule.OWN),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0, Route.GROUP),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0, Route.GROUP, shadow=ShadowRule.OWN),
)

_OWN: Final = (
    Api(1000, "Own", 0, 0, _NEVER, Route.LOCAL),
    Api(1001, "Release", 0, 0, _NEVER, Route.LOCAL),
    Api(1002, "DescribeOwners", 0, 0, _NEVER, Route.LOCAL, shadow=ShadowRule.OWN),
    Api(1003, "LastSequence", 0, 0, _NEVER, Route.LOCAL, shadow=ShadowRule.OWN),
    Api(1004, "Watch", 0, 0, _NEVER, Route.LOCAL, shadow=ShadowRule.UNNAMED),
)

APIS: Final = {api.key: api for api in _TABLE}
"""Kafka's own APIs."""

OWN_APIS: Final = {api.key: api for api in _OWN}
"""The sidecar's own APIs (`proto/sidecar/v1/control.proto`). They are served to every client, but listed in ApiVersions
only for clients whose software name begins with `OWN_SOFTWARE`.
"""

ALL_APIS: Final = {**APIS, **OWN_APIS}

# fmt: off
NEWEST: Final = {
    0: 13, 1: 18, 2: 11, 3: 13, 8: 10, 9: 10, 10: 6, 11: 9, 12: 4, 13: 5, 14: 5, 15: 6, 16: 5, 17: 1, 18: 5, 19: 7,
    20: 6, 21: 2, 22: 5, 23: 4, 24: 5, 25: 4, 26: 5, 27: 2, 28: 6, 29: 3, 30: 3, 31: 3, 32: 4, 33: 2, 34: 2, 35: 5,
    36: 2, 37: 3, 38: 3, 39: 2, 40: 2, 41: 3, 42: 3, 43: 2, 44: 1, 45: 1, 46: 0, 47: 0, 48: 1, 49: 1, 50: 0, 51: 0,
    55: 2, 57: 2, 60: 2, 61: 0, 64: 0, 65: 0, 66: 2, 68: 1, 69: 1, 71: 0, 72: 0, 74: 1, 75: 0, 76: 1, 77: 1, 78: 2,
    79: 2, 80: 1, 81: 0, 83: 0, 84: 0, 85: 1, 86: 0, 87: 1, 88: 1, 89: 1, 90: 1, 91: 0, 92: 0, 93: 0,
    94: 0,
}
# fmt: on
"""The newest version of each API that brokers of Kafka 4.4 offer their clients by ApiVersions.
GetTelemetrySubscriptions and PushTelemetry are offered by brokers that have a reporter of metrics.
"""

_TOKENS: Final = (
    "tokens belong to the principal of a connection to a broker: the node's, or a client's that logged in by a token,"
    " over which brokers refuse them with 64; ask a broker"
)
_BROKERS: Final = "for brokers alone: it takes CLUSTER_ACTION"
_QUORUM: Final = "the controllers' quorum is upstream's: ask a broker"
_TELEMETRY: Final = (
    "selects clients by software and address of their connection to a broker, which are the node's; "
    "clients push nothing where it is not there"
)
NOT_SERVED: Final = {
    17: "SaslHandshake: served where clients log in (SASL)",
    27: f"WriteTxnMarkers: {_BROKERS}",
    34: "AlterReplicaLogDirs: names brokers and their directories",
    36: "SaslAuthenticate: served where clients log in (SASL)",
    38: f"CreateDelegationToken: {_TOKENS}",
    39: f"RenewDelegationToken: {_TOKENS}",
    40: f"ExpireDelegationToken: {_TOKENS}",
    41: f"DescribeDelegationToken: {_TOKENS}",
    55: "DescribeQuorum: shows controllers and their addresses",
    57: "UpdateFeatures: the features of the brokers are theirs",
    64: "UnregisterBroker: names a broker, which a virtual cluster does not show",
    71: f"GetTelemetrySubscriptions (KIP-714): {_TELEMETRY}",
    72: f"PushTelemetry (KIP-714): {_TELEMETRY}",
    80: f"AddRaftVoter: {_QUORUM}",
    81: f"RemoveRaftVoter: {_QUORUM}",
    83: f"InitializeShareGroupState: {_BROKERS}",
    84: f"ReadShareGroupState: {_BROKERS}",
    85: f"WriteShareGroupState: {_BROKERS}",
    86: f"DeleteShareGroupState: {_BROKERS}",
    87: f"ReadShareGroupStateSummary: {_BROKERS}",
    93: "StreamsGroupTopologyDescriptionUpdate: members send it when StreamsGroupHeartbeat 1 asks for it",
    94: f"UnregisterController: {_QUORUM}",
}
"""APIs that clients know but nodes do not serve, and why. A client falls back, or reports an unsupported version."""


LOGIN_APIS: Final = {ApiKey.SASL_HANDSHAKE: "SaslHandshake", ApiKey.SASL_AUTHENTICATE: "SaslAuthenticate"}
"""Served on listeners where clients log in, by the node itself."""


def api_name(key: int) -> str:
    """Kafka's name of an API, for people; "api key N" for one that brokers do not offer clients."""
    try:
        return ApiKey(key).name.title().replace("_", "")
    except ValueError:
        return f"api key {key}"


OWN_SOFTWARE: Final = "sidecar"
"""The beginning of the name of client software that knows the sidecar's own APIs (KIP-511)."""

OWN: Final = ApiKey.OWN
RELEASE: Final = ApiKey.RELEASE
DESCRIBE_OWNERS: Final = ApiKey.DESCRIBE_OWNERS
LAST_SEQUENCE: Final = ApiKey.LAST_SEQUENCE
WATCH: Final = ApiKey.WATCH
