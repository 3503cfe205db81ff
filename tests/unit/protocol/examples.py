"""How many examples Hypothesis draws for a test that runs once for each version."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

_BY_DAY = 50
"""What the profile of the default tests has; that of the night has ten times as many (`tests/conftest.py`)."""


def examples(by_day: int, **also: Any) -> settings:
    """In the profile of the night as many times more as that has."""
    return settings(max_examples=by_day * settings().max_examples // _BY_DAY, **also)
