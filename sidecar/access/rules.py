"""Who may have what: by the access mode and the generation that are asked for. Pure; the theory first.

A resource is a topic, a partition, a free string or a reader's claim. Its owner has a *generation*. The answer to a
request of another session is the first that fits:

| asked for | as things stand | answer |
|---|---|---|
| generation N > 0 | N is below the highest | `LOWER` |
| generation N | any | `GRANTED`; owners of other sessions are deposed |
| exclusive_with_fencing | any | `GRANTED`; owners and those who wait are deposed |
| any mode | nobody owns it, and no earlier claimant waits | `GRANTED` |
| wait_for_exclusive | its queue has room, or the request a place there | `WAIT` |
| wait_for_exclusive | its queue is full | `FULL` |
| any other | any | `HELD` |

PIP-68, PIP-161 (modes); the Kafka wiki's Single Reader/Writer (generations).
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from metadata.ownership import AccessMode
from sidecar.v1 import control_pb2 as control

KEPT_S: Final = 5.0
"""How long a place in a queue, or a promotion, is kept for a client that does not ask for it."""
HIGHEST_GENERATION: Final = 2**63 - 1
MODE_NUMBERS: Final = {
    AccessMode.SHARED: control.SHARED,
    AccessMode.EXCLUSIVE: control.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE: control.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING: control.EXCLUSIVE_WITH_FENCING,
}
"""Access modes as messages and records spell them."""
MODES: Final = {int(number): mode for mode, number in MODE_NUMBERS.items()}


class Answer(Enum):
    """What a session is answered that asks for a resource."""

    GRANTED = "it may have it"
    WAIT = "it may have a place in the queue"
    HELD = "others own it, or come first"
    FULL = "its queue is full"
    LOWER = "the generation asked for is below the highest"


def decide(mode: AccessMode, generation: int | None, *, highest: int, is_free: bool, has_room: bool) -> Answer:
    """The table. `is_free`: no other session owns it, and no earlier claimant waits. `has_room`: there is a place in
    its queue, or it has one.
    """
    if generation is not None:
        return Answer.LOWER if 0 < generation < highest else Answer.GRANTED
    if mode is AccessMode.EXCLUSIVE_WITH_FENCING or is_free:
        return Answer.GRANTED
    if mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
        return Answer.HELD
    return Answer.WAIT if has_room else Answer.FULL


def next_generation(highest: int, asked: int | None) -> int | None:
    """The generation that a grant has where none is remembered of a free resource (`highest` 0): it begins at 1, and at
    1 again for 0. Topics remember theirs: `metadata/lua/claim.lua`. None: there is none left above the highest.
    """
    if asked == 0 or not highest:
        return 1
    return None if highest >= HIGHEST_GENERATION else max(highest + 1, asked or 0)
