"""The supervisor of several nodes, with small programs in their place."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sidecar.cli.launch import hangups_held
from tests.wait import wait_for

SUPERVISOR = """
import sys
from sidecar.cli import workers
from sidecar.settings import resolve
workers._STARTED_AFTER, workers._PAUSE_FIRST, workers._PAUSE_MOST = float(sys.argv[2]), 0.2, 0.4
workers.node_command = lambda descriptor, parent: [sys.executable, "-c", sys.argv[1], str(descriptor)]
sys.exit(workers.supervise(resolve({"node_id": "10", "log_format": "json"}), 2))
"""
WORKER = """
import json, os, signal, sys, time
settings = json.load(os.fdopen(int(sys.argv[1])))
number = settings["settings"]["node_id"]
def stop(signum, frame):
    with open("log", "a") as log: print(json.dumps([number, "signal", signum]), file=log)
    sys.exit({exit_code})
signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)
def reload(signum, frame):
    with open("log", "a") as log: print(json.dumps([number, "reload", os.getpid()]), file=log)
signal.signal(signal.SIGHUP, reload)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
if settings["outdated"]: reload(signal.SIGHUP, None)
with open("log", "a") as log: print(json.dumps([number, "start", os.getpid()]), file=log)
{behaviour}
while True: time.sleep(60)
"""


class Supervised:
    """A supervisor of workers 10 and 11 in a directory where they leave notes."""

    def __init__(
        self, directory: Path, behaviour: str, exit_code: int, early: str = "", started_after: float = 0.3
    ) -> None:
        self._log = directory / "log"
        worker = early + WORKER.replace("{behaviour}", behaviour).replace("{exit_code}", str(exit_code))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SIDECAR_")}
        with hangups_held():
            self.process = subprocess.Popen(
                [sys.executable, "-c", SUPERVISOR, worker, str(started_after)],
                cwd=directory,
                env={**environment, "PYTHONPATH": str(Path(__file__).parents[3])},
                stderr=subprocess.PIPE,
                text=True,
            )

    def notes(self, what: str) -> list[tuple[int, int]]:
        if not self._log.exists():
            return []
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [(number, value) for number, kind, value in lines if kind == what]

    def end(self) -> tuple[int, list[dict[str, Any]]]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, [json.loads(line) for line in errors.splitlines()]


@pytest.fixture
def supervised(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Supervised]:
    behaviour: tuple[Any, ...] = getattr(request, "param", ("", 0))
    found = Supervised(tmp_path, *behaviour)
    yield found
    if found.process.poll() is None:
        found.process.terminate()
    found.process.communicate(timeout=30)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_passed_on_once_and_all_end_well(supervised: Supervised, signum: signal.Signals):
    wait_for(lambda: len(supervised.notes("start")) == 2, "both workers")
    supervised.process.send_signal(signum)
    code, events = supervised.end()
    assert code == 0
    assert sorted(supervised.notes("signal")) == [(10, signum), (11, signum)]
    assert [event["event"] for event in events].count("worker_ended") == 2


@pytest.mark.parametrize("supervised", [("", 3)], indirect=True)
def test_a_worker_that_fails_later_is_started_again_and_the_other_is_left_alone(supervised: Supervised):
    wait_for(lambda: len(supervised.notes("start")) == 2, "both workers")
    victim = dict(supervised.notes("start"))[11]
    seen = time.monotonic()
    wait_for(lambda: time.monotonic() > seen + 0.6, "the worker to count as started, which is a matter of time")
    os.kill(victim, signal.SIGTERM)
    wait_for(lambda: len(supervised.notes("start")) == 3, "the worker to be started again")
    assert sorted(number for number, _ in supervised.notes("start")) == [10, 11, 11]
    supervised.process.terminate()
    _, events = supervised.end()
    crash = next(event for event in events if event["event"] == "worker_crashed")
    assert (crash["worker"], crash["exit_code"], crash["again_in_s"]) == (11, 3, 0.2)


def test_a_hangup_has_every_worker_read_its_settings_again_and_whoever_replaces_one(supervised: Supervised):
    wait_for(lambda: len(supervised.notes("start")) == 2, "both workers")
    workers = sorted(supervised.notes("start"))
    supervised.process.send_signal(signal.SIGHUP)
    wait_for(lambda: sorted(supervised.notes("reload")) == workers, "both to hear of it")
    os.kill(dict(workers)[11], signal.SIGKILL)
    wait_for(lambda: len(supervised.notes("start")) == 3, "the worker to be started again")
    assert supervised.notes("reload")[-1] == supervised.notes("start")[-1]
    supervised.process.terminate()
    code, _ = supervised.end()
    assert code == 0


IS_SLOW_TO_LISTEN = """
import os, time
with open("born", "a") as born: print(os.getpid(), file=born)
while not os.path.exists("grown"): time.sleep(0.01)
"""


@pytest.mark.parametrize("supervised", [("", 0, IS_SLOW_TO_LISTEN)], indirect=True)
def test_a_hangup_ends_no_worker_however_young_and_is_heard_later(supervised: Supervised, tmp_path: Path):
    born = tmp_path / "born"
    wait_for(lambda: born.exists() and len(born.read_text().split()) == 2, "both workers to run")
    supervised.process.send_signal(signal.SIGHUP)
    pending = [Path(f"/proc/{pid}/status") for pid in born.read_text().split()]
    wait_for(lambda: all(re.search("ShdPnd:.*1\n", each.read_text()) for each in pending), "both to be signalled")
    (tmp_path / "grown").touch()
    wait_for(lambda: len(supervised.notes("reload")) == 2, "both to hear of it")
    supervised.process.terminate()
    code, events = supervised.end()
    assert (code, [event for event in events if event["event"] == "worker_crashed"]) == (0, [])


DIES_YOUNG = """
if number == 11:
    with open("deaths", "a+") as deaths:
        print(file=deaths, flush=True)
        deaths.seek(0)
        if len(deaths.readlines()) <= 4: os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("supervised", [(DIES_YOUNG, 0, "", 30.0)], indirect=True)
def test_a_worker_killed_however_young_is_started_again_after_growing_pauses(supervised: Supervised):
    wait_for(lambda: len(supervised.notes("start")) == 6, "the worker to be started again and again")
    assert sorted(number for number, _ in supervised.notes("start")) == [10, *[11] * 5]
    supervised.process.terminate()
    code, events = supervised.end()
    assert code == 0
    crashes = [event for event in events if event["event"] == "worker_crashed"]
    assert [(each["worker"], each["exit_code"]) for each in crashes] == [(11, -9)] * 4
    assert [each["again_in_s"] for each in crashes] == [0.2, 0.4, 0.4, 0.4]


HEARS_NOTHING = """
signal.signal(signal.SIGTERM, signal.SIG_IGN if number == 11 else signal.SIG_DFL)
with open("log", "a") as log: print(json.dumps([number, "deaf", os.getpid()]), file=log)
"""


@pytest.mark.parametrize("supervised", [(HEARS_NOTHING, 0)], indirect=True)
def test_a_worker_killed_while_all_end_shows_as_a_shell_would_show_it(supervised: Supervised):
    wait_for(lambda: len(supervised.notes("deaf")) == 2, "both workers")
    (_, other), (_, victim) = sorted(supervised.notes("deaf"))
    supervised.process.terminate()
    wait_for(lambda: not Path(f"/proc/{other}").exists(), "the other one to end")
    os.kill(victim, signal.SIGKILL)
    code, events = supervised.end()
    assert code == 128 + signal.SIGKILL
    ends = {event["worker"]: (event["exit_code"], event["level"]) for event in events if "exit_code" in event}
    assert ends == {10: (-signal.SIGTERM, "info"), 11: (-signal.SIGKILL, "error")}


@pytest.mark.parametrize("supervised", [("if number == 11: sys.exit(2)", 0, "", 30.0)], indirect=True)
def test_a_worker_that_cannot_start_ends_all_with_its_exit_code(supervised: Supervised):
    code, events = supervised.end()
    assert code == 2
    assert {"worker_ended"} == {event["event"] for event in events if event.get("exit_code") == 2}


@pytest.mark.parametrize("supervised", [("", 3)], indirect=True)
def test_a_worker_that_does_not_end_well_shows_in_the_exit_code(supervised: Supervised):
    wait_for(lambda: len(supervised.notes("start")) == 2, "both workers")
    supervised.process.terminate()
    assert supervised.end()[0] == 3
