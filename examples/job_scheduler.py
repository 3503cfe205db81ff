"""A job scheduler: each job is started once, whichever of several schedulers crashes, stalls or takes over, and when.

Jobs are rows of a database, with the time at which they are due. Schedulers wait for one topic, and its owner runs
jobs, one after the other. It writes each *decision* to the topic first: `started` before a job begins, `finished` after
its end. The topic is a write-ahead log: the next scheduler reads it and knows all decisions.

    sidecar topic set 'example-*' --access exclusive --dedup
    python examples/job_scheduler.py submit jobs.db 'echo hello' --in 2
    python examples/job_scheduler.py run jobs.db          # in two terminals; kill the one that works

What *once* means:

- For each attempt at a job there is one decision `started` in the log, also if it is sent again, and no decision of a
  scheduler that lost the topic.
- A scheduler may die between `started` and `finished`, and then it is unknown how much of the job was done. Choose:
  `--after-crash skip`: the job is `abandoned`, not tried again. It ran *at most once*, perhaps in part.
  `--after-crash again`: the next scheduler starts it again. It runs *at least once*, and finishes in the end.
- For an exactly-once effect, the job's target has to record the work. The job gets JOB (the number, the same in every
  attempt), ATTEMPT, and GENERATION of its scheduler. Do the work under the key JOB, and refuse a GENERATION lower than
  the highest seen: then the remaining job of a crashed or stalled scheduler has no effect. No scheduler can do that
  for the target.

Why it is correct: exclusive ownership, and reading the log after it (see replicated_state_machine.py). Sequence ids are
the positions in the log, 0, 1, 2 …. If the answer to a decision is lost, the decision is sent again under the same id
and is in the log once. A log that lost its beginning is noticed, because its ids do not begin with 0.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from contextlib import aclosing, closing
from pathlib import Path
from typing import Final, Literal, NamedTuple, TypeAlias

import click

from common import FENCED, HELP, Failure, create_topic, in_thread, own_name, read_to_end, run, tell, with_bootstrap
from sidecar.client import ExclusiveProducer, SidecarUnavailableError

Word: TypeAlias = Literal["started", "finished", "abandoned"]

SCHEDULER: Final = "scheduler"
"""The producer name of all schedulers: they continue one sequence of ids."""
SEQUENCE_ID: Final = "sidecar-sequence-id"
ANSWER_S: Final = 3.0
POLL_S: Final = 0.2


# Jobs -----------------------------------------------------------------------------------------------------------------


class Job(NamedTuple):
    """A row. `due` is in Unix seconds."""

    number: int
    command: str
    due: float


class Jobs:
    """The jobs that are not finished or abandoned."""

    def __init__(self, path: Path) -> None:
        self._sqlite = sqlite3.connect(path, timeout=60, check_same_thread=False)  # used by one thread at a time
        self._sqlite.execute(
            # AUTOINCREMENT: a number is never used again, also after its job was deleted
            "CREATE TABLE IF NOT EXISTS jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, command TEXT, due REAL)"
        )

    def close(self) -> None:
        self._sqlite.close()

    def submit(self, command: str, due: float) -> int:
        with self._sqlite:
            found = self._sqlite.execute("INSERT INTO jobs (command, due) VALUES (?, ?)", (command, due))
        assert found.lastrowid is not None
        return found.lastrowid

    def next_due(self, now: float) -> Job | None:
        found = self._sqlite.execute("SELECT * FROM jobs WHERE due <= ? ORDER BY due, number LIMIT 1", (now,))
        row = found.fetchone()
        return None if row is None else Job(*row)

    def remove(self, number: int) -> None:
        """Delete a job: the log has its last decision."""
        with self._sqlite:
            self._sqlite.execute("DELETE FROM jobs WHERE number = ?", (number,))


# Decisions ------------------------------------------------------------------------------------------------------------


class Decisions:
    """The write-ahead log, which `producer` owns, and the newest decision on each job."""

    def __init__(self, producer: ExclusiveProducer, name: str) -> None:
        self.newest: dict[int, tuple[Word, int]] = {}
        """By job: the newest decision, and at which attempt."""
        self._producer = producer
        self._name = name
        self._length = 0

    async def replay(self, bootstrap: str) -> int:
        """Read all decisions; return their number."""
        async with aclosing(read_to_end(bootstrap, self._producer.topic)) as records:
            async for record in records:
                assert record.key is not None
                assert record.value is not None
                if dict(record.headers)[SEQUENCE_ID] != str(self._length).encode():
                    break
                decision = json.loads(record.value)
                self.newest[int(record.key)] = decision["decision"], decision["attempt"]
                self._length += 1
            else:
                if self._producer.last_sequence_id < self._length:
                    return self._length
        raise Failure(f"decision {self._length} is not in {self._producer.topic} any more: which jobs ran is not known")

    async def decide(self, job: int, word: Word, attempt: int, exit_code: int | None = None) -> None:
        """Return when the decision is in the log. Raises `ProducerFencedError`: then another scheduler decides, and
        this decision is not in the log.

        Without an answer it sends the decision again until there is one: under one sequence id it is written once.
        """
        decision = {"decision": word, "attempt": attempt, "exit_code": exit_code}
        headers = (("leader", self._name.encode()), ("generation", str(self._producer.generation).encode()))
        while True:
            try:
                await self._producer.send(
                    json.dumps(decision).encode(), key=str(job).encode(), headers=headers, sequence_id=self._length
                )
            except SidecarUnavailableError as error:
                tell(f"job {job}: whether it is {word} is not known yet ({error})")
            else:
                break
        self._length += 1
        self.newest[job] = word, attempt
        tell(f"job {job}: {word}" + (f", attempt {attempt}" if attempt > 1 else ""))


# The scheduler --------------------------------------------------------------------------------------------------------


class Scheduler:
    """Runs jobs while `producer` owns the topic."""

    def __init__(self, jobs: Jobs, producer: ExclusiveProducer, decisions: Decisions, *, again: bool) -> None:
        self._jobs = jobs
        self._producer = producer
        self._decisions = decisions
        self._again = again

    async def handle(self, job: Job) -> None:
        """Start, abandon or skip a job by the decisions so far, and delete it."""
        word, attempt = self._decisions.newest.get(job.number, (None, 0))
        if word == "started" and not self._again:
            await self._decisions.decide(job.number, "abandoned", attempt)
        elif word in (None, "started"):
            await self._decisions.decide(job.number, "started", attempt + 1)
            exit_code = await self._execute(job, attempt + 1)
            await self._decisions.decide(job.number, "finished", attempt + 1, exit_code)
        await in_thread(self._jobs.remove, job.number)

    async def _execute(self, job: Job, attempt: int) -> int:
        """Run a job until it ends or the topic is lost; then another scheduler decides on it."""
        told = {"JOB": str(job.number), "ATTEMPT": str(attempt), "GENERATION": str(self._producer.generation)}
        process = await asyncio.create_subprocess_shell(job.command, env={**os.environ, **told})
        ended, lost = asyncio.create_task(process.wait()), asyncio.create_task(self._producer.lost())
        try:
            await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            lost.cancel()
            if process.returncode is None:
                process.terminate()
        return await ended


async def schedule(jobs: Jobs, bootstrap: str, topic: str, name: str, *, again: bool, until_idle: bool) -> None:
    """Wait for the topic, read the decisions, run the jobs."""
    tell(f"{name} waits for {topic}")
    async with ExclusiveProducer(bootstrap, topic=topic, name=SCHEDULER, timeout=ANSWER_S) as producer:
        decisions = Decisions(producer, name)
        count = await decisions.replay(bootstrap)
        tell(f"{name} schedules (generation {producer.generation}), {count} decisions were made before")
        scheduler = Scheduler(jobs, producer, decisions, again=again)
        lost = asyncio.create_task(producer.lost())
        while not lost.done():
            job = await in_thread(jobs.next_due, time.time())
            if job is not None:
                await scheduler.handle(job)
            elif until_idle:
                return
            else:
                await asyncio.wait({lost}, timeout=POLL_S)
        raise Failure(f"lost {topic} while there was nothing to do", FENCED)


# The program ----------------------------------------------------------------------------------------------------------

with_database = click.argument("database", type=click.Path(dir_okay=False, path_type=Path))
with_topic = click.option("--topic", default="example-decisions", help="Topic; created if it does not exist.")


@click.group(context_settings=HELP)
def main() -> None:
    """Runs each job of a database once."""


@main.command()
@with_database
@click.argument("command")
@click.option("--in", "seconds", default=0.0, help="Seconds until it is due.")
@click.option("--times", default=1, help="Number of jobs to add.")
def submit(database: Path, command: str, seconds: float, times: int) -> None:
    """Add a job: a command for the shell."""
    with closing(Jobs(database)) as jobs:
        for _ in range(times):
            tell(f"job {jobs.submit(command, time.time() + seconds)}")


@main.command(name="run")
@with_database
@with_bootstrap
@with_topic
@click.option("--name", default=own_name, show_default="host and process id", help="Name of this instance, for people.")
@click.option(
    "--after-crash",
    type=click.Choice(["skip", "again"]),
    default="skip",
    help="A job that was started and not finished: leave it (at most once), or start it again (at least once).",
)
@click.option("--until-idle", is_flag=True, help="End when no job is due.")
@click.option("--replicas", default=1, help="Replicas of a topic that is created: 3 in production.")
def run_jobs(
    database: Path, bootstrap: str, topic: str, name: str, after_crash: str, until_idle: bool, replicas: int
) -> None:
    """Wait until no other scheduler works, then run the jobs that are due."""

    async def program() -> None:
        await create_topic(bootstrap, topic, 1, replicas, {"cleanup.policy": "delete", "retention.ms": "-1"})
        with closing(Jobs(database)) as jobs:
            await schedule(jobs, bootstrap, topic, name, again=after_crash == "again", until_idle=until_idle)

    run(program())


@main.command()
@with_bootstrap
@with_topic
def log(bootstrap: str, topic: str) -> None:
    """Show the decisions. Every client may read them."""

    async def program() -> None:
        async with aclosing(read_to_end(bootstrap, topic)) as records:
            async for record in records:
                told = json.loads(record.value or b"{}")
                headers = {name: (value or b"").decode() for name, value in record.headers}
                tell(f"{headers[SEQUENCE_ID]}: job {(record.key or b'').decode()} {told} by {headers['leader']}")

    run(program())


if __name__ == "__main__":
    main()
