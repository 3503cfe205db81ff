"""What brokers of Kafka 4.4 offer their clients by ApiVersions, and which of it no node serves.

What is not left out stands in `sidecar.protocol.api`: served up to which version, and why no further. A broker that
offers more is of a newer Kafka: the tests that ask one fail until all that it adds is in one of the tables.
"""

from typing import Final

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
"""By API key. GetTelemetrySubscriptions and PushTelemetry are offered where a broker has a reporter of metrics."""

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
"""Keys that clients know and ask for, and why they are left out; a client falls back or reports an unsupported
version.
"""
