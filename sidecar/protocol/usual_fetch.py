"""Fetch as clients and brokers nearly always send it, read by compiled code; any other form, and all where nothing was
compiled, by its twin (`sidecar.protocol.fetch`). Every request and every answer that goes on whole passes here.
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
    """Whether there is nothing in an answer frame that a node has to read: no error, no word of a new leader or of
    where brokers are. False where that takes a closer look (`fetch.walk_answer`).
    """
    return COMPILED is not None and COMPILED.is_plain_fetch(buffer, start, end, version)
