"""Plays mutants until they are caught, and the product as it is under the same seeds."""

from __future__ import annotations

import resource
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.checker import Finding
from tests.sim.mutants.mutant import FAILED
from tests.sim.worker import Worker, WorkerError

if TYPE_CHECKING:
    from tests.sim.history import History
    from tests.sim.mutants.edits import Edit
    from tests.sim.mutants.mutant import Mutant


@dataclass(frozen=True, slots=True)
class Caught:
    """What became of a mutant. `seed`: the first one that finds it, None where none does; `rule`: the check that does;
    `wrong`: what is wrong with it. `cpu_s`: of all histories up to that one and the start of their worlds. `unclean`:
    what is wrong with the product under these seeds.
    """

    mutant: Mutant
    seed: int | None
    rule: str
    wrong: str
    cpu_s: float
    unclean: list[str] = field(default_factory=list[str])

    @property
    def is_right(self) -> bool:
        """Found, and nothing was without it."""
        return self.seed is not None and not self.unclean


class Lanes:
    """Workers by the edits in the product. What they found is remembered: many mutants have the same histories."""

    def __init__(self) -> None:
        self._workers: dict[tuple[Edit, ...], Worker] = {}
        self._found: dict[tuple[str, tuple[Edit, ...]], list[str]] = {}

    def once(self, history: History, edits: tuple[Edit, ...]) -> list[str]:
        """As `wrong`, played only the first time."""
        key = f"{history.shape} {history}", edits
        if key not in self._found:
            self._found[key] = self.wrong(history, edits)
        return self._found[key]

    def wrong(self, history: History, edits: tuple[Edit, ...]) -> list[str]:
        """What is wrong with a history, with these edits in the product."""
        try:
            worker = self._workers.get(edits)
            if worker is None:
                worker = self._workers[edits] = Worker(edits)
            return worker.play(history).wrong
        except WorkerError as error:
            if (worker := self._workers.pop(edits, None)) is not None:
                worker.close()
            return [Finding.of(FAILED, str(error))]

    def close(self) -> None:
        """End them all."""
        for worker in self._workers.values():
            with suppress(BrokenPipeError):
                worker.close()
        self._workers.clear()


def hunt(mutant: Mutant, clean: Lanes, seeds: int = 0) -> Caught:
    """Play a mutant seed by seed until it is found, and the product under the same seeds: `clean` are its workers.
    `seeds`: how many, if not the mutant's.
    """
    mine, before = Lanes(), _cpu_s()
    seed, rule, wrong = None, "", ""
    others: set[str] = set()
    try:
        for number in range(seeds or mutant.seeds):
            history = mutant.found_by(number)
            said = [each for each in mine.wrong(history, mutant.world + mutant.edits) if isinstance(each, Finding)]
            if found := [each for each in said if mutant.counts(each.rule)]:
                seed, rule, wrong = number, found[0].rule, found[0]
                break
            others.update(each.rule for each in said)
    finally:
        mine.close()
    cpu_s = _cpu_s() - before
    played = [mutant.found_by(number) for number in range((seeds or mutant.seeds) if seed is None else seed + 1)]
    unclean = [f"seed {each.seed}: {said}" for each in played for said in clean.once(each, mutant.world)]
    return Caught(mutant, seed, rule or ", ".join(sorted(others)), wrong, cpu_s, unclean)


def _cpu_s() -> float:
    """Of the workers that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
