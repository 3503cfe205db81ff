"""`examples/job_scheduler.py`: a job's start is decided once, and what follows is at most once or at least once."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient  # pyright: ignore[reportPrivateImportUsage]

from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.examples.conftest import Start, Topic
from tests.slow.examples.programs import PATIENCE, Entry, Logs, Program, check_history
from tests.wait import wait_for

EXAMPLE = "job_scheduler"
MARK = 'echo "$JOB $ATTEMPT $GENERATION" >> effects'
BLOCK = f"{MARK}; echo $$ >> pids; exec cat gate"
"""A job that has its effect, and ends when somebody opens the gate."""


class Office:
    """A database of jobs, schedulers, and what the jobs did."""

    def __init__(self, directory: Path, logs: Logs, node: NodeProcess, rest: Rest, topic: str, start: Start) -> None:
        self.directory, self._logs, self.node, self.rest, self.topic = directory, logs, node, rest, topic
        self._start = start
        self._database = directory / "jobs.db"
        os.mkfifo(directory / "gate")

    def submit(self, command: str, times: int = 1) -> None:
        program = self._start(EXAMPLE, "submit", str(self._database), command, "--times", str(times))
        assert program.end() == 0, program.output

    def scheduler(self, name: str, *options: str) -> Program:
        arguments = ("--bootstrap", self.node.bootstrap, "--topic", self.topic, "--name", name)
        return self._start(EXAMPLE, "run", str(self._database), *arguments, *options)

    def finish(self, *options: str) -> None:
        program = self.scheduler("last", "--until-idle", *options)
        assert program.end() == 0, program.output
        with closing(sqlite3.connect(self._database)) as sqlite:
            assert sqlite.execute("SELECT count(*) FROM jobs").fetchone() == (0,)

    def wait_for_waiting(self) -> None:
        wait_for(lambda: self.rest.topic(self.topic)["waiting"], "a scheduler to wait", PATIENCE)

    def wait_for_pids(self, count: int) -> list[int]:
        """The processes of jobs that went to the gate, in order."""

        def found() -> list[int]:
            path = self.directory / "pids"
            pids = [int(line) for line in path.read_text().splitlines()] if path.exists() else []
            return pids if len(pids) >= count else []

        return wait_for(found, f"{count} jobs at the gate", PATIENCE)

    def open_gate(self) -> None:
        """Let the job go on that is at work."""
        (self.directory / "gate").write_text("")

    def effects(self) -> list[tuple[int, int, int]]:
        """What jobs did: number, attempt, generation."""
        path = self.directory / "effects"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(job), int(attempt), int(generation)) for job, attempt, generation in map(str.split, lines)]

    def wait_for_effects(self, count: int) -> None:
        wait_for(lambda: len(self.effects()) >= count, f"{count} effects", PATIENCE)

    def log(self) -> list[Entry]:
        return self._logs(self.topic)

    def check(self, jobs: int) -> dict[int, list[tuple[str, int]]]:
        """The decisions on each job: of each attempt one start, and one end of the last. The log has no holes, and
        schedulers follow each other in it.
        """
        log = self.log()
        assert [entry.sequence_id for entry in log] == list(range(len(log)))
        check_history(log)
        decisions: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for entry in log:
            decisions[int(entry.key or "")].append((entry.value["decision"], entry.value["attempt"]))
        assert sorted(decisions) == list(range(1, jobs + 1))
        for found in decisions.values():
            *starts, (_, last) = found
            assert starts == [("started", attempt) for attempt in range(1, last + 1)]
        return decisions


@pytest.fixture
def office(tmp_path: Path, logs: Logs, node: NodeProcess, rest: Rest, topic: Topic, start: Start) -> Iterator[Office]:
    found = Office(tmp_path, logs, node, rest, topic("decisions"), start)
    yield found
    pids = tmp_path / "pids"
    for pid in pids.read_text().split() if pids.exists() else ():
        with suppress(OSError):  # orphans of killed schedulers still wait at the gate; others have ended
            if Path(f"/proc/{pid}/cwd").readlink() == tmp_path:
                os.kill(int(pid), 9)


def test_each_job_runs_once_and_in_order_where_nothing_happens(office: Office) -> None:
    office.submit(MARK, 5)
    office.finish()
    assert office.check(5) == {job: [("started", 1), ("finished", 1)] for job in range(1, 6)}
    assert office.effects() == [(job, 1, 1) for job in range(1, 6)]


def test_killed_between_start_and_finish_a_job_is_not_tried_again_by_default(office: Office) -> None:
    office.submit(BLOCK)
    office.submit(MARK)
    first = office.scheduler("first")
    office.wait_for_effects(1)
    second = office.scheduler("second")
    office.wait_for_waiting()
    first.kill()
    second.wait_for("job 2: finished")
    second.stop()
    assert office.check(2) == {1: [("started", 1), ("abandoned", 1)], 2: [("started", 1), ("finished", 1)]}
    assert office.effects() == [(1, 1, 1), (2, 1, 2)]


def test_killed_between_start_and_finish_a_job_is_started_again_where_that_is_wanted(office: Office) -> None:
    office.submit(BLOCK)
    office.submit(MARK)
    first = office.scheduler("first", "--after-crash", "again")
    (orphan,) = office.wait_for_pids(1)
    second = office.scheduler("second", "--after-crash", "again")
    office.wait_for_waiting()
    first.kill()
    office.wait_for_pids(2)
    os.kill(orphan, 9)
    wait_for(lambda: not Path(f"/proc/{orphan}").exists(), "what the first one left at the gate to be gone")
    office.open_gate()
    second.wait_for("job 2: finished")
    second.stop()
    assert office.check(2) == {
        1: [("started", 1), ("started", 2), ("finished", 2)],
        2: [("started", 1), ("finished", 1)],
    }
    assert office.effects() == [(1, 1, 1), (1, 2, 2), (2, 1, 2)], "its target can tell them apart, and refuse the first"


@pytest.mark.parametrize("after_crash", ["skip", "again"])
def test_whenever_schedulers_are_killed_each_start_is_decided_once(office: Office, after_crash: str) -> None:
    jobs, kills = 200, 4
    office.submit(MARK, jobs)
    for number in range(kills):
        program = office.scheduler(f"scheduler-{number}", "--after-crash", after_crash)
        program.wait_for("job .*: started")
        time.sleep(random.uniform(0, 0.1))
        program.kill()
    office.finish("--after-crash", after_crash)
    decisions, effects = office.check(jobs), defaultdict[int, int](int)
    for job, _, _ in office.effects():
        effects[job] += 1
    unfinished = sum(found[-1][0] == "abandoned" or len(found) > 2 for found in decisions.values())
    assert unfinished <= kills
    for job, found in decisions.items():
        word, attempts = found[-1]
        if after_crash == "skip":
            assert attempts == 1
            assert effects[job] == 1 if word == "finished" else effects[job] <= 1
        else:
            assert word == "finished"
            assert 1 <= effects[job] <= attempts


def test_a_stalled_scheduler_decides_nothing_any_more_and_stops_its_job(office: Office) -> None:
    office.submit(BLOCK)
    stalled = office.scheduler("stalled")
    office.wait_for_effects(1)
    following = office.scheduler("next")
    office.wait_for_waiting()
    stalled.child.pause()
    assert office.rest.call("POST", f"/v1/topics/{office.topic}/fence")[0] == 200
    following.wait_for("job 1: abandoned")
    stalled.child.resume()
    assert stalled.end() == 4
    assert "lost the topic" in stalled.output
    pid = (office.directory / "pids").read_text().strip()
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "the job to be stopped", PATIENCE)
    following.stop()
    assert office.check(1) == {1: [("started", 1), ("abandoned", 1)]}


def test_an_idle_scheduler_ends_where_it_is_fenced(office: Office) -> None:
    program = office.scheduler("idle")
    program.wait_for("idle schedules")
    assert office.rest.call("POST", f"/v1/topics/{office.topic}/fence")[0] == 200
    assert program.end() == 4
    assert "while there was nothing to do" in program.output


@pytest.mark.smoke
def test_a_decision_whose_answer_is_lost_is_asked_again_and_stands_there_once(office: Office) -> None:
    office.submit(BLOCK)
    program = office.scheduler("first", "--until-idle")
    office.wait_for_effects(1)
    office.node.pause()
    try:
        office.open_gate()
        program.wait_for("job 1: whether it is finished is not known yet")
    finally:
        office.node.resume()
    assert program.end() == 0, program.output
    assert office.check(1) == {1: [("started", 1), ("finished", 1)]}


def test_a_log_that_lost_its_beginning_is_refused(services: Services, office: Office) -> None:
    office.submit(MARK, 3)
    office.finish()
    second = office.log()[1]
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap})
    until = TopicPartition(office.topic, 0, second.offset)
    admin.delete_records([until])[until].result(PATIENCE)
    program = office.scheduler("late")
    assert program.end() == 1
    assert "decision 0 is not in" in program.output
