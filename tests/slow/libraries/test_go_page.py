"""docs/use/go.md: its programs compile as they stand, and do what the page says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.clients import gobuild
from tests.clients.recipes import run_tool
from tests.conftest import Unique
from tests.kafka.dedup.conftest import deduplicate
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.libraries.peers import GO
from tests.topics import create_topic
from tests.unit.docs.pages import page

_PATIENCE_S = 60.0


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A copy of the library; programs lie below it."""
    if reason := gobuild.refusal(GO):
        pytest.skip(reason)
    return shutil.copytree(GO, tmp_path / "go")


def run(home: Path, index: int, node: NodeProcess, **words: str) -> list[str]:
    """What a program of the page prints, with other words in it."""
    text = [block.text for block in page("docs/use/go.md").blocks if block.language == "go"][index]
    for word, other in {"127.0.0.1:19092": node.bootstrap, **words}.items():
        assert f'"{word}"' in text
        text = text.replace(f'"{word}"', f'"{other}"')
    (home / "page").mkdir(exist_ok=True)
    (home / "page" / "main.go").write_text(text)
    run_tool(home, "go", "vet", "./page")
    run_tool(home, "go", "build", "-o", "page.program", "./page")
    done = subprocess.run([home / "page.program"], capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_producer_of_the_page_writes_once(home: Path, node: NodeProcess, services: Services) -> None:
    topic = create_topic(services.kafka_bootstrap, 1)
    deduplicate(Rest(node.admin_url), topic, access_mode="exclusive")
    assert run(home, 0, node, ledger=topic) == ["generation 1", "wrote 0", "wrote 1", "wrote 2"]
    assert run(home, 0, node, ledger=topic) == ["generation 2"]


def test_the_leader_of_the_page_leads(home: Path, node: NodeProcess, unique: Unique) -> None:
    told = run(home, 1, node, scheduler=unique("scheduler"))
    assert told == ["leads under generation 1", "leads no more: closed"]
