"""The rooms of a node that serves."""

from __future__ import annotations

from sidecar.node.parts import Rooms, Running
from sidecar.node.port import UnavailableError


def rooms_of(node: Running) -> Rooms:
    """Raises `UnavailableError`, with the reason, before the node serves."""
    if node.rooms is None:
        raise UnavailableError(node.problem)
    return node.rooms
