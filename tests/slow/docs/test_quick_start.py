"""docs/start/quick-start.md: a newcomer who does what it says, in its order, sees what it says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.services import Services
from tests.slow.docs.test_blocks import run, shell
from tests.slow.docs.test_unserved import ask
from tests.unit.docs.pages import Block, page
from tests.wait import wait_for

pytestmark = pytest.mark.smoke

PAGE = page("docs/start/quick-start.md")
BLOCKS = [block for block in PAGE.blocks if block.comment in ("runs", "prints")]


class Newcomer:
    """Types what the page says; a topic and addresses of this test stand for those of the page."""

    def __init__(self, node: NodeProcess, services: Services, topic: str) -> None:
        self._node = node
        self._services = services
        self._topic = topic

    def _mine(self, text: str) -> str:
        told = text.replace("127.0.0.1:19092", self._node.bootstrap).replace("ledger", self._topic)
        return told.replace("http://127.0.0.1:18080", self._node.admin_url).replace('"audit"', f'"{self._topic}-group"')

    def type(self, block: Block) -> str:
        """What the program or the commands print."""
        if block.language == "python":
            done = subprocess.run(
                [sys.executable, "-c", self._mine(block.text)], capture_output=True, text=True, check=False, timeout=60
            )
            assert done.returncode == 0, done.stderr
            return done.stdout
        return "".join(self._command(shlex.split(self._mine(line))) for line in shell(block))

    def _command(self, words: list[str]) -> str:
        if words[0] == "curl":
            done = run(words, self._node, self._services)
        else:
            assert words[0] == ".venv/bin/sidecar"
            done = run([sys.executable, "-m", "sidecar", *words[1:]], self._node, self._services)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def free(self) -> None:
        """Wait until the writer before is gone, as it is when a person types the next program."""
        wait_for(lambda: ask(self._node, "GET", f"/v1/topics/{self._topic}")[1]["owner"] is None, "a free topic")


@pytest.fixture
def topic(node: NodeProcess, unique: Unique) -> Iterator[str]:
    name = unique("quick")
    yield name
    ask(node, "DELETE", f"/v1/topics/{name}?force=true")


def test_everything_that_the_quick_start_says_to_do_does_what_it_says(
    node: NodeProcess, services: Services, topic: str
) -> None:
    newcomer = Newcomer(node, services, topic)
    programs = 0
    for number, block in enumerate(BLOCKS):
        if block.comment == "prints":
            continue
        if block.language == "python":
            newcomer.free()
            programs += 1
        told = newcomer.type(block)
        if BLOCKS[number + 1 :] and BLOCKS[number + 1].comment == "prints":
            assert told == BLOCKS[number + 1].text
            if "third" in told and programs == 1:  # "Run it again"
                newcomer.free()
                assert newcomer.type(block) == told
                assert read_log(services.kafka_bootstrap, topic) == [b"first", b"second", b"third"]
    assert programs == 3


def test_every_command_of_the_page_is_one_that_runs() -> None:
    """But for the one that starts everything, which is the fixture's work here."""
    kept = [block.text for block in PAGE.blocks if block.language in ("sh", "python") and block.comment != "runs"]
    assert kept == ["make up\n"]
    assert not re.search(r"<!-- (?!runs|prints)", PAGE.text)
