"""Mutants of what Kafka removes, and of topics that come again: found by histories as everybody plays them.

Only seeds whose plain history removes records (`removals`) count, and they are numbered: number 26 is seed 134.
"""

from __future__ import annotations

from itertools import count, islice
from typing import TYPE_CHECKING, Final

from tests.sim.histories import REMOVALS, make
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.keepalive import NO_QUESTION, NO_REPLICAS, NO_START
from tests.sim.mutants.mutant import Mutant

if TYPE_CHECKING:
    from tests.sim.history import History

_CLEANING: Final = "sidecar/exclusive/cleaning.py"
_RECOVERY: Final = "sidecar/dedup/recovery.py"
_PURGING: Final = "sidecar/gateway/purging.py"


_REMOVING: Final = (seed for seed in count() if make(seed) == make(seed, REMOVALS))
_numbered: Final[list[int]] = []


def _removes(number: int) -> History:
    """The plain history of the so many-th seed that removes something."""
    _numbered.extend(islice(_REMOVING, max(0, number + 1 - len(_numbered))))
    return make(_numbered[number])


MUTANTS: Final = (
    Mutant(
        "compaction may take ids",
        "issue 15",
        "Compaction is not delayed, and a gap in a log counts as no lost id: an id is written twice.",
        (
            Edit(
                _CLEANING,
                "    if not cleaning.lacks_lag(least):\n        return None\n",
                "    if least:\n        return None\n",
            ),
            Edit(_RECOVERY, "    if 0 <= offset < gone and", "    if False and 0 <= offset < gone and"),
        ),
        _removes,
        seeds=40,
        by=("twice_counted",),
    ),
    Mutant(
        "records are deleted before their ids are saved",
        "issue 15",
        "DeleteRecords waits for no snapshot: the next node cannot know the ids, and the topic stops for good.",
        (
            Edit(
                _PURGING, "        return is_legal(topic) and self._governed", "        return False and self._governed"
            ),
        ),
        _removes,
        seeds=11,
        by=("stuck",),
    ),
    Mutant(
        "a fence goes with its marker",
        "issue 15",
        "Nobody sees that a fence's marker is gone, and that a replica does not know it.",
        (NO_START, NO_REPLICAS, NO_QUESTION),
        _removes,
        seeds=72,
    ),
    Mutant(
        "a shadow shows whatever has its source's name",
        "issue 15",
        "What is read under a shadow's name is not compared with the topic that the shadow was created for.",
        (Edit("sidecar/gateway/source_check.py", "    if not sources:\n", "    if True:\n"),),
        _removes,
        seeds=10,
        by=("read_otherwise",),
    ),
)
