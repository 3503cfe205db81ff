"""The Java client library, compiled without Maven, and processes that use it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from sidecar.local.jars import Jars, resolve
from sidecar.local.java import Tuning, find_java
from sidecar.local.kafka_config import default_version
from tests.clients import javabuild
from tests.kafka.client.conftest import behind, hidden
from tests.slow.java.peers import SOURCES, Peer

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


@pytest.fixture
def start(library: Path, kafka_jars: Jars, tmp_path: Path) -> Iterator[Start]:
    """`start("write", bootstrap, …)`: a `Peer` with these arguments."""
    java, numbers = find_java(), count()
    path = os.pathsep.join([str(library), kafka_jars.class_path])
    command = [str(java.path), *java.flags(128, Tuning.QUICK), "-cp", path, "sidecar.client.Peer"]
    with ExitStack() as running:

        def run(*arguments: str, environment: Mapping[str, str] | None = None) -> Peer:
            log = tmp_path / f"peer-{next(numbers)}.log"
            return running.enter_context(Peer(command, log, *arguments, environment=environment))

        yield run
