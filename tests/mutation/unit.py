"""Unit tests against mutants, in one process that has collected them all. A fork of it runs all tests once and records
which of them runs which statement; then a fork for each mutant runs the tests that reach it, until one fails.

Hypothesis draws the same examples each time, and shrinks nothing. A test that uses ten times the CPU that it should, or
that neither uses CPU nor ends, has failed: with the mistake it hangs.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import select
import signal
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.mutation.operators import statement_number
from tests.mutation.rooms import ROOMS, ROOT, own_tests, room_of
from tests.mutation.swap import SwapError, functions, swap
from tests.sim import lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tests.mutation.operators import Mutant

_UNIT: Final = ROOT / "tests" / "unit"
FOLDERS: Final = (*ROOMS, "node")
_PROCESSES: Final = ("node/test_process.py",)
"""Tests of processes, which no mistake of this process changes."""
RECORD: Final = ROOT / ".cache" / "mutation" / "unit.jsonl"
_BUDGET_S: Final = 30.0
"""CPU seconds of tests for one mutant: the rest of those that reach it is left out."""
_SPARE_S: Final = 5
_TIMES: Final = 10
_POLL_S: Final = 0.5
_STILL_S: Final = 8.0
"""So long a process may use no CPU."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One test of one fork. `hung`: it was ended."""

    test: str
    failed: bool
    hung: bool = False


@dataclass(slots=True)
class Reach:
    """What a test costs, in CPU seconds, and the statements that it runs: numbers of `lines.lines_of`, by module."""

    cpu_s: float
    runs: dict[str, set[int]] = field(default_factory=dict[str, set[int]])


class Tests:
    """Collected tests, and what they reach. Raises `pytest.UsageError` where one fails without any mistake."""

    def __init__(self, items: Sequence[pytest.Item], say: Callable[[str], None], record: Path) -> None:
        self._items = {item.nodeid: item for item in items}
        self._say = say
        self.reach = _recorded(record)
        if new := [item for item in items if item.nodeid not in self.reach]:
            self._record(new, record)
        self._functions = functions()
        gc.collect()
        gc.freeze()

    def _record(self, items: Sequence[pytest.Item], record: Path) -> None:
        if not lines.MARKS:
            record.unlink()
            raise pytest.UsageError(f"{record.name} did not have all tests of a file, and was deleted: run it again")
        self._say(f"recording what {len(items)} tests run")
        failed: list[str] = []
        done: dict[str, Reach] = {}

        def end_of_file() -> None:
            if done:
                _write(record, done)
                self.reach.update(done)
                done.clear()

        for line in _Fork(lambda say: _watched(items, say)).said():
            name = line["test"]
            failed += [name] if line["failed"] else []
            if done and name.partition("::")[0] != next(iter(done)).partition("::")[0]:
                end_of_file()
            done[name] = Reach(line["cpu_s"], {path: set(numbers) for path, numbers in line["runs"].items()})
        end_of_file()
        if failed or any(item.nodeid not in self.reach for item in items):
            raise pytest.UsageError(f"tests fail without any mistake, or end the process: {failed}")

    def for_mutant(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant: those of its module first, then those of its room; the cheapest first."""
        number = statement_number(mutant)
        own = own_tests(room_of(mutant.path))
        module = tuple(f"{folder}test_{Path(mutant.path).stem}" for folder in own)
        reaching = [name for name, reach in self.reach.items() if number in reach.runs.get(mutant.path, ())]
        reaching.sort(key=lambda name: (not name.startswith(module), not name.startswith(own), self.reach[name].cpu_s))
        chosen, spent = list[str](), 0.0
        for name in reaching:
            if spent + self.reach[name].cpu_s <= _BUDGET_S and name in self._items:
                chosen.append(name)
                spent += self.reach[name].cpu_s
        return chosen

    def run(self, mutant: Mutant, names: Sequence[str], *, all_of_them: bool = False) -> Iterator[Ran]:
        """Run tests with a mistake, until one fails; `all_of_them`: go on after that. Raises `SwapError`."""
        left = list(names)
        while left:
            ran = list(self._run(mutant, left, all_of_them=all_of_them))
            yield from ran
            left = left[len(ran) :] if all_of_them and ran else []

    def _run(self, mutant: Mutant, names: Sequence[str], *, all_of_them: bool) -> Iterator[Ran]:
        """In one fork, which ends after the first test that hangs."""

        def play(say: Callable[[Any], None]) -> None:
            try:
                swap(mutant, self._functions)
            except SwapError as error:
                say({"error": str(error)})
                return
            for name in names:
                limit = self._limit(name)
                say({"begins": name})
                failed = _is_failed(self._items[name], limit)
                say({"test": name, "failed": failed})
                if failed and not all_of_them:
                    return

        begun = ""
        for line in _Fork(play).said():
            if "error" in line:
                raise SwapError(line["error"])
            if "begins" in line:
                begun = line["begins"]
                continue
            begun = ""
            yield Ran(line["test"], line["failed"])
        if begun:
            yield Ran(begun, failed=True, hung=True)

    def _limit(self, name: str) -> float:
        return _TIMES * self.reach[name].cpu_s + _SPARE_S


class _Fork:
    """A process that says things, one JSON a line."""

    def __init__(self, play: Callable[[Callable[[Any], None]], None]) -> None:
        self._source, to = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._source)
            _quiet()
            try:
                play(lambda what: _all(to, json.dumps(what).encode() + b"\n"))
            finally:
                os._exit(0)
        os.close(to)

    def said(self) -> Iterator[Any]:
        """Until it ends by itself, or stands still."""
        rest, still_since, cpu = b"", time.monotonic(), -1.0
        try:
            while True:
                if not select.select([self._source], [], [], _POLL_S)[0]:
                    now, used = time.monotonic(), _cpu_s(self.pid)
                    if used != cpu:
                        still_since, cpu = now, used
                    elif now - still_since > _STILL_S:
                        return
                    continue
                data = os.read(self._source, 1 << 16)
                if not data:
                    return
                still_since = time.monotonic()
                *whole, rest = (rest + data).split(b"\n")
                yield from map(json.loads, whole)
        finally:
            os.close(self._source)
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _all(to: int, data: bytes) -> None:
    while data:
        data = data[os.write(to, data) :]


def _quiet() -> None:
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.dup2(nothing, 2)


def _cpu_s(pid: int) -> float:
    """Of all threads; as long as one of them waits for a processor, it counts as in use."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return -1.0
    return time.monotonic() if numbers[0] == "R" else float(numbers[11]) + float(numbers[12])


def _is_failed(item: pytest.Item, limit: float = 0.0) -> bool:
    """Run a test. Uses more CPU than its limit: the process ends."""
    session = item.session
    before = session.testsfailed
    signal.setitimer(signal.ITIMER_PROF, limit)
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return session.testsfailed > before


def _watched(items: Iterable[pytest.Item], say: Callable[[Any], None]) -> None:
    for item in items:
        for marks in lines.MARKS.values():
            marks[:] = bytes(len(marks))
        began = time.process_time()
        failed = _is_failed(item)
        runs = {
            path: [number for number, mark in enumerate(marks) if mark]
            for path, marks in lines.MARKS.items()
            if any(marks)
        }
        say({"test": item.nodeid, "failed": failed, "cpu_s": time.process_time() - began, "runs": runs})


# The record ---------------------------------------------------------------------------------------------------------


def files_of(folders: Iterable[str]) -> list[Path]:
    """The tests that may notice a mistake."""
    paths = (path for folder in folders for path in sorted((_UNIT / folder).rglob("test_*.py")))
    return [path for path in paths if str(path.relative_to(_UNIT)) not in _PROCESSES]


def is_recorded(paths: Iterable[Path], record: Path = RECORD) -> bool:
    """Whether nothing has to be recorded: else the product has to be imported with marks (`lines.watch`)."""
    known = {name.partition("::")[0] for name in _recorded(record)}
    return {str(path.relative_to(ROOT)) for path in paths} <= known


@cache
def _digest(path: Path) -> bytes:
    """Of a file as it is when it is asked for first: before the tests are collected."""
    return hashlib.sha256(path.read_bytes()).digest() if path.exists() else b""


def _key(file: str, tests: Iterable[Reach]) -> str:
    """What the reach of a file's tests depends on: the file and the modules beside it, and the modules that it runs."""
    path = ROOT / file
    shared = sorted(each for each in path.parent.glob("*.py") if not each.name.startswith("test_"))
    modules = sorted(ROOT / module for module in {module for reach in tests for module in reach.runs})
    return hashlib.sha256(b"".join(map(_digest, (path, *shared, *modules)))).hexdigest()


def _recorded(record: Path) -> dict[str, Reach]:
    """What still holds. Of a file's lines the last counts."""
    known: dict[str, dict[str, Reach]] = {}
    for line in record.read_text().splitlines() if record.exists() else ():
        part: dict[str, Any] = json.loads(line)
        tests = {
            name: Reach(cpu_s, {path: set(numbers) for path, numbers in runs.items()})
            for name, (cpu_s, runs) in part["tests"].items()
        }
        known[part["file"]] = tests if part["key"] == _key(part["file"], tests.values()) else {}
    return {name: reach for tests in known.values() for name, reach in tests.items()}


def _write(record: Path, tests: Mapping[str, Reach]) -> None:
    """The tests of one file."""
    file = next(iter(tests)).partition("::")[0]
    stored = {
        name: (reach.cpu_s, {path: sorted(numbers) for path, numbers in reach.runs.items()})
        for name, reach in tests.items()
    }
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a") as to:
        to.write(json.dumps({"file": file, "key": _key(file, tests.values()), "tests": stored}) + "\n")


# Within pytest ------------------------------------------------------------------------------------------------------


class _Plugin:
    """Plays instead of running the tests that were collected."""

    def __init__(self, play: Callable[[Tests], None], say: Callable[[str], None]) -> None:
        self._play, self._say = play, say

    def pytest_sessionstart(self) -> None:
        from hypothesis import HealthCheck, Phase, settings  # noqa: PLC0415 - pytest rewrites its asserts

        settings.register_profile(
            "mutation",
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutation")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._play(Tests(session.items, self._say, RECORD))
        return True


def with_tests(play: Callable[[Tests], None], say: Callable[[str], None], folders: Iterable[str] = FOLDERS) -> int:
    """Collect the tests in these folders of `tests/unit`, and play. Returns pytest's exit code."""
    paths = files_of(folders)
    for path in [path for each in (ROOT / "sidecar", _UNIT) for path in each.rglob("*.py")]:
        _digest(path)
    if not is_recorded(paths):
        lines.watch(ROOMS)
    return pytest.main(
        ["-q", "-q", "-s", "-p", "no:randomly", "-p", "no:cacheprovider", "--rootdir", str(ROOT), *map(str, paths)],
        plugins=[_Plugin(play, say)],
    )
