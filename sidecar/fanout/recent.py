"""The answers to shared polls of the last seconds, for readers that ask just afterwards. Pure.

`Recent` stores the answers. `Chains` joins answers that follow each other, so a late reader has caught up with its next
answer, as it would have with a broker's. Without that, readers that a busy node cannot serve between two batches would
stay behind for good. Answers that name aborted transactions (KIP-98) are not joined. `Bodies` encodes an answer once
for all readers that get the same.

An answer names the last known end of the log, not the end at the time when its records came: clients calculate their
lag from it, and these readers do lag.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from struct import Struct
from typing import Final, NamedTuple

from sidecar.fanout.question import Question
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import VERSION, Fetched
from sidecar.protocol.fetch import FIRST_FLEXIBLE
from sidecar.protocol.fetch_parts import caught_up
from sidecar.protocol.primitives import Octets

MOST_BYTES: Final = 32 * 1024 * 1024
"""The memory limit for stored answers."""
ENTRY_BYTES: Final = 1_024
"""Memory of an answer in addition to its bytes."""
KEPT_S: Final = 60.0
"""How many seconds a reader may be behind before it reads by itself, on its own broker connection. Thousands of such
connections cost more than the memory, at the worst time: a node that is short of CPU lets many readers fall behind at
once.
"""


class Kept(NamedTuple):
    """An answer and the time when it came."""

    fetched: Fetched
    at: float


class Recent:
    """Answers by question, the oldest first. Times are in seconds, of any clock."""

    __slots__ = ("_by_partition", "_bytes", "_kept", "_most")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[Question, Kept] = OrderedDict()
        self._by_partition: dict[tuple[bytes, int], set[Question]] = {}
        self._bytes = 0
        self._most = most_bytes

    def keep(self, question: Question, fetched: Fetched, now: float) -> Fetched:
        """Store an answer in place of an older one to the same question. Returns it as it is stored."""
        self._drop(question)
        fetched = _apart(fetched)
        self._kept[question] = Kept(fetched, now)
        self._by_partition.setdefault(question.position.of, set()).add(question)
        self._bytes += len(fetched.element) + ENTRY_BYTES
        while self._bytes > self._most:
            self._drop(next(iter(self._kept)))
        return fetched

    def get(self, question: Question, now: float) -> Kept | None:
        """The answer, if it is not too old."""
        found = self._kept.get(question)
        return found if found is not None and found.at + KEPT_S > now else None

    def age(self, now: float) -> float | None:
        """Drop the answers that are too old. Returns the seconds until the next is too old; None if none is left."""
        while self._kept:
            question, kept = next(iter(self._kept.items()))
            if kept.at + KEPT_S > now:
                return kept.at + KEPT_S - now
            self._drop(question)
        return None

    def forget(self, partition: tuple[bytes, int]) -> None:
        """Drop all answers about a log's partition."""
        for question in list(self._by_partition.get(partition, ())):
            self._drop(question)

    def has(self, partition: tuple[bytes, int]) -> bool:
        """Whether an answer about a log's partition is stored."""
        return partition in self._by_partition

    def _drop(self, question: Question) -> None:
        kept = self._kept.pop(question, None)
        if kept is None:
            return
        self._bytes -= len(kept.fetched.element) + ENTRY_BYTES
        questions = self._by_partition[question.position.of]
        questions.discard(question)
        if not questions:
            del self._by_partition[question.position.of]


def _apart(fetched: Fetched) -> Fetched:
    """Returns an answer without the rest of the frame around it, which would stay in memory with it: a poll of 500
    partitions is answered with about 30 KB for a record in one of them.
    """
    element = fetched.element
    if not isinstance(element, memoryview) or memoryview(element.obj).nbytes <= 2 * element.nbytes:
        return fetched
    return fetched._replace(element=bytes(element))


_CHAIN_BYTES: Final = 256 * 1024
"""Bytes of records that are joined at most. A reader that is farther behind gets several answers."""
_MOST_PARTS: Final = 256
_REMEMBERED: Final = 32
_REMEMBERED_BYTES: Final = 32 * 1024 * 1024
"""Bytes at most of answers that were joined, or whose end of the log was replaced by a later one."""


class Chains:
    """Answers made from the stored ones. A joined answer serves all readers with the same question, until `changed`.
    `empty` returns the element of v11 without records that was last received for the question's log, if there is one.
    """

    __slots__ = ("_bytes", "_empty", "_joined", "_recent")

    def __init__(self, recent: Recent, empty: Callable[[Question], bytes | None]) -> None:
        self._recent = recent
        self._empty = empty
        self._bytes = 0
        self._joined: dict[tuple[Question, int], Kept] = {}

    def answer(self, question: Question, most_bytes: int, now: float) -> Kept | None:
        """Returns the records known from the question's offset on, and when the last of them came. If several answers
        are joined, they have at most `most_bytes` of records.
        """
        first = self._recent.get(question, now)
        if first is None:
            return None
        key = question, most_bytes
        found = self._joined.get(key)
        if found is None:
            parts = self._parts(question, first, min(most_bytes, _CHAIN_BYTES), now)
            found = self._caught_up(question, first if len(parts) == 1 else _join(parts))
            size = 0 if found is first else len(found.fetched.element)
            if len(self._joined) >= _REMEMBERED or self._bytes + size > _REMEMBERED_BYTES:
                self.changed()
            self._bytes += size
            self._joined[key] = found
        return found

    def changed(self) -> None:
        """Drop all joined answers, because an answer was stored or dropped."""
        self._joined.clear()
        self._bytes = 0

    def _caught_up(self, question: Question, kept: Kept) -> Kept:
        empty, element = self._empty(question), kept.fetched.element
        later = element if empty is None else caught_up(element, empty)
        return kept if later is element else Kept(kept.fetched._replace(element=later), kept.at)

    def _parts(self, question: Question, first: Kept, most_bytes: int, now: float) -> list[Kept]:
        parts, size = [first], first.fetched.record_bytes
        if fetch.names_aborted(first.fetched.element):
            return parts
        position, last = question.position, first.fetched
        while len(parts) < _MOST_PARTS:
            after = fetch.offset_behind(last.element, last.record_bytes)
            if after is None:
                break
            position = position._replace(offset=after)
            found = self._recent.get(question._replace(position=position), now)
            if found is None:
                break
            last = found.fetched
            size += last.record_bytes
            if size > most_bytes or fetch.names_aborted(last.element):
                break
            parts.append(found)
        return parts


def _join(parts: list[Kept]) -> Kept:
    element = fetch.join([(part.fetched.element, part.fetched.record_bytes) for part in parts])
    return Kept(Fetched(0, sum(part.fetched.record_bytes for part in parts), element), parts[-1].at)


_HEAD: Final = Struct(">ii")
_JOINED_BYTES: Final = 16 * 1024
"""A body of up to this size is copied into each answer: to write it as a second part costs more."""
_BODIES_BYTES: Final = 32 * 1024 * 1024
_BODIES: Final = 1_024
_NO_TOPIC: Final = b""
"""The topic of an element that is stored without an answer around it."""


class Bodies:
    """The encoded answers after their correlation id, by version, topic (its id from v13 on) and element of v11.
    An element is known by its `id()`, which stays valid because the element is stored too.
    """

    __slots__ = ("_bodies", "_bytes")

    def __init__(self) -> None:
        self._bodies: dict[tuple[int, bytes, int], tuple[Octets, bytes]] = {}
        self._bytes = 0

    def answer(self, correlation_id: int, version: int, topic: bytes, element: Octets) -> list[Octets]:
        """Returns an answer frame, in parts that stay valid."""
        found = self._bodies.get((version, topic, id(element)))
        body = self._add(version, topic, element) if found is None else found[1]
        head = _HEAD.pack(len(body) + 4, correlation_id)
        return [head + body] if len(body) <= _JOINED_BYTES else [head, body]

    def part(self, version: int, element: Octets) -> Octets:
        """Returns an element in the form of a version, for an answer about several partitions."""
        if version == VERSION:
            return element
        version = min(version, FIRST_FLEXIBLE)  # all later versions have the same form
        found = self._bodies.get((version, _NO_TOPIC, id(element)))
        if found is not None:
            return found[1]
        return self._keep(version, _NO_TOPIC, element, bytes(fetch.converted(element, 11, version)))

    def _add(self, version: int, topic: bytes, element: Octets) -> bytes:
        body = b"".join(fetch.encode_answer(0, version, [(topic, fetch.converted(element, 11, version))]))[_HEAD.size :]
        return self._keep(version, topic, element, body)

    def _keep(self, version: int, topic: bytes, element: Octets, body: bytes) -> bytes:
        if len(self._bodies) >= _BODIES or self._bytes + len(body) > _BODIES_BYTES:
            self.clear()
        self._bytes += len(body)
        self._bodies[version, topic, id(element)] = element, body
        return body

    def clear(self) -> None:
        """Drop all encoded answers."""
        self._bodies.clear()
        self._bytes = 0
