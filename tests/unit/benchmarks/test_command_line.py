"""Which options mean what."""

from __future__ import annotations

import pytest

from benchmarks.__main__ import main
from benchmarks.latency import percentile


@pytest.mark.parametrize("wrong", [["--only", "dance"], ["--targets", "moon"], ["--rounds", "many"], ["--nonsense"]])
def test_a_wrong_option_is_refused_before_anything_starts(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(wrong)
    assert refused.value.code == 2


def test_percentiles_are_values_that_occurred_in_microseconds() -> None:
    nanoseconds = [value * 1000 for value in range(100, 0, -1)]
    assert percentile(nanoseconds, 0.1) == 11
    assert percentile(nanoseconds, 0.5) == 51
    assert percentile(nanoseconds, 0.99) == 100
    assert percentile([7_000], 0.99) == 7
