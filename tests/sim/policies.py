"""Which policies the nodes applied to a topic, and when: what decides which promise holds for a record.

`Watch` looks at the nodes every few milliseconds of virtual time; `Timeline` is what it saw, for the checker.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from tests.sim.former import environment
from tests.sim.world import TOPICS

if TYPE_CHECKING:
    from collections.abc import Callable

    T = TypeVar("T")

    from tests.sim.world import World

EVERY_S: Final = 0.03


@dataclass(frozen=True, slots=True)
class Policy:
    """What a node applies to a topic. `mode`: empty where the topic has no policy; `ids`: with deduplication."""

    mode: str = ""
    ids: bool = False
    by_partition: bool = False


@dataclass(slots=True)
class Timeline:
    """By topic: since when live nodes applied which policies, more than one where they were not agreed."""

    seen: dict[str, list[tuple[float, frozenset[Policy]]]] = field(default_factory=dict)
    _known: dict[str, list[tuple[float, float, frozenset[Policy]]]] = field(default_factory=dict)

    def constant(self, topic: str, begin: float, end: float, of: Callable[[Policy], T]) -> T | None:
        """What all nodes applied all the time, from a little before `begin` to a little behind `end`; else None."""
        spans = self._spans(topic)
        if len(spans) == 1 and len(spans[0][2]) == 1:
            (policy,) = spans[0][2]
            return of(policy)
        values = {
            of(policy)
            for since, until, policies in spans
            if since <= end + EVERY_S and until >= begin - EVERY_S
            for policy in policies
        }
        return values.pop() if len(values) == 1 else None

    def ever(self, topic: str, begin: float, end: float, of: Callable[[Policy], bool]) -> bool:
        """Whether some node applied such a policy at some moment of that time."""
        return any(
            of(policy)
            for since, until, policies in self._spans(topic)
            if since <= end + EVERY_S and until >= begin - EVERY_S
            for policy in policies
        )

    def since(self, topic: str, moment: float, of: Callable[[Policy], Any]) -> float:
        """Since when all nodes had applied what they applied at a moment."""
        found = math.inf
        for since, _, policies in reversed([span for span in self._spans(topic) if span[0] <= moment]):
            values = {of(policy) for policy in policies}
            if found == math.inf:
                wanted = values
            elif values != wanted:
                break
            found = since
        return found

    def _spans(self, topic: str) -> list[tuple[float, float, frozenset[Policy]]]:
        seen, known = self.seen.get(topic, []), self._known.get(topic)
        if known is None or len(known) != len(seen):
            begins = [-math.inf, *(since for since, _ in seen[1:])]
            ends = [*begins[1:], math.inf]
            known = [(begin, end, policies) for begin, end, (_, policies) in zip(begins, ends, seen, strict=False)]
            self._known[topic] = known
        return known


class Watch:
    """Looks at the nodes of a world now and then."""

    def __init__(self, world: World) -> None:
        self.timeline = Timeline()
        self._world = world
        self._books: list[Any] = []

    def start(self) -> None:
        """From now on."""
        self.look()
        self._world.loop.at(None, self._world.now + EVERY_S, self.start)

    def look(self) -> None:
        """Once. A node that does not live, or has not started, applies nothing."""
        books = [
            environment(process.node.rooms.governed).catalog.book
            for process in self._world.nodes.values()
            if process.host.alive and process.node.rooms is not None
        ]
        if not books or (len(books) == len(self._books) and all(map(_is_same, books, self._books))):
            return
        self._books = books
        for topic in TOPICS:
            policies = frozenset(_policy(book.effective(topic)) for book in books)
            seen = self.timeline.seen.setdefault(topic, [])
            if not seen or seen[-1][1] != policies:
                seen.append((self._world.now, policies))


def _is_same(one: object, other: object) -> bool:
    return one is other


def _policy(fields: Any) -> Policy:
    if fields is None:
        return Policy()
    return Policy(str(fields.access_mode), bool(fields.deduplication), fields.scope == "partition")
