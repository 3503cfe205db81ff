"""Faults planted into the product, to see that the simulator finds what it is for.

`plant(name)` exchanges a few lines of the product in this process. Each is a mistake that the design forbids, most of
them made once. `test_planted.py` holds a seed that finds each.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from metadata import MetadataStore
from sidecar.dedup.marks import Judgement, Marks
from sidecar.exclusive.takeover import Takeover
from sidecar.fencing.slot import WriterSlot
from sidecar.forwarder.lane import Lane
from sidecar.forwarder.sequences import SequenceSpace, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable


def _no_fence() -> None:
    """InitProducerId alone, without markers in the topic's partitions."""
    fence = WriterSlot._fence

    async def fence_own(self: WriterSlot, writer: Any, partitions: Any, retry: Any) -> None:
        await fence(self, writer, {name: each for name, each in partitions.items() if name.startswith("__")}, retry)

    WriterSlot._fence = fence_own


def _no_tails() -> None:
    """A takeover in which the session stays does not look where its sequences stand."""

    async def nothing(*_: Any) -> dict[Any, Any]:
        return {}

    Takeover._last = cast(Any, nothing)


def _no_marks() -> None:
    """Every sequence id is new."""
    Marks.judge = lambda self, name, sequence_id: Judgement.NEW
    Marks.bounds = lambda self, name: (-1, -1)


def _forgetful_redis() -> None:
    """Generations go by what Redis knows."""
    claim = MetadataStore.claim

    async def claim_blindly(self: MetadataStore, request: Any) -> Any:
        return await claim(self, replace(request, known=None))

    MetadataStore.claim = claim_blindly


def _raise_is_a_repeat() -> None:
    """A client that raised its epoch begins at 0: below the base, so it is taken for a repeat."""
    judge = SequenceSpace.judge

    def judge_any(self: SequenceSpace, epoch: int, sequence: int, records: int) -> Verdict:
        found = judge(self, epoch, sequence, records)
        return Verdict.REPEAT if found is Verdict.RAISE and self.written else found

    SequenceSpace.judge = judge_any


def _lost_is_unsent() -> None:
    """Behind a plain batch of which nobody knows the numbers go on as if it were not in the log."""
    settled = Lane.settled

    def settle(self: Lane, append: Any, outcome: Any) -> None:
        settled(self, append, outcome)
        append.in_doubt = False
        if self.plain is not None and append in self._retry:
            append.sequence, append.stamped = None, False

    Lane.settled = settle


PLANTS: Final[dict[str, Callable[[], None]]] = {
    "no fence": _no_fence,
    "no tails": _no_tails,
    "no marks": _no_marks,
    "forgetful redis": _forgetful_redis,
    "raise is a repeat": _raise_is_a_repeat,
    "lost is unsent": _lost_is_unsent,
}


def plant(name: str) -> None:
    """For ever, in this process."""
    PLANTS[name]()
