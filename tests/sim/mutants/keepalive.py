"""Mutants of fences that fade: those of the model `KeepAlive`.

They play in a brief world: partitions forget a producer after 16 s, the coordinator a transactional id after 64 s. What
a node sent before it died is under way for longer than that.
"""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, led, produce

UPKEEP: Final = "sidecar/writing/upkeep.py"
WATCH: Final = "sidecar/exclusive/fence_watch.py"
FENCING: Final = "sidecar/fencing/topic.py"
SLOT: Final = "sidecar/fencing/slot.py"


def _under_way(lasts: float, at: float = 0.8) -> list[Step]:
    """A node dies, and what it sent arrives so much later."""
    return [
        *[Step(at, "cut path", {"node": 2, "other": f"kafka-{each}", "lasts": lasts}) for each in (1, 2, 3)],
        Step(at + 0.2, "kill node", {"node": 2, "fuse": 1, "lasts": lasts + 2.0, "silently": False}),
        Step(at + 0.3, "close", {"app": "app0"}),
    ]


_FADES: Final = Schedule(
    [produce(), *_under_way(20.0), produce(1.3, "rival0", partitions=1, batches=60)],
    length=22.0,
    jitter=0.1,
    brief=True,
)
"""It arrives when another session owns the topic, and has written to another partition only, a while ago."""

_OLD: Final = Schedule(
    [produce(), *_under_way(3.0), produce(1.2, "rival0", partitions=1, batches=10, age=20.0)],
    length=5.0,
    jitter=0.1,
    brief=True,
)
"""It arrives when another session owns the topic, and has written records that are older than what brokers remember."""

_ROTATES: Final = Schedule(
    [
        produce(),
        *_under_way(4.0),
        Step(0.7, "raise epoch", {"topic": "owned", "to": 32_760}),
        produce(1.4, "rival0", partitions=1, batches=60),
    ],
    length=6.0,
    jitter=0.1,
)
"""It arrives when the slot had no epoch left and has another producer id."""

_RETIRED: Final = Schedule(
    [
        produce(),
        *_under_way(21.0),
        Step(0.7, "raise epoch", {"topic": "owned", "to": 32_760}),
        produce(1.4, "rival0", partitions=1, batches=60),
    ],
    length=23.0,
    jitter=0.1,
    brief=True,
)
"""The same, and so late that partitions would have forgotten the former producer id."""

_FORGETFUL: Final = (Edit("tests/sim/world.py", "4 * BRIEF_MS", "10_000"),)
"""The coordinator forgets a transactional id after 10 s."""

_FORGOTTEN: Final = Schedule(
    [
        produce(),
        *_under_way(16.0),
        Step(1.0, "kill node", {"node": 1, "fuse": 1, "lasts": 12.5, "silently": False}),
        produce(13.6, "rival0", partitions=1, batches=60),
    ],
    length=18.0,
    jitter=0.1,
    brief=True,
)
"""It arrives when all nodes were gone until Kafka gave the slot another producer id."""

_KEPT: Final = Schedule(
    [
        produce(every=0.02, batches=1_000),
        *_under_way(2.0, at=12.5),
        produce(12.9, "rival0", partitions=1, batches=60),
    ],
    length=16.0,
    jitter=0.1,
    brief=True,
)
"""An owner stays for longer than the coordinator remembers a slot that is not used."""

_REBUILT: Final = Schedule(
    [
        produce(),
        *_under_way(18.0),
        led("owned", 1, 1),
        produce(1.3, "rival0", partitions=1, batches=600, every=0.02),
        Step(5.0, "empty topic", {"topic": "owned"}),
        Step(9.0, "rebuild", {"topic": "owned", "partition": 1, "broker": 1, "lasts": 3.0}),
    ],
    length=22.0,
    jitter=0.1,
)
"""It arrives at a leader whose replica was built from the log, after somebody deleted all records and the fence with
them.
"""

NO_START: Final = Edit(WATCH, "if any(sight.start > fenced_from", "if False and any(sight.start > fenced_from")
NO_REPLICAS: Final = Edit(WATCH, "if any(index in before and", "if False and any(index in before and")
NO_QUESTION: Final = Edit(WATCH, "if indexes := newly_led(before, now):", "if False and (indexes := [0]):")
"""Any one of the three renews the fence in time."""

_UNRETIRED: Final = Edit(FENCING, "    if former is not None and former not in", "    if False and former not in")
_PAST_THE_COORDINATOR: Final = (
    Edit(UPKEEP, "import retire_formers\n", "import retire_formers, retire_producer\n"),
    Edit(
        UPKEEP,
        "    await slot.keep_alive(fenced)\n",
        "    await retire_producer(services.upstream, slot.stamp.producer_id, fenced, at=slot.stamp.epoch)\n",
    ),
    Edit(
        FENCING,
        "producer_id: ProducerId, partitions: Partitions)",
        "producer_id: ProducerId, partitions: Partitions, at: int = 32_767)",
    ),
    Edit(FENCING, "Stamp(producer_id, ProducerEpoch(MAX_PRODUCER_EPOCH))", "Stamp(producer_id, ProducerEpoch(at))"),
)

MUTANTS: Final = (
    Mutant(
        "fences are not renewed",
        "model Renews",
        "Nobody renews a fence: partitions forget it.",
        (
            Edit(
                UPKEEP,
                "        if now < self.not_before:\n            return False\n        if self._cause",
                "        if now >= 0:\n            return False\n        if self._cause",
            ),
        ),
        _FADES,
        seeds=5,
    ),
    Mutant(
        "a deleted marker is not written again",
        "issue 15",
        "Nobody looks where a log begins: a replica that is built from it does not know the fence.",
        (NO_START,),
        _REBUILT,
        world=(NO_REPLICAS, NO_QUESTION),
        seeds=5,
    ),
    Mutant(
        "a new replica does not get the fence",
        "issue 15",
        "Where a replica is added, nobody writes the marker again, which may have left the log.",
        (NO_REPLICAS,),
        _REBUILT,
        world=(NO_START, NO_QUESTION),
        seeds=5,
    ),
    Mutant(
        "a new leader is not asked for the fence",
        "issue 15",
        "A replica that was built from a log without the marker leads, and nobody asks it whether it knows the fence.",
        (NO_QUESTION,),
        _REBUILT,
        world=(NO_START, NO_REPLICAS),
        seeds=5,
    ),
    Mutant(
        "records may be of any age",
        "model RefuseOld",
        "Records are written however old they are: by their time partitions forget their writer at once.",
        (
            Edit(
                UPKEEP,
                "        if self._clock.now_ms() - newest_ms > self._examined_ms:\n            return False\n",
                "",
            ),
        ),
        _OLD,
        seeds=5,
    ),
    Mutant(
        "a rotation does not fence",
        "model FenceOld",
        "A slot without epochs left gets another producer id, and the one that it had is not fenced.",
        (
            Edit(
                SLOT,
                "            await self._fence(old, partitions, retry)\n            while",
                "            del retry\n            while",
            ),
        ),
        _ROTATES,
        seeds=5,
    ),
    Mutant(
        "former producer ids are not renewed",
        "model KeepRetired",
        "The fence of the producer ids that a slot had before is not renewed.",
        (Edit(FENCING, "retired_producer_ids[-RETIRED_KEPT:]", "retired_producer_ids[:0]"),),
        _RETIRED,
        seeds=5,
    ),
    Mutant(
        "a changed producer id stays unfenced",
        "model Retire",
        "Where Kafka gave a slot another producer id by itself, nobody fences the one that it had.",
        (_UNRETIRED,),
        _FORGOTTEN,
        world=(*_FORGETFUL, NO_QUESTION),
        seeds=5,
    ),
    Mutant(
        "renewals pass the coordinator by",
        "model KeepCoord",
        "Renewals go to leaders alone: the coordinator forgets the slot, whose former producer id stays unfenced.",
        (*_PAST_THE_COORDINATOR, _UNRETIRED),
        _KEPT,
        world=_FORGETFUL,
        seeds=5,
    ),
)
