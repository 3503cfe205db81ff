"""The nodes' state in Redis: which nodes are live, which node serves and which session owns a topic, which policies
exist.

Redis answers quickly and is never trusted for safety: all of this can be lost, rolled back or split at any time.
Producer epochs in Kafka decide what may be appended, and an empty Redis is filled again from the changelog in Kafka.
One Lua script per decision (`lua/`), each idempotent; time is the server's; this package imports nothing of `sidecar`.

All keys begin with `sidecar:{<cluster>}:` (one hash slot):

=================== ========== ==============================================================================
key                 type       content
=================== ========== ==============================================================================
`nodes`             hash       node id → `<expires> <lease ms> <boot> <json>`: live nodes
`served`            hash       topic → `<node id> <boot>`: who has the right to serve it
`leases`            sorted set topic, scored with when that right expires (Redis ms)
`served:version`    string     random; another one whenever `served` changed
`pulse`             hash       `last`: newest beat of any node; `since`: from when beats came without a gap of a
                               lease; `left:<node id>`: when that node left
`gone:<boot>`       string     this process has deregistered (10 minutes)
`owners`            hash       resource → `<generation> <position> <session or -> <json>`: newest known record
`tickets`           hash       resource → highest generation that was ever given to a claim
`claims`            hash       resource → `<expires> <lease ms> <token> <boot> <generation> <session> <json>`
`used:<token>`      string     this token was used up (10 minutes); for policy changes: the version it got
`snapshots`         hash       topic/partition → `<topic id> <covered> <number> <bytes>`: sequence ids by producer name
`policies`          hash       topic or prefix → `<version> <body>`
`policies:version`  string     version of the newest change
`identity`          string     random, given by the first node: distinguishes this Redis from another one of the cluster
=================== ========== ==============================================================================

Generations, positions and versions are int64, stored in decimal.
"""

from .errors import (
    GenerationChanged,
    MetadataError,
    MetadataMisconfigured,
    MetadataProtocolError,
    MetadataUnavailable,
    NodeHasLeft,
    NodeIdTaken,
    Reason,
)
from .lease import Lease, Sent
from .nodes import (
    Beat,
    HandOverAnswer,
    HandOverStatus,
    Holder,
    LiveNodes,
    Node,
    ServeAnswer,
    ServeStatus,
)
from .ownership import (
    AccessMode,
    ClaimAnswer,
    ClaimInProgress,
    ClaimRequest,
    ClaimStatus,
    Generation,
    Ownership,
    PublishAnswer,
    ReleaseAnswer,
    ResourceState,
)
from .policies import Policies, Policy
from .server import ServerInfo
from .store import MetadataStore, new_boot_id, new_token

__all__ = [
    "AccessMode",
    "Beat",
    "ClaimAnswer",
    "ClaimInProgress",
    "ClaimRequest",
    "ClaimStatus",
    "Generation",
    "GenerationChanged",
    "HandOverAnswer",
    "HandOverStatus",
    "Holder",
    "Lease",
    "LiveNodes",
    "MetadataError",
    "MetadataMisconfigured",
    "MetadataProtocolError",
    "MetadataStore",
    "MetadataUnavailable",
    "Node",
    "NodeHasLeft",
    "NodeIdTaken",
    "Ownership",
    "Policies",
    "Policy",
    "PublishAnswer",
    "Reason",
    "ReleaseAnswer",
    "ResourceState",
    "Sent",
    "ServeAnswer",
    "ServeStatus",
    "ServerInfo",
    "new_boot_id",
    "new_token",
]
