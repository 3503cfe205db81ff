"""Decides who may own a resource, by the access mode and the generation of the request. Pure.

A resource is a topic, a partition, a free string or a reader claim. Its owner has a *generation*. The answer to a
request of another session is that of the first row that applies:

| request | condition | answer |
|---|---|---|
| generation N > 0 | N is below the highest | `LOWER` |
| generation N | any | `GRANTED`; owners of other sessions are deposed |
| exclusive_with_fencing | any | `GRANTED`; owners and waiting sessions are deposed |
| any mode | nobody owns it, and no earlier claimant waits | `GRANTED` |
| wait_for_exclusive | the queue has room, or the request has a place in it | `WAIT` |
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
"""Seconds for which a place in a queue, or a promotion, is kept while its client sends no request for it."""
HIGHEST_GENERATION: Final = 2**63 - 1
MODE_NUMBERS: Final = {
    AccessMode.SHARED: control.SHARED,
    AccessMode.EXCLUSIVE: control.EXCLUSIVE,
    AccessMode.WAIT_FOR_EXCLUSIVE: control.WAIT_FOR_EXCLUSIVE,
    AccessMode.EXCLUSIVE_WITH_FENCING: control.EXCLUSIVE_WITH_FENCING,
}
"""The numbers of the access modes in messages and records."""
MODES: Final = {int(number): mode for mode, number in MODE_NUMBERS.items()}


class Answer(Enum):
    """The answer to a session that requests a resource."""

    GRANTED = "it may have it"
    WAIT = "it may have a place in the queue"
    HELD = "others own it, or come first"
    FULL = "its queue is full"
    LOWER = "the generation asked for is below the highest"


def decide(mode: AccessMode, generation: int | None, *, highest: int, is_free: bool, has_room: bool) -> Answer:
    """Applies the table of this module. `is_free`: no other session owns the resource, and no earlier claimant waits.
    `has_room`: the queue has a free place, or the request already has one.
    """
    if generation is not None:
        return Answer.LOWER if 0 < generation < highest else Answer.GRANTED
    if mode is AccessMode.EXCLUSIVE_WITH_FENCING or is_free:
        return Answer.GRANTED
    if mode is not AccessMode.WAIT_FOR_EXCLUSIVE:
        return Answer.HELD
    return Answer.WAIT if has_room else Answer.FULL


def next_generation(highest: int, asked: int | None) -> int | None:
    """Returns the generation of a new owner, for resources whose generation is not remembered while they are free.
    `highest` is 0 if the resource is free: the generation is then 1. It is also 1 if generation 0 is `asked`.
    None: no generation is left above the highest. Topics remember theirs: `metadata/lua/claim.lua`.
    """
    if asked == 0 or not highest:
        return 1
    return None if highest >= HIGHEST_GENERATION else max(highest + 1, asked or 0)
