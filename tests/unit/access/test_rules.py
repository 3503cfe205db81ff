"""Who may have what: the table of `access.rules`, and the generation that a grant has."""

from __future__ import annotations

import pytest

from metadata.ownership import AccessMode
from sidecar.access.rules import HIGHEST_GENERATION, MODE_NUMBERS, MODES, Answer, decide, next_generation

SHARED, EXCLUSIVE, WAIT, FENCING = AccessMode


@pytest.mark.parametrize("mode", AccessMode)
@pytest.mark.parametrize("is_free", [True, False])
def test_a_generation_decides_whatever_the_mode(mode: AccessMode, is_free: bool) -> None:
    found = [decide(mode, asked, highest=5, is_free=is_free, has_room=False) for asked in (0, 1, 4, 5, 6)]
    assert found == [Answer.GRANTED, Answer.LOWER, Answer.LOWER, Answer.GRANTED, Answer.GRANTED]


@pytest.mark.parametrize(
    ("mode", "free", "room", "full"),
    [
        (EXCLUSIVE, Answer.GRANTED, Answer.HELD, Answer.HELD),
        (WAIT, Answer.GRANTED, Answer.WAIT, Answer.FULL),
        (FENCING, Answer.GRANTED, Answer.GRANTED, Answer.GRANTED),
        (SHARED, Answer.GRANTED, Answer.HELD, Answer.HELD),
    ],
)
def test_without_a_generation_the_mode_decides(mode: AccessMode, free: Answer, room: Answer, full: Answer) -> None:
    assert decide(mode, None, highest=5, is_free=True, has_room=False) is free
    assert decide(mode, None, highest=5, is_free=False, has_room=True) is room
    assert decide(mode, None, highest=5, is_free=False, has_room=False) is full


@pytest.mark.parametrize(
    ("highest", "asked", "expected"),
    [
        (0, None, 1), (0, 9, 1), (5, None, 6), (5, 5, 6), (5, 9, 9), (5, 0, 1),
        (HIGHEST_GENERATION, None, None), (HIGHEST_GENERATION, HIGHEST_GENERATION, None), (HIGHEST_GENERATION, 0, 1),
    ],
)  # fmt: skip
def test_a_grant_is_above_all_before_it_and_0_resets(highest: int, asked: int | None, expected: int | None) -> None:
    assert next_generation(highest, asked) == expected


def test_every_mode_is_read_as_it_is_written() -> None:
    assert {mode: MODES[int(MODE_NUMBERS[mode])] for mode in AccessMode} == {mode: mode for mode in AccessMode}
