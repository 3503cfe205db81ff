"""Mutants of where the last owner stopped: those of the model `Tails`; others stand in `holes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sim.history import Step
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, hold, produce

if TYPE_CHECKING:
    from tests.sim.history import History

TAILS: Final = "sidecar/takeover/tails.py"

_DESCRIBE_PRODUCERS: Final = 61
_CUT: Final = [
    *[Step(0.8, "cut path", {"node": 2, "other": f"kafka-{each}", "lasts": 2.4}) for each in (1, 2, 3)],
    Step(1.0, "kill node", {"node": 2, "fuse": 1, "lasts": 6.0, "silently": False}),
]
"""What a node sent before it died arrives much later."""

_ARRIVES: Final = Schedule(
    [
        produce(),
        *_CUT,
        hold(1.1, "owned", 2.6, api=_DESCRIBE_PRODUCERS),
    ],
    length=5.0,
    jitter=0.1,
)
"""It arrives while the next one reads what leaders remembered before."""

_DELETED: Final = Schedule(
    [
        produce(library="aiokafka"),
        *_CUT,
        Step(1.0, "hold markers", {"partition": -1, "lasts": 3.0, "of": "sidecar.default.owned"}),
        Step(3.6, "delete records", {"topic": "owned"}),
    ],
    length=6.0,
    jitter=0.2,
)
"""It arrives between the look and the fence of the next one, and its records are deleted before they are read. Its
client sends the same again, and never raises its epoch.
"""


def _changes(seed: int) -> History:
    """A leader appends what its followers do not fetch, and another one is elected while the next node is told what it
    remembered.
    """
    leader = 1 + seed % 3
    others = [each for each in (1, 2, 3) if each != leader]
    owned = {"topic": "owned", "partition": 0}
    return Schedule(
        [
            produce(partitions=1, every=0.02),
            Step(0.15, "elect", {**owned, "broker": leader}),
            Step(0.2, "elect", {"topic": "__sidecar_default", "partition": 0, "broker": others[0]}),
            *[Step(0.7, "cut brokers", {"one": leader, "other": other, "lasts": 2.4}) for other in others],
            Step(1.0, "kill node", {"node": 1, "fuse": 1, "lasts": 5.0, "silently": False}),
            Step(1.0, "kill node", {"node": 2, "fuse": 1, "lasts": 0.1, "silently": False}),
            hold(1.2, "owned", 2.2, api=_DESCRIBE_PRODUCERS),
            Step(2.8, "elect", {**owned, "broker": others[0]}),
        ],
        length=5.0,
        jitter=0.1,
    )(seed)


_ASKED: Final = "({self._topic: indexes}, leaders={self._topic: leaders})\n"
"""The end of the question what leaders remember."""

MUTANTS: Final = (
    Mutant(
        "the end is asked last",
        "model EndFirst",
        "Where partitions end is asked behind what their leaders remember: what lands between is never seen.",
        (
            Edit(TAILS, _ASKED, f"{_ASKED}        late = await self._logs.listed(self._topic, indexes)\n"),
            Edit(
                TAILS,
                "            {index: each.offset for index, each in listed.items()},\n",
                "            {index: each.offset for index, each in late.items()},\n",
            ),
        ),
        _ARRIVES,
    ),
    Mutant(
        "the leader epoch is asked last",
        "model EpochFirst",
        "The leader epoch is asked behind what a leader remembers, which may be another one's by then.",
        (
            Edit(
                TAILS,
                _ASKED,
                f"{_ASKED}        await self._upstream.layout(self._topic, refresh=True)\n"
                "        late = await self._logs.listed(self._topic, indexes)\n",
            ),
            Edit(
                TAILS,
                "            {index: each.leader_epoch for index, each in listed.items()},\n",
                "            {index: each.leader_epoch for index, each in late.items()},\n",
            ),
        ),
        _changes,
    ),
    Mutant(
        "nothing was deleted",
        "model WholeOnly",
        "What was noted counts, though records behind it were deleted before they were read.",
        (
            Edit(
                TAILS,
                "                offset, is_whole = error.start, False\n",
                "                offset = error.start\n",
            ),
        ),
        _DELETED,
    ),
)
