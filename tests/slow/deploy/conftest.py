"""Two nodes as compose.yaml has them, and its services for clients as plain processes: the very commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.local.ports import HOST, free_ports
from sidecar.local.process import Child, Command
from tests.conftest import StartNode, Unique
from tests.nodes import NodeProcess
from tests.programs import stop_all
from tests.unit.deploy.files import COMPOSE, ROOT, load_yaml, resolved
from tests.wait import wait_for

SERVICES = load_yaml(COMPOSE)["services"]
Sample = Callable[..., float]


class ClientService:
    """A service of compose.yaml that is a client, started here. `places`: what its addresses are on this machine."""

    def __init__(self, name: str, directory: Path, places: dict[str, str], **environment: str) -> None:
        service = SERVICES[name]
        self._places = places | {"/clients": str(ROOT / "deploy" / "compose")}
        declared = {key: resolved(value or "") for key, value in service.get("environment", {}).items()}
        self._directory = directory
        self._environment: dict[str, str | None] = {
            **{key: None for key in os.environ if key.startswith("SIDECAR_")},
            **declared,
            "PROGRESS_FILE": str(directory / f"{name}.progress"),
            **environment,
        }
        assert service["entrypoint"] == ["python"]
        self._check = service["healthcheck"]["test"]
        command = (sys.executable, "-W", "error", *map(self._here, service["command"]))
        self.child = Child.start(Command(name, command, directory / f"{name}.log", self._environment, directory))

    def _here(self, word: str) -> str:
        for there, here in self._places.items():
            word = word.replace(there, here)
        return word

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Until something holds. Fails where it never does, or where the program ends before; what it wrote is told."""

        def holds() -> bool:
            found = condition()
            assert found or self.child.alive, f"ended with {self.child.exit_code} before {what}"
            return found

        try:
            wait_for(holds, what, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    @property
    def output(self) -> str:
        """All it wrote."""
        return self.child.log_text()

    def healthy(self) -> bool:
        """Whether its health check, as compose.yaml has it, says so."""
        kind, program, *arguments = self._check
        assert (kind, program) == ("CMD", "python")
        environment = {**os.environ, **{key: value or "" for key, value in self._environment.items()}}
        command = [sys.executable, *map(self._here, arguments)]
        return subprocess.run(command, env=environment, check=False, timeout=30).returncode == 0


class Pair:
    """Both nodes of compose.yaml, and what they say of themselves."""

    def __init__(self, nodes: tuple[NodeProcess, NodeProcess]) -> None:
        self.nodes = nodes

    def sample(self, name: str, **labels: str) -> float:
        """The sum of a metric over both nodes and all series that have these labels; 0 where there is none."""
        total = 0.0
        for node in self.nodes:
            with urllib.request.urlopen(f"{node.admin_url}/metrics", timeout=10) as answer:
                text = answer.read().decode()
            for found, value in re.findall(rf"^{name}(?:\{{(.*)\}})? (\S+)$", text, re.MULTILINE):
                if set(labels.items()) <= set(re.findall(r'(\w+)="([^"]*)"', found)):
                    total += float(value)
        return total


@pytest.fixture
def pair(node_process: StartNode, unique: Unique) -> Pair:
    cluster = unique("compose")
    first, second = (node_process(cluster=cluster, node_id=number) for number in (1, 2))
    return Pair((first, second))


Start = Callable[..., ClientService]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """`start("demo", places, DEMO_TEMPO="20")`."""
    started: list[ClientService] = []

    def run(name: str, places: dict[str, str], **environment: str) -> ClientService:
        started.append(ClientService(name, tmp_path, places, **environment))
        return started[-1]

    yield run
    stop_all([service.child for service in started], grace=10)
    for service in started:
        assert "Traceback" not in service.output, service.output


def free_address() -> str:
    """An address of this machine that nobody listens at."""
    return f"{HOST}:{free_ports(1)[0]}"
