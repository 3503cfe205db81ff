"""The table of limits in deploy.md: none without a setting, a metric and a test. test_references.py holds that what it
names exists.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidecar.settings.limits import Limits

_DEPLOY = Path("docs/deploy.md").read_text(encoding="utf-8")
_ROWS = {
    name.lower(): row
    for row in _DEPLOY.splitlines()
    if row.count("|") == 4
    for name in re.findall(r"`SIDECAR_([A-Z_]+)`", row.split("|")[1])
}


@pytest.mark.parametrize("setting", sorted(Limits.model_fields))
def test_every_limit_has_a_metric_and_a_test(setting: str) -> None:
    _, _, metric, test, _ = _ROWS[setting].split("|")
    assert "`sidecar_" in metric
    for path in re.findall(r"`(tests/[a-z_/]+\.py)`", test) or [""]:
        assert "def test_" in Path(path or "none").read_text(encoding="utf-8")


@pytest.mark.parametrize("setting", sorted(Limits.model_fields))
def test_every_limit_is_explained(setting: str) -> None:
    explained = [row for row in _DEPLOY.splitlines() if row.count("|") == 5]
    assert any(f"`SIDECAR_{setting.upper()}`" in row for row in explained) or setting == "log_limit"
