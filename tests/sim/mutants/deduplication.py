"""Mutants of deduplication by sequence id: one of them also in `tests/faults/failing_node.py`."""

from __future__ import annotations

from typing import Final

from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, produce, refusals, restarts

MARKS: Final = "sidecar/dedup/marks.py"

_TOO_LARGE: Final = Schedule(
    [
        produce(topic="counted", ids=True, batches=200),
        *refusals(0.5, 0.9, 1.3, 1.7, error=10, after_append=False),
        *restarts(0.505, 0.905, 1.305, 1.705),
    ],
    latency=0.005,
    jitter=0.02,
)
"""Kafka refuses a batch for good as its application ends: the next one sends it again."""

MUTANTS: Final = (
    Mutant(
        "no marks",
        "planted",
        "Every sequence id is new.",
        (
            Edit(
                MARKS,
                "        known, sent = self.bounds(name)\n        if sequence_id",
                "        return Judgement.NEW\n        known, sent = self.bounds(name)\n        if sequence_id",
            ),
            Edit(MARKS, "        known, sent = self.persisted(name), self._sent.of(name)\n", "        return -1, -1\n"),
        ),
        Schedule([produce(topic="counted", ids=True), *restarts(0.5, 0.9, 1.3)]),
    ),
    Mutant(
        "mark before forward",
        "failing node",
        "An id counts as in the log as soon as it is sent, and for good.",
        (
            Edit(
                MARKS,
                "        self._sent.add(found)\n        return found\n",
                "        self._sent.add(found)\n"
                "        for name, sequence_id, _ in marks:\n"
                "            self.learn(Mark(name, sequence_id, NO_ID, 0))\n"
                "        return found\n",
            ),
        ),
        _TOO_LARGE,
    ),
)
