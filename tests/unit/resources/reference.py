"""Owners and queues the naive way: lists, and every rule by looking at everything. The claim table is held to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

EXCLUSIVE, WAIT, FENCING = "exclusive", "wait", "fencing"


class Thing(NamedTuple):
    """A free string (partition and topic None), or a topic or partition for reading in a group."""

    group: str
    name: str | None = None
    topic: str | None = None
    partition: int | None = None

    def overlaps(self, other: Thing) -> bool:
        if self == other:
            return True
        same = self.topic is not None and (self.group, self.topic) == (other.group, other.topic)
        return same and (self.partition is None or other.partition is None)

    def covers(self, other: Thing) -> bool:
        return self == other or (self.overlaps(other) and self.partition is None)


class Held(NamedTuple):
    session: str
    token: bytes
    generation: int


@dataclass(frozen=True)
class Asked:
    token: bytes
    session: str
    mode: str
    wishes: tuple[tuple[Thing, int | None], ...]


@dataclass
class Reference:
    limit: int
    owners: dict[Thing, Held] = field(default_factory=dict[Thing, Held])
    line: list[Asked] = field(default_factory=list[Asked])
    """Everybody who waits, in the order of arrival."""

    def judge(self, asked: Asked) -> list[tuple[str, int]]:
        """An answer and a generation per wish; `wait` and errors have none."""
        return [self._one(asked, thing, generation) for thing, generation in asked.wishes]

    def _one(self, asked: Asked, thing: Thing, generation: int | None) -> tuple[str, int]:
        if any(held.token == asked.token for held in self.owners.values()):
            held = self.owners.get(thing)
            return ("none", held.generation) if held and held.token == asked.token else ("deposed", 0)
        over = {other: held for other, held in self.owners.items() if other.overlaps(thing)}
        rivals = [held.generation for held in over.values() if held.session != asked.session]
        own = [held.generation for other, held in over.items() if held.session == asked.session and other.covers(thing)]
        if thing in over and over[thing].session == asked.session:
            own = [over[thing].generation]
        highest = max(rivals or own or [0])
        if generation is not None:
            if 0 < generation < highest:
                return "lower", 0
            return "none", 1 if not generation or not highest else max(highest + 1, generation)
        if own:
            return "none", own[0]
        if asked.mode == FENCING:
            return "none", highest + 1
        if not rivals and not self._ahead(asked, thing):
            return "none", 1
        if asked.mode == EXCLUSIVE:
            return "held", 0
        full = sum(thing == other for each in self.line for other, _ in each.wishes) >= self.limit
        return ("full", 0) if full and asked not in self.line else ("wait", 0)

    def _ahead(self, asked: Asked, thing: Thing) -> bool:
        earlier = self.line[: self.line.index(asked)] if asked in self.line else self.line
        return any(thing.overlaps(other) for each in earlier for other, _ in each.wishes)

    def grant(self, asked: Asked, generations: list[int]) -> set[str]:
        """The sessions that lost something."""
        if any(held.token == asked.token for held in self.owners.values()):
            return set()
        deposed: set[str] = set()
        fresh = [thing for thing, _ in asked.wishes if not self._is_covered(asked.session, thing)]
        for thing, _ in asked.wishes:
            for other, held in list(self.owners.items()):
                if other.overlaps(thing) and held.session != asked.session:
                    deposed.add(held.session)
                    del self.owners[other]
        for (thing, _), generation in zip(asked.wishes, generations, strict=True):
            self.owners[thing] = Held(asked.session, asked.token, generation)
        self.line = [each for each in self.line if each != asked]
        if asked.mode == FENCING:
            self.line = [
                each
                for each in self.line
                if not any(thing.overlaps(other) for thing in fresh for other, _ in each.wishes)
            ]
        return deposed

    def _overlaps(self, things: list[Thing], asked: Asked) -> bool:
        return any(thing.overlaps(other) for thing in things for other, _ in asked.wishes)

    def _is_covered(self, session: str, thing: Thing) -> bool:
        return any(other.covers(thing) and held.session == session for other, held in self.owners.items())
