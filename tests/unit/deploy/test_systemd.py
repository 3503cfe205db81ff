"""deploy/systemd: units that systemd takes, that lock a node in, and that say the same of one node as of several."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sidecar.cli.serve import serve
from tests.unit.deploy.files import COMPOSE, SYSTEMD, load_yaml
from tests.unit.deploy.kubernetes_rules import DRAIN_S, SETTINGS

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


def units() -> list[Unit]:
    return [parse(path.read_text(encoding="utf-8")) for path in UNITS]


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


@pytest.mark.parametrize("unit", units(), ids=[path.name for path in UNITS])
def test_a_node_has_time_to_drain_files_enough_and_is_started_again_unless_its_settings_are_wrong(unit: Unit):
    nodes = load_yaml(COMPOSE)["services"]["sidecar-1"]

    assert int(unit["Service.TimeoutStopSec"][0]) >= DRAIN_S + 10
    assert int(unit["Service.LimitNOFILE"][0]) == nodes["ulimits"]["nofile"]
    assert unit["Service.Restart"] == ["on-failure"]
    assert unit["Service.RestartPreventExitStatus"] == ["2"]
    assert unit["Service.RestartForceExitStatus"] == ["SIGHUP"]
    assert unit["Unit.StartLimitIntervalSec"] == ["0"]
    assert unit["Service.KillMode"] == ["mixed"]
    assert unit["Service.ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def test_a_node_of_several_differs_by_its_number_and_its_own_file_alone():
    one, several = units()
    differing = {key for key in one.keys() | several.keys() if one.get(key) != several.get(key)}

    assert differing == {"Unit.Description", "Service.EnvironmentFile", "Service.ExecStart"}
    assert several["Service.ExecStart"] == [f"{one['Service.ExecStart'][0]} --node-id %i"]
    assert several["Service.EnvironmentFile"] == [*one["Service.EnvironmentFile"], "/etc/sidecar/node-%i.env"]


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
