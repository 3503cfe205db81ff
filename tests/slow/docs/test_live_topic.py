"""docs/operate/live-topic.md: its steps in its order, with its programs, on a topic that is written all the time."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sidecar.local.tools import Tools
from tests.conftest import Unique
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.docs.test_blocks import run, shell
from tests.topics import create_topic
from tests.unit.docs.pages import page
from tests.wait import wait_for

PAGE = page("docs/operate/live-topic.md")
PARTITIONS = 3
Commands = Callable[[str], list[str]]


class Writer:
    """The page's writer as a process; `said` is what it printed and `failed` what it wrote to stderr."""

    def __init__(self, program: str, bootstrap: str, name: str, directory: Path) -> None:
        self._out, self._errors = (directory / f"{name}-{bootstrap}.{kind}" for kind in ("out", "errors"))
        with self._out.open("w") as out, self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program, bootstrap, name], stdout=out, stderr=errors
            )

    @property
    def said(self) -> list[str]:
        return self._out.read_text().split()

    @property
    def failed(self) -> str:
        return self._errors.read_text()

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(60)


class Live:
    """A topic that exists before any node serves it, and the page's programs and commands for it."""

    def __init__(self, node: NodeProcess, services: Services, topic: str, closing: ExitStack, directory: Path) -> None:
        self.node, self.services, self.topic = node, services, topic
        self._closing, self.directory = closing, directory

    def _mine(self, text: str) -> str:
        return text.replace("orders", self.topic).replace('"audit"', f'"{self.topic}-audit"')

    def _program(self, comment: str) -> str:
        [block] = [block for block in PAGE.blocks if block.comment == comment]
        return self._mine(block.text)

    def writer(self, bootstrap: str, name: str) -> Writer:
        directory = self.directory / os.urandom(4).hex()
        directory.mkdir()
        writer = Writer(self._program("writer"), bootstrap, name, directory)
        self._closing.callback(writer.stop)
        return writer

    def read(self, bootstrap: str, shadow: str = "") -> int:
        """How many records the group reads there until none come, of the topic or of a shadow."""
        program = self._program("reader").replace("poll(10)", "poll(5)")
        program = program.replace(f'subscribe(["{self.topic}"])', f'subscribe(["{shadow or self.topic}"])')
        command = [sys.executable, "-c", program, bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return int(done.stdout.split()[0])

    def type(self, comment: str, number: int = 0) -> str:
        """What the commands of a block print."""
        block = [block for block in PAGE.blocks if block.comment == comment][number]
        printed = ""
        for line in shell(block):
            words = shlex.split(self._mine(line))
            if words[0] != "sidecar":
                continue
            done = run([sys.executable, "-m", *words], self.node, self.services)
            assert done.returncode == 0, done.stderr
            printed += done.stdout
        return printed

    def log(self) -> list[list[str]]:
        """The values of each partition."""
        kafka = self.services.kafka_bootstrap
        return [[value.decode() for value in read_log(kafka, self.topic, number)] for number in range(PARTITIONS)]

    def count(self, name: str) -> int:
        return sum(value.split()[0] == name for values in self.log() for value in values)

    def grows(self, name: str) -> None:
        """Wait until a writer has written some more to each partition."""
        before = self.count(name)
        wait_for(lambda: self.count(name) > before + 2 * PARTITIONS, f"{name} to write")

    def whole(self, name: str) -> None:
        """Each number of a writer that ran once is in the log once, in order."""
        for number, values in enumerate(self.log()):
            mine = [int(value.split()[1]) for value in values if value.split()[0] == name]
            assert mine == list(range(number, number + PARTITIONS * len(mine), PARTITIONS))


@pytest.fixture
def live(node: NodeProcess, services: Services, unique: Unique, tmp_path: Path) -> Iterator[Live]:
    topic = create_topic(services.kafka_bootstrap, PARTITIONS, unique("live"))
    with ExitStack() as closing:
        yield Live(node, services, topic, closing, tmp_path)
    Rest(node.admin_url).call("DELETE", f"/v1/topics/{topic}?force=true")


def test_a_topic_moves_behind_nodes_and_back_while_it_is_written(live: Live, rest: Rest) -> None:
    kafka, node = live.services.kafka_bootstrap, live.node.bootstrap
    today = live.writer(kafka, "today")
    live.grows("today")
    assert "policy        -" in live.type("runs", 0)

    today.stop()
    read = live.read(node)  # 2: a group that begins at a node …
    moved = live.writer(node, "billing")  # 3
    live.grows("billing")
    assert "billing" in run([sys.executable, "-m", "sidecar", "status", "--clients"], live.node, live.services).stdout
    live.type("runs", 1)  # 4
    wait_for(lambda: (rest.topic(live.topic)["owner"] or {}).get("name") == "billing", "billing to own it")
    live.grows("billing")
    rival = live.writer(node, "rival")
    wait_for(lambda: rival.said, "the refusal")
    assert "existing exclusive producer: billing (generation 1)" in live.type("runs", 2)
    rival.stop()
    forgotten = live.writer(kafka, "forgotten")  # 5: nothing stops it
    live.grows("forgotten")
    forgotten.stop()
    assert (moved.said, forgotten.said, set(rival.said)) == ([], [], {"POLICY_VIOLATION"})

    moved.stop()  # the way back
    assert "policy        -" in live.type("runs back")
    back = live.writer(kafka, "back")
    live.grows("back")
    back.stop()
    assert (back.said, back.failed, moved.failed) == ([], "", "")
    read += live.read(kafka)  # … goes on at a broker
    assert read == sum(map(len, live.log()))
    assert live.count("rival") == 0
    for name in ("today", "billing", "forgotten", "back"):
        live.whole(name)


def test_members_of_one_group_read_at_a_node_and_at_a_broker_at_the_same_time(live: Live) -> None:
    writer = live.writer(live.services.kafka_bootstrap, "today")
    live.grows("today")
    writer.stop()
    members = [
        subprocess.Popen([sys.executable, "-c", live._program("reader"), where], stdout=subprocess.PIPE, text=True)
        for where in (live.node.bootstrap, live.services.kafka_bootstrap)
    ]
    read = [int(member.communicate(timeout=90)[0].split()[0]) for member in members]
    assert sum(read) == sum(map(len, live.log()))


def test_a_writer_that_runs_on_while_its_policy_comes_and_goes_is_refused_by_kafka(live: Live, rest: Rest) -> None:
    writer = live.writer(live.node.bootstrap, "billing")
    live.grows("billing")
    live.type("runs", 1)
    wait_for(lambda: rest.topic(live.topic)["owner"], "an owner")
    live.grows("billing")
    live.type("runs back")
    wait_for(lambda: writer.ended, "the producer to end")
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in writer.failed
    live.whole("billing")


def test_readers_of_a_shadow_go_on_at_the_source_on_the_way_back(live: Live, rest: Rest, kafka_tools: Tools) -> None:
    shadow, group = f"{live.topic}-audit", f"{live.topic}-audit"
    assert rest.call("POST", f"/v1/topics/{live.topic}/shadows", {"name": shadow})[0] == 201
    writer = live.writer(live.node.bootstrap, "billing")
    live.grows("billing")
    writer.stop()
    assert live.read(live.node.bootstrap, shadow) == sum(map(len, live.log()))
    writer = live.writer(live.node.bootstrap, "back")
    live.grows("back")
    writer.stop()
    [block] = [block for block in PAGE.blocks if block.comment == "runs shadow"]
    listed = live.type("runs shadow")
    [cursor] = json.loads(listed[: listed.rindex("]") + 1])
    offsets = live.directory / "offsets.csv"
    lines = [f"{live.topic},{number},{found['offset']}" for number, found in cursor["partitions"].items()]
    offsets.write_text("\n".join(lines) + "\n")
    [line] = [line for line in shell(block) if line.startswith("kafka-consumer-groups.sh")]
    words = line.replace("kafka:9092", live.services.kafka_bootstrap).replace("audit", group).split()[1:]
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    kafka_tools.run(command, *(str(offsets) if word == "offsets.csv" else word for word in words))
    assert live.read(live.services.kafka_bootstrap) == live.count("back")
