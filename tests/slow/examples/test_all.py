"""What holds for every program of `examples/`: it is described, helps, and says why it ends."""

from __future__ import annotations

import importlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sidecar.local.ports import HOST, free_ports
from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.slow.examples.conftest import Start
from tests.slow.examples.programs import EXAMPLES

PROGRAMS = {
    "change_data_capture": ("capture", "shop.db"),
    "job_scheduler": ("run", "jobs.db"),
    "leader_election": ("work.db",),
    "partition_processor": ("process",),
    "replicated_state_machine": (),
}
"""How each is started for its main purpose."""
each_program = pytest.mark.parametrize("name", PROGRAMS)


@pytest.mark.smoke
def test_every_program_is_here_and_on_both_pages() -> None:
    files = {path.stem for path in EXAMPLES.glob("*.py")} - {"common"}
    assert files == set(PROGRAMS)
    assert set(re.findall(r"^\| \[\w+\.py\]\((\w+)\.py\)", (EXAMPLES / "README.md").read_text(), re.MULTILINE)) == files
    titles = re.findall(r"^## (.+)$", (EXAMPLES.parent / "docs/use/recipes.md").read_text(), re.MULTILINE)
    assert {title.lower().replace(" ", "_") for title in titles} == files


@each_program
def test_it_helps(start: Start, name: str) -> None:
    program = start(name, *PROGRAMS[name][:1], "--help")
    assert program.end() == 0
    assert "--bootstrap" in program.output
    assert "localhost:19092" in program.output


@pytest.mark.smoke
@each_program
def test_where_no_node_answers_it_says_so(start: Start, name: str) -> None:
    address = f"{HOST}:{free_ports(1)[0]}"
    program = start(name, *PROGRAMS[name], "--bootstrap", address)
    assert program.end() == 5
    assert f"Error: KafkaConnectionError: Unable to bootstrap from [('{HOST}'" in program.output


@pytest.mark.parametrize(
    ("name", "database"),
    [("change_data_capture", "Database"), ("job_scheduler", "Jobs"), ("leader_election", "Store")],
)
def test_processes_that_start_together_open_one_database(
    name: str, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite waits for its lock, except where its journal changes to WAL."""
    monkeypatch.syspath_prepend(EXAMPLES)
    open_database = getattr(importlib.import_module(name), database)
    with ThreadPoolExecutor(4) as processes:
        for number in range(40):
            for opened in processes.map(open_database, [tmp_path / f"{number}.db"] * 4):
                opened.close()


def test_a_topic_that_cannot_be_created_is_told(node: NodeProcess, start: Start, unique: Unique) -> None:
    topic = unique("example-visits")
    program = start("replicated_state_machine", "--bootstrap", node.bootstrap, "--topic", topic, "--replicas", "9")
    assert program.end() == 1
    assert "INVALID" in program.output.upper()
    assert topic in program.output
