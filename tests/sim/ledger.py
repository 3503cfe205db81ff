"""What clients did and which answers they got: the checker's only witness beside the logs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

REFUSED: Final = frozenset({42, 43, 44, 48, 87, 90, 32})
"""Codes by which a node says that it has not written, and will not write, what it was sent."""
NOT_WRITTEN: Final = REFUSED | {5, 19, 45, 47, 29, 2, 10, 3, 17, 100}
"""Codes that promise that this attempt left nothing in the log."""


@dataclass(slots=True)
class Sent:
    """A record that a session wanted written. `order`: its place among those of its session and partition.

    `delivered`: what the application heard: None nothing yet, True it is there (at `offset`, -1 unknown), False it
    failed with `code`, at `told_at`. `doubtful`: an attempt ended without anybody saying that nothing was written.
    """

    session: str
    topic: str
    partition: int
    order: int
    value: bytes
    name: str = ""
    sequence_id: int | None = None
    idempotent: bool = True
    attempts: int = 0
    delivered: bool | None = None
    offset: int = -1
    code: int = 0
    message: str = ""
    doubtful: bool = False
    is_anew: bool = False
    """Its client raised its epoch for another batch's sake while this was in doubt: a new batch to Kafka."""
    sent_at: float = 0.0
    told_at: float = math.inf
    bears_name: bool = False
    """Its producer's name stands in a header of the record."""


@dataclass(slots=True)
class Read:
    """A record that a consumer was given. `reader`: it reads on without a break, from the offset `begin` on."""

    topic: str
    partition: int
    offset: int
    value: bytes
    at: float
    reader: str = ""
    begin: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """A member of a group was told where the group stands: at `offset`, which is not where it begins."""

    group: str
    topic: str
    partition: int
    offset: int
    at: float


@dataclass(slots=True)
class Told:
    """An answer about a topic's owner: by an error message, or by an own API."""

    resource: str
    generation: int
    owner: str
    at: float
    granted: bool = False
    """Whether the receiver is the owner."""


@dataclass(frozen=True, slots=True)
class Granted:
    """A claim to a string, or for reading, that its session was granted. `resource`: as the record's key names it.
    `token`: of the request; `fencing_token`: 0 where none was given.
    """

    resource: str
    generation: int
    session: str
    token: bytes = b""
    fencing_token: int = 0


@dataclass(slots=True)
class Ledger:
    """Of one history."""

    sent: list[Sent] = field(default_factory=list)
    granted: list[Granted] = field(default_factory=list)
    read: list[Read] = field(default_factory=list)
    resumed: list[Resumed] = field(default_factory=list)
    committed: set[tuple[str, str, int, int]] = field(default_factory=set)
    """Group, topic, partition and offset of what members wanted committed."""
    moved: set[str] = field(default_factory=set)
    """Shadows whose cursors an operator moved, or had the nodes move."""
    told: list[Told] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    """How often each code was answered to a batch."""
    broken: list[str] = field(default_factory=list)
    """What a client found to be against the protocol."""

    def answered(self, code: int) -> None:
        """A batch was answered so."""
        self.codes[code] = self.codes.get(code, 0) + 1
