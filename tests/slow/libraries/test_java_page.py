"""docs/use/java.md: its programs compile as they stand, and do what the page says."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecar.local.jars import Jars
from sidecar.local.java import find_java
from tests.clients import javabuild
from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.unit.docs.pages import page

Run = Callable[..., list[str]]
_PATIENCE_S = 60.0


@pytest.fixture
def run(library: Path, kafka_jars: Jars, tmp_path: Path, node: NodeProcess) -> Run:
    """`run("Billing", ledger=topic)`: what that program of the page prints, with other words in it."""
    java, programs = find_java(), {}
    for block in page("docs/use/java.md").blocks:
        if block.language == "java":
            [name] = re.findall(r"^public final class (\w+)", block.text, re.MULTILINE)
            programs[name] = block.text.replace("127.0.0.1:19092", node.bootstrap)
    assert sorted(programs) == ["Billing", "Scheduler"]

    def of(name: str, **words: str) -> list[str]:
        text = programs[name]
        for word, other in words.items():
            text = text.replace(f'"{word}"', f'"{other}"')
        source = tmp_path / f"{name}.java"
        source.write_text(text)
        path = os.pathsep.join([str(library), kafka_jars.class_path])
        jars = Jars(kafka_jars.version, (library, *kafka_jars.paths))
        made = javabuild.compiled(java, jars, [source], "sidecar-page")
        command = [str(java.path), "-cp", os.pathsep.join([str(made), path]), name]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
        made.unlink()
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.splitlines()

    return of


def test_the_producer_of_the_page_writes_once(run: Run, services: Services, rest: Rest) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": "exclusive", "deduplication": True})
    assert status == 200, answer
    assert run("Billing", ledger=topic) == ["generation 1", "wrote 0", "wrote 1", "wrote 2"]
    assert run("Billing", ledger=topic) == ["generation 2"]


def test_the_candidate_of_the_page_leads(run: Run, unique: Unique) -> None:
    told = run("Scheduler", scheduler=unique("scheduler"))
    assert told == ["leads under generation 1", "leader: true", "leads no more: it was closed"]
