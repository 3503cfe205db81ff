"""ApiVersions, api key 18, versions 0 to 5 (KIP-35, KIP-511, KIP-1242).

The answer's header is always version 0. A request of an unknown version is answered in version 0 with error 35. The
features of the cluster (KIP-584) are copied from a broker as bytes, without being read.
"""

from __future__ import annotations

import re
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
    """Name and version of a client's software, as it sends them from version 3 on; empty before."""

    name: str = ""
    version: str = ""

    def is_accepted(self) -> bool:
        """Whether brokers accept both; they answer any other with 42 INVALID_REQUEST (KIP-511)."""
        return bool(_SOFTWARE.fullmatch(self.name) and _SOFTWARE.fullmatch(self.version))


_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")
_NO_NODE: Final = -1


class NamedBroker(NamedTuple):
    """The broker that a client means by its connection, from version 5 on (KIP-1242); by default it names none."""

    cluster_id: str | None = None
    node_id: int = _NO_NODE

    def refusal_by(self, me: NamedBroker) -> ErrorCode:
        """Return the error that `me` answers, as a broker: 129 makes a client begin anew at its bootstrap servers."""
        if (self.cluster_id is None) != (self.node_id == _NO_NODE):
            return ErrorCode.INVALID_REQUEST
        is_other = self.cluster_id is not None and self != me
        return ErrorCode.REBOOTSTRAP_REQUIRED if is_other else ErrorCode.NONE


def decode_request(buffer: Octets, body: int, end: int, version: int) -> tuple[ClientSoftware, NamedBroker]:
    """Return the client's software, and the broker that it means. A name that is not UTF-8 raises
    `MalformedFrameError`.
    """
    if version < 3:
        return ClientSoftware(), NamedBroker()
    found = API_VERSIONS.decode_request(buffer, body, end, version)
    software = ClientSoftware(found["client_software_name"], found["client_software_version"])
    return software, NamedBroker(found["cluster_id"], found["node_id"]) if version >= 5 else NamedBroker()


NO_FEATURES: Final = b"\0"
_OF_TRANSACTIONS: Final = {0: 12, 26: 5, 28: 5}
"""The versions that a client uses with transactions of version 2 (KIP-890): Produce, EndTxn, TxnOffsetCommit."""


def may_announce_features(ranges: Iterable[VersionRange]) -> bool:
    """Whether the node may announce the cluster's features: Java's transactions fail if it serves older versions."""
    newest = {found.key: found.max for found in ranges}
    return all(newest.get(key, -1) >= version for key, version in _OF_TRANSACTIONS.items())


def encode_answer(
    correlation_id: int,
    version: int,
    ranges: list[VersionRange],
    features: bytes = NO_FEATURES,
    error: ErrorCode = ErrorCode.NONE,
) -> bytes:
    """Return a whole answer frame. `features`: tagged fields, for versions that have them."""
    frame = bytearray(_nobodys(version, error, tuple(ranges), features))
    I32.pack_into(frame, 4, correlation_id)
    return bytes(frame)


def encode_unsupported(correlation_id: int, ranges: list[VersionRange]) -> bytes:
    """Return the answer to an unknown version: version 0, error 35, and the range to fall back to (KIP-511)."""
    own = [found for found in ranges if found.key == API_VERSIONS.key]
    return encode_answer(correlation_id, 0, own, error=ErrorCode.UNSUPPORTED_VERSION)


@lru_cache(maxsize=16)
def _nobodys(version: int, error: ErrorCode, ranges: tuple[VersionRange, ...], features: bytes) -> bytes:
    """The answer without a correlation id, from a cache: every connection begins with ApiVersions and gets the same."""
    keys = [{"api_key": found.key, "min_version": found.min, "max_version": found.max} for found in ranges]
    return API_VERSIONS.encode_answer(version, 0, {"error_code": error, "api_keys": keys, TAGS: features})
