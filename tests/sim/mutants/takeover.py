"""Mutants of the takeover: those of the models `ExclusiveTopic` and `Slots`."""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.bias import Bias
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, hold, kills, produce, resets, rivals

TAKEOVER: Final = "sidecar/takeover/takeover.py"
SLOTS: Final = "sidecar/takeover/slots.py"
SLOT: Final = "sidecar/fencing/slot.py"
TOPIC: Final = "sidecar/fencing/topic.py"
TAILS: Final = "sidecar/takeover/tails.py"
LANE: Final = "sidecar/forwarder/lane.py"

_NO_MARKER: Final = Edit(
    TAILS,
    """        message = f"{partition}: the fence's marker""",
    """        return _Stretch(last, -1, is_whole)
        message = f"{partition}: the fence's marker""",
)
"""A log without the marker that would end its reading is read to its end."""

_CONTESTED: Final = Bias(
    ("owned", "queued"),
    {"freeze node": 3, "cut path": 2, "kill node": 1, "empty redis": 1},
    rivals=(2, 3),
    count=(3, 5),
)
_FAILOVERS: Final = Bias(
    ("owned", "shared", "queued"), {"kill node": 4, "freeze node": 2, "cut path": 2, "lose answers": 1}, count=(3, 5, 8)
)

_CUT: Final = [
    *[Step(0.8, "cut path", {"node": 2, "other": f"kafka-{each}", "lasts": 2.4}) for each in (1, 2, 3)],
    Step(1.0, "kill node", {"node": 2, "fuse": 1, "lasts": 6.0, "silently": False}),
]
"""What a node sent before it died arrives much later."""

_LATE: Final = Schedule(
    [produce(), *_CUT, Step(1.0, "hold markers", {"partition": -1, "lasts": 3.0, "of": "sidecar.default.owned"})],
    length=5.0,
    jitter=0.2,
)
"""It arrives between the look and the fence of the next node."""

_ELSEWHERE: Final = [Step(1.25, "close", {"app": "app0"}), produce(1.3, "rival0", partitions=1, batches=60)]
_BEHIND: Final = Schedule([produce(), *_CUT, *_ELSEWHERE], length=5.0, jitter=0.04)
"""It arrives when another session owns the topic, and has written to another partition only."""


def _one_leads(topic: str) -> list[Step]:
    return [
        Step(0.05, "elect", {"topic": name, "partition": each, "broker": leader})
        for name, each, leader in (("__sidecar_default", 0, 1), (topic, 0, 2), (topic, 1, 3))
    ]


_UNWRITTEN: Final = Schedule(
    [
        *_one_leads("owned"),
        Step(0.25, "refuse", {"broker": 1, "api": 0, "error": 5, "times": 50, "after_append": False}),
        produce(0.3),
        Step(0.8, "kill node", {"node": 1, "fuse": 1, "lasts": 0.3, "silently": False}),
        Step(0.8, "kill node", {"node": 2, "fuse": 1, "lasts": 0.3, "silently": False}),
    ],
    jitter=0.02,
)
"""The ownership topic takes nothing as a session comes, and its node dies."""

_LATE_WORD: Final = Schedule(
    [
        *_one_leads("owned"),
        produce(topic="shared"),
        Step(0.98, "delay append", {"topic": "__sidecar_default", "lasts": 1.9}),
        produce(1.0, "app1", "shared", batches=600),
        Step(1.1, "close", {"app": "app0"}),
        Step(1.15, "kill node", {"node": 2, "fuse": 1, "lasts": 2.6, "silently": False}),
        Step(1.2, "policy", {"topic": "shared", "access_mode": "exclusive"}),
        Step(4.2, "kill node", {"node": 1, "fuse": 1, "lasts": 0.3, "silently": False}),
    ],
    length=5.5,
    jitter=0.02,
)
"""The record of a slot beside the master slot arrives when its node is dead, and its session owns the topic."""

_MASTER_LOST: Final = Schedule(
    [
        *_one_leads("shared"),
        produce(topic="shared", batches=30),
        Step(0.5, "cut path", {"node": 2, "other": "redis", "lasts": 4.0}),
        Step(0.98, "delay append", {"topic": "__sidecar_default", "lasts": 1.8}),
        produce(1.0, "app1", "shared"),
        produce(1.5, "rival0", "shared", mode="exclusive_with_fencing"),
    ],
    length=4.0,
    jitter=0.02,
)
"""A node that does not reach Redis waits for its record of a slot, and another one takes the topic."""

_READ_MEANWHILE: Final = Schedule(
    [
        *_one_leads("shared"),
        produce(topic="shared"),
        Step(0.98, "freeze asking", {"api": 61, "lasts": 2.8, "after": 3}),
        produce(1.0, "app1", "shared", batches=600),
        Step(1.1, "close", {"app": "app0"}),
        Step(1.4, "policy", {"topic": "shared", "access_mode": "exclusive"}),
        *[Step(1.8 + 0.15 * each, "reset", {"node": 2, "other": "clients", "share": 1.0}) for each in range(8)],
        Step(5.0, "kill node", {"node": 1, "fuse": 1, "lasts": 0.3, "silently": False}),
    ],
    length=6.5,
    jitter=0.02,
)
"""A node stands still behind the fence of a slot, in front of its record. Its session owns the topic at another one by
then, and writes. That one dies behind the record.
"""

BESIDE: Final = Bias(
    ("shared",),
    {"kill node": 3, "cut path": 2, "freeze node": 2, "drain node": 1, "hold markers": 1},
    apps=(2, 3),
    rivals=(0, 1, 2),
    count=(3, 5, 8),
)
"""Sessions write beside each other, and others take the topic from them."""

_ADOPTED: Final = Schedule(
    [
        produce(topic="shared", burst=1),
        Step(0.8, "policy", {"topic": "shared", "access_mode": "exclusive"}),
        hold(0.78, "shared", 0.3),
        *resets(0.85, 1.0, 1.2),
    ],
    jitter=0.2,
)
"""The one of many writers that stays gets the topic for itself, with batches under way that it sends again."""

MUTANTS: Final = (
    Mutant(
        "no fence",
        "model FenceData",
        "A takeover opens the slot and writes its markers into the internal topics alone: partitions take what the "
        "former owner still sends.",
        (
            Edit(
                SLOT,
                "sorted(found)) for topic, found in partitions.items() if found}",
                'sorted(found)) for topic, found in partitions.items() if found and topic.startswith("__")}',
            ),
            _NO_MARKER,
        ),
        _BEHIND,
    ),
    Mutant(
        "the ownership topic is not fenced",
        "model FenceChangelog",
        "A takeover writes no marker into the ownership topic: a former owner's record may come behind the next one's.",
        (
            Edit(
                SLOT,
                "sorted(found)) for topic, found in partitions.items() if found}",
                "sorted(found)) for topic, found in partitions.items() if found"
                ' and (not topic.startswith("__") or self.transactional_id.endswith(("/policy", "/shadow")))}',
            ),
        ),
        _CONTESTED,
        by=("stuck", "generations", "behind_the_fence"),
    ),
    Mutant(
        "partitions take stale epochs",
        "model UseEpochs",
        "Brokers take what an older epoch writes, so that Redis alone keeps a former owner away.",
        (
            Edit(
                "tests/sim/kafka/producers.py",
                """            raise RefusedError(
                errors.INVALID_PRODUCER_EPOCH, f"{batch.pid}""",
                """            return
            raise RefusedError(
                errors.INVALID_PRODUCER_EPOCH, f"{batch.pid}""",
            ),
        ),
        _BEHIND,
    ),
    Mutant(
        "the log is not read behind the fence",
        "model TailAfterFence",
        "What leaders remembered in front of the fence counts; what came between is not looked for.",
        (
            Edit(
                TAILS,
                "                if claim is not None and claim.offset < ends[index]:\n",
                "                if claim is not None:\n"
                "                    return index, claim.last_sequence\n"
                "                if claim is not None and claim.offset < ends[index]:\n",
            ),
        ),
        _LATE,
        seeds=60,
    ),
    Mutant(
        "acknowledged as it is sent",
        "model AckAfterAccept",
        "A client gets its answer when its batch is sent, not when Kafka has it.",
        (
            Edit(
                LANE,
                """        self.begin(append)
        self._shipper.ship(self, append)""",
                """        self.begin(append)
        done, append.done = append.done, lambda _: None
        done(Outcome(ErrorCode.NONE))
        self._shipper.ship(self, append)""",
            ),
            Edit(
                "sidecar/writing/epoch.py",
                "        lanes: list[Lane] = []\n",
                "        return False\n        lanes: list[Lane] = []\n",
            ),
        ),
        _FAILOVERS,
        seeds=60,
    ),
    Mutant(
        "served before it is written down",
        "model WaitForClaim",
        "A takeover serves before its record is in the ownership topic.",
        (
            Edit(
                TAKEOVER,
                "        offset = await journal.append(batch)\n"
                "        await tailer.reached(Offset(offset + len(batch) - 1), timeout=_SEEN_S)\n",
                "        offset, late = tailer.position, asyncio.ensure_future(journal.append(batch))\n"
                "        late.add_done_callback(lambda task: task.cancelled() or task.exception())\n",
            ),
        ),
        _UNWRITTEN,
    ),
    Mutant(
        "a slot is used without the master slot",
        "model CheckMaster",
        "A node does not look, behind the record of a slot beside the master slot, whether it still has that one.",
        (
            Edit(
                TAKEOVER,
                "        self._records.check_master()\n        return offset\n",
                "        return offset\n",
            ),
        ),
        _MASTER_LOST,
        seeds=40,
        by=("behind_the_fence",),
    ),
    Mutant(
        "the later word counts",
        "model Under",
        "Of two records that say where a session stands the later one counts, whatever master record it was written "
        "under.",
        (
            Edit(
                "sidecar/takeover/succession.py",
                "        return Mention((opened.under or at, at), next_,",
                "        return Mention((at, at), next_,",
            ),
        ),
        _LATE_WORD,
        seeds=40,
    ),
    Mutant(
        "under a master record of others",
        "model UnderOwn",
        "The record of a slot beside the master slot names the newest master record that its node has read, whose ever "
        "that is.",
        (
            Edit(
                SLOTS,
                "        self.check_master()\n        return self._view.opened",
                "        return self._view.opened",
            ),
        ),
        _READ_MEANWHILE,
    ),
    Mutant(
        "forgetful redis",
        "model GenFromChangelog",
        "Generations go by what Redis knows, which may be empty.",
        (Edit("sidecar/takeover/arbitration.py", "            known=known,\n", "            known=None,\n"),),
        Schedule(
            [
                produce(),
                *rivals(0.9, 1.7),
                *[Step(moment, "empty redis") for moment in (0.92, 0.96, 1.0, 1.04, 1.72, 1.76, 1.8, 1.84)],
            ]
        ),
    ),
    Mutant(
        "a deposed session goes on",
        "model CheckSession",
        "A takeover does not look whether its session was deposed, nor whose the topic is behind the fence.",
        (
            Edit(
                SLOTS,
                "if any(deposed.session == request.session for deposed in ownership.value.deposed):",
                "if False:",
            ),
            Edit(TAKEOVER, "return known == start.known and tuple(", "return tuple("),
            Edit(
                SLOTS,
                "        same = ownership.value.session == request.session\n",
                "        same = True\n",
            ),
        ),
        _CONTESTED,
    ),
    Mutant(
        "no tails",
        "planted",
        "A takeover in which the session stays does not look where its sequences stand.",
        (
            Edit(
                TAKEOVER,
                "        last = await self._last(noted, fenced, ends)\n",
                "        last = {}\n",
            ),
        ),
        Schedule([produce(), *kills(0.6, 1.6, 2.6)]),
    ),
    Mutant(
        "only the master slot is fenced",
        "model FenceSide",
        "A takeover of a whole topic leaves the slots beside the master slot as they are.",
        (
            Edit(
                TAKEOVER,
                "        slots = {name: WriterSlot(services.upstream, ids[name]) for name in (scope.slot, *others)}\n",
                "        slots = {scope.slot: WriterSlot(services.upstream, ids[scope.slot])}\n",
            ),
        ),
        BESIDE,
        seeds=90,
    ),
    Mutant(
        "other slots' records are not asked",
        "model Mentions",
        "Where a session stands by the record of another slot that it had is not looked for.",
        (
            Edit(
                SLOTS,
                "            for name, entry in self._others(topic_id).items()\n        ]",
                "            for name, entry in {}.items()\n        ]",
            ),
        ),
        _ADOPTED,
        seeds=8,
    ),
)
