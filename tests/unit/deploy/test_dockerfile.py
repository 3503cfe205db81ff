"""Dockerfile and .dockerignore: clean for hadolint, and what the project promises of its image."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.deploy import dockerfile_rules
from tests.unit.deploy.dockerfile_rules import Instruction
from tests.unit.deploy.files import DOCKERFILE

Rule = Callable[[tuple[Instruction, ...]], Iterator[str]]


def hadolint(text: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    assert program, "hadolint is missing: it belongs to the dev group"
    return subprocess.run([program, "-"], input=text, capture_output=True, text=True, check=False, timeout=60)


def test_hadolint_has_nothing_to_say():
    result = hadolint(DOCKERFILE.read_text(encoding="utf-8"))

    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize("rule", dockerfile_rules.RULES, ids=lambda rule: rule.__name__)
def test_the_dockerfile_keeps_the_rule(rule: Rule):
    assert list(rule(dockerfile_rules.parse(DOCKERFILE.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".git/config",
        ".state/kafka/meta.properties",
        ".venv/bin/python",
        "tests/unit",
        "sidecar/__pycache__/a.pyc",
    ],
)
def test_nothing_private_or_left_over_enters_a_build(path: str):
    assert not dockerfile_rules.admitted(path, dockerfile_rules.ignore_patterns())


@pytest.mark.parametrize("path", ["sidecar/cli/main.py", "metadata/lua/claim.lua", "sidecar/py.typed", "README.md"])
def test_every_kind_of_source_enters_a_build(path: str):
    assert dockerfile_rules.admitted(path, dockerfile_rules.ignore_patterns())
