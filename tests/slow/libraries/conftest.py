"""The client libraries for Java, compiled without Maven, and for Go, and processes that use them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from sidecar.local.jars import Jars, resolve
from sidecar.local.java import Tuning, find_java
from sidecar.local.kafka_config import default_version
from tests.clients import gobuild, javabuild
from tests.clients.recipes import run_tool
from tests.kafka.client.conftest import behind, hidden
from tests.slow.libraries.peers import GO, SOURCES, Peer

__all__ = ["behind", "hidden"]
"""A node behind a proxy, from the tests of the Python library."""

Start = Callable[..., Peer]


@pytest.fixture(scope="session")
def kafka_jars() -> Jars:
    """kafka-clients and what it needs, of the version that the tests run on."""
    return resolve(default_version())


@pytest.fixture(scope="session")
def library(kafka_jars: Jars) -> Path:
    """The jar of the library and of `Peer`."""
    sources = [*sorted((SOURCES / "main").rglob("*.java")), *(SOURCES / "test").rglob("Peer.java")]
    return javabuild.compiled(find_java(), kafka_jars, sources, "sidecar-client")


@pytest.fixture(scope="session")
def go_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`peer` of `clients/go`, vetted and built in a copy."""
    if reason := gobuild.refusal(GO):
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("go") / "client"
    shutil.copytree(GO, home)
    for command in (
        ("go", "vet", "./..."),
        ("go", "test", "./..."),
        ("go", "build", "-o", "peer.program", "./peer"),
    ):
        run_tool(home, *command)
    return home / "peer.program"


@pytest.fixture(params=["java", pytest.param("go", marks=pytest.mark.slow)])
def language(request: pytest.FixtureRequest) -> str:
    """Whose library is tested."""
    return request.param


@pytest.fixture
def command(request: pytest.FixtureRequest, language: str, kafka_jars: Jars) -> list[str]:
    """How a `Peer` is started."""
    if language == "go":
        return [str(request.getfixturevalue("go_program"))]
    java, library = find_java(), request.getfixturevalue("library")
    path = os.pathsep.join([str(library), kafka_jars.class_path])
    return [str(java.path), *java.flags(128, Tuning.QUICK), "-cp", path, "sidecar.client.Peer"]


@pytest.fixture
def start(command: list[str], tmp_path: Path) -> Iterator[Start]:
    """`start("write", bootstrap, …)`: a `Peer` with these arguments."""
    numbers = count()
    with ExitStack() as running:

        def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Peer:
            log = tmp_path / f"peer-{next(numbers)}.log"
            return running.enter_context(Peer(command, log, *arguments, environment=environment))

        yield run
