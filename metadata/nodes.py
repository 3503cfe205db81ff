"""Live nodes and which of them serves which topic: frozen snapshots of Redis' answers. No I/O, no decisions.

A snapshot is a hint of its moment: a node in it may be dead by now. Kafka judges every act that is based on it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping


class ListenerAddress(NamedTuple):
    """A node's address for clients of one listener (KIP-103)."""

    listener: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Node:
    """One sidecar process as it announces itself.

    `boot` is random per process start (lower-case hex). `host:port` is the address for clients of its first listener,
    `listeners` those of each; it is empty for a version of the software that had one, without a name. `admin`
    is the admin address as "host:port" ("" none). `position` is the changelog offset that the node has read up to (-1:
    nothing), `policy_version` the policy version that it applies, `version` the software's. A draining node hands over
    what it serves and takes nothing on.
    """

    node_id: int
    boot: str
    host: str
    port: int
    admin: str = ""
    position: int = -1
    policy_version: int = 0
    version: str = ""
    draining: bool = False
    listeners: tuple[ListenerAddress, ...] = ()

    def __post_init__(self) -> None:
        if self.node_id < 0:
            raise ValueError(f"a node id must not be negative: {self.node_id}")
        check_hex(self.boot, "boot id")

    def encode(self) -> str:
        """Return the JSON that Redis stores; the node's id and boot id are stored beside it."""
        return json.dumps(
            {
                "host": self.host,
                "port": self.port,
                "admin": self.admin,
                "position": self.position,
                "policy_version": self.policy_version,
                "version": self.version,
                "draining": self.draining,
                "boot": self.boot,
                "listeners": self.listeners,
            },
            separators=(",", ":"),
        )

    @classmethod
    def decode(cls, node_id: int, text: bytes) -> Node:
        """Read what `encode` wrote, by this or another version of the software: unknown fields are ignored."""
        return _decoded(node_id, text)


@lru_cache(maxsize=1024)
def _decoded(node_id: int, text: bytes) -> Node:
    """Decode a node; cached, because every beat returns all nodes and most are unchanged."""
    fields = json.loads(text)
    return Node(
        node_id=node_id,
        boot=fields["boot"],
        host=fields["host"],
        port=fields["port"],
        admin=fields.get("admin", ""),
        position=fields.get("position", -1),
        policy_version=fields.get("policy_version", 0),
        version=fields.get("version", ""),
        draining=fields.get("draining", False),
        listeners=tuple(ListenerAddress(*each) for each in fields.get("listeners", ())),
    )


@dataclass(frozen=True, slots=True)
class Holder:
    """Which process holds the right to serve a topic."""

    node_id: int
    boot: str


@dataclass(frozen=True, slots=True)
class LiveNodes:
    """All live nodes by id, which of them serves which topic, and the newest policy version, as of one heartbeat."""

    nodes: Mapping[int, Node]
    serving: Mapping[str, Holder]
    policy_version: int

    @property
    def controller(self) -> int | None:
        """The lowest live node id: what clients are shown as the controller. None where no node is alive."""
        return min(self.nodes, default=None)


@dataclass(frozen=True, slots=True)
class Beat:
    """Answer to a heartbeat.

    `lost`: topics that were asserted but are served by another live node: stop serving them. `restored`: how many owner
    records Redis did not know or knew older; more than 0 means that it was emptied or rolled back.
    """

    live: LiveNodes
    lost: Mapping[str, Holder]
    restored: int


class ServeStatus(StrEnum):
    """Outcome of asking for the right to serve a topic; only `GRANTED` gives it."""

    GRANTED = "granted"
    HELD = "held"
    SETTLING = "settling"
    UNREGISTERED = "unregistered"


@dataclass(frozen=True, slots=True)
class ServeAnswer:
    """`holder` has the right: the asker (GRANTED) or somebody alive (HELD), else None.

    `wait_ms`: what is left of that lease (GRANTED, HELD), until Redis must have heard from every live node (SETTLING),
    or 0 (UNREGISTERED: beat first).
    """

    status: ServeStatus
    holder: Holder | None
    wait_ms: int


class HandOverStatus(StrEnum):
    """Outcome of giving a topic away."""

    HANDED = "handed"
    FREED = "freed"
    ABSENT = "absent"
    HELD = "held"


@dataclass(frozen=True, slots=True)
class HandOverAnswer:
    """`holder`: HANDED: the receiver; HELD: the node that serves the topic instead (nothing was changed); else None."""

    status: HandOverStatus
    holder: Holder | None


def check_hex(value: str, what: str) -> None:
    """Check an id or token, which Redis stores between blanks: lower-case hexadecimal only. Raises ValueError."""
    if not value or value.strip("0123456789abcdef"):
        raise ValueError(f"a {what} is lower-case hexadecimal, not {value!r}")
