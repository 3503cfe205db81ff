"""Mutants of sequences that come round: those of the model `SequenceSpace`.

Its `Near` and `CountDoubt` are "half a circle" and "lost is unsent".
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from tests.sim.history import Step
from tests.sim.mutants.bias import Bias
from tests.sim.mutants.edits import Edit
from tests.sim.mutants.holes import SEQUENCES, SMALL_CIRCLE
from tests.sim.mutants.mutant import Mutant
from tests.sim.mutants.schedules import Schedule, kills, produce

_CLIENTS: Final = "tests/sim/clients.py"

_LATE_EPOCHS: Final = (
    Edit(
        _CLIENTS,
        "self.producer_id, self.epoch, self._former = producer_id, epoch, None",
        "self.producer_id, self.epoch, self._former = producer_id, epoch + 32_766, None",
    ),
)
"""Clients begin at the last epochs but one."""

_RAISES: Final = Bias(
    ("owned", "shared"),
    {"refuse": 1},
    count=(3, 4),
    libraries=("librdkafka",),
    where={"refuse": {"api": (0,), "error": (10,), "broker": (0,), "after_append": (False,)}},
)
"""librdkafka raises its epoch from 32,767 to 0."""

_ROUND: Final = Schedule(
    [produce(partitions=1, batches=1_500, burst=20), *kills(0.3, 0.6)],
    length=7.0,
    jitter=0.1,
)
"""A session goes on under a base that is not 0 until its sequences come round to it."""

_TINY_CIRCLE: Final = tuple(
    replace(edit, new=re.sub(r"2\*\*(\d+)", lambda found: f"2**{int(found[1]) - 4}", edit.new)) for edit in SMALL_CIRCLE
)
"""After 256 records: so few that each of them is a batch."""

_AT_ZERO: Final = Schedule(
    [
        produce(partitions=1, every=0.01, batches=400, burst=1),
        Step(0.2, "kill behind", {"topic": "owned", "partition": 0, "records": 256, "lasts": 0.2}),
    ],
    length=5.0,
    latency=0.0005,
)
"""The nodes die when the last sequence of a round is in the log and its client does not know that yet."""

MUTANTS: Final = (
    Mutant(
        "client epochs are plain numbers",
        "model CircleEpochs",
        "A client epoch that wrapped to 0 counts as one that its client has left.",
        (
            Edit(
                SEQUENCES,
                "if self.written and not 0 < (epoch - self.client_epoch) % _EPOCHS < _AHEAD:",
                "if self.written and epoch < self.client_epoch:",
            ),
        ),
        _RAISES,
        world=_LATE_EPOCHS,
        by=("stuck",),
    ),
    Mutant(
        "epochs are not replaced",
        "model Replace",
        "A slot epoch goes on however far its sequences are from its base, until they come round to it.",
        (
            Edit(
                SEQUENCES,
                "        if (self.next - self.base) % MODULUS >= self.limit:\n",
                "        if False:\n",
            ),
        ),
        _ROUND,
        world=SMALL_CIRCLE,
    ),
    Mutant(
        "0 has no past",
        "model PlaceBehind",
        "A session whose sequences wrapped to 0 counts as one that begins there.",
        (
            Edit(
                SEQUENCES,
                "    return ClientSequence((sequence - 1) % MODULUS + 1)\n",
                "    return sequence % MODULUS\n",
            ),
            Edit(
                SEQUENCES,
                "        return self.next or ClientSequence(MODULUS if self.has_past or self.base else 0)\n",
                "        return self.next\n",
            ),
        ),
        _AT_ZERO,
        world=_TINY_CIRCLE,
        seeds=10,
    ),
)
