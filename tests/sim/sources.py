"""Which topic a shadow was a view of, and when: of shadows that were deleted and created again. And which topics had a
name one after the other. A topic is known by its id: its name may be another one's later (KIP-516). Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_ON_ITS_WAY_S: Final = 2.0
"""An answer may have been sent before a shadow was deleted, and come so much later."""


class Life(NamedTuple):
    """A topic, from its creation to its deletion."""

    name: str
    topic_id: bytes
    born: float
    died: float = math.inf


class Source(NamedTuple):
    """What a shadow is a view of."""

    name: str
    topic_id: bytes = b""


class Span(NamedTuple):
    """From when to when a shadow may have shown a source."""

    begin: float
    end: float
    source: Source


@dataclass(slots=True)
class Sources:
    """By shadow, what the ownership topic says. `moved`: a shadow that shows another topic than it was created for."""

    spans: dict[str, list[Span]] = field(default_factory=dict)
    moved: list[str] = field(default_factory=list)

    def note(self, shadow: str, source: str, at: float, topic_id: bytes = b"") -> None:
        """A record of a shadow; without a source it is deleted."""
        spans, now = self.spans.setdefault(shadow, []), Source(source, topic_id)
        if spans and spans[-1].end == math.inf:
            before = spans[-1].source
            if before == now:
                return
            if source:
                self.moved.append(f"the shadow {shadow} of {before.name} {before.topic_id.hex()} became one of {source}"
                                  f" {topic_id.hex()}")  # fmt: skip
            spans[-1] = spans[-1]._replace(end=at + _ON_ITS_WAY_S)
        if source:
            spans.append(Span(at, math.inf, now))

    def at(self, shadow: str, moment: float) -> set[Source]:
        """What it may have shown."""
        return {span.source for span in self.spans.get(shadow, ()) if span.begin <= moment <= span.end}

    def has_changed(self, shadow: str) -> bool:
        """Whether it was a view of more than one topic."""
        return len({span.source for span in self.spans.get(shadow, ())}) > 1
