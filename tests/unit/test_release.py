"""The workflow of a release, and what the changelog has to say before one."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.changelog import PATH, problems, section
from tools.dist import PYTHONS, TARGETS, project

ROOT = Path(__file__).parents[2]
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
TEXT = WORKFLOW.read_text(encoding="utf-8")
JOBS: dict[str, Any] = yaml.safe_load(TEXT)["jobs"]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CHANGELOG = """\
# Changelog

## [0.2.0] - 2026-12-01

### Added

- A thing.

## [0.1.0] - 2026-11-01

- The first.
"""
SCRIPTS = [(name, step["run"]) for name, job in JOBS.items() for step in job["steps"] if "run" in step]


def test_the_workflows_follow_the_schema_of_their_forge():
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    command += sorted(map(str, WORKFLOW.parent.glob("*.yml")))

    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    assert done.returncode == 0, done.stdout + done.stderr


def test_every_action_is_pinned_by_commit_and_names_its_version():
    texts = [path.read_text(encoding="utf-8") for path in WORKFLOW.parent.glob("*.yml")]
    used = re.findall(r"uses: (.*)", "\n".join(texts))

    assert used
    for each in used:
        assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each), each
    assert len({each.partition("@")[2] for each in used}) == len({each.partition("@")[0] for each in used})


def test_a_job_has_the_permissions_it_needs_and_no_more():
    assert yaml.safe_load(TEXT)["permissions"] == {"contents": "read"}
    assert {name: job.get("permissions") for name, job in JOBS.items()} == {
        "build": None,
        "check": None,
        "image": {"contents": "read", "packages": "write"},
        "publish": {"contents": "write", "packages": "write", "id-token": "write", "attestations": "write"},
    }


def test_nothing_is_published_before_it_was_built_and_started():
    assert {name: job.get("needs") for name, job in JOBS.items()} == {
        "build": None,
        "check": "build",
        "image": "check",
        "publish": "image",
    }


@pytest.mark.parametrize(("job", "script"), SCRIPTS)
def test_a_script_is_one_that_bash_reads_and_takes_nothing_of_an_event(job: str, script: str):
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False, timeout=20)

    assert (done.returncode, done.stderr) == (0, "")
    assert "${{" not in script  # what an event says comes by the environment, where it is no program


def test_wheels_are_started_on_every_machine_and_python_that_they_are_built_for():
    matrix = JOBS["check"]["strategy"]["matrix"]
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    [setup] = [step["with"] for step in JOBS["build"]["steps"] if "setup-python" in step.get("uses", "")]

    assert tuple(matrix["python"]) == tuple(setup["python-version"].split()) == PYTHONS
    assert {f"Programming Language :: Python :: {each}" for each in PYTHONS} <= set(classifiers)
    assert len(matrix["machine"]) * len(matrix["system"]) == len(TARGETS)


def test_the_image_is_given_all_that_its_labels_say():
    given = set(re.findall(r'--build-arg "(\w+)=', TEXT))
    labels = dict(re.findall(r'org\.opencontainers\.image\.([\w.]+)="([^"]*)"', DOCKERFILE))
    wanted = {name for value in labels.values() for name in re.findall(r"\$\{(\w+)\}", value)}

    assert given == wanted
    assert labels.keys() >= {"title", "description", "licenses", "version", "revision", "created", "source"}
    assert labels.keys() >= {"base.name", "base.digest"}
    [base] = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert yaml.safe_load(TEXT)["env"]["PYTHON_IMAGE"] == base


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "dirty", "said"),
    [
        ("v0.2.0", "0.2.0", CHANGELOG, "", []),
        ("v0.2.0", "0.3.0", CHANGELOG, "", ["the tag is v0.2.0", "is not [0.3.0]"]),
        ("0.2.0", "0.2.0", CHANGELOG, "", ["the tag is 0.2.0"]),
        ("v0.2.0-rc", "0.2.0-rc", CHANGELOG, "", ["the tag is v0.2.0-rc", "is not [0.2.0-rc]"]),
        ("v0.2.0", "0.2.0", CHANGELOG.replace("2026-12-01", "unreleased"), "", ["'unreleased' in place of the date"]),
        ("v0.2.0", "0.2.0", CHANGELOG, " M sidecar/cli/up.py\n", [" M sidecar/cli/up.py"]),
        ("v0.2.0", "0.2.0", "nothing", "", ["is not [0.2.0]"]),
    ],
)
def test_a_release_needs_its_tag_its_date_and_its_commit(
    tag: str, version: str, changelog: str, dirty: str, said: list[str]
):
    found = problems(tag, version, changelog, dirty)

    assert len(found) == len(said)
    assert all(words in each for words, each in zip(said, found, strict=True))


def test_the_notes_of_a_release_are_its_section():
    assert section("0.2.0", CHANGELOG) == "### Added\n\n- A thing.\n"
    assert section("0.1.0", CHANGELOG) == "- The first.\n"
    assert section(project(), PATH.read_text(encoding="utf-8")).startswith("### ")
    with pytest.raises(KeyError):
        section("0.0.9", CHANGELOG)
