"""Which topic a shadow was a view of, and when: of shadows that were deleted and created again. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_ON_ITS_WAY_S: Final = 2.0
"""An answer may have been sent before a shadow was deleted, and come so much later."""


class Span(NamedTuple):
    """From when to when a shadow may have shown a source."""

    begin: float
    end: float
    source: str
    is_former: bool = False
    """The source is a topic that was deleted: the one that has its name now is another one (KIP-516)."""


@dataclass(slots=True)
class Sources:
    """By shadow, what the ownership topic says."""

    spans: dict[str, list[Span]] = field(default_factory=dict)

    def note(self, shadow: str, source: str, at: float, *, is_former: bool = False) -> None:
        """A record of a shadow; without a source it is deleted. `is_former`: its source is a topic that is gone."""
        spans = self.spans.setdefault(shadow, [])
        if spans and spans[-1].end == math.inf:
            if (spans[-1].source, spans[-1].is_former) == (source, is_former):
                return
            spans[-1] = spans[-1]._replace(end=at + _ON_ITS_WAY_S)
        if source:
            spans.append(Span(at, math.inf, source, is_former))

    def at(self, shadow: str, moment: float) -> set[str]:
        """What it may have shown."""
        return {span.source for span in self.spans.get(shadow, ()) if span.begin <= moment <= span.end}

    def is_of_former(self, shadow: str, moment: float) -> bool:
        """Whether all that it may have shown is gone."""
        found = [span.is_former for span in self.spans.get(shadow, ()) if span.begin <= moment <= span.end]
        return bool(found) and all(found)

    def has_changed(self, shadow: str) -> bool:
        """Whether it was a view of more than one topic."""
        return len({(span.source, span.is_former) for span in self.spans.get(shadow, ())}) > 1
