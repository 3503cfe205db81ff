"""Mutants of what readers are given."""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, produce

_TOGETHER: Final = Schedule(
    [
        produce(topic="ordinary", every=0.02, batches=120, burst=1),
        *[Step(0.2 + 0.3 * number, "consume", {"topic": "ordinary", "shares": True}) for number in range(8)],
        *[
            Step(0.3 + 0.3 * number, "join", {"group": "group0", "topic": "ordinary", "joins": False, "slow": 0.02})
            for number in range(4)
        ],
    ],
    jitter=0.2,
    settings=(("shared_fetch_min_readers", 2),),
)
"""Readers of one topic that come one after the other, and wait together."""

_ANOTHER: Final = Schedule(
    [
        produce(topic="ordinary", every=0.02, batches=120, burst=1),
        *[
            Step(0.4 + 0.6 * number, "join", {
                "group": "group0", "topic": "ordinary", "joins": False, "slow": 0.02, "lasts": 0.4,
            })
            for number in range(4)
        ],
    ],
    jitter=0.2,
)  # fmt: skip
"""Consumers of one group, one after the other."""

_CURSORS: Final = "sidecar/gateway/apis/k09_offset_fetch.py"

MUTANTS: Final = (
    Mutant(
        "the newest answer serves all",
        "planted",
        "A reader that comes late is given what was found last, whatever it asks for.",
        (
            Edit(
                "sidecar/fanout/recent.py",
                "        found = self._kept.get(question)\n        return",
                "        kept = reversed(self._kept.items())\n"
                "        same = (each for of, each in kept if of.position.of == question.position.of)\n"
                "        found = next(same, None)\n        return",
            ),
        ),
        _TOGETHER,
        seeds=4,
        by=("skipped",),
    ),
    Mutant(
        "a group stands one record on",
        "planted",
        "Who asks where a group stands is told one offset too many.",
        (
            Edit(
                _CURSORS,
                "        if self._guards.resolver.has_guards or self._shadows.limits:\n            return True\n"
                "        return request.version >= _FIRST_BY_ID and client.rights is not None\n",
                "        del client, request\n        return True\n",
            ),
            Edit(
                _CURSORS,
                '        return result | {"topics": [*topics, *hidden]}\n',
                "        for topic in topics:\n"
                "            for found in topic['partitions']:\n"
                "                found['committed_offset'] += found['committed_offset'] > 0\n"
                '        return result | {"topics": [*topics, *hidden]}\n',
            ),
        ),
        _ANOTHER,
        seeds=3,
        by=("resumed_elsewhere",),
    ),
)
