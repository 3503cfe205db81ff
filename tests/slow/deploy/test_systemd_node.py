"""A node locked in as its unit says: no system call that the unit forbids, no memory that is written and executed."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.conftest import Unique
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.unit.deploy.test_systemd import ONE, parse

PR_SET_MDWE, REFUSE_EXEC_GAIN = 65, 1
LOCKED = f"""
import ctypes, os, sys
if ctypes.CDLL(None).prctl({PR_SET_MDWE}, {REFUSE_EXEC_GAIN}, 0, 0, 0):
    sys.exit("this kernel cannot forbid it")
os.execvp(sys.argv[1], sys.argv[1:])
"""
CALL = re.compile(r"^\d+ +(?:<\.\.\. )?(\w+)[( ]", re.MULTILINE)


def calls_of(group: str) -> set[str]:
    """The system calls of a group of systemd's, with those of the groups in it."""
    shown = subprocess.run(
        ["systemd-analyze", "syscall-filter", "--no-pager", group],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    found: set[str] = set()
    for line in map(str.strip, shown.stdout.splitlines()[1:]):
        if line.startswith("@"):
            found |= calls_of(line)
        elif line and not line.startswith("#"):
            found.add(line)
    return found


def allowed() -> set[str]:
    """What `SystemCallFilter=` of the unit leaves."""
    unit = parse(ONE.read_text(encoding="utf-8"))
    found: set[str] = set()
    for value in unit["Service.SystemCallFilter"]:
        if value.startswith("~"):
            found -= calls_of(value.removeprefix("~"))
        else:
            found |= calls_of(value)
    assert unit["Service.MemoryDenyWriteExecute"] == ["yes"]
    return found


def test_a_node_under_traffic_needs_nothing_that_its_unit_forbids(services: Services, unique: Unique, tmp_path: Path):
    for program in ("strace", "systemd-analyze"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    if subprocess.run([sys.executable, "-c", LOCKED, "true"], check=False, timeout=30).returncode:
        pytest.skip("this kernel cannot refuse memory that is written and executed")
    trace = tmp_path / "trace"
    client, admin = free_ports(2)
    settings = {
        "BOOTSTRAP_SERVERS": services.kafka_bootstrap,
        "REDIS_URL": services.redis_url,
        "CLUSTER": unique("c"),
        "LISTEN": f"{HOST}:{client}",
        "ADMIN_LISTEN": f"{HOST}:{admin}",
    }
    environment = {f"SIDECAR_{name}": value for name, value in settings.items()}
    serve = ("strace", "-f", "-qq", "-o", str(trace), sys.executable, "-m", "sidecar", "serve")
    child = Child.start(
        Command("node", (sys.executable, "-c", LOCKED, *serve), tmp_path / "log", {**environment}, tmp_path)
    )
    try:
        rest = Rest(f"http://{HOST}:{admin}")
        child.wait_until(lambda: _ready(rest), 60)
        topic = create_topic(services.kafka_bootstrap, 1)
        govern(rest, topic)
        producer = Producer({"bootstrap.servers": f"{HOST}:{client}", "enable.idempotence": True})
        producer.produce(topic, b"one")
        assert producer.flush(30) == 0
        node = int(re.findall(r"^(\d+)", trace.read_text(), re.MULTILINE)[0])
        os.kill(node, signal.SIGTERM)
        assert child.wait(30) == 0, child.log_text()
    finally:
        child.kill()

    made = set(CALL.findall(trace.read_text()))
    assert {"execve", "listen", "accept4", "connect"} <= made, "else the trace has not seen the node"
    assert made - allowed() == set()


def _ready(rest: Rest) -> bool:
    try:
        return rest.call("GET", "/readyz")[0] == 200
    except OSError:
        return False
