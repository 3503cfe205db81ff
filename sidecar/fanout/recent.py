"""What shared polls brought a moment ago, for readers that come to ask just after. Pure.

`Recent` keeps the answers. `Chains` puts those together that go on from each other: a reader that comes late is up to
date with the next answer, as it would be with a broker's. Without it, readers that a busy node cannot serve between two
batches would fall behind for good. Answers that name aborted transactions (KIP-98) are not put together. `Bodies`
encodes an answer once for all readers that get the same.

What they say of the log's end is what was last heard of it, not what was true when their records came: from that
clients know how far behind they are, and these are.
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
"""Of memory for what is kept."""
ENTRY_BYTES: Final = 1_024
"""What an answer takes beside its bytes."""
KEPT_S: Final = 60.0
"""How far, in seconds, a reader may be behind before it reads by itself, on its own broker connection. Thousands of
such connections cost more than the memory, and just then: a node that is short of CPU lets many fall behind at once."""


class Kept(NamedTuple):
    """An answer, and when it came."""

    fetched: Fetched
    at: float


class Recent:
    """Answers by question, the oldest first; times are in seconds of any clock."""

    __slots__ = ("_by_partition", "_bytes", "_kept", "_most")

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._kept: OrderedDict[Question, Kept] = OrderedDict()
        self._by_partition: dict[tuple[bytes, int], set[Question]] = {}
        self._bytes = 0
        self._most = most_bytes

    def keep(self, question: Question, fetched: Fetched, now: float) -> Fetched:
        """Remember an answer, in place of an older one to the same question. Returns it as it is kept."""
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
        """Drop what is too old. Seconds until the next one is; None where nothing is left."""
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
        """Whether an answer about a log's partition is kept."""
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
    """Without the rest of the broker's answer, which would stay in memory with it: a poll of 500 partitions is answered
    with some 30 KB for a record in one of them.
    """
    element = fetched.element
    if not isinstance(element, memoryview) or memoryview(element.obj).nbytes <= 2 * element.nbytes:
        return fetched
    return fetched._replace(element=bytes(element))


_CHAIN_BYTES: Final = 256 * 1024
"""Of records that are put together; a reader farther behind than that takes several answers."""
_MOST_PARTS: Final = 256
_REMEMBERED: Final = 32
_REMEMBERED_BYTES: Final = 32 * 1024 * 1024
"""Of what was made of several answers, or of one that is older than the log's end."""


class Chains:
    """Answers out of what is kept. What was put together serves all that ask the same, until `changed`. `empty`: an
    element of v11 with what was last heard of a question's log, if anything was.
    """

    __slots__ = ("_bytes", "_empty", "_joined", "_recent")

    def __init__(self, recent: Recent, empty: Callable[[Question], bytes | None]) -> None:
        self._recent = recent
        self._empty = empty
        self._bytes = 0
        self._joined: dict[tuple[Question, int], Kept] = {}

    def answer(self, question: Question, most_bytes: int, now: float) -> Kept | None:
        """What is known from there on, and when the last of it came; no more than `most_bytes` of records where several
        answers make it.
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
        """Something was kept, or forgotten."""
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
"""A body of so many bytes is copied into each answer: two parts cost more to write."""
_BODIES_BYTES: Final = 32 * 1024 * 1024
_BODIES: Final = 1_024
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
        if len(self._bodies) >= _BODIES or self._bytes + len(body) > _BODIES_BYTES:
            self.clear()
        self._bytes += len(body)
        self._bodies[version, topic, id(element)] = element, body
        return body

    def clear(self) -> None:
        """What was answered is answered no more."""
        self._bodies.clear()
        self._bytes = 0
