"""Wheels and the source distribution: what is in them, what they say of themselves, and that they are made alike."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from tests.slow.packaging.conftest import FILES, Distributions, Installed, run
from tests.unit.deploy.files import ROOT

pytestmark = pytest.mark.timeout(900)

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def contents(wheel: Path) -> dict[str, bytes]:
    """Bytes by name, but for the list of contents itself."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/RECORD")}


def metadata(wheel: Path) -> str:
    [name] = [name for name in contents(wheel) if name.endswith(".dist-info/METADATA")]
    return contents(wheel)[name].decode()


def test_a_wheel_holds_every_file_of_the_packages_the_compiled_module_and_nothing_else(distributions: Distributions):
    inside = {name for name in contents(distributions.wheel) if ".dist-info/" not in name}
    compiled = {name for name in inside if name.endswith(".so")}

    assert len(compiled) == 1
    assert inside - compiled == {name for name in FILES if name.startswith(("sidecar/", "metadata/"))}


def test_a_wheel_made_of_the_source_distribution_is_the_same_byte_for_byte(distributions: Distributions):
    assert contents(distributions.rebuilt) == contents(distributions.wheel)
    assert distributions.rebuilt.name == distributions.wheel.name


def test_the_source_distribution_holds_the_repository(distributions: Distributions):
    with tarfile.open(distributions.source) as archive:
        inside = {member.name.split("/", 1)[1] for member in archive.getmembers() if member.isfile()}

    assert inside == {*FILES, "PKG-INFO"}


def test_tools_have_nothing_to_say_about_a_wheel(distributions: Distributions):
    command = [sys.executable, "-m", "check_wheel_contents", "--toplevel", "sidecar,metadata", distributions.wheel]

    assert run(*command, cwd=ROOT).strip().endswith("OK")


def test_the_project_file_is_valid():
    command = [sys.executable, "-m", "validate_pyproject", "pyproject.toml"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)

    assert result.returncode == 0, result.stdout + result.stderr


def test_a_wheel_says_what_the_project_file_says(distributions: Distributions):
    text = metadata(distributions.wheel)
    found = Metadata.from_email(text, validate=True)

    assert (found.name, str(found.version)) == (PROJECT["name"], PROJECT["version"])
    assert found.license_expression == PROJECT["license"]
    assert set(found.provides_extra or ()) == {"local", "pipeline"} == set(PROJECT["optional-dependencies"])
    wanted = {str(Requirement(line)) for line in PROJECT["dependencies"]}
    assert {str(each) for each in found.requires_dist or () if each.marker is None} == wanted
    assert Parser().parsestr(text).get_payload() == (ROOT / "README.md").read_text(encoding="utf-8")


def test_where_nothing_can_be_compiled_a_wheel_is_for_every_machine(pure: Installed, distributions: Distributions):
    assert pure.wheel.name.endswith("-py3-none-any.whl")
    missing = contents(distributions.wheel).keys() - contents(pure.wheel).keys()
    assert [name.rsplit(".", 1)[1] for name in missing] == ["so"]
