"""The same history is the same record in every process; what nobody outside can see is not in it."""

from __future__ import annotations

import json
from typing import Final

from tests.sim import histories
from tests.sim.mutants.edits import Edit
from tests.sim.worker import Worker

SEEDS: Final = (2, 7)
_SCRIPT: Final = '        reply = await self._exchange(("EVALSHA"'
UNSEEN: Final = (
    Edit("metadata/connection.py", _SCRIPT, f'        await __import__("asyncio").sleep(0)\n{_SCRIPT}'),
    Edit(
        "sidecar/takeover/takeover.py",
        "        start = await self._look()\n",
        '        __import__("random").Random().random()\n        start = await self._look()\n',
    ),
)
"""One more turn of the loop before each script, and one more draw before each takeover."""


def _records(edits: tuple[Edit, ...] = (), *, hash_seed: int = 0) -> list[bytes]:
    with Worker(edits, records=True, hash_seed=hash_seed) as worker:
        return [worker.play(histories.make(seed)).record for seed in SEEDS]


def test_a_seed_has_one_record_whatever_the_hash_seed_and_the_number_of_callbacks_and_draws() -> None:
    first = _records()
    assert _records(UNSEEN, hash_seed=1) == first
    kinds = [{line[1] for line in map(json.loads, record.decode().split("\n")[1:])} for record in first]
    assert kinds == [{"asked", "answer", "record", "script"}] * len(SEEDS)
