"""What readers ask. Pure."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.protocol.calls.tails import Position


class Question(NamedTuple):
    """What decides a broker's answer to a reader, but for how much it takes."""

    position: Position
    isolation: int
