"""ApiVersions, api key 18, versions 0 to 4 (KIP-35, KIP-511).

The answer's header is always version 0. A version that is not known is answered in version 0 with error 35. The
features of the cluster (KIP-584) are announced as a broker has them, in bytes that nobody reads here.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.cluster import API_VERSIONS
from sidecar.protocol.primitives import I32, Octets
from sidecar.protocol.schema import TAGS


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


NO_FEATURES: Final = b"\0"
_OF_TRANSACTIONS: Final = {0: 12, 26: 5, 28: 5}
"""What a client asks in with transactions of version 2 (KIP-890): Produce, EndTxn, TxnOffsetCommit."""


def may_announce_features(ranges: Iterable[VersionRange]) -> bool:
    """Whether clients may take the cluster's features for the node's: Java's transactions fail if it serves less."""
    newest = {found.key: found.max for found in ranges}
    return all(newest.get(key, -1) >= version for key, version in _OF_TRANSACTIONS.items())


def encode_answer(
    correlation_id: int,
    version: int,
    ranges: list[VersionRange],
    features: bytes = NO_FEATURES,
    error: ErrorCode = ErrorCode.NONE,
) -> bytes:
    """A whole answer frame. `features`: tagged fields, in versions that have some."""
    frame = bytearray(_nobodys(version, error, tuple(ranges), features))
    I32.pack_into(frame, 4, correlation_id)
    return bytes(frame)


def encode_unsupported(correlation_id: int, ranges: list[VersionRange]) -> bytes:
    """The answer to a version that is not known: version 0, error 35, and the range to fall back to (KIP-511)."""
    own = [found for found in ranges if found.key == API_VERSIONS.key]
    return encode_answer(correlation_id, 0, own, error=ErrorCode.UNSUPPORTED_VERSION)


@lru_cache(maxsize=16)
def _nobodys(version: int, error: ErrorCode, ranges: tuple[VersionRange, ...], features: bytes) -> bytes:
    """An answer to no request. Every connection of a client begins with ApiVersions, and all get the same answer."""
    keys = [{"api_key": found.key, "min_version": found.min, "max_version": found.max} for found in ranges]
    return API_VERSIONS.encode_answer(version, 0, {"error_code": error, "api_keys": keys, TAGS: features})
