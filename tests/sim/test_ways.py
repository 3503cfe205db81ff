"""The ways that docs/architecture.md lists are those that requests go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sim import ways

_PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
_MOST = 15


@pytest.fixture(scope="module")
def recorded() -> dict[str, list[str]]:
    return ways.ways()


def listed(title: str) -> list[str]:
    """The modules in the tables below a title, in order."""
    section = _PAGE.read_text().split(f"### {title}")[1].split("\n### ")[0].split("\n## ")[0]
    cells = [line.split("|")[2] for line in section.splitlines() if re.match(r"\| \d+ \|", line)]
    return [module for cell in cells for module in re.findall(r"`((?:sidecar|metadata)/\S+\.py)`", cell)]


def test_the_page_names_the_modules_that_a_governed_batch_crosses(recorded: dict[str, list[str]]) -> None:
    assert sorted(listed("A governed batch, module by module")) == sorted(ways.counted(recorded["batch"]))


def test_a_governed_batch_crosses_fifteen_modules_at_most(recorded: dict[str, list[str]]) -> None:
    assert len(ways.counted(recorded["batch"])) <= _MOST


def test_every_module_that_the_page_names_for_a_takeover_runs_in_that_order(recorded: dict[str, list[str]]) -> None:
    found, run = listed("A takeover, module by module"), recorded["takeover"]
    assert found
    assert [each for each in run if each in found] == found


def test_what_decides_a_takeover_and_is_not_in_the_page_does_not_run(recorded: dict[str, list[str]]) -> None:
    """Nothing of the rooms whose modules decide is left out."""
    rooms = ("sidecar/exclusive/", "sidecar/fencing/", "sidecar/access/")
    named = {*listed("A takeover, module by module"), *listed("A governed batch, module by module")}
    assert {each for each in run_of(recorded) if each.startswith(rooms)} <= named


def run_of(recorded: dict[str, list[str]]) -> list[str]:
    return ways.counted(recorded["takeover"])
