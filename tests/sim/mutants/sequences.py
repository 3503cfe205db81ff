"""Mutants of sequences and bases: those of the model `ClientSequences`, and of a lane's numbering.

Its `ShiftFirst` is in `deduplication`. `FenceData`, `FenceChangelog` and `TailAfterFence` are mutants of
`ExclusiveTopic` as well, and stand in `takeover`.
"""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.bias import Bias
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, hold, led, produce, refusals

SEQUENCES: Final = "sidecar/forwarder/sequences.py"
SUCCESSION: Final = "sidecar/takeover/succession.py"
EPOCH: Final = "sidecar/writing/epoch.py"
LANE: Final = "sidecar/forwarder/lane.py"
SLOT: Final = "sidecar/fencing/slot.py"
TAKEOVER: Final = "sidecar/takeover/takeover.py"
GATE: Final = "sidecar/dedup/gate.py"
WRITER: Final = "sidecar/exclusive/writer.py"
RESOURCE: Final = "sidecar/exclusive/resource.py"

_FAILOVERS: Final = Bias(
    ("owned", "shared", "queued"), {"kill node": 4, "freeze node": 2, "refuse": 2}, count=(3, 5, 8)
)
_RAISES: Final = Bias(
    ("owned", "shared"),
    {"refuse": 5, "kill node": 2, "reset": 1},
    count=(4, 6, 8),
    where={"refuse": {"api": (0,), "error": (10,), "broker": (0,), "after_append": (False,)}},
)
"""Batches are refused for good, and clients raise their epochs."""

_BROKERS: Final = ("kafka-1", "kafka-2", "kafka-3")
_TROUBLE: Final = Bias(
    ("owned", "shared"),
    {"refuse": 5, "reset": 3, "lose answers": 2, "cut path": 1, "freeze node": 1},
    count=(4, 6, 8, 10),
    libraries=("java",),
    where={
        "refuse": {"api": (0,), "error": (10,), "broker": (0,), "after_append": (False,)},
        "reset": {"other": _BROKERS},
        "lose answers": {"other": _BROKERS},
        "cut path": {"other": _BROKERS},
    },
    latency=(0.002, 0.01),
)
"""The same, and more goes wrong between nodes and brokers. Clients are left in peace: one that raises its epoch while
it does not know of another batch writes that twice by itself.
"""

LEAVING: Final = Bias(
    ("shared", "owned", "queued"),
    {"reset": 4, "cut path": 2, "kill node": 1, "drain node": 1},
    apps=(2, 3, 4),
    count=(4, 6, 8),
    where={"reset": {"other": ("clients",), "share": (0.5, 1.0)}, "cut path": {"other": ("clients",)}},
)
"""Sessions leave, others write, and they come back."""


def _refusal(at: float) -> Step:
    """The leader of partition 0 refuses a batch for good."""
    args = {"broker": 3, "api": 0, "error": 10, "times": 1, "after_append": False}
    return Step(at, "refuse", args)


_STALE_RAISE: Final = (
    produce(partitions=1, every=0.02),
    _refusal(3.0),
    Step(3.06, "freeze node", {"node": 2, "lasts": 9.0, "timers_first": True}),
    Step(3.2, "cut path", {"node": 2, "other": "clients", "lasts": 10.5}),
)
"""A node freezes with the first batch of a raised epoch in its buffer; its client goes on at another node meanwhile."""

_BOTH: Final = Schedule(
    [*_STALE_RAISE, Step(12.0, "empty fetches", {"broker": 1, "times": 300})], length=14.0, latency=0.02, jitter=0.06
)
"""It wakes and does not hear of that for a while."""

_ALONE: Final = Schedule(
    [*_STALE_RAISE, Step(11.0, "kill node", {"node": 1, "fuse": 1, "lasts": 4.0, "silently": False})],
    length=14.0,
    latency=0.02,
    jitter=0.06,
)
"""It wakes when the other node is gone."""

_RAISED_AGAIN: Final = Schedule([*_ALONE.steps, _refusal(10.4)], length=14.0, latency=0.02, jitter=0.06)
"""It wakes when its client has raised its epoch once more."""

_DROPPED: Final = Schedule(
    [
        produce(topic="ledger", ids=True, partitions=1, burst=1, repeats=0.6),
        led("ledger", 3),
        led("__sidecar_default", 1),
        Step(0.8, "cut path", {"node": 1, "other": "kafka-3", "lasts": 3.0}),
        Step(1.2, "kill node", {"node": 1, "fuse": 20, "lasts": 3.0, "silently": False}),
    ],
    length=4.0,
    jitter=0.1,
)
"""Batches do not get through to their leader, duplicates are written down behind two of them; then the node dies."""


def _between(api: int, after: int) -> Schedule:
    """A node stands still in a takeover, behind so many answers to an API, and goes on when another one has served the
    session. DescribeProducers (61) is asked before the fence first, ListOffsets (2) for the third time behind it.
    """
    return Schedule(
        [
            produce(partitions=1),
            Step(0.95, "freeze asking", {"api": api, "lasts": 2.8, "after": after}),
            Step(1.0, "kill node", {"node": 2, "fuse": 20, "lasts": 6.0, "silently": False}),
            Step(2.4, "empty redis"),
            *[
                Step(at, "reset", {"node": 3, "other": "clients", "share": 1.0})
                for at in (2.6, 2.8, 3.0, 3.2, 3.4, 3.6)
            ],
            hold(4.1, "owned", 0.5),
            Step(4.3, "kill node", {"node": 1, "fuse": 20, "lasts": 5.0, "silently": False}),
        ],
        length=7.0,
        nodes=3,
        jitter=0.1,
    )


_ANY_STAMP: Final = Edit(
    "tests/sim/kafka/replica.py",
    "            self.producers.check_data(batch)\n",
    '            if self.topic.name != "__sidecar_default":\n                self.producers.check_data(batch)\n',
)
"""As if the records of the ownership topic had no stamp."""
_ANY_EPOCH: Final = Edit(
    "sidecar/changelog/view.py",
    "        if writer.epoch < epochs.get(writer.producer_id, writer.epoch):\n",
    "        if False:\n",
)

MUTANTS: Final = (
    Mutant(
        "a raise is a repeat",
        "planted",
        "A client that raised its epoch begins at 0, below its base, and is taken for one that repeats.",
        (
            Edit(
                SEQUENCES,
                "return Verdict.RAISE if sequence == 0 else",
                "return (Verdict.REPEAT if self.written else Verdict.RAISE) if sequence == 0 else",
            ),
        ),
        _RAISES,
    ),
    Mutant(
        "lost is unsent",
        "hole 6",
        "Behind a plain batch of which nobody knows the numbers go on as if it were not in the log.",
        (
            Edit(
                LANE,
                "        self.retried.append(append)\n        self.muted = True\n",
                "        append.in_doubt = False\n"
                "        if self.plain is not None:\n"
                "            append.sequence, append.stamped = None, False\n"
                "        self.retried.append(append)\n        self.muted = True\n",
            ),
        ),
        Schedule([produce(library="plain", topic="shared"), *refusals(0.5, 0.8, 1.1, 1.4)]),
    ),
    Mutant(
        "the base is one too high",
        "model NotTooHigh",
        "The next epoch begins one sequence too high.",
        (
            Edit(
                SUCCESSION,
                "        count = last.get(index, NOTHING) + 1  #",
                "        count = last.get(index, NOTHING) + 1 + (index in last)  #",
            ),
        ),
        _FAILOVERS,
        by=("lost", "doubled", "stuck", "reordered"),
    ),
    Mutant(
        "the base is one too low",
        "model NotTooLow",
        "The next epoch begins one sequence too low.",
        (
            Edit(
                SUCCESSION,
                "        count = last.get(index, NOTHING) + 1  #",
                "        count = max(0, last.get(index, NOTHING))  #",
            ),
        ),
        _FAILOVERS,
        by=("lost", "doubled", "stuck", "reordered"),
    ),
    Mutant(
        "the base is the first batch",
        "model BaseFromLog",
        "The base of an epoch is the sequence of whichever batch comes first.",
        (
            Edit(
                EPOCH,
                "        space = self._spaces[partition]\n        found =",
                "        space = self._spaces[partition]\n"
                "        if not self._lanes[partition].used and not self._gates:\n"
                "            space.base = space.next = header.base_sequence\n"
                "            space.client_epoch = header.producer_epoch\n"
                "        found =",
            ),
        ),
        _FAILOVERS,
        seeds=60,
    ),
    Mutant(
        "a repeat is taken for a raise",
        "model KnowRepeats",
        "What lies below the base is written anew, under the next epoch, instead of being called a repeat.",
        (
            Edit(
                SEQUENCES,
                "            return Verdict.REPEAT if below >= records else Verdict.ASTRIDE\n",
                "            return Verdict.RAISE\n",
            ),
        ),
        _FAILOVERS,
        seeds=60,
    ),
    Mutant(
        "a raise waits for nothing",
        "model AwaitInflight",
        "A raise from memory does not wait for what is in flight, nor asks whether anything is in doubt.",
        (Edit(WRITER, "await epoch.quiet() and epoch.certain and self.epoch is epoch", "self.epoch is epoch"),),
        _TROUBLE,
        seeds=180,
    ),
    Mutant(
        "one client epoch for all partitions",
        "model CepPerPartition",
        "Where a client raised its epoch in one partition, it counts as raised in all.",
        (
            Edit(
                EPOCH,
                "        bases, begins = {**self.stands_at(), **raised}, {**self.taken.begins, **ends}\n",
                "        bases, begins = {**self.stands_at(), **raised}, {**self.taken.begins, **ends}\n"
                "        for newest in raised.values():\n"
                "            bases = {index: Position(newest.client_epoch, at.sequence)"
                " for index, at in bases.items()}\n",
            ),
        ),
        _TROUBLE,
    ),
    Mutant(
        "who left is forgotten",
        "model KeepLeft",
        "A takeover does not write down where the session stands that it replaces.",
        (
            Edit(
                SUCCESSION,
                'if opened is not None and opened.session not in ("", request.session) and not request.deposes:',
                "if False and opened is not None:",
            ),
        ),
        LEAVING,
        seeds=180,
    ),
    Mutant(
        "a raise keeps its epoch",
        "model NewEpochOnRaise",
        "A client that raised its epoch gets another base in the memory of its node, and no new slot epoch.",
        (
            Edit(
                EPOCH,
                "        return await self._next(services, {partition: "
                "Position(client_epoch, ClientSequence(0))}, {})\n",
                "        space = self._spaces[partition]\n"
                "        space.base = -space.stamped(space.next) % MODULUS\n"
                "        space.client_epoch, space.next, space.has_past = client_epoch, 0, False\n"
                "        return self\n",
            ),
            Edit(
                WRITER,
                "        if self.epoch is not epoch:\n",
                "        if following is epoch:\n            return True\n        if self.epoch is not epoch:\n",
            ),
        ),
        _RAISES,
    ),
    Mutant(
        "a raise asks for any epoch",
        "model RaiseMode_memory",
        "A raise from memory takes the next epoch from any holder of the last one.",
        (
            Edit(
                SLOT,
                "            raised = await self._init(held)\n",
                "            raised = await self._init(NO_STAMP)\n",
            ),
            Edit(
                SLOT,
                "            if raised.producer_id != held.producer_id or raised.epoch != held.epoch + 1:\n",
                "            if raised.producer_id != held.producer_id:\n",
            ),
        ),
        _BOTH,
        seeds=8,
    ),
    Mutant(
        "a raise counts again",
        "model RaiseOnce",
        "A raise that ended in a takeover begins at 0 also where the takeover knows the raised epoch.",
        (
            Edit(
                RESOURCE,
                "                    await self._resume()\n            case Work.RESUME, _:\n",
                "                    await self._resume()\n"
                "                    if self.writer.epoch is not None and work is Work.RAISE:\n"
                "                        at = self._env.services, offer.partition, offer.header.producer_epoch\n"
                "                        self.writer.epoch = await self.writer.epoch.raise_for(*at)\n"
                "            case Work.RESUME, _:\n",
            ),
        ),
        _ALONE,
        seeds=40,
    ),
    Mutant(
        "a lower epoch is a raise",
        "model RaiseOnlyUp",
        "A client epoch that its client has left counts as one that it raised.",
        (
            Edit(
                SEQUENCES,
                "            if self.written and not 0 < (epoch - self.client_epoch) % _EPOCHS < _AHEAD:\n",
                "            if False:\n",
            ),
        ),
        _RAISED_AGAIN,
        seeds=40,
    ),
    Mutant(
        "a drop does not wait",
        "model DropWaits",
        "A duplicate is dropped while earlier batches of its session are under way.",
        (Edit(GATE, "        if self._out.under_way:\n            return False  # an outcome pumps again\n", ""),),
        _DROPPED,
        seeds=40,
    ),
    Mutant(
        "the ownership topic is read before the fence",
        "model LastAfterFence",
        "A takeover goes by what the ownership topic said before its fence.",
        (Edit(TAKEOVER, "return known == start.known and tuple(", "return tuple("),),
        _between(61, 0),
        seeds=8,
    ),
    Mutant(
        "stale records of the ownership topic count",
        "model StampChangelog",
        "A record that opens an epoch counts though it comes behind the fence of a newer one.",
        (_ANY_STAMP, _ANY_EPOCH),
        _between(2, 2),
        seeds=8,
    ),
)
