"""The errors between a node and Redis. No exception of the Redis library leaves this package.

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
    """The server is loading its data set (LOADING), or another client's script blocks it (BUSY)."""
    READ_ONLY = "read only"
    """A replica, or a primary that refuses writes (READONLY, MISCONF, NOREPLICAS)."""
    OUT_OF_MEMORY = "out of memory"
    """maxmemory is reached and noeviction refuses the write."""
    DENIED = "denied"
    """Wrong user or password, or a user without the permission."""
    CLUSTER = "cluster"
    """A Redis Cluster node that does not have the hash slot of our keys: the URL must name the node that has it."""
    CLOSED = "closed"
    """The store was closed here."""


class MetadataError(Exception):
    """The base of all errors that this package raises at run time."""


class MetadataUnavailable(MetadataError):  # noqa: N818 - a state of the world, not a mistake
    """Redis cannot answer now; try again later, with the same token if the call has one.

    `maybe_applied`: the request was sent but its answer was lost, so the call may have been executed.
    """

    def __init__(self, reason: Reason, message: str, *, maybe_applied: bool = False) -> None:
        super().__init__(message)
        self.reason = reason
        self.maybe_applied = maybe_applied


class MetadataMisconfigured(MetadataError):  # noqa: N818 - as above
    """The server answers, but its configuration is not safe; the message names the setting to change."""


class MetadataProtocolError(MetadataError):
    """The server sent a reply that no script returns, or a script failed: a defect, do not retry."""


class GenerationChanged(MetadataError):  # noqa: N818 - as above
    """A conditional change was not made: `current` is none of the required generations; None: it is changing now."""

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
    """The node has deregistered under this boot id; it can register again only under a new one."""

    def __init__(self, node_id: int) -> None:
        super().__init__(f"node {node_id} has left under this boot id")
        self.node_id = node_id
