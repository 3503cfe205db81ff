"""Requests that a reader repeats, the offset apart: those are not read anew. Pure.

KIP-227 saves brokers the same work by sessions, which would have to be kept in step with the client's.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from sidecar.fanout.question import Asked, Question

if TYPE_CHECKING:
    from sidecar.network.request import Request
    from sidecar.protocol.fetch import FetchPart, FetchRequest

_OFFSET: Final = Struct(">q")
_OFFSET_AT: Final = 8
"""In a partition's element of v9 and later, behind its index and the leader epoch."""
MOST_BYTES: Final = 1_024
"""Of a request that is remembered: one partition, with a topic's name of 249 bytes and a rack, takes less. What clients
fill it up with, 4 MiB at most, does not stay in memory.
"""


class Repeat:
    """The last request of a connection: of v9 or later, about one partition, by a consumer. `log` is what it reads.
    `fields` are without the positions of the frame.
    """

    __slots__ = ("_asked", "_before", "_behind", "fields", "log", "part", "version")

    def __init__(self, version: int, body: bytes, fields: FetchRequest, offset_at: int, asked: Asked) -> None:
        self.version = version
        part = fields.parts[0]._replace(start=0, end=0)
        self.fields = fields._replace(session=0, parts=[part])
        self.part: FetchPart = part
        self.log = asked.question.position.log
        self._before, self._behind = body[:offset_at], body[offset_at + _OFFSET.size :]
        self._asked = asked

    @classmethod
    def of(cls, request: Request, fields: FetchRequest, asked: Asked) -> Repeat | None:
        """Of a request that was read; None for a follower's, and for one that is too large to be remembered."""
        buffer, body = request.frame.buffer, request.body
        if fields.replica_id >= 0 or request.frame.end - body > MOST_BYTES:
            return None
        offset_at = fields.parts[0].start + _OFFSET_AT - body
        return cls(request.version, bytes(buffer[body : request.frame.end]), fields, offset_at, asked)

    def asked(self, request: Request) -> Asked | None:
        """What a request of the same version asks if it is the same but for the offset; None for any other."""
        before, behind = self._before, self._behind
        buffer, body, end = request.frame.buffer, request.body, request.frame.end
        at = body + len(before)
        rest = at + _OFFSET.size
        if end - rest != len(behind) or buffer[body:at] != before or buffer[rest:end] != behind:
            return None
        (position, isolation), most_bytes = self._asked
        log, partition, epoch, _, topic_id = position
        position = type(position)(log, partition, epoch, _OFFSET.unpack_from(buffer, at)[0], topic_id)
        return Asked(Question(position, isolation), most_bytes)
