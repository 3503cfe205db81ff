"""What shared polls brought a moment ago, for readers that come to ask just after. Pure."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from sidecar.fanout.question import Question
    from sidecar.protocol.calls.tails import Fetched

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

    @property
    def kept_bytes(self) -> int:
        """Of all answers that are kept, and what they take beside."""
        return self._bytes

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
