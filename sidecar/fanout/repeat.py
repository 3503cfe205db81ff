"""Requests that a reader repeats, the offset apart: those are not read anew. Pure.

KIP-227 saves brokers the same work by sessions, which would have to be kept in step with the client's.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final
from weakref import WeakValueDictionary

from sidecar.fanout.question import Asked, Question
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol.fetch import FetchPart, FetchRequest

_OFFSET: Final = Struct(">q")
_OFFSET_AT: Final = 8
"""In a partition's element of v9 and later, behind its index and the leader epoch."""
_HEAD: Final = Struct(">qi")
"""The length, the API key and the version; the correlation id."""
_OFFSETS: Final = 64
"""Of which a line remembers the questions."""
MOST_BYTES: Final = 1_024
"""Of a request that is remembered: one partition, with a topic's name of 249 bytes, a client id and a rack, takes less.
What clients fill it up with, 4 MiB at most, does not stay in memory.
"""


class Line:
    """What readers ask that differ by their offset alone. They share the questions: thousands would make their own."""

    __slots__ = ("__weakref__", "_asked", "_first")

    def __init__(self, first: Asked) -> None:
        self._first = first
        self._asked = {first.question.position.offset: first}

    def at(self, offset: int) -> Asked:
        """What one of them asks at an offset."""
        asked = self._asked.get(offset)
        if asked is None:
            question, most_bytes = self._first
            position = question.position._replace(offset=offset)
            if len(self._asked) >= _OFFSETS:
                self._asked.clear()
            asked = self._asked[offset] = Asked(Question(position, question.isolation), most_bytes)
        return asked


class Lines:
    """Those of which there are readers."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: WeakValueDictionary[Asked, Line] = WeakValueDictionary()

    def of(self, asked: Asked) -> Line:
        """The line of somebody who asks this."""
        question, most_bytes = asked
        key = Asked(Question(question.position._replace(offset=0), question.isolation), most_bytes)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(asked)
        return line


@dataclass(slots=True, eq=False)
class Repeat:
    """The last request of a connection: of v9 or later, about one partition, by a consumer. `log` is what it reads;
    `fields` are without the positions of the frame. `asked`: what the last one asked; `correlation_id` is its own, 0
    for the first.
    """

    fields: FetchRequest
    part: FetchPart
    log: bytes
    asked: Asked
    _offset: int
    _line: Line
    _head: int
    _before: bytes
    _behind: bytes
    _behind_at: int
    correlation_id: int = 0

    @classmethod
    def of(cls, request: Request, fields: FetchRequest, asked: Asked, lines: Lines) -> Repeat | None:
        """Of a request that was read; None for a follower's, and for one that is too large to be remembered."""
        frame = request.frame
        if fields.replica_id >= 0 or frame.size > MOST_BYTES:
            return None
        message = bytes(frame.buffer[frame.start : frame.end])
        offset_at = fields.parts[0].start + _OFFSET_AT - frame.start
        behind_at = offset_at + _OFFSET.size
        head: int = _HEAD.unpack_from(message)[0]
        before, behind = message[_HEAD.size : offset_at], message[behind_at:]
        part = fields.parts[0]._replace(start=0, end=0)
        fields, position = fields._replace(session=0, parts=[part]), asked.question.position
        line = lines.of(asked)
        return cls(fields, part, position.log, asked, position.offset, line, head, before, behind, behind_at)

    def asks(self, frame: Frame) -> Asked | None:
        """What a request asks if it is the same but for the offset and the correlation id; None for any other."""
        buffer, start = frame.buffer, frame.start
        head, self.correlation_id = _HEAD.unpack_from(buffer, start)
        if head != self._head or not buffer.startswith(self._before, start + _HEAD.size):
            return None
        rest = start + self._behind_at
        if not buffer.startswith(self._behind, rest):
            return None
        offset: int = _OFFSET.unpack_from(buffer, rest - _OFFSET.size)[0]
        if offset != self._offset:
            self._offset, self.asked = offset, self._line.at(offset)
        return self.asked
