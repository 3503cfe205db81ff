"""Mutants of deduplication by sequence id. Some are in `tests/slow/faults/failing_node.py`, too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from tests.sim.history import Step
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, hold, kills, produce, refusals, resets, restarts

if TYPE_CHECKING:
    from tests.sim.history import History

MARKS: Final = "sidecar/dedup/marks.py"
EPOCH: Final = "sidecar/writing/epoch.py"
GATE: Final = "sidecar/dedup/gate.py"
DECISION: Final = "sidecar/dedup/content.py"

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

_MOMENTS: Final = (0.6, 1.3, 2.0)
_COUNTED: Final = produce(topic="counted", ids=True, batches=120, partitions=1)
_TWICE: Final = Schedule(
    [_COUNTED, *[step for at in _MOMENTS for step in (hold(at), *restarts(at + 0.12))]], jitter=0.05
)
"""What is under way is sent again by the next session of its name, while Kafka's answer is held back."""


def _failing(seed: int) -> History:
    """A session's last batch is under way when the next one of its name sends its ids; then Kafka refuses that batch,
    for good: its answer was held back.
    """
    rng, steps = (
        random.Random(f"{seed} failing"),
        [produce(topic="counted", ids=True, partitions=1, every=0.03, burst=1)],
    )
    for moment in _MOMENTS:
        at = moment + 0.05 * rng.random()
        steps += [hold(at), *refusals(at, error=10, after_append=False), *restarts(at + 0.06 + 0.06 * rng.random())]
    return Schedule(steps)(seed)


_DROPPED: Final = Schedule(
    [
        produce(topic="ledger", library="stubborn", ids=True),
        *restarts(0.5, 1.2, 1.9),
        *kills(0.8, 1.5, 2.2),
    ],
    jitter=0.15,
)
"""Duplicates are dropped, and the node dies: the same session goes on."""

_FALLING: Final = Schedule(
    [
        produce(ids=True, every=0.03, burst=1, partitions=1, repeats=0.8),
        Step(1.0, "close", {"app": "app0"}),
        Step(1.5, "policy", {"topic": "owned", "deduplication": True}),
        *restarts(2.1, 2.5, 2.9),
    ],
    length=3.5,
    jitter=0.1,
)
"""An application that sends old ids again and again dies, and the last id in the log is not the highest. Only then is
its topic deduplicated. The application comes back, and sends these ids once more.
"""

_UNHEARD: Final = Schedule(
    [
        produce(topic="counted", library="sarama", mode="exclusive_with_fencing", ids=True, every=0.1, batches=10),
        produce(0.2, "app1", "counted", ids=True, every=0.1, batches=20),
        *[Step(0.6, "lose answers", {"node": node, "other": "clients", "share": 1.0, "lasts": 1.0}) for node in (1, 2)],
        Step(1.1, "operate", {"action": "fence", "topic": "counted", "shadow": "mirror"}),
        *resets(1.6),
    ],
    jitter=0.1,
)
"""The answers to a refused session are lost, an operator deposes its rival, and its next batch comes. Then it sends all
of them again.
"""

_NOTHING_ELSEWHERE: Final = Edit(
    MARKS, "        return self._sent.has_others(name, producer_id)\n", "        return False\n"
)
_BOUNDS: Final = "        return known, known if sent is None else max(known, *sent.values())"

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
            Edit(
                MARKS,
                "        known, sent = self.persisted(name), self._sent.by_name.get(name)\n",
                "        return -1, -1\n",
            ),
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
    Mutant(
        "mark after ack",
        "failing node",
        "An id is known only after its client was answered.",
        (
            Edit(MARKS, "        self._sent.add(found)\n        return found\n", "        return found\n"),
            Edit(MARKS, "        self._sent.remove(batch)\n        return True", "        return True"),
            Edit(
                MARKS,
                "        for name, sequence_id, delta in batch.marks:\n"
                "            self.learn(Mark(name, sequence_id, offset + delta if offset >= 0 else NO_ID, now))\n",
                "        import asyncio\n"
                "        for name, sequence_id, delta in batch.marks:\n"
                "            mark = Mark(name, sequence_id, offset + delta if offset >= 0 else NO_ID, now)\n"
                "            asyncio.get_running_loop().call_later(0.05, self.learn, mark)\n",
            ),
        ),
        _TWICE,
    ),
    Mutant(
        "in flight is new",
        "failing node",
        "An id that is under way is judged new.",
        (Edit(MARKS, _BOUNDS, "        return known, known"), _NOTHING_ELSEWHERE),
        _TWICE,
    ),
    Mutant(
        "in flight is duplicate",
        "failing node",
        "An id that is under way is judged to be in the log.",
        (
            Edit(
                MARKS,
                _BOUNDS,
                "        known = known if sent is None else max(known, *sent.values())\n        return known, known",
            ),
            Edit(
                DECISION,
                "content.last <= marks.persisted(content.marks[0].name)",
                "content.last <= marks.pushed(content.marks[0].name)",
            ),
            _NOTHING_ELSEWHERE,
        ),
        _failing,
        seeds=40,
    ),
    Mutant(
        "replay by put",
        "failing node",
        "The newer record counts in a replay, not the higher id.",
        (
            Edit(MARKS, "        elif mark.id <= self._ids[row]:", "        elif mark.id == self._ids[row]:"),
            Edit("sidecar/dedup/recovery.py", "_PORTION_RECORDS: Final = 5_000", "_PORTION_RECORDS: Final = 1"),
        ),
        _FALLING,
    ),
    Mutant(
        "refused is heard",
        "planted",
        "A client knows of its refused batches: the next one goes out behind them at once.",
        (
            Edit(
                "sidecar/forwarder/sequences.py",
                "Verdict.UNHEARD if self.unheard and sequence == self.base else Verdict.FORWARD",
                "Verdict.FORWARD",
            ),
        ),
        _UNHEARD,
        by=("lost",),
    ),
    Mutant(
        "shift not recorded",
        "failing node",
        "Records are dropped without a SequenceBase: the session gets 45 for ever, as in the model.",
        (
            Edit(
                EPOCH,
                "        await taken.journal.append("
                "[Record(Key(Kind.SEQUENCE_BASE, scope.topic, scope.slot, partition), record)])",
                "        del record, scope",
            ),
        ),
        _DROPPED,
        by=("stuck",),
    ),
    Mutant(
        "a drop is acknowledged before its record",
        "model ShiftFirst",
        "What moves the base is written down while the answer is on its way.",
        (
            Edit(
                GATE,
                "            await self._keeper.shift(partition, behind, base, space.base)\n",
                "            self._keeper.start(self._keeper.shift(partition, behind, base, space.base))\n",
            ),
        ),
        _DROPPED,
        by=("stuck",),
        seeds=300,
    ),
)
