"""What can be done with a claim by request, for every kind of resource."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from sidecar.v1 import control_pb2 as control


class Prospect(Enum):
    """What to do with a claim now."""

    READY = "it can be taken, or is owned already"
    WAIT = "others come first: take a place in the queue"
    BUSY = "nothing can be said now: look again when what is under way is over"
    REFUSED = "not as things stand; the error says why"


class Look(NamedTuple):
    """A prospect; if it is REFUSED, also the error of control.proto and its message."""

    prospect: Prospect
    error: control.Error = control.NONE
    message: str = ""
