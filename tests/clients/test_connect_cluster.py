"""Distributed workers of Kafka Connect, a source that writes exactly once and a sink: at brokers, and through nodes."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.local.java import Tuning, find_java
from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.conftest import Unique
from tests.rest import Rest
from tests.topics import create_topic
from tests.wait import wait_for

from .connect import PATIENCE
from .locks import locked
from .outcome import Route
from .stage import committed

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
_TEXT = "org.apache.kafka.connect.storage.StringConverter"
_FILE = "org.apache.kafka.connect.file.FileStream"


def worker_settings(bootstrap: str, group: str) -> dict[str, str]:
    """Of all workers of a cluster: the documented ones, and times as short as brokers allow."""
    topics = {
        f"{kind}.storage.{name}": value
        for kind in ("config", "offset", "status")
        for name, value in (("topic", f"{group}-{kind}"), ("replication.factor", "1"), ("partitions", "1"))
        if (kind, name) != ("config", "partitions")
    }
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "key.converter": _TEXT,
        "value.converter": _TEXT,
        **topics,
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "500",
        "session.timeout.ms": "6000",
        "heartbeat.interval.ms": "1000",
        "scheduled.rebalance.max.delay.ms": "0",
    }


class Worker:
    """`connect-distributed`."""

    def __init__(self, home: Path, settings: Mapping[str, str]) -> None:
        (home / "plugins").mkdir(parents=True)
        listener = f"http://{HOST}:{free_ports(1)[0]}"
        properties = {**settings, "listeners": listener, "plugin.path": str(home / "plugins")}
        file = home / "worker.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        java, self._log, self.rest = find_java(), home / "connect.log", Rest(listener)
        program = ("-cp", locked("debezium").class_path, "org.apache.kafka.connect.cli.ConnectDistributed", str(file))
        command = (str(java.path), *java.flags(256, Tuning.QUICK), *program)
        self.child = Child.start(Command(home.name, command, self._log, {}, home))

    def configure(self, connector: str, settings: Mapping[str, str]) -> None:
        """Create a connector, once the worker answers and its group has settled."""

        def accepted() -> bool:
            assert self.child.alive, self.log[-4000:]
            try:
                return self.rest.call("PUT", f"/connectors/{connector}/config", settings)[0] in {200, 201}
            except (
                OSError,
                ValueError,
            ):  # nobody listens yet; or its paths are not there yet, which it says without JSON
                return False

        wait_for(accepted, f"{connector} to be accepted", PATIENCE)

    def workers(self, connector: str) -> set[str]:
        """Where its running tasks are."""
        status, found = self.rest.call("GET", f"/connectors/{connector}/status")
        tasks: list[dict[str, Any]] = found["tasks"] if status == 200 else []
        return {task["worker_id"] for task in tasks if task["state"] == "RUNNING"}

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def said(self, pattern: str) -> bool:
        assert self.child.alive, self.log[-4000:]
        return re.search(pattern, self.log) is not None


@contextmanager
def running(home: Path, settings: Mapping[str, str]) -> Iterator[Worker]:
    worker = Worker(home, settings)
    try:
        yield worker
    finally:
        worker.child.kill()


@pytest.mark.further("connect")
@pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
def test_a_source_writes_each_line_once_although_a_frozen_worker_comes_back(
    stage: Stage, route: Route, unique: Unique, tmp_path: Path
) -> None:
    kafka, topic, group = stage.behind.bootstrap, create_topic(stage.behind.bootstrap, 1), unique("connect")
    settings = worker_settings(stage.at(route), group)
    lines, copy = tmp_path / "lines.txt", tmp_path / "copy.txt"
    source = {"connector.class": f"{_FILE}SourceConnector", "exactly.once.support": "required", "topic": topic}
    sink = {"connector.class": f"{_FILE}SinkConnector", "consumer.override.isolation.level": "read_committed"}

    def append(first: int, last: int) -> None:
        with lines.open("a") as file:
            file.writelines(f"{number}\n" for number in range(first, last))

    def written() -> list[int]:
        return [int(message.value() or b"") for message in committed(kafka, topic)]

    append(0, 50)
    with running(tmp_path / "first", settings) as first:
        first.configure("source", {**source, "file": str(lines)})
        wait_for(lambda: written() == [*range(50)], "the first lines to be written", PATIENCE)
        os.kill(first.child.pid, signal.SIGSTOP)
        append(50, 100)
        with running(tmp_path / "second", settings) as second:
            wait_for(lambda: written() == [*range(100)], "the second worker to go on", PATIENCE)
            second.configure("sink", {**sink, "topics": topic, "file": str(copy)})
            wait_for(lambda: second.workers("sink"), "the sink to run", PATIENCE)
            os.kill(first.child.pid, signal.SIGCONT)
            wait_for(lambda: first.said("ProducerFencedException|InvalidProducerEpochException"), "a fence", PATIENCE)
            append(100, 150)
            wait_for(lambda: written()[100:] == [*range(100, 150)], "the last lines to be written", PATIENCE)
            assert written() == [*range(150)]
            wait_for(lambda: copy.exists() and len(copy.read_text().split()) >= 150, "the sink's copy", PATIENCE)
    assert sorted({int(line) for line in copy.read_text().split()}) == [*range(150)]
