"""Mutants of what Kafka removes, and of topics that come again: found by histories as everybody plays them."""

from __future__ import annotations

from typing import Final

from tests.sim.histories import make
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.keepalive import NO_QUESTION, NO_REPLICAS, NO_START
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.reading import BY_NAME_ALONE

_CLEANING: Final = "sidecar/exclusive/cleaning.py"
_RECOVERY: Final = "sidecar/dedup/recovery.py"
_PURGING: Final = "sidecar/gateway/purging.py"

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
        make,
        seeds=300,
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
        make,
        seeds=300,
        by=("stuck",),
    ),
    Mutant(
        "a fence goes with its marker",
        "issue 15",
        "Nobody sees that a fence's marker is gone, and that a replica does not know it.",
        (NO_START, NO_REPLICAS, NO_QUESTION),
        make,
        seeds=300,
    ),
    Mutant(
        "a shadow shows whatever has its source's name",
        "issue 15",
        "What is read under a shadow's name is not compared with the topic that the shadow was created for.",
        (BY_NAME_ALONE,),
        make,
        seeds=300,
        by=("read_otherwise",),
    ),
)
