"""Counts the readers of shadows on this node and the bytes they read, when answers to Fetch are sent."""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from sidecar.cluster.resolver import NameResolver
from sidecar.protocol import fetch
from sidecar.protocol.primitives import Octets

WINDOW_S: Final = 30.0
"""How long after its last Fetch a connection counts as a reader."""


class Reading(NamedTuple):
    """What one node has seen of a shadow's readers since it started. `last_read_ms`: Unix ms, 0 for never."""

    readers: int
    record_bytes: int
    last_read_ms: int


_NOTHING: Final = Reading(0, 0, 0)


class _Seen:
    """One shadow; `readers` by the time of their last read, oldest first."""

    __slots__ = ("last", "readers", "record_bytes")

    def __init__(self) -> None:
        self.record_bytes = 0
        self.last = 0.0
        self.readers: OrderedDict[int, float] = OrderedDict()


class Readers:
    """The readers of all shadows. Holds connections of the last 30 s and shadows that exist, no others."""

    __slots__ = ("_resolver", "_shadows", "took")

    def __init__(self, resolver: NameResolver) -> None:
        self._resolver = resolver
        self.took: Callable[[bytes, int, int], None] | None = None
        """Called for each answer with the shadow, the connection, the bytes of records, where they have a bound."""
        self._shadows: dict[bytes, _Seen] = {}

    def read(self, shadow: bytes, reader: int, record_bytes: int) -> None:
        """A shadow's partition was answered, with `record_bytes` of record batches, to the connection `reader`.

        Takes well under a microsecond.
        """
        seen = self._shadows.get(shadow)
        if seen is None:
            seen = self._add(shadow)
        now = time.monotonic()
        seen.record_bytes += record_bytes
        seen.last = now
        readers = seen.readers
        if reader not in readers:
            _drop_gone(readers, now)
        readers[reader] = now
        readers.move_to_end(reader)
        if self.took is not None:
            self.took(shadow, reader, record_bytes)

    def answered(self, reader: int, version: int, elements: list[tuple[bytes, Octets]]) -> None:
        """A Fetch was answered with these elements (`sidecar.protocol.fetch`); those of shadows count."""
        if not self._resolver.has_shadows:
            return
        for topic, element in elements:
            if self._resolver.is_shadow(topic):
                self.read(topic, reader, fetch.record_bytes(element, version))

    def answered_one(self, reader: int, topic: bytes, record_bytes: int) -> None:
        """The same where one partition was answered, with so many bytes of record batches."""
        if self._resolver.is_shadow(topic):
            self.read(topic, reader, record_bytes)

    def _add(self, shadow: bytes) -> _Seen:
        self._shadows = {name: seen for name, seen in self._shadows.items() if self._resolver.is_shadow(name)}
        seen = self._shadows[shadow] = _Seen()
        return seen

    def of(self, shadow: bytes) -> Reading:
        """What was seen of one shadow's readers; nothing of one that does not exist any more."""
        seen = self._shadows.get(shadow)
        if seen is None:
            return _NOTHING
        now = time.monotonic()
        _drop_gone(seen.readers, now)
        last_read_ms = int((time.time() - (now - seen.last)) * 1000)
        return Reading(len(seen.readers), seen.record_bytes, last_read_ms)

    def forget(self, shadow: bytes) -> None:
        """The shadow was deleted: another one of its name begins anew."""
        self._shadows.pop(shadow, None)


def _drop_gone(readers: OrderedDict[int, float], now: float) -> None:
    while readers:
        oldest = next(iter(readers))
        if now - readers[oldest] < WINDOW_S:
            return
        del readers[oldest]
