"""Kafka and Valkey as one thing with a state directory: what `sidecar up` does with them."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from sidecar.local import AlreadyRunningError, Endpoints, PortInUseError, Stack, StackConfig, StartError, find_running
from sidecar.local.ports import HOST, free_ports, is_open
from sidecar.local.process import Child, Command, Identity
from sidecar.local.progress import Step
from tests.wait import wait_for

OWNER = """
import pathlib, sys
from sidecar.local import Stack, StackConfig
from sidecar.cli.signals import interruptible
with interruptible(), Stack(StackConfig(pathlib.Path(sys.argv[1]), 0, 0)) as stack:
    try:
        print("up", stack.start().kafka, flush=True)
        stack.wait()
    except KeyboardInterrupt:
        stack.stop(lambda name: print("stopping", name, flush=True))
"""


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def owner(state: Path, tmp_path: Path) -> Iterator[Child]:
    """Another process that runs a stack on `state`."""
    child = Child.start(Command("owner", (sys.executable, "-c", OWNER, str(state)), tmp_path / "owner.log"))
    child.wait_until(lambda: "up" in child.log_text(), timeout=60)
    yield child
    child.stop()


def test_it_starts_both_and_says_how_far_it_is(state: Path) -> None:
    steps: list[Step] = []
    with Stack(StackConfig(state, 0, 0)) as stack:
        endpoints = stack.start(steps.append)
        assert endpoints == Endpoints(stack.kafka.bootstrap, endpoints.redis)
        with Redis.from_url(endpoints.redis) as redis:
            assert redis.ping()
    assert [step.part for step in steps if step.finished][-2:] == ["valkey", "kafka"]
    assert all(not child.alive for child in stack.kafka.children)


def test_a_second_one_learns_what_runs_there_already(state: Path, owner: Child) -> None:
    with pytest.raises(AlreadyRunningError, match=str(state)):
        Stack(StackConfig(state, 0, 0)).start()
    running = find_running(state)
    assert running is not None
    assert running.owner == owner.identity
    assert running.endpoints is not None
    assert f"up {running.endpoints.kafka}\n" == owner.log_text()
    assert [part.name for part in running.parts] == ["Valkey", "Kafka broker 1"]
    assert all(part.answers for part in running.parts)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_an_owner_asked_to_end_stops_all_the_last_started_first(
    state: Path, owner: Child, signum: signal.Signals
) -> None:
    running = find_running(state)
    assert running is not None
    subprocess.run(["kill", f"-{signum.value}", str(owner.pid)], check=True)
    assert owner.wait(30) == 0
    assert owner.log_text().splitlines()[1:] == ["stopping Kafka broker 1", "stopping Valkey"]
    assert not any(part.identity.alive() for part in running.parts)
    assert find_running(state) is None
    assert not (state / "run.json").exists()


def test_an_owner_that_is_killed_takes_all_with_it_and_the_next_one_starts(state: Path, owner: Child) -> None:
    running = find_running(state)
    assert running is not None
    owner.kill()
    wait_for(lambda: not any(part.identity.alive() for part in running.parts), "the parts to end")
    assert find_running(state) is None
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()


def test_orphans_of_an_earlier_owner_are_ended(state: Path, tmp_path: Path) -> None:
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()
        noted = (state / "run.json").read_text()
    orphan = subprocess.Popen(["sleep", "60"])
    identity = Identity.of(orphan.pid)
    valkey = stack.kafka.child(1).identity
    old = noted.replace(f'"pid": {valkey.pid}', f'"pid": {identity.pid}').replace(valkey.started, identity.started)
    assert old != noted
    (state / "run.json").write_text(old)
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()
        assert orphan.wait(10) == -signal.SIGKILL


def test_a_part_that_ends_by_itself_is_noticed(state: Path) -> None:
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()
        assert stack.wait(timeout=0.2) is None
        stack.kafka.kill()
        dead = stack.wait(timeout=10)
        assert dead is not None
        assert dead.name == "Kafka broker 1"


def test_a_process_started_beside_them_is_stopped_first(state: Path, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = (sys.executable, "-m", "http.server", "--bind", HOST, str(port))
    stopped: list[str] = []
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()
        child = stack.spawn(Command("web", server, tmp_path / "web.log"), f"{HOST}:{port}", lambda: is_open(port))
        running = find_running(state)
        assert running is not None
        assert [(part.name, part.answers) for part in running.parts][-1] == ("web", True)
        stack.stop(stopped.append)
    assert stopped == ["web", "Kafka broker 1", "Valkey"]
    assert not child.alive


def test_a_process_that_never_becomes_ready_does_not_stay(state: Path, tmp_path: Path) -> None:
    with Stack(StackConfig(state, 0, 0)) as stack:
        stack.start()
        command = Command("sleeper", ("sleep", "60"), tmp_path / "sleeper.log")
        with pytest.raises(StartError, match="sleeper was not ready"):
            stack.spawn(command, f"{HOST}:1", lambda: False, timeout=0.1)
        assert [child.name for child in stack.children] == ["Valkey", "Kafka broker 1"]
        assert all(child.alive for child in stack.children)


def test_a_taken_port_stops_what_was_started_before_it(state: Path, own_valkey) -> None:
    taken = own_valkey().port
    stack = Stack(StackConfig(state, kafka_port=taken, redis_port=0))
    with pytest.raises(PortInUseError, match=f"port {taken}"):
        stack.start()
    assert stack.children == []
    assert not (state / "run.json").exists()
    with Stack(StackConfig(state, 0, 0)) as second:
        second.start()
