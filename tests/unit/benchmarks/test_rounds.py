"""How much is done."""

from __future__ import annotations

import pytest

from benchmarks.rounds import QUICK, Work


@pytest.mark.parametrize("work", [Work(), QUICK, Work(records=1, small_records=1, blocks=1)])
def test_the_warm_up_does_the_same_in_less(work: Work) -> None:
    warm = work.warm_up()
    assert 1 <= warm.records <= work.records
    assert 1 <= warm.small_records <= work.small_records
    assert 1 <= warm.blocks <= work.blocks
    assert (warm.rounds, warm.parts, warm.targets) == (1, work.parts, work.targets)
