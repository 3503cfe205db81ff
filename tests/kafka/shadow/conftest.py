"""A node whose topics get shadows."""

from __future__ import annotations

from typing import Any


def without_stats(answer: tuple[int, Any]) -> tuple[int, Any]:
    """What a shadow is, and nothing of how it is read: as lists and changes tell it."""
    status, found = answer
    return status, {name: value for name, value in found.items() if name != "stats"}
