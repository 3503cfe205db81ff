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


def test_hadolint_finds_a_package_without_a_version():
    text = DOCKERFILE.read_text(encoding="utf-8")

    assert "DL3013" in hadolint(text.replace("-r requirements/uv.txt", "uv")).stdout


@pytest.mark.parametrize("rule", dockerfile_rules.RULES, ids=lambda rule: rule.__name__)
def test_the_dockerfile_keeps_the_rule(rule: Rule):
    assert list(rule(dockerfile_rules.parse(DOCKERFILE.read_text(encoding="utf-8")))) == []


MUTATIONS: tuple[tuple[Rule, str, str, str], ...] = (
    (dockerfile_rules.base_image, "FROM ${PYTHON_IMAGE}\n", "FROM alpine:3\n", "FROM alpine:3 pulls another image"),
    (dockerfile_rules.base_image, "--from=build", "--from=example/uv:1", "takes files from the image example/uv:1"),
    (dockerfile_rules.base_image, "python:3.13-slim-trixie", "python:latest", "PYTHON_IMAGE is python:latest"),
    (
        dockerfile_rules.pinned,
        "--no-deps --require-hashes -r requirements/runtime",
        "-r requirements/runtime",
        "hashes",
    ),
    (dockerfile_rules.pinned, "requirements/dev.txt --require-hashes", "requirements/dev.txt", "checks no hashes"),
    (dockerfile_rules.pinned, "-r requirements/runtime.txt", "-r requirements/dev.txt", "installs ['dev.txt'"),
    (dockerfile_rules.start, 'ENTRYPOINT ["sidecar"]', 'ENTRYPOINT ["sh"]', "ENTRYPOINT is"),
    (dockerfile_rules.start, 'CMD ["serve"]', 'CMD ["up"]', "CMD is"),
    (dockerfile_rules.start, 'CMD ["sidecar", "healthcheck"]', 'CMD ["true"]', "HEALTHCHECK is"),
    (dockerfile_rules.start, "EXPOSE 19092 18080", "EXPOSE 19092", "EXPOSE is 19092"),
    (dockerfile_rules.unprivileged, "USER 10001:10001", "USER root", "USER is root"),
    (dockerfile_rules.unprivileged, "USER 10001:10001", "", "USER is None"),
    (dockerfile_rules.unprivileged, "COPY --from=build", "COPY --chown=10001 --from=build", "changes the owner"),
    (dockerfile_rules.context, "COPY sidecar sidecar", "COPY sidecars sidecar", "sidecars is not there"),
    (dockerfile_rules.context, "COPY sidecar sidecar", "COPY tests tests", ".dockerignore keeps tests out"),
)


@pytest.mark.parametrize(("rule", "old", "new", "sentence"), MUTATIONS)
def test_a_fault_put_into_the_dockerfile_is_found(rule: Rule, old: str, new: str, sentence: str):
    text = DOCKERFILE.read_text(encoding="utf-8")
    assert old in text

    found = list(rule(dockerfile_rules.parse(text.replace(old, new))))

    assert any(sentence in problem for problem in found), found


def test_every_rule_has_a_fault_that_it_finds():
    assert {rule for rule, *_ in MUTATIONS} == set(dockerfile_rules.RULES)


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
