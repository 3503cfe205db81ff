"""Mutants of what operators are told of policies and shadows, and of policies that clients make."""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.bias import Bias
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule

_WRITER: Final = "sidecar/fencing/record_writer.py"
_DESCRIBE_PRODUCERS: Final = 61
"""The last question of a fence."""
_A_DAY_S: Final = 45.0
_UNFENCED: Final = Edit(
    _WRITER,
    "        await fence_slot(self._upstream, slot, changelog.fenced(), {})\n"
    "        await changelog.tailer.seen(slot.stamp, timeout=_SEEN_S)\n",
    "        await changelog.tailer.read_to_end(_SEEN_S)\n",
)
_UNDATED: Final = Edit(_WRITER, "_FRESH_S: Final = 15.0", "_FRESH_S: Final = 1e9")


def _both(at: float, action: str, *nodes: int) -> Step:
    return Step(at, "together", {"acts": tuple((node, action) for node in nodes), "topic": "owned", "shadow": "mirror"})


def _at_once(action: str) -> Schedule:
    return Schedule([_both(0.3 + 0.3 * number, action, 1, 2) for number in range(6)], length=2.5, jitter=0.1)


def _away(action: str) -> Schedule:
    """A node is suspended between its fence and its record, and another one changes the same."""
    suspend = {"kind": "suspend node", "args": {"node": 0, "lasts": _A_DAY_S}}
    return Schedule(
        [
            Step(0.2, "as asked", {"api": _DESCRIBE_PRODUCERS, "after": 0, "of": "__sidecar_default", **suspend}),
            _both(0.3, action, 1),
            *[_both(8.0 + 2.0 * number, action, 2) for number in range(4)],
        ],
        length=_A_DAY_S + 3.0,
        brief=True,
    )


_COME_AND_GO: Final = Bias(
    ("ordinary",),
    {"suspend node": 5, "kill node": 3, "drain node": 3, "refuse": 3, "cut path": 2, "silence redis": 2},
    count=(0, 3, 6),
    modes=("exclusive", "exclusive", "shared", "wait_for_exclusive", ""),
    rivals=(2, 4, 6),
    rival_modes=("", "exclusive", "wait_for_exclusive", "exclusive_with_fencing", "shared"),
    restarts=(1, 3),
    batches=12,
    every=(0.02, 0.1),
    length=(8.0, 14.0),
    nodes=(1, 2, 3),
)
"""Clients that ask for a mode on a topic without a policy, leave, and come back."""

MUTANTS: Final = (
    Mutant(
        "policies of clients stay",
        "DESIGN 16",
        "A topic stays governed for ever because a client once asked for a mode.",
        (Edit("sidecar/node/node.py", '"policies of clients": ClientPolicies(rooms.governed).run,', ""),),
        _COME_AND_GO,
        seeds=10,
        by=("stuck",),
    ),
    Mutant(
        "changes of policies are not fenced",
        "DESIGN 5",
        "A change of a policy is written without a fence: of two nodes that change one, the later undoes the other's.",
        (_UNFENCED,),
        _at_once("policy"),
        by=("overruled",),
    ),
    Mutant(
        "changes of shadows are not fenced",
        "DESIGN 5",
        "A change of a shadow is written without a fence.",
        (_UNFENCED,),
        _at_once("change shadow"),
        by=("overruled",),
    ),
    Mutant(
        "a policy's epoch is good for ever",
        "fences fade",
        "A node that was suspended for longer than brokers remember a producer writes what it decided before.",
        (_UNDATED,),
        _away("policy"),
        by=("overruled",),
    ),
    Mutant(
        "a shadow's epoch is good for ever",
        "fences fade",
        "The same of a shadow.",
        (_UNDATED,),
        _away("change shadow"),
        by=("overruled",),
    ),
)
