"""What readers ask, and what they are given of what was found. Pure.

The leader epoch that a reader knows is part of its question: brokers check it (KIP-320).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sidecar.protocol.calls.tails import Fetched, Position, position_of
from sidecar.protocol.fetch_parts import FetchPart
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import Ids


class Question(NamedTuple):
    """What decides a broker's answer to a reader, but for how much it takes."""

    position: Position
    isolation: int


class Asked(NamedTuple):
    """A question, and how many bytes of records its reader takes."""

    question: Question
    most_bytes: int


def asked_by(element: Octets, log: bytes, isolation: int, version: int, topic_id: bytes = b"") -> Asked | None:
    """What a partition's element in a request asks of a log, by the id of its topic where there is one; None where a
    poll for others would not answer it.
    """
    found = position_of(log, element, version, topic_id)
    return None if found is None else Asked(Question(found[0], isolation), found[1])


def questions_of(
    buffer: Octets,
    both: Iterable[tuple[FetchPart, tuple[bytes, int]]],
    isolation: int,
    version: int,
    ids: Ids | None,
) -> list[Asked]:
    """The questions of a request, of each partition about its log; none where a poll for others cannot answer one."""
    found: list[Asked] = []
    for part, (log, _) in both:
        topic_id = b"" if ids is None else ids[log]
        asked = asked_by(buffer[part.start : part.end], log, isolation, version, topic_id)
        if asked is None:
            return []
        found.append(asked)
    return found


def fitting(
    asked: Iterable[Asked], found: Mapping[Question, Fetched], most_bytes: int
) -> tuple[list[Fetched | None], Asked | None]:
    """What a reader takes of what was found, for each of its questions in their order, and the last question whose
    answer is too large for it: more than it takes of that partition, or than is left of `most_bytes`.
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
