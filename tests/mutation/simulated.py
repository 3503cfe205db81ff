"""Seeds of the simulator against mutants: one process that has imported everything, and a fork of it for each mutant.

A seed is played only if it runs the mutated statement; the record says which do. The shortest comes first, of the
shape of world that most of them have: a world is started once for a mutant. `python -m tests.mutation.simulated` is
that process; `Simulator` starts it.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import pickle
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

from tests.mutation.operators import statement_number
from tests.mutation.rooms import ROOMS, ROOT
from tests.mutation.swap import SwapError, functions, swap
from tests.sim import lines, worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import TracebackType

    from tests.mutation.operators import Mutant
    from tests.sim.history import History
    from tests.sim.play import Outcome

_RECORD: Final = ROOT / ".cache" / "mutation" / "seeds.json"
_CPU_S: Final = 15
"""After so many CPU seconds a history hangs."""


@dataclass(slots=True)
class Seed:
    """What a seed runs, as `Reach` of `unit`. `virtual_s`: its length."""

    virtual_s: float
    runs: dict[str, set[int]]


@dataclass(frozen=True, slots=True)
class Played:
    """What a seed noticed."""

    seed: int
    wrong: list[str]


class Simulator:
    """The process. `watches`: outcomes say which statements ran."""

    def __init__(self, *, watches: bool = False) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.mutation.simulated", *(("--watch",) if watches else ())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT)},
        )
        self.cpu_s = 0.0
        """CPU seconds of the last mutant, with the start of its worlds."""

    def play(self, mutant: Mutant | None, seeds: Iterable[int]) -> Iterator[Outcome | str]:
        """Play seeds with a mistake, until one notices it: outcomes, or why there is none. Raises `SwapError`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump((mutant, [_history(seed) for seed in seeds]), self._process.stdin)
        self._process.stdin.flush()
        error: SwapError | None = None
        while not isinstance(said := pickle.load(self._process.stdout), float):
            if isinstance(said, SwapError):
                error = said
            else:
                yield said
        self.cpu_s = said
        if error is not None:
            raise error

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Seeds:
    """Seeds, and what they run."""

    def __init__(self, wanted: Sequence[int], say: Callable[[str], None]) -> None:
        self._key = _key()
        self._reach = _recorded(self._key)
        if new := [seed for seed in wanted if seed not in self._reach]:
            self._record(new, say)
        self._reach = {seed: found for seed, found in self._reach.items() if seed in wanted}
        self._shapes = Counter(_history(seed).shape for seed in self._reach)
        self._simulator = Simulator()
        self.cpu_s = 0.0
        """CPU seconds of all mutants so far."""

    def _record(self, seeds: Sequence[int], say: Callable[[str], None]) -> None:
        say(f"recording what {len(seeds)} seeds run")
        with Simulator(watches=True) as simulator:
            for outcome in simulator.play(None, seeds):
                if isinstance(outcome, str) or outcome.wrong:
                    raise RuntimeError(f"wrong without any mistake: {outcome}")
                runs = {
                    path: {number for number, mark in enumerate(marks) if mark}
                    for path, marks in outcome.lines.items()
                    if any(marks)
                }
                self._reach[outcome.seed] = Seed(outcome.virtual_s, runs)
        _write(self._key, self._reach)

    def for_mutant(self, mutant: Mutant) -> list[int]:
        """The seeds that reach a mutant, in the order of the module's docstring."""
        number = statement_number(mutant)
        reaching = [seed for seed, found in self._reach.items() if number in found.runs.get(mutant.path, ())]
        shapes = {seed: _history(seed).shape for seed in reaching}
        return sorted(
            reaching, key=lambda seed: (-self._shapes[shapes[seed]], repr(shapes[seed]), self._reach[seed].virtual_s)
        )

    def run(self, mutant: Mutant, seeds: Sequence[int]) -> Iterator[Played]:
        """Play seeds with a mistake, until one notices it. Raises `SwapError`."""
        for outcome, seed in zip(self._simulator.play(mutant, seeds), seeds, strict=False):  # to the end of the answer
            yield Played(seed, [outcome] if isinstance(outcome, str) else outcome.wrong)
        self.cpu_s += self._simulator.cpu_s

    def close(self) -> None:
        """End the process."""
        self._simulator.close()


def _history(seed: int) -> History:
    from tests.sim import histories  # noqa: PLC0415 - it imports the product, which the process imports with marks

    return histories.make(seed, histories.USUAL)


def _key() -> str:
    texts = hashlib.sha256()
    for path in [*sorted((ROOT / "sidecar").rglob("*.py")), *sorted((ROOT / "tests" / "sim").glob("*.py"))]:
        texts.update(path.read_bytes())
    return texts.hexdigest()


def _recorded(key: str) -> dict[int, Seed]:
    stored: dict[str, Any] = json.loads(_RECORD.read_text()) if _RECORD.exists() else {"key": ""}
    if stored["key"] != key:
        return {}
    return {
        int(seed): Seed(virtual_s, {path: set(numbers) for path, numbers in runs.items()})
        for seed, (virtual_s, runs) in stored["seeds"].items()
    }


def _write(key: str, reach: dict[int, Seed]) -> None:
    seeds = {
        seed: (found.virtual_s, {path: sorted(numbers) for path, numbers in found.runs.items()})
        for seed, found in reach.items()
    }
    _RECORD.parent.mkdir(parents=True, exist_ok=True)
    _RECORD.write_text(json.dumps({"key": key, "seeds": seeds}))


# The process --------------------------------------------------------------------------------------------------------


def _main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if "--watch" in sys.argv:
        lines.watch(ROOMS)
    before = worker.warm_up()
    worker.CPU_S = _CPU_S
    known = functions()
    gc.freeze()
    while True:
        try:
            mutant, wanted = pickle.load(requests)
        except EOFError:
            return
        child = os.fork()
        if child == 0:
            try:
                _of_mutant(mutant, wanted, known, before, answers)
            finally:
                os._exit(0)
        _, _, used = os.wait4(child, 0)
        pickle.dump(used.ru_utime + used.ru_stime, answers)
        answers.flush()


def _of_mutant(mutant: Mutant | None, wanted: Sequence[History], known: Any, before: Any, answers: Any) -> None:
    """In a fork."""

    def say(what: Any) -> None:
        pickle.dump(what, answers)
        answers.flush()

    try:
        if mutant is not None:
            swap(mutant, known)
    except SwapError as error:
        say(error)
        return
    worlds: dict[Any, worker.WorldProcess] = {}
    for history in wanted:
        if history.shape not in worlds:
            worlds[history.shape] = worker.WorldProcess(history.shape, worlds.values(), before)
        answer = worlds[history.shape].play(pickle.dumps(worker.Wish(history)))
        outcome = "its world does not start, or ended" if answer is None else pickle.loads(answer)
        say(outcome)
        if mutant is not None and (isinstance(outcome, str) or outcome.wrong):
            break
    for world in worlds.values():
        world.end()


if __name__ == "__main__":
    _main()
