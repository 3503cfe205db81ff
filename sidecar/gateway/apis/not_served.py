"""The APIs that brokers offer clients and nodes do not serve, and why."""

from typing import Final

from sidecar.gateway.apis.spec import NotServed
from sidecar.protocol.api import ApiKey

_TOKENS: Final = (
    "tokens belong to the principal of a connection to a broker: the node's, or a client's that logged in by a token,"
    " over which brokers refuse them with 64; ask a broker"
)
_BROKERS: Final = "for brokers alone: it takes CLUSTER_ACTION"
_QUORUM: Final = "the controllers' quorum is upstream's: ask a broker"
_LOGIN: Final = "served where clients log in (SASL)"

ROWS: Final = (
    NotServed(ApiKey.SASL_HANDSHAKE, 1, _LOGIN),
    NotServed(ApiKey.WRITE_TXN_MARKERS, 2, _BROKERS),
    NotServed(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, "names brokers and their directories"),
    NotServed(ApiKey.SASL_AUTHENTICATE, 2, _LOGIN),
    NotServed(ApiKey.CREATE_DELEGATION_TOKEN, 3, _TOKENS),
    NotServed(ApiKey.RENEW_DELEGATION_TOKEN, 2, _TOKENS),
    NotServed(ApiKey.EXPIRE_DELEGATION_TOKEN, 2, _TOKENS),
    NotServed(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, _TOKENS),
    NotServed(ApiKey.DESCRIBE_QUORUM, 2, "shows controllers and their addresses"),
    NotServed(ApiKey.UPDATE_FEATURES, 2, "the features of the brokers are theirs"),
    NotServed(ApiKey.UNREGISTER_BROKER, 0, "names a broker, which a virtual cluster does not show"),
    NotServed(ApiKey.ADD_RAFT_VOTER, 1, _QUORUM),
    NotServed(ApiKey.REMOVE_RAFT_VOTER, 0, _QUORUM),
    NotServed(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, _BROKERS),
    NotServed(ApiKey.READ_SHARE_GROUP_STATE, 0, _BROKERS),
    NotServed(ApiKey.WRITE_SHARE_GROUP_STATE, 1, _BROKERS),
    NotServed(ApiKey.DELETE_SHARE_GROUP_STATE, 0, _BROKERS),
    NotServed(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 1, _BROKERS),
    NotServed(ApiKey.UNREGISTER_CONTROLLER, 0, _QUORUM),
)
