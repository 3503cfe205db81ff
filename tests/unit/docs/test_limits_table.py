"""Every limit has a metric in limits.md and a test in testing.md. What they name exists (test_references.py)."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from sidecar.settings.limits import Limits

_LIMITS = Path("docs/operate/limits.md").read_text(encoding="utf-8")
_TESTING = Path("docs/internals/testing.md").read_text(encoding="utf-8")


def rows(page: str) -> dict[str, str]:
    """The second cells of a page's tables with two columns, by the settings that the first ones name."""
    cells = [row.split("|") for row in page.splitlines() if row.count("|") == 3]
    return {name.lower(): second for _, first, second, _ in cells for name in re.findall(r"`SIDECAR_([A-Z_]+)`", first)}


_METRICS, _TESTS = rows(_LIMITS), rows(_TESTING)


@pytest.mark.parametrize("setting", sorted(each.name for each in fields(Limits)))
def test_every_limit_has_a_metric_and_a_test(setting: str) -> None:
    assert "`sidecar_" in _METRICS[setting]
    for path in re.findall(r"`(tests/[a-z_/]+\.py)`", _TESTS[setting]) or [""]:
        assert "def test_" in Path(path or "none").read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", sorted(each.name for each in fields(Limits)))
def test_every_limit_is_explained(setting: str) -> None:
    explained = [row for row in _LIMITS.splitlines() if row.count("|") == 5]
    assert any(f"`SIDECAR_{setting.upper()}`" in row for row in explained) or setting == "log_limit"
