"""compose.yaml without a token on a Docker engine: what a new user does first, kills of every container, down and up.

Skipped with a reason where there is no engine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest

from tests.slow.deploy.stack import PATIENCE_S, Stack, running, write
from tests.unit.deploy.files import ROOT
from tests.wait import wait_for

pytestmark = pytest.mark.timeout(1800)

SERVICES = ("kafka", "redis", "sidecar-1", "sidecar-2", "prometheus", "grafana")


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    with running() as found:
        yield found


def kill(stack: Stack, service: str) -> None:
    """SIGKILL to the first process of a service's container, not through the engine, which would not start it again.

    Returns when the engine has.
    """
    before = stack.containers()[service]["State"]
    program = f"import os; os.kill({before['Pid']}, 9)"
    command = ["docker", "run", "--rm", "--pid", "host", "--user", "0", "--entrypoint", "python", "kafka-sidecar:0.1.0"]
    subprocess.run([*command, "-c", program], check=True, timeout=120)

    def again() -> bool:
        now = stack.containers()[service]
        return now["State"]["Running"] and now["State"]["StartedAt"] != before["StartedAt"] and now["RestartCount"] > 0

    wait_for(again, f"another {service}", PATIENCE_S)


def test_a_write_from_the_host_without_a_token_is_refused_with_the_command_that_works(stack: Stack):
    topic = f"first-{uuid.uuid4().hex[:8]}"
    words = ("topic", "set", topic, "--access", "exclusive")
    environment = {**os.environ, "SIDECAR_ADMIN_URL": stack.admin}
    command = [sys.executable, "-m", "sidecar", *words]
    refused = subprocess.run(
        command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )

    assert refused.returncode == 1
    assert "docker compose exec sidecar-1 sidecar …" in refused.stderr
    assert "exclusive" in stack.run("exec", "-T", "sidecar-1", "sidecar", *words)
    owner = stack.producer("owner")
    assert isinstance(write(owner, topic, b"value"), int)
    assert stack.call(f"{stack.admin}/v1/topics/{topic}")[1]["owner"]["name"] == "owner"


@pytest.mark.parametrize("service", SERVICES)
def test_records_policies_and_services_outlive_a_killed_container(stack: Stack, service: str):
    topic = f"killed-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    owner = stack.producer("owner")
    assert isinstance(write(owner, topic, b"before"), int)

    kill(stack, service)
    assert isinstance(write(owner, topic, b"after"), int)
    wait_for(stack.healthy, "every service", PATIENCE_S)

    assert stack.read(topic, 2) == [b"before", b"after"]
    assert stack.call(f"{stack.admin}/v1/topics/{topic}")[1]["policy"]["access_mode"] == "exclusive"
    rival = write(stack.producer("rival"), topic, b"rival")
    assert not isinstance(rival, int)
    assert rival.code() == 44


def test_records_policies_and_generations_stay_over_down_and_up(stack: Stack):
    topic = f"kept-{uuid.uuid4().hex[:8]}"
    stack.exclusive(topic)
    assert isinstance(write(stack.producer("first"), topic, b"before"), int)
    generation = stack.call(f"{stack.admin}/v1/topics/{topic}")[1]["generation"]

    stack.run("down")
    assert stack.run("ps", "--all", "--quiet") == ""
    stack.run("up", "--wait")

    second = stack.producer("second")
    assert isinstance(write(second, topic, b"after"), int)
    found = stack.call(f"{stack.admin}/v1/topics/{topic}")[1]
    assert found["policy"]["access_mode"] == "exclusive"
    assert (found["owner"]["name"], found["generation"] > generation) == ("second", True)
    assert stack.read(topic, 2) == [b"before", b"after"]
