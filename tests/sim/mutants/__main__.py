"""`make mutants`: every mutant, the seed and the check that find it, and what that cost.

    python -m tests.sim.mutants                     all of them
    python -m tests.sim.mutants hole 'no fence'     those whose name or origin has one of these words
    python -m tests.sim.mutants --seeds 200 WORD    more seeds than it is known to take
    python -m tests.sim.mutants --history 3 WORD    the history of a seed, and what is wrong with it

The exit code is 1 where a mutant is found by none of its seeds, or something is wrong without it under the same seeds.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from tests.sim.mutants.all import MUTANTS
from tests.sim.mutants.redundant import REDUNDANT
from tests.sim.mutants.run import Lanes, hunt

if TYPE_CHECKING:
    from tests.sim.mutants.mutant import Mutant
    from tests.sim.mutants.run import Caught


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants", description=str(__doc__).partition("\n")[0])
    parser.add_argument("words", nargs="*", help="a piece of a name or an origin, such as: hole 2")
    parser.add_argument("--seeds", type=int, default=0, help="how many seeds, for each mutant")
    parser.add_argument("--history", type=int, help="play this seed alone, and print it")
    chosen = parser.parse_args()
    wanted = " ".join(chosen.words)
    mutants = [each for each in MUTANTS if wanted in _label(each)]
    if not mutants:
        parser.error(f"no mutant has {wanted!r} in its name or origin")
    clean = Lanes()
    done: list[Caught] = []
    width = max(len(_label(each)) for each in mutants)
    try:
        if chosen.history is not None:
            return _one(mutants[0], chosen.history, clean)
        print(f"{'mutant':{width}}  seed  {'check':16} CPU s", flush=True)
        for mutant in mutants:
            done.append(hunt(mutant, clean, chosen.seeds))
            print(_row(done[-1], width), flush=True)
    finally:
        clean.close()
    wrong = [each for each in done if not each.is_right]
    print(f"{len(done) - len(wrong)} of {len(done)} mutants are found, {sum(each.cpu_s for each in done):.0f} s of CPU")
    for rule in REDUNDANT if not chosen.words else ():
        print(f"REDUNDANT: {rule.of}: {rule.why} Without both: {rule.both!r}")
    for each in wrong:
        _explain(each)
    return 1 if wrong else 0


def _label(mutant: Mutant) -> str:
    return f"{mutant.of}: {mutant.name}"


def _row(found: Caught, width: int) -> str:
    seed = "none" if found.seed is None else str(found.seed)
    unclean = "" if not found.unclean else "  and wrong without it"
    return f"{_label(found.mutant):{width}}  {seed:>4}  {found.rule:16} {found.cpu_s:5.1f}{unclean}"


def _explain(found: Caught) -> None:
    mutant = found.mutant
    if found.seed is None:
        print(f"\nSURVIVED: {_label(mutant)}, in {mutant.where}: {mutant.does}")
    for sentence in found.unclean:
        print(f"\nwrong without {mutant.name!r}: {sentence}")


def _one(mutant: Mutant, seed: int, clean: Lanes) -> int:
    history, mine = mutant.found_by(seed), Lanes()
    print(f"{_label(mutant)}: {mutant.does}\n{history}")
    try:
        found = mine.wrong(history, mutant.world + mutant.edits)
    finally:
        mine.close()
    print(*[f"  {each}" for each in found or ["nothing is wrong"]], sep="\n")
    print(*[f"  without it: {each}" for each in clean.wrong(history, mutant.world)], sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
