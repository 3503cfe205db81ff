"""What readers ask for, and which of the answers found they are given. Pure.

A question includes the leader epoch that the reader knows, because brokers check it (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sidecar.protocol.calls.tails import Fetched, Position, position_of
from sidecar.protocol.fetch_parts import FetchPart
from sidecar.protocol.primitives import Octets


class Question(NamedTuple):
    """Everything that a broker's answer to a reader depends on, except the byte limits."""

    position: Position
    isolation: int


class Asked(NamedTuple):
    """A question, and how many bytes of records its reader accepts."""

    question: Question
    most_bytes: int


def asked_by(element: Octets, log: bytes, isolation: int, version: int, topic_id: bytes = b"") -> Asked | None:
    """Returns what a partition's element of a request asks of a log; by topic id if there is one. None if a shared poll
    cannot answer it.
    """
    found = position_of(log, element, version, topic_id)
    return None if found is None else Asked(Question(found[0], isolation), found[1])


def questions_of(
    buffer: Octets,
    both: Iterable[tuple[FetchPart, tuple[bytes, int]]],
    isolation: int,
    version: int,
    topic_id: Callable[[bytes], bytes],
) -> list[Asked]:
    """The questions of a request, one per partition, about its log; [] if a shared poll cannot answer one of them.
    `topic_id` returns the id of a log's topic, empty if it is not known.
    """
    found: list[Asked] = []
    for part, (log, _) in both:
        asked = asked_by(buffer[part.start : part.end], log, isolation, version, topic_id(log))
        if asked is None:
            return []
        found.append(asked)
    return found


def fitting(
    asked: Iterable[Asked], found: Mapping[Question, Fetched], most_bytes: int
) -> tuple[list[Fetched | None], Asked | None]:
    """Returns for each of a reader's questions, in order, the answer that it gets; and the last question whose answer
    is too large: larger than the limit of its partition, or than what is left of `most_bytes`.
    """
    taken: list[Fetched | None] = []
    too_large: Asked | None = None
    for each in asked:
        fetched = found.get(each.question)
        if fetched is not None:
            if fetched.record_bytes > min(each.most_bytes, most_bytes):
                too_large, fetched = each, None
            else:
                most_bytes -= fetched.record_bytes
        taken.append(fetched)
    return taken, too_large
