"""ApiVersions, api key 18, versions 0 to 3 (KIP-35, KIP-511).

The answer's header is always version 0. Finalized features (KIP-584) are never announced: announcing transaction
version 2 with Produce below version 12 makes Java transactions fail. A version that is not known is answered in
version 0 with error 35.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import API_VERSIONS
from sidecar.protocol.primitives import I32, Octets


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
    found = API_VERSIONS.decode_request(buffer, body, end, version)
    return ClientSoftware(found["client_software_name"], found["client_software_version"])


def encode_answer(correlation_id: int, version: int, ranges: list[VersionRange]) -> bytes:
    """A whole answer frame."""
    return _encode(correlation_id, version, ErrorCode.NONE, ranges)


def encode_unsupported(correlation_id: int, ranges: list[VersionRange]) -> bytes:
    """The answer to a version that is not known: version 0, error 35, and the range to fall back to (KIP-511)."""
    return _encode(correlation_id, 0, ErrorCode.UNSUPPORTED_VERSION, [r for r in ranges if r.key == 18])


def _encode(correlation_id: int, version: int, error: ErrorCode, ranges: list[VersionRange]) -> bytes:
    frame = bytearray(_nobodys(version, error, tuple(ranges)))
    I32.pack_into(frame, 4, correlation_id)
    return bytes(frame)


@lru_cache(maxsize=16)
def _nobodys(version: int, error: ErrorCode, ranges: tuple[VersionRange, ...]) -> bytes:
    """An answer to no request. Every connection of a client begins with ApiVersions, and all get the same answer."""
    keys = [{"api_key": found.key, "min_version": found.min, "max_version": found.max} for found in ranges]
    return API_VERSIONS.encode_answer(version, 0, {"error_code": error, "api_keys": keys})
