"""Recognizes a reader's request that repeats its last one with another offset, so it is not parsed again. Pure.

KIP-227 saves brokers the same work by sessions, but those would have to be synchronized with the client's.
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
"""Where the offset is in a partition's element of v9 and later: after the index and the leader epoch."""
_HEAD: Final = Struct(">qi")
"""Length, API key and version, read as one number; the correlation id."""
_OFFSETS: Final = 64
"""The number of questions that a line remembers."""
MOST_BYTES: Final = 1_024
"""The largest request that is remembered. A request about one partition is smaller, with a topic's name of 249 bytes, a
client id and a rack. A request that a client pads, to 4 MiB at most, does not stay in memory.
"""


class Line:
    """Questions that differ by their offset alone. Readers share them, so that each does not create its own."""

    __slots__ = ("__weakref__", "_asked", "_first")

    def __init__(self, first: Asked) -> None:
        self._first = first
        self._asked = {first.question.position.offset: first}

    def at(self, offset: int) -> Asked:
        """The question at an offset."""
        asked = self._asked.get(offset)
        if asked is None:
            question, most_bytes = self._first
            position = question.position._replace(offset=offset)
            if len(self._asked) >= _OFFSETS:
                self._asked.clear()
            asked = self._asked[offset] = Asked(Question(position, question.isolation), most_bytes)
        return asked


class Lines:
    """The lines that have readers."""

    __slots__ = ("_lines",)

    def __init__(self) -> None:
        self._lines: WeakValueDictionary[Asked, Line] = WeakValueDictionary()

    def of(self, asked: Asked) -> Line:
        """Returns the line that a question belongs to."""
        question, most_bytes = asked
        key = Asked(Question(question.position._replace(offset=0), question.isolation), most_bytes)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(asked)
        return line


@dataclass(slots=True, eq=False)
class Repeat:
    """The last request of a connection: v9 or later, about one partition, by a consumer. `log` is the log that it
    reads; `fields` and `part` are without positions in the frame. `asked` is the question of the newest repetition and
    `correlation_id` its correlation id, 0 if there was none yet.
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
        """Remembers a request that was read. None for a follower's request and for one above `MOST_BYTES`."""
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
        """What a frame asks for, if it differs by the offset and the correlation id alone; None for any other."""
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
