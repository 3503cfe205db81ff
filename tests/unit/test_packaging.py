"""What `make setup` installs: pinned, hashed, free of addresses, and in step with pyproject.toml."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FILES = sorted((ROOT / "requirements").glob("*.txt"))


def pins(name: str) -> dict[str, str]:
    """Version by package of a requirements file, as far as they are meant for a Python and a system like these."""
    lines = re.findall(r"^([a-z0-9-]+==[^\\\n]+)", (ROOT / "requirements" / name).read_text(), re.MULTILINE)
    found: dict[str, str] = {}
    for pin in [Requirement(line.strip()) for line in lines]:
        if pin.name not in found or pin.marker is None or pin.marker.evaluate():
            found[pin.name] = str(pin.specifier).removeprefix("==")
    return found


def direct(*groups: list[str]) -> list[Requirement]:
    """As far as they are meant for a Python and a system like these."""
    wanted = [Requirement(line) for group in groups for line in group]
    return [each for each in wanted if each.marker is None or each.marker.evaluate()]


RUNTIME = direct(PYPROJECT["project"]["dependencies"])
DEVELOPMENT = direct(PYPROJECT["project"]["optional-dependencies"]["local"], PYPROJECT["dependency-groups"]["dev"])


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_pin_has_a_hash(path: Path) -> None:
    blocks = re.split(r"\n(?=\S)", path.read_text())
    assert blocks
    for block in blocks:
        assert re.match(r"[a-z0-9-]+==\S+", block), block.splitlines()[0]
        assert "--hash=sha256:" in block, block.splitlines()[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_pin_says_what_and_never_from_where(path: Path) -> None:
    assert not re.findall(r"\S+://\S+|--(?:extra-)?index-url|--find-links", path.read_text())


@pytest.mark.parametrize("wanted", RUNTIME, ids=str)
def test_what_the_sidecar_needs_is_pinned_within_its_bounds(wanted: Requirement) -> None:
    assert wanted.specifier.contains(pins("runtime.txt")[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("wanted", RUNTIME + DEVELOPMENT, ids=str)
def test_what_development_needs_is_pinned_within_its_bounds(wanted: Requirement) -> None:
    assert wanted.specifier.contains(pins("dev.txt")[canonicalize_name(wanted.name)])


@pytest.mark.parametrize("wanted", RUNTIME, ids=str)
def test_the_oldest_version_that_is_tested_is_the_oldest_that_is_allowed(wanted: Requirement) -> None:
    tested = Version(pins("oldest.txt")[canonicalize_name(wanted.name)])
    [least] = [Version(each.version) for each in wanted.specifier if each.operator == ">="]

    assert tested.release[: len(least.release)] == least.release
    assert wanted.specifier.contains(tested)


def test_what_is_tested_is_what_is_installed() -> None:
    tested = pins("dev.txt")
    assert {name: tested[name] for name in pins("runtime.txt")} == pins("runtime.txt")


def test_the_environment_of_this_run_is_the_pinned_one() -> None:
    uv = ROOT / ".venv" / "bin" / "uv"
    listed = subprocess.run(
        [uv, "pip", "freeze", "--python", ROOT / ".venv"], capture_output=True, text=True, check=True
    )
    installed = dict(line.split("==") for line in listed.stdout.splitlines() if "==" in line)
    wanted = {**pins("dev.txt"), **pins("uv.txt")}
    stray = {name: version for name, version in installed.items() if wanted.get(name, version) != version}
    assert not stray, "`make setup` brings them back"


def test_the_changelog_the_image_and_the_manifests_speak_of_the_version_of_the_project_file() -> None:
    version = PYPROJECT["project"]["version"]
    headings = re.findall(r"^## \[([^\]]+)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    chart = "deploy/helm/kafka-sidecar/Chart.yaml"
    files = ["Dockerfile", "compose.yaml", chart, *map(str, (ROOT / "deploy" / "kubernetes").glob("*/*.yaml"))]
    tags = re.compile(
        r"(?:ARG VERSION=|kafka-sidecar(?:-pipeline)?:|newTag: |^version: |^appVersion: )(\d+\.\d+\.\d+)", re.MULTILINE
    )
    found = {name: tags.findall((ROOT / name).read_text()) for name in files}

    assert headings[0] == version
    assert {tag for each in found.values() for tag in each} == {version}
    assert len(found[chart]) == 2
