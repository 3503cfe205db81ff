"""What bytes are played on: a module each, with `play(data)`, which raises for a mistake alone, and `seeds()`, inputs
to begin with. A module is imported when it is played, as one of them takes over its process (`node`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol


class Target(Protocol):
    """A module in here."""

    play: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]


NAMES: Final = ("bodies", "batches", "stream", "logins", "own", "rest", "node", "node_logins")
"""All of them; those that run a whole node are slower by a hundred times."""
