"""Recent answers that go on from each other, as one: a reader that comes late is up to date with the next answer, as
it would be with a broker's. Without it, readers that a busy node cannot serve between two batches would fall behind
for good. Answers that name aborted transactions (KIP-98) are not put together.

What they say of the log's end is what was last heard of it, not what was true when their records came: from that
clients know how far behind they are, and these are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.fanout.recent import Kept
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import Fetched
from sidecar.protocol.fetch_parts import caught_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecar.fanout.question import Question
    from sidecar.fanout.recent import Recent

_MOST_BYTES: Final = 256 * 1024
"""Of records that are put together; a reader farther behind than that takes several answers."""
_MOST_PARTS: Final = 256
_REMEMBERED: Final = 32
_REMEMBERED_BYTES: Final = 32 * 1024 * 1024
"""Of what was made of several answers, or of one that is older than the log's end."""


class Chains:
    """Answers out of what is kept. What was put together serves all that ask the same, until `changed`. `empty`: an
    element of v11 with what was last heard of a question's log, if anything was.
    """

    __slots__ = ("_bytes", "_empty", "_joined", "_recent")

    def __init__(self, recent: Recent, empty: Callable[[Question], bytes | None]) -> None:
        self._recent = recent
        self._empty = empty
        self._bytes = 0
        self._joined: dict[tuple[Question, int], Kept] = {}

    def answer(self, question: Question, most_bytes: int, now: float) -> Kept | None:
        """What is known from there on, and when the last of it came; no more than `most_bytes` of records where several
        answers make it.
        """
        first = self._recent.get(question, now)
        if first is None:
            return None
        key = question, most_bytes
        found = self._joined.get(key)
        if found is None:
            parts = self._parts(question, first, min(most_bytes, _MOST_BYTES), now)
            found = self._caught_up(question, first if len(parts) == 1 else _join(parts))
            size = 0 if found is first else len(found.fetched.element)
            if len(self._joined) >= _REMEMBERED or self._bytes + size > _REMEMBERED_BYTES:
                self.changed()
            self._bytes += size
            self._joined[key] = found
        return found

    def changed(self) -> None:
        """Something was kept, or forgotten."""
        self._joined.clear()
        self._bytes = 0

    def _caught_up(self, question: Question, kept: Kept) -> Kept:
        empty, element = self._empty(question), kept.fetched.element
        later = element if empty is None else caught_up(element, empty)
        return kept if later is element else Kept(kept.fetched._replace(element=later), kept.at)

    def _parts(self, question: Question, first: Kept, most_bytes: int, now: float) -> list[Kept]:
        parts, size = [first], first.fetched.record_bytes
        if fetch.names_aborted(first.fetched.element):
            return parts
        position, last = question.position, first.fetched
        while len(parts) < _MOST_PARTS:
            after = fetch.offset_behind(last.element, last.record_bytes)
            if after is None:
                break
            position = position._replace(offset=after)
            found = self._recent.get(question._replace(position=position), now)
            if found is None:
                break
            last = found.fetched
            size += last.record_bytes
            if size > most_bytes or fetch.names_aborted(last.element):
                break
            parts.append(found)
        return parts


def _join(parts: list[Kept]) -> Kept:
    element = fetch.join([(part.fetched.element, part.fetched.record_bytes) for part in parts])
    return Kept(Fetched(0, sum(part.fetched.record_bytes for part in parts), element), parts[-1].at)
