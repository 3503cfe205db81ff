"""compose.yaml: valid for the schema, and true to itself."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.deploy import compose_rules
from tests.unit.deploy.files import COMPOSE, ROOT, Tree, load_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def schema_check(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_the_compose_file_follows_the_compose_schema():
    result = schema_check(COMPOSE)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("rule", compose_rules.RULES, ids=lambda rule: rule.__name__)
def test_the_compose_file_keeps_the_rule(rule: Callable[[Tree], Iterator[str]]):
    assert list(rule(load_yaml(COMPOSE))) == []


PLUGINS = (
    ("docker", "compose"),
    ("docker-compose",),
    ("/usr/libexec/docker/cli-plugins/docker-compose", "compose"),
    ("/usr/lib/docker/cli-plugins/docker-compose", "compose"),
)


def compose_command() -> tuple[str, ...] | None:
    """Version 2 or later, wherever it is; the one before knows neither `name` nor `restart` of a dependency."""
    for words in PLUGINS:
        if shutil.which(words[0]) is not None:
            answer = subprocess.run(
                [*words, "version", "--short"], capture_output=True, text=True, check=False, timeout=60
            )
            if answer.returncode == 0 and not answer.stdout.startswith("1."):
                return words
    return None


def test_docker_compose_accepts_the_file():
    words = compose_command()
    if words is None:
        pytest.skip("no `docker compose` here; the schema and the rules above have checked the file")

    command = [*words, "--profile", "*", "--file", str(COMPOSE), "config", "--quiet"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert (result.returncode, result.stderr) == (0, "")
