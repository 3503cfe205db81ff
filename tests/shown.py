"""What `tests/pulsar.toml` says: tests of other projects, and which of ours show the same claim, or why none does."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, slots=True)
class Entry:
    """One test of another project. Exactly one of `tests` and `reason` says something."""

    name: str
    tests: tuple[str, ...]
    reason: str


@cache
def names() -> frozenset[str]:
    """Every test that has to have an entry, `group.name`."""
    groups: dict[str, list[str]] = tomllib.loads((ROOT / "tests" / "pulsar.toml").read_text())["names"]
    return frozenset(f"{group}.{name}" for group, listed in groups.items() for name in listed)


@cache
def entries() -> tuple[Entry, ...]:
    """All of them. Raises ValueError for a field that no entry has."""
    found: list[Entry] = []
    for group, members in tomllib.loads((ROOT / "tests" / "pulsar.toml").read_text()).items():
        for name, said in members.items() if group != "names" else ():
            if unknown := said.keys() - {"test", "reason"}:
                raise ValueError(f"{group}.{name}: {sorted(unknown)}")
            tests = said.get("test", [])
            found.append(
                Entry(f"{group}.{name}", (tests,) if isinstance(tests, str) else tuple(tests), said.get("reason", ""))
            )
    return tuple(found)


@cache
def shown() -> frozenset[str]:
    """The ids of all tests of ours that show something there."""
    return frozenset(test for entry in entries() for test in entry.tests)


# What pytest would collect ------------------------------------------------------------------------------------------

COLLECTED = pytest.StashKey[list[tuple[str, bool]]]()
"""Ids of all tests found, but for the matrix of clients, and whether each is slow; before any is left out."""
_LEAVES_OUT = ("skip", "skipif", "xfail", "slow", "clients")
"""Marks with which a test is skipped, may fail, or is no part of `make test`."""


@cache
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


def why_not_run(text: str, test: str) -> str | None:
    """Why `make test` would not run a test of a module with this text to its end; None where it would."""
    tree = _parsed(text)
    found = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == test and test.startswith("test_")
    ]
    if not found:
        return "is not there"
    marks = [decorator for node in found for decorator in node.decorator_list]
    marks += [node.value for node in tree.body if isinstance(node, ast.Assign) and _names(node.targets) == "pytestmark"]
    for mark in marks:
        if left_out := set(_words(mark)) & set(_LEAVES_OUT):
            return f"is marked {min(left_out)}"
    if any(word in ("skip", "importorskip", "xfail") for node in found for word in _words(*node.body)):
        return "may skip itself"
    return None


def _names(targets: list[ast.expr]) -> str:
    return ",".join(ast.unparse(target) for target in targets)


def _words(*nodes: ast.AST) -> Iterator[str]:
    """The attributes of `pytest` and of `pytest.mark` that are named."""
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) in ("pytest", "pytest.mark"):
                yield inner.attr


def fail_if_skipped(report: pytest.TestReport) -> None:
    """What shows a claim has to run: skipped, it counts as failed."""
    if report.skipped and report.nodeid.split("[")[0] in shown():
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} shows a claim of tests/pulsar.toml and was skipped: {report.longrepr}"
