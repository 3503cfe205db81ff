"""compose.yaml on a Docker engine, on free ports and under a project name of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]

from sidecar.local.ports import HOST, free_ports
from tests.services import BACKENDS
from tests.unit.deploy.files import ROOT
from tests.wait import wait_for

PATIENCE_S = 180.0
PORTS = ("NODE_1", "NODE_2", "NODE_1_ADMIN", "NODE_2_ADMIN", "PROMETHEUS", "GRAFANA", "SPARK")


def refusal() -> str | None:
    """Why compose.yaml cannot be started here; None where it can."""
    if reason := BACKENDS["docker"].refusal():
        return reason
    docker = shutil.which("docker")
    if docker is None:
        return "no docker command"
    if subprocess.run([docker, "compose", "version"], capture_output=True, check=False, timeout=60).returncode:
        return "the docker command knows no compose"
    return None


class Stack:
    """The services of compose.yaml. `token` is that of the nodes, where they have one."""

    def __init__(self, files: tuple[str, ...], profiles: tuple[str, ...], ports: Mapping[str, int], token: str) -> None:
        self._words = [word for file in files for word in ("--file", file)]
        self._words += [word for profile in profiles for word in ("--profile", profile)]
        self._token = token
        self.nodes = f"{HOST}:{ports['NODE_1']},{HOST}:{ports['NODE_2']}"
        self.admin = f"http://{HOST}:{ports['NODE_1_ADMIN']}"
        self.prometheus = f"http://{HOST}:{ports['PROMETHEUS']}"
        self.grafana = f"http://{HOST}:{ports['GRAFANA']}"

    def run(self, *arguments: str, stdin: str = "", code: int = 0) -> str:
        """`docker compose …`: what it prints. `code`: what it has to end with."""
        command = ["docker", "compose", *self._words, *arguments]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=900, input=stdin)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stderr

    def containers(self) -> dict[str, dict[str, Any]]:
        """What the engine says of each service's container."""
        identifiers = self.run("ps", "--all", "--quiet").split()
        command = ["docker", "inspect", *identifiers]
        found = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
        return {each["Config"]["Labels"]["com.docker.compose.service"]: each for each in json.loads(found)}

    def healthy(self) -> bool:
        """Whether every container runs and says that it is well."""
        states = [each["State"] for each in self.containers().values()]
        return all(state["Running"] and state["Health"]["Status"] == "healthy" for state in states)

    def call(self, url: str, method: str = "GET", body: object = None, *, token: bool = True) -> tuple[int, Any]:
        """Status and decoded answer."""
        headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self._token}"} if token else {})
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(
                urllib.request.Request(url, data, headers, method=method), timeout=30
            ) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    def query(self, expression: str) -> list[dict[str, Any]]:
        """What Prometheus knows now."""
        url = f"{self.prometheus}/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        status, answer = self.call(url, token=False)
        assert status == 200, answer
        return answer["data"]["result"]

    def exclusive(self, topic: str) -> None:
        """A topic of one partition under the policy."""
        admin = AdminClient({"bootstrap.servers": self.nodes})  # one that nothing refers to takes its requests with it
        admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
        self.run("exec", "-T", "sidecar-1", "sidecar", "topic", "set", topic, "--access", "exclusive")

    def producer(self, name: str) -> Producer:
        """On the host."""
        return Producer({"bootstrap.servers": self.nodes, "client.id": name, "enable.idempotence": True})

    def read(self, topic: str, count: int) -> list[bytes | None]:
        """So many values of a topic's only partition, from its beginning."""
        consumer = Consumer({"bootstrap.servers": self.nodes, "group.id": topic, "enable.auto.commit": False})
        values: list[bytes | None] = []

        def complete() -> bool:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                values.append(message.value())
            return len(values) >= count

        try:
            consumer.assign([TopicPartition(topic, 0, 0)])
            wait_for(complete, f"{count} records", PATIENCE_S)
        finally:
            consumer.close()
        return values


def write(producer: Producer, topic: str, value: bytes) -> KafkaError | int:
    """The offset of a record, or why it is not in the log."""
    outcome: list[KafkaError | int] = []
    producer.produce(topic, value, on_delivery=lambda error, message: outcome.append(error or message.offset() or 0))
    assert producer.flush(120) == 0
    return outcome[0]


@contextmanager
def running(*profiles: str, token: str = "", secured: bool = False, **more: str) -> Iterator[Stack]:
    """It is built and healthy, and leaves nothing behind. `more`: variables for it."""
    if reason := refusal():
        pytest.skip(reason)
    project = f"sidecar-test-{uuid.uuid4().hex[:8]}"
    ports: dict[str, int] = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
    told = {f"{name}_PORT": str(port) for name, port in ports.items()} | more
    with pytest.MonkeyPatch.context() as environment:
        for name, value in {"COMPOSE_PROJECT_NAME": project, "SIDECAR_ADMIN_TOKEN": token, **told}.items():
            environment.setenv(name, value)
        files = ("compose.yaml", "deploy/compose/secured.yaml") if secured else ("compose.yaml",)
        stack = Stack(files, profiles, ports, token)
        try:
            stack.run("up", "--build", "--wait")
            yield stack
        finally:
            stack.run("--profile", "*", "down", "--volumes", "--timeout", "30")
        left = ["docker", "volume", "ls", "--quiet", "--filter", f"label=com.docker.compose.project={project}"]
        assert subprocess.run(left, capture_output=True, text=True, check=True, timeout=60).stdout == ""
