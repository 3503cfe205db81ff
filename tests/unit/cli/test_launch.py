import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.cli.launch import interpreter_options, node_command, settings_pipe
from sidecar.settings import Address, load
from sidecar.settings.loaded import LoadedSettings


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (["python", "-m", "sidecar", "serve"], []),
        (
            ["python", "-W", "error", "-X", "faulthandler", "-m", "sidecar", "-X", "no"],
            ["-W", "error", "-X", "faulthandler"],
        ),
        (["python", "-Wdefault", "-P", "/venv/bin/sidecar", "serve", "-W"], ["-Wdefault", "-P"]),
        (["python", "-c", "code", "-O"], []),
        (["python"], []),
        (["python", "-W"], ["-W", ""]),
    ],
)
def test_the_node_runs_under_the_interpreter_options_of_its_parent(command: list[str], options: list[str]):
    assert interpreter_options(command) == options


HANGUP = """
import os, signal, sys, types
from sidecar.cli import main
root = sys.modules["sidecar.cli.root"] = types.ModuleType("root")
root.cli = lambda prog_name: os.kill(os.getpid(), signal.SIGHUP)
main()
"""
"""A SIGHUP that comes while the commands are imported."""


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ("serve", 0),
        ("serve --node-id 7", 0),
        ("--config sidecar.toml serve", 0),
        ("--config=sidecar.toml serve", 0),
        ("topic show serve", -signal.SIGHUP),
        ("--config serve topic list", -signal.SIGHUP),
        ("--help", -signal.SIGHUP),
    ],
)
def test_a_hangup_before_anything_is_imported_ends_any_command_but_a_node(arguments: str, code: int):
    assert subprocess.run([sys.executable, "-c", HANGUP, *arguments.split()], check=False).returncode == code


def test_settings_travel_through_a_pipe_and_not_through_the_command_line():
    told = LoadedSettings(
        replace(load(), admin_token="hush-hush"), {"admin_token": "environment"}, {"node_id": "1"}, "a.toml"
    )
    descriptor = settings_pipe(told)
    assert "hush-hush" not in " ".join(node_command(descriptor))
    with os.fdopen(descriptor) as pipe:
        assert LoadedSettings.from_json(pipe.read()) == told


def test_settings_too_long_for_a_pipe_are_refused_and_do_not_block():
    servers = tuple(Address(f"kafka-{n}.example", 9092) for n in range(5_000))
    with pytest.raises(ValueError, match="is the most"):
        settings_pipe(LoadedSettings(replace(load(), bootstrap_servers=servers)))


def test_the_modules_beside_the_program_do_not_hide_those_of_the_library(tmp_path: Path):
    """`sidecar.cli.checks.redis` or a file in the current directory must not be taken for the packages."""
    (tmp_path / "redis.py").write_text("raise SystemExit('the wrong module')")
    (tmp_path / "sidecar").mkdir()
    (tmp_path / "sidecar" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    program = Path(node_command(0)[-4])
    code = f"import runpy, sys; sys.argv = ['x']; runpy.run_path({str(program)!r}); import redis; print(redis.__file__)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )  # fmt: skip
    assert "site-packages" in done.stdout
