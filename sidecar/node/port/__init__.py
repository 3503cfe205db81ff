"""What the HTTP side needs of a node: its calls, the facts they return, and the four ways they can fail.

The node implements `NodePort`; tests do too. Names are checked before a call is made: what arrives here is a legal
Kafka topic name, or `PREFIX*` where a method says so, and never an internal topic (`__…`) in a method that changes
something.

It lies beside the node and not in `sidecar.admin`, as a node may not import what is above it; for the same reason the
node is given the HTTP side as an `AdminFactory`.
"""

from sidecar.node.port.calls import (
    AdminFactory,
    AdminService,
    NodePort,
)
from sidecar.node.port.facts import (
    AccessMode,
    Check,
    ClientFacts,
    CursorMove,
    CursorReset,
    Deduplicated,
    Event,
    EventDetails,
    EventKind,
    IdsState,
    IfMatch,
    ListenerFacts,
    NewTopic,
    NodeState,
    Owner,
    Peer,
    Policy,
    Producer,
    ProducerIds,
    Refusal,
    Scope,
    Status,
    Topic,
    Waiting,
)
from sidecar.node.port.failures import (
    ConflictError,
    ElsewhereError,
    GenerationError,
    InvalidError,
    NotFoundError,
    NothingDoneError,
    PortError,
    UnavailableError,
)

__all__ = [
    "AccessMode",
    "AdminFactory",
    "AdminService",
    "Check",
    "ClientFacts",
    "ConflictError",
    "CursorMove",
    "CursorReset",
    "Deduplicated",
    "ElsewhereError",
    "Event",
    "EventDetails",
    "EventKind",
    "GenerationError",
    "IdsState",
    "IfMatch",
    "InvalidError",
    "ListenerFacts",
    "NewTopic",
    "NodePort",
    "NodeState",
    "NotFoundError",
    "NothingDoneError",
    "Owner",
    "Peer",
    "Policy",
    "PortError",
    "Producer",
    "ProducerIds",
    "Refusal",
    "Scope",
    "Status",
    "Topic",
    "UnavailableError",
    "Waiting",
]
