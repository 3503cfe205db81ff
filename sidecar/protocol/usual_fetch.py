"""Reads the usual form of Fetch by compiled code. Other forms, and all if nothing was compiled, are read by the twin
`sidecar.protocol.fetch`. Called for every request, and every answer that is forwarded whole.
"""

from sidecar.protocol import fetch
from sidecar.protocol.compiled import COMPILED
from sidecar.protocol.fetch_parts import FetchPart, FetchRequest
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import Octets


def walk(buffer: Octets, body: int, end: int, version: int, names: dict[bytes, bytes]) -> FetchRequest:
    """As `fetch.walk`. Raises `MalformedFrameError`."""
    if COMPILED is not None:
        found = COMPILED.walk_fetch(buffer, body, end, version, names, FetchPart, FetchRequest, BOUNDS.fetch)
        if found is not None:
            return found
    return fetch.walk(buffer, body, end, version, names)


def is_plain(buffer: Octets, start: int, end: int, version: int) -> bool:
    """Whether an answer frame has nothing that a node must read: no error, no new leader, no addresses of brokers.
    False if that is not certain; then `fetch.walk_answer` has to read it.
    """
    return COMPILED is not None and COMPILED.is_plain_fetch(buffer, start, end, version)
