"""franz-go's member of a share group (KIP-932) on brokers, and through two nodes in front of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.conftest import Unique

from . import gobuild
from .outcome import Route
from .recipes import run_tool
from .test_share_librdkafka import PATIENCE_S, RECORDS, group_from_the_beginning, written

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]
SOURCES = Path(__file__).with_name("sharing")


@pytest.fixture(scope="module")
def sharing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := gobuild.refusal(SOURCES):
        assert not os.environ.get("CI"), reason
        pytest.skip(reason)
    home = tmp_path_factory.mktemp("sharing") / "program"
    shutil.copytree(SOURCES, home)
    run_tool(home, "go", "vet", "./...")
    run_tool(home, "go", "build", "-o", "sharing.program", ".")
    return home / "sharing.program"


@pytest.mark.further("share-franz-go")
@pytest.mark.parametrize("route", Route, ids=lambda route: route.value)
def test_what_a_member_has_accepted_comes_to_no_other(
    sharing: Path, stage: Stage, route: Route, unique: Unique
) -> None:
    """It acknowledges, and closes its session, on another connection than it reads on."""
    topic, group = written(stage.behind.bootstrap), group_from_the_beginning(stage.behind.bootstrap, unique("group"))

    def accepted(count: int) -> list[str]:
        command = [str(sharing), stage.at(route), topic, group, str(count)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert sorted(map(int, accepted(RECORDS))) == [*range(RECORDS)]
    producer = Producer({"bootstrap.servers": stage.behind.bootstrap})
    producer.produce(topic, "last", partition=0)
    assert producer.flush(PATIENCE_S) == 0
    assert accepted(1) == ["last"]
