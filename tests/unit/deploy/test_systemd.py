"""deploy/systemd: units that systemd takes, that lock a node in, and that name flags and settings that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sidecar.cli.serve import serve
from tests.unit.deploy.files import SETTINGS, SYSTEMD

ONE = SYSTEMD / "kafka-sidecar.service"
SEVERAL = SYSTEMD / "kafka-sidecar@.service"
UNITS = (ONE, SEVERAL)
EXPOSURE = 15
"""Of 100, by `systemd-analyze security`; what is left is that a node talks to a network."""

Unit = dict[str, list[str]]


def parse(text: str) -> Unit:
    """`Section.Key` → all its values, in order."""
    found: Unit = {}
    section = ""
    for line in text.splitlines():
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif line and not line.startswith("#"):
            key, equals, value = line.partition("=")
            assert equals, line
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_the_node_with_flags_that_it_has(path: Path):
    [command] = parse(path.read_text(encoding="utf-8"))["Service.ExecStart"]
    program, subcommand, *flags = command.split()
    known = {option for parameter in serve.params for option in parameter.opts}

    assert (program, subcommand) == ("/opt/kafka-sidecar/bin/sidecar", "serve")
    assert {flag for flag in flags if flag.startswith("--")} <= known


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_what_a_unit_says_of_settings_is_true(path: Path):
    named = set(re.findall(r"SIDECAR_[A-Z_]+[A-Z]", path.read_text(encoding="utf-8")))

    assert named
    assert named <= SETTINGS


def analyze(directory: Path, path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`systemd-analyze` on a copy whose program is there."""
    program = shutil.which("systemd-analyze")
    if program is None:
        pytest.skip("no systemd-analyze here (Debian: package systemd)")
    copy = directory / path.name.replace("@.", "@1.")
    text = path.read_text(encoding="utf-8").replace("/opt/kafka-sidecar/bin/sidecar", "/bin/true")
    copy.write_text(text, encoding="utf-8")
    command = [program, *arguments, str(copy)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_has_nothing_to_say_about_a_unit(tmp_path: Path, path: Path):
    result = analyze(tmp_path, path, "verify", "--man=no")

    assert (result.returncode, result.stdout + result.stderr) == (0, "")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_exposes_little_of_the_machine(tmp_path: Path, path: Path):
    result = analyze(tmp_path, path, "security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager")

    assert result.returncode == 0, result.stdout
