"""`examples/change_data_capture.py`: each change is in the topic once and in order, whenever its process is killed."""

from __future__ import annotations

import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.slow.examples.conftest import Start, Topic
from tests.slow.examples.programs import PATIENCE, Entry, Logs, Program
from tests.wait import wait_for

EXAMPLE = "change_data_capture"
PARTITIONS = 3
OURS = r"is ours \(generation (\d+)\)"


class Shop:
    """A database that changes, the topic that its changes go to, and what each ought to hold."""

    def __init__(self, directory: Path, logs: Logs, node: NodeProcess, topic: str, start: Start) -> None:
        self.path = directory / "shop.db"
        self._logs, self._node, self.topic, self._start = logs, node, topic, start

    def change(self, changes: int) -> None:
        program = self._start(EXAMPLE, "change", str(self.path), "--changes", str(changes))
        assert program.end() == 0, program.output

    def capture(self, *options: str) -> Program:
        arguments = ("--bootstrap", self._node.bootstrap, "--topic", self.topic, "--partitions", str(PARTITIONS))
        return self._start(EXAMPLE, "capture", str(self.path), *arguments, *options)

    def finish(self) -> None:
        program = self.capture("--until-empty")
        assert program.end() == 0, program.output

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else commits meanwhile."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as sqlite:
            sqlite.execute("BEGIN IMMEDIATE")
            yield
            sqlite.execute("ROLLBACK")

    def ask(self, sql: str) -> list[tuple[object, ...]]:
        with closing(sqlite3.connect(self.path, timeout=60)) as sqlite:
            return sqlite.execute(sql).fetchall()

    @property
    def made(self) -> int:
        """How many changes there were, ever."""
        return int(str(self.ask("SELECT seq FROM sqlite_sequence WHERE name = 'journal'")[0][0]))

    def log(self) -> dict[int, list[Entry]]:
        return {partition: self._logs(self.topic, partition) for partition in range(PARTITIONS)}

    def wait_until_all_is_sent(self) -> None:
        wait_for(lambda: sum(map(len, self.log().values())) == self.made, "every change to be sent", PATIENCE)

    def check(self) -> None:
        """The topic holds each change once and in order, and whoever applies it has the table."""
        log = self.log()
        numbers = {partition: [entry.value["number"] for entry in entries] for partition, entries in log.items()}
        assert all(each == sorted(each) for each in numbers.values())
        assert sorted(number for each in numbers.values() for number in each) == list(range(1, self.made + 1))
        copy: dict[str, int] = {}
        for entry in (entry for entries in log.values() for entry in entries):
            item = entry.value["item"]
            assert (entry.key, entry.sequence_id) == (item, entry.value["number"])
            if entry.value["op"] == "delete":
                del copy[item]
            else:
                assert (item in copy) == (entry.value["op"] == "update")
                copy[item] = entry.value["pieces"]
        assert sorted(copy.items()) == self.ask("SELECT item, pieces FROM stock ORDER BY item")
        assert all(log.values()), "every partition had something to hold"


@pytest.fixture
def shop(tmp_path: Path, logs: Logs, node: NodeProcess, topic: Topic, start: Start) -> Shop:
    return Shop(tmp_path, logs, node, topic("stock"), start)


def test_killed_at_any_moment_while_the_table_changes_it_loses_and_doubles_nothing(shop: Shop, start: Start) -> None:
    shop.change(1_000)
    in_the_middle = 0
    for _ in range(4):
        program = shop.capture()
        changing = start(EXAMPLE, "change", str(shop.path), "--changes", "80")
        program.wait_for("is ours")
        time.sleep(random.uniform(0, 0.2))  # anywhere: in front of a send, between it and its answer, behind that
        program.kill()
        in_the_middle += shop.ask("SELECT count(*) FROM journal") != [(0,)]
        assert changing.end() == 0
    assert in_the_middle >= 2, "they are killed at work"
    shop.finish()
    shop.check()
    assert shop.ask("SELECT count(*) FROM journal") == [(0,)]


def test_killed_between_the_send_and_the_commit_it_leaves_out_what_the_topic_has(shop: Shop) -> None:
    shop.change(60)
    program = shop.capture()
    program.wait_for("waiting for")  # from here on it writes to the database for its commits alone
    with shop.locked():
        program.wait_for("is ours")
        shop.wait_until_all_is_sent()
        assert shop.ask("SELECT count(*) FROM journal") == [(shop.made,)]
        program.kill()
    shop.change(40)
    shop.finish()
    shop.check()


def test_two_captures_of_one_journal_take_turns(shop: Shop, rest: Rest) -> None:
    shop.change(60)
    first = shop.capture()
    first_generation = int(first.wait_for(OURS)[0])
    second = shop.capture()
    wait_for(lambda: rest.topic(shop.topic)["waiting"], "the second to wait", PATIENCE)
    first.kill()
    assert int(second.wait_for(OURS)[0]) > first_generation  # a takeover that begins anew leaves a generation out
    shop.change(40)
    wait_for(lambda: shop.ask("SELECT count(*) FROM journal") == [(0,)], "the journal to be empty", PATIENCE)
    second.stop()
    shop.check()


@pytest.mark.smoke
def test_ids_that_the_node_forgot_are_found_in_the_log(shop: Shop, rest: Rest) -> None:
    """A node forgets a name that an operator names."""
    shop.change(60)
    program = shop.capture()
    program.wait_for("waiting for")
    with shop.locked():
        program.wait_for("is ours")
        shop.wait_until_all_is_sent()
        program.kill()
    wait_for(lambda: rest.topic(shop.topic)["owner"] is None, "the topic to be free")
    status, answer = rest.call("DELETE", f"/v1/topics/{shop.topic}/dedup/stock-capture")
    assert status == 204, answer
    assert rest.topic(shop.topic)["producers"] == []
    shop.finish()
    shop.check()


def test_a_database_that_was_restored_from_a_backup_is_refused(shop: Shop) -> None:
    shop.change(20)
    with closing(sqlite3.connect(shop.path)) as source, closing(sqlite3.connect(f"{shop.path}.old")) as backup:
        source.backup(backup)
    shop.change(20)
    shop.finish()
    before = shop.log()
    shop.path.unlink()
    Path(f"{shop.path}.old").rename(shop.path)
    program = shop.capture("--until-empty")
    assert program.end() == 1
    assert "which this database never made" in program.output
    assert shop.log() == before


def test_without_deduplication_it_says_what_to_set(shop: Shop, rest: Rest) -> None:
    assert rest.call("PUT", f"/v1/topics/{shop.topic}/policy", {"deduplication": False})[0] == 200
    shop.change(10)
    program = shop.capture()
    assert program.end() == 1
    assert f"sidecar topic set {shop.topic} --dedup" in program.output
    assert not any(shop.log().values())
