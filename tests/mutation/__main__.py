"""`make mutation`: play mutants of the core against its unit tests, and those that survive against the simulator.

    python -m tests.mutation                            all of them: hours
    python -m tests.mutation dedup fencing              those of these rooms
    python -m tests.mutation --sample 50                so many of all rooms, the same ones each time
    python -m tests.mutation dedup --near --no-seeds    only the room's own unit tests
    python -m tests.mutation --seeds 0-1999             with these seeds of the simulator
    python -m tests.mutation dedup --matrix             every test that notices a mutant, not just the first
    python -m tests.mutation --sample 500 --at-least 80     fail if a smaller share is noticed, in per cent
    python -m tests.mutation dedup/marks.py:Marks.judge:edge:1      one, with its diff

Each result is a line in `.cache/mutation/results.jsonl`. The exit code is 1 if a mutant survives that `known.txt` does
not list (with `--at-least`: if too many do), or if an entry of it is wrong: its mutant does not exist any more, has
changed, or is noticed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from typing import TYPE_CHECKING

from tests.mutation import results, unit
from tests.mutation.known import FILE, known
from tests.mutation.operators import mutants
from tests.mutation.results import Result
from tests.mutation.rooms import ROOMS, ROOT, files, own_tests, room_of
from tests.mutation.swap import SwapError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutation.known import Known
    from tests.mutation.operators import Mutant

_RESULTS = ROOT / ".cache" / "mutation" / "results.jsonl"
_PROGRESS_S = 10.0


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=str(__doc__).partition("\n")[0])
    parser.add_argument("what", nargs="*", help="rooms, or the ids of mutants")
    parser.add_argument("--sample", type=int, help="so many mutants, in proportion to the rooms' size")
    parser.add_argument("--seed", type=int, default=0, help="another sample")
    parser.add_argument("--near", action="store_true", help="only tests of the mutants' own rooms")
    parser.add_argument("--seeds", default="0-299", help="A-B: seeds of the simulator")
    parser.add_argument("--most-seeds", type=int, default=50, help="so many of them for one mutant, the shortest first")
    parser.add_argument("--no-seeds", action="store_true", help="no simulator")
    parser.add_argument("--matrix", action="store_true", help="run all tests that reach a mutant")
    parser.add_argument("--results", default=str(_RESULTS), help="where to write the results")
    parser.add_argument("--at-least", type=float, help="the share that has to be noticed, in per cent")
    chosen = parser.parse_args()
    ids = [word for word in chosen.what if ":" in word]
    rooms = [word for word in chosen.what if ":" not in word] or sorted({word.split("/")[0] for word in ids}) or ROOMS
    if unknown := set(rooms) - set(ROOMS):
        parser.error(f"no such room: {', '.join(sorted(unknown))}")
    every = [mutant for room in rooms for path in files(room) for mutant in mutants(path)]
    wanted = [mutant for mutant in every if mutant.id in ids] if ids else every
    if chosen.sample:
        wanted = sorted(wanted, key=lambda mutant: mutant.rank(chosen.seed))[: chosen.sample]
    if len(wanted) < len(ids):
        parser.error("no mutant has this id")
    run = Run(wanted, near=chosen.near, matrix=chosen.matrix, path=chosen.results)
    code = unit.with_tests(run.play_tests, _say, rooms if chosen.near else unit.FOLDERS)
    if code not in (0, 5):
        return int(code)
    if not chosen.no_seeds:
        first, _, last = chosen.seeds.partition("-")
        run.play_seeds(range(int(first), int(last or first) + 1), chosen.most_seeds)
    for mutant in wanted if ids else ():
        result = run.results.get(mutant.id)
        print(f"{mutant.diff()}\n{'left out' if result is None else f'{result.verdict} {result.by}'.strip()}\n")
    everything = {room: sum(len(mutants(path)) for path in files(room)) for room in rooms}
    print(results.table(run.results.values(), everything))
    if chosen.matrix:
        print("\n".join(["", *results.matrix(run.results.values())]))
    new, wrong = run.new(), stale(run.known, rooms, run.results)
    print("\n".join([*new, *wrong]))
    if chosen.at_least is not None:
        new = [] if results.share(run.results.values()) >= chosen.at_least else new
    return 1 if new or wrong else 0


class Run:
    """Mutants, and what became of them so far."""

    def __init__(self, wanted: Sequence[Mutant], *, near: bool, matrix: bool, path: str) -> None:
        self.known = known()
        self.results: dict[str, Result] = {}
        self._wanted = wanted
        self._mutants = {mutant.id: mutant for mutant in wanted}
        self._near, self._matrix = near, matrix
        self._path = ROOT / path

    def play_tests(self, tests: unit.Tests) -> None:
        """The unit tests that reach each mutant."""
        shown = time.monotonic()
        for number, mutant in enumerate(self._wanted, 1):
            try:
                self.results[mutant.id] = self._tested(mutant, tests)
            except SwapError as error:
                _say(f"left out: {error}")
            if time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                self._progress(f"{number} of {len(self._wanted)}")
        results.write(self._path, self.results.values())

    def _tested(self, mutant: Mutant, tests: unit.Tests) -> Result:
        names = tests.for_mutant(mutant)
        if self._near:
            names = [name for name in names if name.startswith(own_tests(room_of(mutant.path)))]
        before = _cpu_s()
        ran = list(tests.run(mutant, names, all_of_them=self._matrix))
        killers = tuple(f"{each.test}{' (hangs)' if each.hung else ''}" for each in ran if each.failed)
        entry = self.known.get(mutant.id)
        return Result(
            mutant.id,
            room_of(mutant.path),
            mutant.line,
            mutant.change,
            "unit" if killers else "survives",
            killers[0] if killers else "",
            entry.kind if entry else "",
            len(ran),
            cpu_s=round(_cpu_s() - before, 2),
            killers=killers if self._matrix else (),
        )

    def play_seeds(self, wanted: range, most: int) -> None:
        """The seeds that reach each mutant that survives, but for those that nothing can notice."""
        survivors = [result for result in self.results.values() if result.verdict == "survives"]
        left = [result for result in survivors if result.kind != "equivalent"]
        if not left:
            return
        from tests.mutation.simulated import Seeds  # noqa: PLC0415 - it may import the product, which tests come before

        seeds, shown = Seeds(wanted, _say), time.monotonic()
        for number, result in enumerate(left, 1):
            mutant = self._mutants[result.id]
            reaching, played = seeds.for_mutant(mutant)[:most], 0
            verdict, by, before = "survives", "", seeds.cpu_s
            try:
                for each in seeds.run(mutant, reaching):
                    played += 1
                    if each.wrong:
                        verdict, by = "simulator", f"seed {each.seed}: {each.wrong[0].strip().splitlines()[-1]}"
            except SwapError as error:
                _say(f"left out: {error}")
            self.results[result.id] = Result(
                result.id, result.room, result.line, result.change, verdict, by, result.kind, result.tests, played,
                round(result.cpu_s + seeds.cpu_s - before, 2), result.killers,
            )  # fmt: skip
            if time.monotonic() - shown > _PROGRESS_S:
                shown = time.monotonic()
                self._progress(f"{number} of {len(left)} in the simulator")
        seeds.close()
        results.write(self._path, self.results.values())

    def _progress(self, where: str) -> None:
        survive = sum(result.verdict == "survives" for result in self.results.values())
        _say(f"{where}: {survive} survive, {_cpu_s():.0f} s of CPU")
        results.write(self._path, self.results.values())

    def new(self) -> list[str]:
        """Survivors that `known.txt` does not list."""
        return [
            f"\nSURVIVES: {result.id}, line {result.line}: {result.change}\n{self._mutants[result.id].diff()}"
            for result in self.results.values()
            if result.verdict == "survives" and not result.kind
        ]


def stale(entries: dict[str, Known], rooms: Sequence[str], tried: dict[str, Result]) -> list[str]:
    """What is wrong with the entries of these rooms."""
    there = {mutant.id: mutant for room in rooms for path in files(room) for mutant in mutants(path)}
    wrong: list[str] = []
    for entry in entries.values():
        if entry.id.split("/")[0] not in rooms:
            continue
        if (mutant := there.get(entry.id)) is None:
            wrong.append(f"STALE: {FILE.name}: {entry.id} does not exist")
        elif mutant.change != entry.change:
            wrong.append(f"STALE: {FILE.name}: {entry.id} is now {mutant.change}")
        elif (result := tried.get(entry.id)) is not None and (
            result.verdict != "survives" and entry.kind not in (result.verdict, "elsewhere")
        ):
            wrong.append(f"STALE: {FILE.name}: {entry.id} is noticed by {result.by}")
    return wrong


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
