"""ApiVersions, api key 18, versions 0 to 3 (KIP-35, KIP-511).

The answer's header is always version 0. Finalized features (KIP-584) are never announced: announcing transaction
version 2 with Produce below version 12 makes Java transactions fail. A version that is not known is answered in
version 0 with error 35.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.protocol import limits
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import I32, Octets, RequestReader, Writer

MAX_VERSION = 3


class VersionRange(NamedTuple):
    """Versions of one API, both ends included."""

    key: int
    min: int
    max: int


class ClientSoftware(NamedTuple):
    """What a client says it is (version 3 and later), empty otherwise."""

    name: str = ""
    version: str = ""


def decode_request(buffer: Octets, body: int, end: int, version: int) -> ClientSoftware:
    """The client's software; a name that is no UTF-8 raises `MalformedFrameError`."""
    if version < 3:
        return ClientSoftware()
    reader = RequestReader(buffer, body, end, limits.elements(18))
    reader.skip_tags()
    found = ClientSoftware(reader.compact_string(), reader.compact_string())
    reader.skip_tags()
    return found


def encode_answer(correlation_id: int, version: int, ranges: list[VersionRange]) -> bytes:
    """A whole answer frame."""
    return _encode(correlation_id, version, ErrorCode.NONE, ranges)


def encode_unsupported(correlation_id: int, ranges: list[VersionRange]) -> bytes:
    """The answer to a version that is not known: version 0, error 35, and the range to fall back to (KIP-511)."""
    return _encode(correlation_id, 0, ErrorCode.UNSUPPORTED_VERSION, [r for r in ranges if r.key == 18])


def _encode(correlation_id: int, version: int, error: ErrorCode, ranges: list[VersionRange]) -> bytes:
    flexible = version >= 3
    writer = Writer()
    writer.i32(0)
    writer.i32(correlation_id)
    writer.i16(error)
    writer.array(len(ranges), flexible)
    for found in ranges:
        writer.i16(found.key)
        writer.i16(found.min)
        writer.i16(found.max)
        writer.tags(flexible)
    if version >= 1:
        writer.i32(0)
    writer.tags(flexible)
    I32.pack_into(writer.out, 0, len(writer.out) - 4)
    return bytes(writer.out)
