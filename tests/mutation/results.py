"""What became of mutants, as lines of JSON and as a table by room."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from tests.mutation.rooms import ROOMS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

NOTICED: Final = ("unit", "simulator")


@dataclass(frozen=True, slots=True)
class Result:
    """A mutant. `verdict`: `unit` or `simulator`, which noticed it, or `survives`; `by`: the test or the seed, and what
    it says. `kind`: that of its entry in `known.txt`. `tests`, `seeds`: how many were played. `killers`: with
    `--matrix` every test that fails.
    """

    id: str
    room: str
    line: int
    change: str
    verdict: str
    by: str = ""
    kind: str = ""
    tests: int = 0
    seeds: int = 0
    cpu_s: float = 0.0
    killers: tuple[str, ...] = ()


def write(path: Path, results: Iterable[Result]) -> None:
    """One a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(result), ensure_ascii=False) + "\n" for result in results))


def table(results: Iterable[Result], everything: dict[str, int]) -> str:
    """By room: `everything` is how many mutants it has."""
    by_room: dict[str, list[Result]] = defaultdict(list)
    for result in results:
        by_room[result.room].append(result)
    rows = [
        "| room | mutants | tried | equivalent | unit tests notice | with the simulator | survive | CPU s each |",
        "|---|---|---|---|---|---|---|---|",
    ]
    every = [result for room in ROOMS for result in by_room[room]]
    for room in (*ROOMS, "all"):
        if found := every if room == "all" else by_room[room]:
            count = sum(everything[name] for name in ROOMS if by_room[name]) if room == "all" else everything[room]
            rows.append(_row(room, count, found))
    return "\n".join(rows)


def matrix(results: Iterable[Result]) -> list[str]:
    """For each test that notices any of these mutants, how many, and how many that no other test notices. Those whose
    loss costs nothing come first.
    """
    noticed: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for result in results:
        for test in result.killers:
            noticed[test][0] += 1
            noticed[test][1] += len(result.killers) == 1
    rows = sorted((alone, count, test) for test, (count, alone) in noticed.items())
    return ["| notices | alone | test |", "|---|---|---|", *(f"| {c} | {alone} | {test} |" for alone, c, test in rows)]


def share(results: Iterable[Result]) -> float:
    """How many are noticed, in per cent, without those that nothing can notice."""
    _, noticed, real = _counts(list(results))
    return 100 * noticed / real


def _counts(found: list[Result]) -> tuple[int, int, int]:
    """Noticed by unit tests, noticed at all, and all that anything can notice."""
    unit = sum(result.verdict == "unit" for result in found)
    noticed = unit + sum(result.verdict == "simulator" or _not_asked(result) for result in found)
    equivalent = sum(result.verdict == "survives" and result.kind == "equivalent" for result in found)
    return unit, noticed, max(1, len(found) - equivalent)


def _row(room: str, count: int, found: list[Result]) -> str:
    unit, noticed, real = _counts(found)
    cpu_s = sum(result.cpu_s for result in found) / len(found)
    shares = f"{100 * unit / real:.1f} % | {100 * noticed / real:.1f} %"
    rest = f"{shares} | {real - noticed} | {cpu_s:.2f}"
    return f"| {room} | {count:,} | {len(found):,} | {len(found) - real} | {rest} |"


def _not_asked(result: Result) -> bool:
    """Known to be noticed by the simulator, or by a test of another room, which was not asked."""
    return result.verdict == "survives" and result.kind in ("simulator", "elsewhere") and not result.seeds
