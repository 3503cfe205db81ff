"""`python -m tests.fuzz [--minutes M | --executions N] [TARGET …]`: all targets, as many at a time as there are cores,
each in processes of its own.

Inputs that reach new lines stay in `.fuzz/TARGET`; `--keep` writes those that are needed for all these lines to
`tests/fuzz/corpus`. An input that shows a mistake is in `.fuzz/finds`: mend it, give it a regression test, and add it
to `tests/fuzz/finds`. The exit code is 1 where there is one.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.fuzz import corpus
from tests.fuzz.targets import NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT: Final = Path(__file__).parents[2]
_WORK: Final = _ROOT / ".fuzz"
_FINDS: Final = _WORK / "finds"
_RUNS: Final = re.compile(r"stat::number_of_executed_units: *(\d+)")
_COVERED: Final = re.compile(r"cov: (\d+) ft: (\d+)")
_ROUNDS: Final = 20
"""Of many executions: so that none of the targets has to wait for the end of another."""
_TIMEOUT_S: Final = 60
"""An input that takes longer hangs; the slowest takes milliseconds."""


@dataclass(frozen=True, slots=True)
class Plan:
    """`share` of all executions, in thousandths, so that fast targets do not wait for slow ones; `most`: those of one
    process; `length`: of an input, in bytes; `memory`: of a process, in MB.
    """

    share: int
    length: int
    most: int = 10**9
    memory: int = 500


PLANS: Final = {
    "bodies": Plan(165, 512),
    "batches": Plan(50, 600),
    "stream": Plan(25, 300),
    "logins": Plan(150, 45_000),
    "own": Plan(590, 1024),
    "rest": Plan(13, 2_100),
    "node": Plan(2, 1_500, most=5_000, memory=700),
    "node_logins": Plan(5, 800, most=20_000, memory=700),
}


@dataclass(slots=True)
class Told:
    """What became of a target: executions, and how many edges of the product's code, and features (how often), all
    inputs reach that are kept.
    """

    runs: int = 0
    edges: str = ""
    features: str = ""
    failed: bool = False


def fuzz(name: str, told: Told, executions: int | None, seconds: float) -> None:
    """Play a target so often, or for so long, or until it shows a mistake."""
    plan = PLANS[name]
    _FINDS.mkdir(parents=True, exist_ok=True)
    if not told.runs:
        _one(name, "seeds", str(_WORK / name))
    until, goal = time.monotonic() + seconds, told.runs + (executions or 0)
    while not told.failed:
        left, rest = goal - told.runs, until - time.monotonic()
        if (executions is not None and left <= 0) or (executions is None and rest <= 0):
            return
        done = _one(
            name,
            "fuzz",
            str(_WORK / name),
            f"-max_len={plan.length}",
            f"-runs={plan.most if executions is None else min(left, plan.most)}",
            *(() if executions is not None else (f"-max_total_time={max(1, int(rest))}",)),
            f"-timeout={_TIMEOUT_S}",
            f"-rss_limit_mb={plan.memory}",
            f"-artifact_prefix={_FINDS}/{name}-",
            "-print_final_stats=1",
            check=False,
        )
        found = _RUNS.search(done.stderr)
        told.runs += int(found[1]) if found else 0
        told.edges, told.features = (_COVERED.findall(done.stderr) or [("", "")])[-1]
        told.failed = done.returncode != 0
        if told.failed:
            print(done.stdout[-4_000:], done.stderr[-6_000:], sep="\n", flush=True)


def keep(name: str) -> int:
    """Write the inputs that are needed for all that the found ones reach; how many."""
    kept = _WORK / f"{name}-kept"
    subprocess.run(("rm", "-rf", kept), check=True)
    kept.mkdir()
    _one(name, "fuzz", "-merge=1", f"-max_len={PLANS[name].length}", str(kept), str(_WORK / name))
    return corpus.write(corpus.path_of("corpus", name), (path.read_bytes() for path in kept.iterdir()))


def _one(name: str, what: str, *options: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "tests.fuzz.one", name, what, *options),
        cwd=_ROOT,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        errors="replace",
        check=check,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument(
        "--minutes", type=float, default=4, help="of one core, starts not counted, for all targets together"
    )
    parser.add_argument("--executions", type=int, help="of all targets together, in place of a time")
    parser.add_argument("--keep", action="store_true", help="write the corpus of the repository")
    asked = parser.parse_args()
    names = asked.targets or NAMES
    if unknown := set(names) - set(NAMES):
        parser.error(f"no target is called {', '.join(unknown)}; there are {', '.join(NAMES)}")
    if find_spec("atheris") is None:
        print("atheris has no wheel for this machine: Linux on x86_64 has one", file=sys.stderr)
        return 2
    began, seconds = time.monotonic(), asked.minutes * 60 / len(names)
    told = {name: Told() for name in names}
    for number in range(rounds := _ROUNDS if asked.executions else 1):
        portions = [_portion(name, names, asked.executions, rounds) for name in names]
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(fuzz, names, told.values(), portions, [seconds] * len(names)))
        _tell(told, number + 1, rounds, time.monotonic() - began)
    if asked.keep:
        for name in names:
            print(f"{name:12} {keep(name)} inputs kept", flush=True)
    return int(any(each.failed for each in told.values()))


def _portion(name: str, names: Sequence[str], executions: int | None, rounds: int) -> int | None:
    """Executions of a target in one round; None where time decides."""
    if executions is None:
        return None
    return -(-executions * PLANS[name].share // sum(PLANS[each].share for each in names) // rounds)


def _tell(told: Mapping[str, Told], number: int, rounds: int, seconds: float) -> None:
    print(f"round {number} of {rounds}, {seconds:,.0f} s")
    for name, each in told.items():
        found = "A MISTAKE, see above" if each.failed else "no mistake"
        print(f"{name:12} {each.runs:>11,} executions, {each.edges:>6} edges, {each.features:>6} features: {found}")
    print(f"{'all':12} {sum(each.runs for each in told.values()):>11,} executions", flush=True)


if __name__ == "__main__":
    sys.exit(main())
