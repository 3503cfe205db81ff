"""A simulated machine with one process on it: what the loop runs belongs to one, and ends and stops with it.

A host knows nothing of sockets or of what runs on it. `None` in place of a host stands for the world itself, which
neither dies nor stops: the simulated brokers and Redis keep their own faults.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Host:
    """One process. A restart makes another one under the same name; a dead one never runs again.

    `wall_offset`: seconds by which its wall clock is wrong. `slept`: seconds that its monotonic clock did not count,
    because the machine was suspended. `fuse`: callbacks that it still runs before it dies; negative: it lives on.
    `burnt_at`: when a steady world's fuse last got shorter. `held`: what came due while it was frozen. `state` and
    `turn` belong to the module that swaps process-wide objects per host.
    """

    __slots__ = (
        "alive", "burnt_at", "died_at", "frozen", "fuse", "held", "name", "on_death", "slept", "state", "tasks", "turn",
        "wall_offset",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.died_at = math.inf
        self.frozen = False
        self.fuse = -1
        self.burnt_at = -1.0
        self.slept = 0.0
        self.wall_offset = 0.0
        self.held: list[Any] = []
        self.tasks: list[Any] = []
        """All that were ever made: a dead process's coroutines must not be collected, or their `finally` would run."""
        self.on_death: Callable[[Host], None] = lambda _: None
        self.state: Any = None
        self.turn: Any = None

    def __repr__(self) -> str:
        return f"<host {self.name}{'' if self.alive else ' †'}>"
