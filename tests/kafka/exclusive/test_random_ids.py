"""Applications with sequence ids write while everything goes wrong at random: see `id_machine.py`."""

from __future__ import annotations

import pytest

from tests.conftest import Unique
from tests.kafka.exclusive.id_machine import Machine
from tests.services import Services
from tests.slow.faults.checker import summary

_LONG = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(5, 6), (12, 6), *[pytest.param(seed, 30, marks=_LONG) for seed in (1, 2, 4, 6, 7, 9, 10, 17)]],
)
@pytest.mark.slow
async def test_what_is_acknowledged_is_in_the_log_once_and_in_order(
    services: Services, unique: Unique, monkeypatch: pytest.MonkeyPatch, seed: int, seconds: int
) -> None:
    machine = Machine(services, unique("machine"), seed, monkeypatch)
    try:
        found = await machine.run(seconds)
        assert not found, summary(found)
    except BaseException as error:
        error.add_note(machine.tale)
        raise
