"""Mutants of what clients send to topics without a policy."""

from __future__ import annotations

from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, produce

_AWAY: Final = Schedule(
    [
        *[
            produce(app=f"app{number}", topic="ordinary", library="librdkafka", every=0.002, burst=1, batches=900)
            for number in range(3)
        ],
        Step(0.5, "delete topic", {"topic": "ordinary", "lasts": 0.15}),
    ],
    nodes=1,
    latency=0.0005,
    jitter=0.1,
)
"""A topic is gone for a moment while clients send it batches: to the new one each is a producer's first. Once alone and
over a short way, and three seeds: a broker that comes to lead a partition between two requests that it has already got
refuses one and takes the next, with a node or without, in one history of twenty.
"""

MUTANTS: Final = (
    Mutant(
        "what has no leader is not waited for",
        "planted",
        "A batch goes to a leader ahead of one that was answered before there was any.",
        (Edit("sidecar/gateway/ordinary_produce.py", "        if code in AGAIN:\n", "        if code is None:\n"),),
        _AWAY,
        seeds=3,
        by=("lost",),
    ),
)
