"""Answers to Fetch about one partition, and partitions of answers about several, encoded once for all readers that get
the same.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import VERSION
from sidecar.protocol.fetch import FIRST_FLEXIBLE

if TYPE_CHECKING:
    from sidecar.protocol.primitives import Octets

_HEAD: Final = Struct(">ii")
_JOINED_BYTES: Final = 16 * 1024
"""A body of so many bytes is copied into each answer: two parts cost more to write."""
_MOST_BYTES: Final = 32 * 1024 * 1024
_MOST: Final = 1_024
_NO_TOPIC: Final = b""
"""Of an element without an answer around it."""


class Bodies:
    """What follows the correlation id, by version, topic (its id from v13 on) and element of v11. An element is known
    by its identity: it is kept.
    """

    __slots__ = ("_bodies", "_bytes")

    def __init__(self) -> None:
        self._bodies: dict[tuple[int, bytes, int], tuple[Octets, bytes]] = {}
        self._bytes = 0

    def answer(self, correlation_id: int, version: int, topic: bytes, element: Octets) -> list[Octets]:
        """An answer frame, as parts that stay valid."""
        found = self._bodies.get((version, topic, id(element)))
        body = self._add(version, topic, element) if found is None else found[1]
        head = _HEAD.pack(len(body) + 4, correlation_id)
        return [head + body] if len(body) <= _JOINED_BYTES else [head, body]

    def part(self, version: int, element: Octets) -> Octets:
        """An element as a version has it, for an answer about several partitions."""
        if version == VERSION:
            return element
        version = min(version, FIRST_FLEXIBLE)  # all later ones have the same
        found = self._bodies.get((version, _NO_TOPIC, id(element)))
        if found is not None:
            return found[1]
        return self._keep(version, _NO_TOPIC, element, bytes(fetch.converted(element, 11, version)))

    def _add(self, version: int, topic: bytes, element: Octets) -> bytes:
        body = b"".join(fetch.encode_answer(0, version, [(topic, fetch.converted(element, 11, version))]))[_HEAD.size :]
        return self._keep(version, topic, element, body)

    def _keep(self, version: int, topic: bytes, element: Octets, body: bytes) -> bytes:
        if len(self._bodies) >= _MOST or self._bytes + len(body) > _MOST_BYTES:
            self.clear()
        self._bytes += len(body)
        self._bodies[version, topic, id(element)] = element, body
        return body

    def clear(self) -> None:
        """What was answered is answered no more."""
        self._bodies.clear()
        self._bytes = 0
