"""kcat, the tool of librdkafka for shells, on brokers and through two nodes in front of them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from tests.conftest import Unique
from tests.topics import create_topic

from .further import KCAT, KCAT_LIBRDKAFKA
from .outcome import Route

if TYPE_CHECKING:
    from .stage import Stage

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
PATIENCE_S = 60.0
COUNT = 20


class Kcat:
    """The program, at one address."""

    def __init__(self, bootstrap: str) -> None:
        self._at = ("-b", bootstrap, "-m", "30")

    def run(self, *arguments: str, lines: str = "") -> str:
        done = subprocess.run(
            ["kcat", *self._at, *arguments],
            input=lines,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        """What a consumer reads, in the order of partitions and offsets."""
        found = [json.loads(line) for line in self.run(*arguments, "-q", "-J").splitlines()]
        return sorted(found, key=lambda each: (each["partition"], each["offset"]))


@pytest.fixture(params=Route, ids=lambda route: route.value)
def route(request: pytest.FixtureRequest) -> Route:
    if shutil.which("kcat") is None:
        pytest.skip("no `kcat` on PATH")
    said = subprocess.run(["kcat", "-V"], capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert re.search(rf"Version {KCAT} .*librdkafka {KCAT_LIBRDKAFKA} ", said), "the report names other versions"
    found: Route = request.param
    return found


@pytest.mark.further("kcat")
def test_what_it_writes_it_reads_lists_and_finds(stage: Stage, route: Route, unique: Unique) -> None:
    kcat, topic = Kcat(stage.at(route)), create_topic(stage.behind.bootstrap, 2)
    lines = "".join(f"key-{number}:{number}\n" for number in range(COUNT))
    for partition in range(2):
        kcat.run("-P", "-t", topic, "-p", f"{partition}", "-K", ":", "-H", "by=kcat", "-z", "lz4", lines=lines)
    found = kcat.records("-C", "-t", topic, "-o", "beginning", "-e")
    assert [(each["partition"], each["offset"]) for each in found] == [
        (partition, offset) for partition in range(2) for offset in range(COUNT)
    ]
    assert all(each["key"] == f"key-{each['payload']}" and each["headers"] == ["by", "kcat"] for each in found)

    one = ("-C", "-t", topic, "-p", "1", "-e")
    assert [each["offset"] for each in kcat.records(*one, "-o", "-3")] == [COUNT - 3, COUNT - 2, COUNT - 1]
    later = found[COUNT]["ts"]
    assert len(kcat.records(*one, "-o", f"s@{later}")) == COUNT
    assert kcat.records(*one, "-o", f"s@{later + 86_400_000}") == []
    assert kcat.run("-Q", "-t", f"{topic}:1:{later}") == f"{topic} [1] offset 0\n"

    described = json.loads(kcat.run("-L", "-J", "-t", topic))
    (listed,) = described["topics"]
    assert (listed["topic"], len(listed["partitions"])) == (topic, 2)
    if route is Route.NODE:
        nodes = {node.bootstrap for node in stage.nodes}
        assert {each["name"] for each in described["brokers"]} == nodes
        assert {each["leader"] for each in listed["partitions"]} <= {each["id"] for each in described["brokers"]}


@pytest.mark.further("kcat")
def test_a_group_goes_on_where_it_was(stage: Stage, route: Route, unique: Unique) -> None:
    """Without transactions: where markers follow, librdkafka 2.0.2 commits behind them, at brokers too."""
    kcat, topic = Kcat(stage.at(route)), create_topic(stage.behind.bootstrap, 1)
    numbers = [f"{number}" for number in range(COUNT)]
    kcat.run("-P", "-t", topic, "-X", "enable.idempotence=true", lines="\n".join(numbers))
    member = ("-G", unique("group"), "-X", "auto.offset.reset=earliest", topic)
    parts = [kcat.records(*member, *end) for end in (("-c", f"{COUNT // 2}"), ("-e",))]
    assert [[each["payload"] for each in part] for part in parts] == [numbers[: COUNT // 2], numbers[COUNT // 2 :]]


@pytest.mark.further("kcat")
def test_it_sees_what_was_committed_and_commits(stage: Stage, route: Route, unique: Unique) -> None:
    kcat, topic = Kcat(stage.at(route)), create_topic(stage.behind.bootstrap, 1)
    aborted = Producer({"bootstrap.servers": stage.behind.bootstrap, "transactional.id": unique("txn"), "log_level": 0})
    aborted.init_transactions(30)
    aborted.begin_transaction()
    aborted.produce(topic, "aborted")
    aborted.flush(30)
    aborted.abort_transaction(30)
    kcat.run("-P", "-t", topic, "-X", f"transactional.id={unique('txn')}", lines="one\ntwo")
    reading = ("-C", "-t", topic, "-o", "beginning", "-e")
    for isolation, expected in (("committed", ["one", "two"]), ("uncommitted", ["aborted", "one", "two"])):
        found = kcat.records(*reading, "-X", f"isolation.level=read_{isolation}")
        assert [each["payload"] for each in found] == expected
