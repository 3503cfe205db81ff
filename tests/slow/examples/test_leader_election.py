"""`examples/leader_election.py`: leaders follow each other, killed or stalled, and an old one changes nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.slow.examples.conftest import Start, Topic
from tests.slow.examples.programs import PATIENCE, Entry, Logs, Program, check_history
from tests.wait import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLE = "leader_election"


class Country:
    """Processes that would lead, what leaders wrote, and what they stored."""

    def __init__(self, directory: Path, logs: Logs, node: NodeProcess, topic: str, resource: str, start: Start) -> None:
        self.store = directory / "work.db"
        self._logs, self._topic, self._start = logs, topic, start
        self._options = ("--bootstrap", node.bootstrap, "--topic", topic, "--resource", resource)

    def candidate(self, name: str, pause: float = 0.01, patience: float = 5) -> Program:
        options = ("--name", name, "--pause", str(pause), "--patience", str(patience))
        return self._start(EXAMPLE, str(self.store), *self._options, *options)

    def log(self) -> list[Entry]:
        return self._logs(self._topic)

    def stored(self) -> list[tuple[int, str, int]]:
        """Step, leader, token."""
        with closing(sqlite3.connect(self.store, timeout=PATIENCE)) as sqlite:
            return sqlite.execute("SELECT step, leader, token FROM work ORDER BY step").fetchall()

    @contextmanager
    def store_held(self) -> Iterator[None]:
        """Nobody writes to the store: who stalls now does not stall in there with its lock, which nobody takes away."""
        with closing(sqlite3.connect(self.store, timeout=PATIENCE, isolation_level=None)) as sqlite:
            sqlite.execute("BEGIN IMMEDIATE")
            yield
            sqlite.execute("ROLLBACK")

    def wait_for_leader(self, *names: str) -> str:
        """Until one of these has written the newest record; who."""

        def found() -> str | None:
            newest = self.log()[-1:]
            return newest[0].headers["leader"] if newest and newest[0].headers["leader"] in names else None

        leader = wait_for(found, f"one of {names} to lead", PATIENCE)
        assert leader is not None
        return leader

    def check(self) -> list[str]:
        """Who led, in turn. Steps follow each other over all leaders, and so do the tokens under which they are stored:
        each step is there once, and its leader's token was the newest then.
        """
        log, stored = self.log(), self.stored()
        assert [entry.value for entry in log] == list(range(len(log)))
        assert [step for step, _, _ in stored] == list(range(len(stored)))
        assert len(log) - len(stored) in {0, 1}, "the last leader was killed in front of its store at the most"
        tokens = [token for _, _, token in stored]
        assert tokens == sorted(tokens)
        return check_history(log)


@pytest.fixture
def country(tmp_path: Path, logs: Logs, node: NodeProcess, topic: Topic, unique: Unique, start: Start) -> Country:
    return Country(tmp_path, logs, node, topic("work"), unique("example-leader"), start)


@pytest.mark.smoke
def test_of_three_processes_one_leads_after_the_other_when_it_is_killed_or_stalled(country: Country) -> None:
    candidates = {name: country.candidate(name) for name in ("a", "b", "c")}
    first = country.wait_for_leader(*candidates)
    candidates.pop(first).kill()
    second = country.wait_for_leader(*candidates)
    stalled = candidates.pop(second)
    with country.store_held():
        stalled.child.pause()
    third = country.wait_for_leader(*candidates)
    stalled.child.resume()
    assert stalled.end() == 4
    told = (f"{second} leads no more", "lost the topic", "the store refused")  # whichever it hears of first
    assert any(f"Error: {each}" in stalled.output for each in told), stalled.output
    candidates.pop(third).stop()
    assert country.check() == [first, second, third]


def test_the_store_refuses_what_a_leader_wrote_before_it_stalled_and_sent_after(country: Country) -> None:
    """It stalls between its record, which is in the log, and the store, where the next leader was meanwhile."""
    old = country.candidate("old")
    country.wait_for_leader("old")
    with country.store_held():
        wait_for(lambda: len(country.log()) == len(country.stored()) + 1, "it to be in front of the store", PATIENCE)
        old.child.pause()
    new = country.candidate("new", patience=1)
    country.wait_for_leader("new")
    wait_for(lambda: len(country.stored()) > 0 and country.stored()[-1][1] == "new", "the store to know it", PATIENCE)
    old.child.resume()
    assert old.end() == 4
    new.stop()
    assert country.check() == ["old", "new"]
    refused = next(entry for entry in reversed(country.log()) if entry.headers["leader"] == "old")
    assert country.stored()[refused.value][1:] == ("new", 2), "its last step was stored by the next one, in its place"


def test_a_leader_that_ends_lets_go_at_once(country: Country) -> None:
    first = country.candidate("first", patience=60)
    country.wait_for_leader("first")
    second = country.candidate("second", patience=60)
    first.stop()
    country.wait_for_leader("second")
    second.stop()
    assert country.check() == ["first", "second"]
