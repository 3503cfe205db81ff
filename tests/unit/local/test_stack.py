"""State directories and run files; the parts themselves start in tests/slow/local/test_local_stack.py."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.cli.signals import interruptible
from sidecar.local.errors import AlreadyRunningError, LocalError, VariablesError
from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Identity
from sidecar.local.stack import Part, Stack, StackConfig, default_state_directory, find_running

ME = {"pid": os.getpid(), "started": Identity.of(os.getpid()).started}


def run_file(directory: Path, **fields: object) -> None:
    content = {"owner": ME, "endpoints": None, "parts": [], **fields}
    (directory / "run.json").write_text(json.dumps(content))


def test_the_state_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    for name in ("SIDECAR_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert default_state_directory() == Path("/home/somebody/.local/state/sidecar")
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_state_directory() == Path("/state/sidecar")
    monkeypatch.setenv("SIDECAR_STATE_DIR", "~/mine")
    assert default_state_directory() == Path("/home/somebody/mine")


def test_ports_follow_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIDECAR_LOCAL_REDIS_PORT", raising=False)
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_PORT", "12345")
    assert (StackConfig().kafka_port, StackConfig().redis_port) == (12345, 26379)


@pytest.mark.parametrize("text", ["x", "-1", "65536", "9092 "])
def test_what_is_no_port_is_refused_by_the_name_of_its_variable(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("SIDECAR_LOCAL_KAFKA_PORT", text)
    with pytest.raises(LocalError, match="SIDECAR_LOCAL_KAFKA_PORT"):
        StackConfig()


def test_all_wrong_variables_are_told_at_once_but_for_those_that_a_flag_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {"KAFKA_PORT": "x", "REDIS_PORT": "-1", "KAFKA_VERSION": "4"}
    for name, text in wrong.items():
        monkeypatch.setenv(f"SIDECAR_LOCAL_{name}", text)
    with pytest.raises(VariablesError) as caught:
        StackConfig.of(redis_port=0)
    found = {name: value for name, value, _ in caught.value.problems}
    assert found == {"SIDECAR_LOCAL_KAFKA_PORT": "x", "SIDECAR_LOCAL_KAFKA_VERSION": "4"}


def test_the_ports_asked_for_leave_those_of_outgoing_connections_alone() -> None:
    assert StackConfig().kafka_port < 32_768
    assert StackConfig().redis_port < 32_768


def test_an_empty_directory_runs_nothing(tmp_path: Path) -> None:
    assert find_running(tmp_path) is None
    assert find_running(tmp_path / "nowhere") is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"owner": {"pid": 1}}', '{"owner": 1, "parts": []}'])
def test_a_damaged_run_file_tells_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    assert find_running(tmp_path) is None


def test_the_run_file_of_an_owner_that_has_ended_tells_nothing(tmp_path: Path) -> None:
    run_file(tmp_path, owner={"pid": os.getpid(), "started": "an earlier boot/77"})
    assert find_running(tmp_path) is None


def test_a_part_answers_while_its_process_runs_and_its_port_is_open(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    part = {"name": "Kafka", "identity": ME, "address": f"{HOST}:{port}", "log": "l"}
    run_file(tmp_path, parts=[part], endpoints={"kafka": "k", "redis": "r"})
    running = find_running(tmp_path)
    assert running is not None
    assert not running.parts[0].answers, "nobody listens"
    with socket.create_server((HOST, port)):
        assert running.parts[0].answers
        stranger = Part("Kafka", Identity(os.getpid(), "another boot/1"), f"{HOST}:{port}", "l")
        assert not stranger.answers, "somebody else listens"


def test_a_locked_directory_is_left_alone(tmp_path: Path) -> None:
    run_file(tmp_path)
    before = (tmp_path / "run.json").read_text()
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stack = Stack(StackConfig(directory=tmp_path))
        with pytest.raises(AlreadyRunningError, match=str(tmp_path)):
            stack.start()
        stack.stop()
    assert (tmp_path / "run.json").read_text() == before


def test_a_directory_that_cannot_be_made_is_told_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (Path("/proc/nowhere"), tmp_path / "file" / "state"):
        with pytest.raises(LocalError, match=f"{directory} cannot hold the data .*--state-dir or SIDECAR_STATE_DIR"):
            Stack(StackConfig(directory=directory)).start()


def test_a_directory_that_cannot_be_written_to_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "run.new").mkdir()  # in the way of the run file, for root too
    with pytest.raises(LocalError, match=f"{tmp_path} cannot hold the data"):
        Stack(StackConfig(directory=tmp_path)).start()
    with (tmp_path / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_stack_that_was_never_started_can_be_stopped(tmp_path: Path) -> None:
    with Stack(StackConfig(directory=tmp_path)) as stack:
        assert stack.children == []
        with pytest.raises(LocalError, match="has not been started"):
            _ = stack.kafka


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_being_ended_from_outside_is_like_ctrl_c(signum: signal.Signals) -> None:
    before = signal.signal(signum, signal.SIG_DFL)  # whoever runs the tests may have it ignored
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signum)
        assert signal.getsignal(signum) is signal.SIG_DFL
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_who_was_started_with_a_signal_ignored_ends_on_it_all_the_same(signum: signal.Signals) -> None:
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(signum)
        assert signal.getsignal(signum) is signal.SIG_IGN
    finally:
        signal.signal(signum, before)


def test_nohup_is_respected() -> None:
    code = """
import os, signal
from sidecar.cli.signals import interruptible
signal.signal(signal.SIGHUP, signal.SIG_IGN)
with interruptible():
    os.kill(os.getpid(), signal.SIGHUP)
    print("still here")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    assert done.stdout == "still here\n"
