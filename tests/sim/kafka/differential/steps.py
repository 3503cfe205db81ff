"""Steps of a program. Values that a side's own answers give stand in them as symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Symbol:
    """A value that the player puts in: see `Player.value` for the kinds."""

    kind: str
    number: int = 0
    more: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return f"<{' '.join(map(str, (self.kind, self.number, *self.more)))}>"


@dataclass(frozen=True, slots=True)
class Records:
    """A batch. `sequence` counts from the next one of its producer in the partition; `again`: the sequence and length
    of its batch so many before the last instead. `times` are milliseconds before the beginning of the program, one a
    record. `damage` names a header field with a wrong value.
    """

    topic: int
    partition: int
    times: tuple[int, ...]
    producer: int | None = None
    epoch: int = 0
    sequence: int = 0
    again: int | None = None
    transactional: bool = False
    codec: int = 0
    key: int | None = None
    damage: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request. `at`: ("any",), ("broker", number), ("leader" or "follower", topic, partition), ("transaction",
    transactional id) or ("group", group).
    """

    key: int
    version: int
    at: tuple[Any, ...]
    fields: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.key} v{self.version}"


@dataclass(frozen=True, slots=True)
class Together:
    """Requests that may wait for each other, each sent on its own connection when the one before waits or has its
    answer.
    """

    group: int
    asks: tuple[Ask, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """`what`: kill, stop, freeze, start, elect, reassign. A broker is back, or a leader known, before the next step."""

    what: str
    broker: int = 0
    topic: int = 0
    partition: int = 0
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Outside:
    """A version that no broker serves."""

    key: int
    version: int


Step = Ask | Together | Fault | Outside


@dataclass(frozen=True, slots=True)
class Program:
    """`brokers`: 1, or 3 with faults."""

    seed: int
    brokers: int
    steps: tuple[Step, ...]

    def without(self, places: set[int]) -> Program:
        """The same without some steps."""
        kept = tuple(step for place, step in enumerate(self.steps) if place not in places)
        return Program(self.seed, self.brokers, kept)
