"""`python -m tests.sim`: play histories, print what is wrong, and how to see it again.

    python -m tests.sim --minutes 10            as many as there is time for, from a random seed on
    python -m tests.sim --seeds 0-999           these
    python -m tests.sim --seeds 0-1999 --coverage   these, and which lines of the product they ran
    python -m tests.sim --seeds 0-1999 --situations    these, and how many of them had each situation (`situations`)
    python -m tests.sim --mix rare --minutes 5  those that have a scene alone (`scenes`)
    python -m tests.sim --seed 7 --trace        one, with everything that happened
    python -m tests.sim --seed 7 --shrink       one, cut down to the steps that it takes to fail

Prints histories per second, how often each fault took effect, what else happened, and for each failing seed what is
wrong, the schedule and the command that plays it again. The exit code is 1 where anything failed.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.sim import former, histories, lines, situations
from tests.sim.play import FAULTS, by_kind
from tests.sim.shrink import shrink
from tests.sim.worker import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.histories import Mix
    from tests.sim.history import History
    from tests.sim.play import Outcome

_WORKERS: Final = 2
_SHOWN: Final = 20


class Lane:
    """Plays one history after the other, in its own worker."""

    def __init__(self, *, watches: bool = False, notices: bool = False) -> None:
        self._worker: Worker | None = None
        self._watches = watches
        self._notices = notices

    def play(self, history: History, *, trace: bool = False) -> Outcome:
        """Raises `WorkerError`."""
        if self._worker is None:
            self._worker = Worker(watches=self._watches, notices=self._notices)
        try:
            return self._worker.play(history, trace=trace)
        except WorkerError as error:
            if str(error) == "the worker ended":
                self._worker = None
            raise

    def fails(self, history: History) -> list[str]:
        """What is wrong with a history."""
        try:
            return self.play(history).wrong
        except WorkerError as error:
            return [str(error)]

    def close(self) -> None:
        if self._worker is not None:
            self._worker.close()


class Run:
    """Many histories on several lanes. `watches`: `lines` is what of the product they ran. `notices`: `situations` is
    how many histories had each.
    """

    def __init__(
        self, seeds: Iterator[int], deadline: float | None, mix: Mix, *, watches: bool = False, notices: bool = False
    ) -> None:
        self.lines: dict[str, bytes] = {}
        self.watches = watches
        self.situations: Counter[str] = Counter()
        self.notices = notices
        self.played = 0
        self.skipped = 0
        """Histories with nodes of the last release, where that cannot be had."""
        self.virtual_s = 0.0
        self.delivered = 0
        self.effects: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.failed: dict[int, list[str]] = {}
        self._seeds = seeds
        self._mix = mix
        self._deadline = deadline
        self._lock = threading.Lock()

    def go(self, workers: int) -> None:
        """Play them all."""
        threads = [threading.Thread(target=self._lane) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _lane(self) -> None:
        lane = Lane(watches=self.watches, notices=self.notices)
        try:
            while (seed := self._next()) is not None:
                history = histories.make(seed, self._mix)
                if history.shape.former and former.missing():
                    self.skipped += 1
                    continue
                try:
                    self._took(lane.play(history))
                except WorkerError as error:
                    self._fail(seed, [str(error)])
        finally:
            lane.close()

    def _next(self) -> int | None:
        with self._lock:
            if self._deadline is not None and time.monotonic() > self._deadline:
                return None
            return next(self._seeds, None)

    def _took(self, outcome: Outcome) -> None:
        with self._lock:
            self.played += 1
            self.virtual_s += outcome.virtual_s
            self.delivered += outcome.delivered
            self.effects.update(outcome.effects)
            self.codes.update(outcome.codes)
            self.situations.update(outcome.situations.keys())
            lines.add(self.lines, outcome.lines)
        if outcome.wrong:
            self._fail(outcome.seed, outcome.wrong)

    def _fail(self, seed: int, wrong: list[str]) -> None:
        with self._lock:
            self.failed[seed] = wrong
            print(f"seed {seed}: {wrong[0]}", flush=True)


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=str(__doc__).partition("\n")[0])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--seeds", help="A-B")
    parser.add_argument("--shrink", action="store_true", help="cut failing histories down")
    parser.add_argument("--trace", action="store_true", help="with --seed: everything that happened")
    parser.add_argument("--without", default="", help="with --seed: leave out these steps, by number")
    parser.add_argument("--mix", choices=histories.MIXES, default="usual", help="what histories are made of")
    parser.add_argument("--workers", type=int, default=_WORKERS)
    parser.add_argument("--coverage", action="store_true", help="say which lines of the product ran, and which never")
    parser.add_argument("--situations", action="store_true", help="say how many histories had each situation")
    chosen = parser.parse_args()
    mix = histories.MIXES[chosen.mix]
    if chosen.seed is not None:
        return _one(chosen.seed, mix, chosen.without, trace=chosen.trace, shrinks=chosen.shrink)
    began = time.monotonic()
    if chosen.seeds:
        first, _, last = chosen.seeds.partition("-")
        run = Run(
            iter(range(int(first), int(last or first) + 1)),
            None,
            mix,
            watches=chosen.coverage,
            notices=chosen.situations,
        )
    else:
        first = int(time.time())
        print(f"seeds from {first} on")
        deadline = began + 60 * (chosen.minutes or 1.0)
        run = Run(iter(range(first, first + 10**9)), deadline, mix, watches=chosen.coverage, notices=chosen.situations)
    run.go(chosen.workers)
    _report(run, time.monotonic() - began)
    if chosen.coverage:
        print("\n" + lines.report(run.lines))
    if chosen.situations:
        print("\n" + situations.table(run.situations, run.played))
    if chosen.shrink:
        for seed in sorted(run.failed)[:_SHOWN]:
            _one(seed, mix, "", trace=False, shrinks=True)
    return 1 if run.failed else 0


def _one(seed: int, mix: Mix, without: str, *, trace: bool, shrinks: bool) -> int:
    lane = Lane()
    try:
        whole = histories.make(seed, mix)
        left_out = {int(each) for each in without.split(",") if each}
        wrong = lane.fails(whole.without(left_out))
        if shrinks and wrong:
            left_out = shrink(whole, lane.fails)
            wrong = lane.fails(whole.without(left_out))
        history = whole.without(left_out)
        if trace:
            try:
                print(*lane.play(history, trace=True).trace, sep="\n")
            except WorkerError as error:
                print(error)
    finally:
        lane.close()
    print(history)
    for sentence in wrong or ["nothing is wrong"]:
        print(f"  {sentence}")
    name = next((name for name, each in histories.MIXES.items() if each == mix), "usual")
    rest = "" if mix is histories.USUAL else f" --mix {name}"
    rest += f" --without {','.join(map(str, sorted(left_out)))}" if left_out else ""
    print(f"again: make sim SEED={seed} ARGS='--trace{rest}'\n", flush=True)
    return 1 if wrong else 0


def _report(run: Run, seconds: float) -> None:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = f"{used.ru_utime + used.ru_stime:.0f} s of CPU"
    rate = f"{run.played / seconds:.1f} a second"
    print(f"{run.played} histories in {seconds:.0f} s, {cpu_s}: {rate}, {len(run.failed)} failed")
    if run.skipped:
        print(f"{run.skipped} histories with nodes of the last release were left out: {former.missing()}")
    print(f"{run.virtual_s / 3600:.1f} virtual hours, {run.delivered} records acknowledged")
    faults = sum(run.effects[name] for name in by_kind(run.effects)[FAULTS]) / max(1, run.played)
    print(f"{faults:.1f} faults took effect in a history, on average")
    for what, names in by_kind(run.effects).items():
        print(f"{what}: " + ", ".join(f"{name} {run.effects[name]}" for name in names))
    print("codes answered to batches: " + ", ".join(f"{code} ×{run.codes[code]}" for code in sorted(run.codes)))
    for seed, wrong in sorted(run.failed.items())[:_SHOWN]:
        print(f"\nseed {seed}: again: make sim SEED={seed} ARGS=--trace")
        for sentence in wrong:
            print(f"  {sentence}")


if __name__ == "__main__":
    sys.exit(main())
