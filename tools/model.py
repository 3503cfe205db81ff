r"""`make model`: every configuration of the TLA+ models in model/ through TLC, and whether each does what it should.

    python -m tools.model [--jobs N] [--large] [WORD ...]

The first line of a configuration says what it is for: `\* Must pass.` or `\* Must FAIL: INVARIANT.`. Those that must
fail are mutants, which switch one rule off, and sanity properties, which show that a run is not vacuous. WORDs choose
the configurations whose names contain one of them. `--large` adds those of `large/`. Exit code 1 where a configuration
that must pass does not, or one that must fail passes or breaks another invariant than it names.

TLC's jar comes from Maven Central into the local Maven repository, by its lock (`sidecar.local.jars`); Java is found as
the embedded Kafka finds it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.local.class_archive import ClassArchive
from sidecar.local.jars import Jars, resolve_lock
from sidecar.local.java import Tuning, find_java

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MODELS: Final = Path(__file__).resolve().parents[1] / "model"
LARGE: Final = "large"
_HEAP_MB: Final = 3_000
_EXPECTED: Final = re.compile(r"^\\\* Must (?:pass\.|FAIL: (\w+)\.)")
_VIOLATED: Final = re.compile(r"^Error: Invariant (\w+) is violated", re.MULTILINE)
_STATES: Final = re.compile(r"([\d,]+) distinct states found, ", re.MULTILINE)
_COMPLETED: Final = "Model checking completed. No error has been found."


class ModelError(Exception):
    """A configuration that says nothing of what it is for."""


@dataclass(frozen=True, slots=True)
class Config:
    """One configuration of a module. `fails`: the invariant that it must break, None where it must pass."""

    module: str
    path: Path
    fails: str | None

    @property
    def name(self) -> str:
        """As people write it: `Tails/mutants/KeepHint`."""
        return str(self.path.relative_to(MODELS).with_suffix(""))


@dataclass(frozen=True, slots=True)
class Run:
    """What TLC said. `trace`: states of the shortest way to the broken invariant, 0 where none broke."""

    config: Config
    states: int
    seconds: float
    broken: str | None
    completed: bool
    trace: int
    output: str

    @property
    def is_right(self) -> bool:
        """It does what its first line says."""
        return self.completed if self.config.fails is None else self.broken == self.config.fails

    @property
    def verdict(self) -> str:
        """For the table."""
        if self.broken is not None:
            found = f"breaks {self.broken}, {self.trace} states"
        else:
            found = "holds" if self.completed else "did not run to its end"
        return found if self.is_right else f"WRONG: {found}"


def configs(words: Iterable[str] = (), *, large: bool = False) -> list[Config]:
    """Every configuration whose name contains one of the words: those that must pass first, as they take longest.

    Raises `ModelError`.
    """
    found: list[Config] = []
    for path in sorted(MODELS.glob("*/**/*.cfg")):
        parts = path.relative_to(MODELS).parts
        said = _EXPECTED.match(path.read_text(encoding="utf-8"))
        if said is None:
            raise ModelError(f"{path}: its first line is neither `Must pass.` nor `Must FAIL: INVARIANT.`")
        config = Config(parts[0], path, said[1])
        wanted = list(words)
        if (large or LARGE not in parts) and (not wanted or any(word in config.name for word in wanted)):
            found.append(config)
    return sorted(found, key=lambda config: config.fails is not None)


def judge(config: Config, output: str, seconds: float) -> Run:
    """TLC's output as a result."""
    broken, counted = _VIOLATED.search(output), _STATES.findall(output)
    return Run(
        config,
        int(counted[-1].replace(",", "")) if counted else 0,
        seconds,
        broken[1] if broken else None,
        _COMPLETED in output,
        len(re.findall(r"^State \d+:", output, re.MULTILINE)),
        output,
    )


def table(runs: Sequence[Run]) -> str:
    """One line for each run, and what they took in all."""
    width = max(len(run.config.name) for run in runs)
    rows = [f"{'configuration':{width}}  {'states':>9}  {'s':>5}  verdict"]
    rows += [
        f"{run.config.name:{width}}  {run.states:9,}  {run.seconds:5.1f}  {run.verdict}"
        for run in sorted(runs, key=lambda run: run.config.name)
    ]
    return "\n".join(rows)


def _check(config: Config, command: Sequence[str | Path]) -> Run:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tlc-") as scratch:
        arguments = ["tlc2.TLC", "-deadlock", "-workers", "1", "-metadir", scratch, "-config", config.path]
        done = subprocess.run(  # it unpacks its own modules into the temporary directory
            [*command, f"-Djava.io.tmpdir={scratch}", *arguments, MODELS / f"{config.module}.tla"],
            cwd=scratch,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    run = judge(config, done.stdout, time.monotonic() - began)
    sys.stdout.write(f"{config.name}: {run.verdict} ({run.seconds:.1f} s)\n")
    sys.stdout.flush()
    return run


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.model", description="Run the TLA+ models through TLC.")
    parser.add_argument("words", nargs="*", metavar="WORD", help="only configurations whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time (2)")
    parser.add_argument("--large", action="store_true", help="those of large/ too, which take minutes each")
    chosen = parser.parse_args(arguments)
    wanted = configs(chosen.words, large=chosen.large)
    if not wanted:
        parser.error("no configuration has such a name")
    java, jars = find_java(), Jars("tlc", resolve_lock("model"))
    archive, runs = ClassArchive.of(java, jars), list[Run]()
    began = time.monotonic()

    def check(config: Config, archived: Sequence[str] | None = None) -> Run:
        short = config.fails is not None
        flags = java.flags(_HEAP_MB, Tuning.QUICK if short else Tuning.FAST)
        serial = [flag for flag in flags if not flag.startswith(("-Xms", "-XX:+UseParallelGC", "-XX:+UseSerialGC"))]
        serial += ["-XX:+UseSerialGC", *(archive.flags_to_use() if archived is None else archived)]
        return _check(config, [java.path, *serial, "-cp", jars.class_path])

    if not archive.exists:
        runs.append(check(wanted.pop(), archive.flags_to_dump()))
        archive.adopt(complete=runs[0].is_right)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        runs += pool.map(check, wanted)
    wrong = [run for run in runs if not run.is_right]
    for run in wrong:
        sys.stdout.write(f"\n{run.config.name}\n{run.output}\n")
    count = f"{len(runs)} configurations in {time.monotonic() - began:.0f} s, {len(wrong)} not as they should be"
    sys.stdout.write(f"\n{table(runs)}\n\n{count}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
