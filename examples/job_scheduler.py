"""A job scheduler: each job is started once, whichever of several schedulers crashes, stalls or takes over, and when.

Jobs are rows of a database, with the time at which they are due. Schedulers wait for one topic, and the one that owns
it runs jobs, one after the other. What it *decides* it writes into the topic first: `started` before a job begins,
`finished` behind its end. The topic is a write-ahead log: the next scheduler reads it and knows what was decided.

    sidecar topic set 'example-*' --access exclusive --dedup
    python examples/job_scheduler.py submit jobs.db 'echo hello' --in 2
    python examples/job_scheduler.py run jobs.db          # in two terminals; kill the one that works

What *once* means:

- For each attempt at a job there is one decision `started` in the log, whatever is sent again, and none of a scheduler
  that lost the topic.
- Between `started` and `finished` a scheduler may die, and nobody can tell from outside how far the job came. Choose:
  `--after-crash skip`: the job is `abandoned`, not tried again. It happened *at most once*, perhaps in part.
  `--after-crash again`: the next scheduler starts it again. It happens *at least once*, and comes to its end at last.
- A job that is to happen exactly once has to say itself what it did, there where it does it: it is given JOB (the
  number, the same in every attempt), ATTEMPT, and GENERATION of its scheduler. Do the work under the key JOB, and
  refuse a lower GENERATION than you have seen: then a job that was left over by a crashed or stalled scheduler does no
  harm any more. No scheduler can do that for it.

What makes it right: exclusive ownership, and reading the log behind it (see replicated_state_machine.py). Sequence ids
are the places in the log, 0, 1, 2 …: where the answer to a decision is lost, it is sent again under the same id and
stands there once; and a log that lost its beginning is noticed, as the ids do not begin with it.
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
    """The jobs that are not done with."""

    def __init__(self, path: Path) -> None:
        self._sqlite = sqlite3.connect(path, timeout=60, check_same_thread=False)  # used by one thread at a time
        self._sqlite.execute(
            # AUTOINCREMENT: a number is never given again, also where its job is gone
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
        """It is done with: the log says so."""
        with self._sqlite:
            self._sqlite.execute("DELETE FROM jobs WHERE number = ?", (number,))


# Decisions ------------------------------------------------------------------------------------------------------------


class Decisions:
    """The write-ahead log, of which `producer` is the owner, and what it says of each job."""

    def __init__(self, producer: ExclusiveProducer, name: str) -> None:
        self.newest: dict[int, tuple[Word, int]] = {}
        """By job: the newest decision, and at which attempt."""
        self._producer = producer
        self._name = name
        self._length = 0

    async def replay(self, bootstrap: str) -> int:
        """Read all decisions there are; how many."""
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
        """Return once it is in the log. Raises `ProducerFencedError`: then somebody else decides, and this never was.

        Where nobody answers it asks until somebody does: under one sequence id it is written once.
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
    """Runs jobs under the topic that `producer` owns."""

    def __init__(self, jobs: Jobs, producer: ExclusiveProducer, decisions: Decisions, *, again: bool) -> None:
        self._jobs = jobs
        self._producer = producer
        self._decisions = decisions
        self._again = again

    async def handle(self, job: Job) -> None:
        """Do what is to be done about a job, and remove it."""
        word, attempt = self._decisions.newest.get(job.number, (None, 0))
        if word == "started" and not self._again:
            await self._decisions.decide(job.number, "abandoned", attempt)
        elif word in (None, "started"):
            await self._decisions.decide(job.number, "started", attempt + 1)
            exit_code = await self._execute(job, attempt + 1)
            await self._decisions.decide(job.number, "finished", attempt + 1, exit_code)
        await in_thread(self._jobs.remove, job.number)

    async def _execute(self, job: Job, attempt: int) -> int:
        """Run it to its end, or to the loss of the topic: what happens then is another scheduler's."""
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
    """Wait for the topic, learn what was decided, go on."""
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
with_topic = click.option("--topic", default="example-decisions", help="Created where it is not there.")


@click.group(context_settings=HELP)
def main() -> None:
    """Runs each job of a database once."""


@main.command()
@with_database
@click.argument("command")
@click.option("--in", "seconds", default=0.0, help="Seconds until it is due.")
@click.option("--times", default=1, help="As so many jobs.")
def submit(database: Path, command: str, seconds: float, times: int) -> None:
    """Add a job: a command for the shell."""
    with closing(Jobs(database)) as jobs:
        for _ in range(times):
            tell(f"job {jobs.submit(command, time.time() + seconds)}")


@main.command(name="run")
@with_database
@with_bootstrap
@with_topic
@click.option("--name", default=own_name, show_default="host and process id", help="Who this instance is, for people.")
@click.option(
    "--after-crash",
    type=click.Choice(["skip", "again"]),
    default="skip",
    help="A job that was started and not finished: leave it (at most once), or start it again (at least once).",
)
@click.option("--until-idle", is_flag=True, help="End once no job is due.")
@click.option("--replicas", default=1, help="Of a topic that is created: 3 in production.")
def run_jobs(
    database: Path, bootstrap: str, topic: str, name: str, after_crash: str, until_idle: bool, replicas: int
) -> None:
    """Wait until no other scheduler is at work, then run what is due."""

    async def program() -> None:
        await create_topic(bootstrap, topic, 1, replicas, {"cleanup.policy": "delete", "retention.ms": "-1"})
        with closing(Jobs(database)) as jobs:
            await schedule(jobs, bootstrap, topic, name, again=after_crash == "again", until_idle=until_idle)

    run(program())


@main.command()
@with_bootstrap
@with_topic
def log(bootstrap: str, topic: str) -> None:
    """Show what was decided: anybody may read."""

    async def program() -> None:
        async with aclosing(read_to_end(bootstrap, topic)) as records:
            async for record in records:
                told = json.loads(record.value or b"{}")
                headers = {name: (value or b"").decode() for name, value in record.headers}
                tell(f"{headers[SEQUENCE_ID]}: job {(record.key or b'').decode()} {told} by {headers['leader']}")

    run(program())


if __name__ == "__main__":
    main()
