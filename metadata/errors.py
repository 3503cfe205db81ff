"""What can go wrong between a node and Redis, as types. No exception of the Redis library leaves this package.

Code that catches `MetadataError` catches all of them. Nothing here knows Kafka's error codes: the caller maps them.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why Redis could not answer."""

    AWAY = "away"
    """No connection, or the connection ended before the answer."""
    TIMEOUT = "timeout"
    """No answer within the command timeout."""
    LOADING = "loading"
    """The server reads its data set (LOADING), or a script of somebody else holds it (BUSY)."""
    READ_ONLY = "read only"
    """A replica, or a primary that refuses writes (READONLY, MISCONF, NOREPLICAS)."""
    OUT_OF_MEMORY = "out of memory"
    """maxmemory is reached and noeviction refuses the write."""
    DENIED = "denied"
    """Wrong user or password, or a user without the permission."""
    CLUSTER = "cluster"
    """A Redis Cluster node that does not hold our slot: the URL must name the server that does."""
    CLOSED = "closed"
    """The store was closed here."""


class MetadataError(Exception):
    """Anything this package raises at run time."""


class MetadataUnavailable(MetadataError):  # noqa: N818 - a state of the world, not a mistake
    """Redis cannot answer now; trying again later, with the same token where there is one, is right.

    `maybe_applied`: the call may have been carried out all the same, the request had left when the answer was lost.
    """

    def __init__(self, reason: Reason, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.maybe_applied = maybe_applied


class MetadataMisconfigured(MetadataError):  # noqa: N818 - as above
    """The server answers but is set up so that it must not be used; the message names what to set."""


class MetadataProtocolError(MetadataError):
    """The server answered what our scripts never answer, or failed inside one: a defect, not to be retried."""


class GenerationChanged(MetadataError):  # noqa: N818 - as above
    """What was to happen under certain generations alone did not: `current` is another; None: it rises just now."""

    def __init__(self, current: int | None) -> None:
        super().__init__("the generation rises just now" if current is None else f"the generation is {current}")
        self.current = current


class NodeIdTaken(MetadataError):  # noqa: N818 - as above
    """Another live process registered the same node id; its lease ends in `remaining_ms` unless it renews."""

    def __init__(self, node_id: int, host: str, port: int, remaining_ms: int) -> None:
        super().__init__(f"node id {node_id} is taken by {host}:{port}")
        self.node_id = node_id
        self.host = host
        self.port = port
        self.remaining_ms = remaining_ms


class NodeHasLeft(MetadataError):  # noqa: N818 - as above
    """The node said goodbye under this boot id; only a new one can register again."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"node {node_id} has left under this boot id")
        self.node_id = node_id
