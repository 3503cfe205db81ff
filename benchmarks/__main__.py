"""`python -m benchmarks`: the command line of the benchmarks."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvloop

from benchmarks import machine, profiles, report, rounds
from benchmarks.arena import Arena
from benchmarks.claims import report as claims_report
from benchmarks.claims import run as claims_run
from benchmarks.fanout import report as fanout_report
from benchmarks.fanout import run as fanout_run
from benchmarks.groups import report as groups_report
from benchmarks.groups import run as groups_run
from benchmarks.ids import report as ids_report
from benchmarks.ids import run as ids_run
from benchmarks.measures import Target
from benchmarks.operation import report as operation_report
from benchmarks.operation import run as operation_run
from benchmarks.ownership import report as ownership_report
from benchmarks.ownership import run as ownership_run
from benchmarks.pipeline import report as pipeline_report
from benchmarks.pipeline import run as pipeline_run
from benchmarks.rounds import PARTS, PROFILED, QUICK, Work, say
from benchmarks.shadows import report as shadows_report
from benchmarks.shadows import run as shadows_run
from sidecar.local.errors import LocalError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench-results"
DOCUMENT = ROOT / "docs" / "operate" / "performance.md"
FANOUT = "fanout"
GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class OwnRun:
    """A part that is a run of its own: the module that measures, the one that tells, and what the arena has to be.

    The first has `Work`, `QUICK`, `run` and, if it can be profiled, `profile`; the second `terminal`, `document`,
    `write_json`, `BEGIN` and `END`.
    """

    run: Any
    report: Any
    nodes: int = 1
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def profiled(self) -> bool:
        """Whether it can be."""
        return hasattr(self.run, "profile")


OWN_RUNS: Final = {
    "ownership": OwnRun(ownership_run, ownership_report, nodes=ownership_run.NODES),
    "ids": OwnRun(ids_run, ids_report),
    "shadows": OwnRun(shadows_run, shadows_report),
    FANOUT: OwnRun(fanout_run, fanout_report, settings=fanout_run.SETTINGS),
    GROUPS: OwnRun(groups_run, groups_report, settings=groups_run.SETTINGS),
    "claims": OwnRun(claims_run, claims_report, settings=claims_run.SETTINGS),
    "pipeline": OwnRun(pipeline_run, pipeline_report, settings=pipeline_run.SETTINGS),
    "operation": OwnRun(operation_run, operation_report),
}


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code: 0 whatever the figures, 1 where they could not be taken, 2 for wrong arguments."""
    options = _options(arguments)
    if not sys.platform.startswith("linux"):
        say("CPU, memory and sockets are read from /proc: the benchmarks run on Linux alone")
        return 1
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    measure = partial(_own, OWN_RUNS[options.own_run]) if options.own_run else _load
    try:
        with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as directory:
            told = measure(options, Path(directory), when)
    except (LocalError, RuntimeError, OSError) as error:
        say("\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
        return 1
    if told is None:
        return 0
    print(told.terminal)
    path = Path(options.json) if options.json else RESULTS / f"{when}.json"
    told.write_json(path)
    print(f"\n{path}")
    if options.write_docs:
        DOCUMENT.write_text(report.replace_between(DOCUMENT.read_text(), told.document, told.markers))
        print(DOCUMENT)
    return 0


@dataclass(frozen=True, slots=True)
class Told:
    """What a run found, in all its shapes."""

    terminal: str
    document: str
    markers: tuple[str, str]
    write_json: Callable[[Path], None]


def _load(options: argparse.Namespace, directory: Path, when: str) -> Told | None:
    """What a node costs; None where a profile was asked for, which prints itself."""
    started = time.monotonic()
    with Arena(directory, sampled=options.profile) as arena:
        say(f"node: pid {arena.pid('node')}, port {arena.port(Target.UNGOVERNED)}; Kafka: pid {arena.pid('kafka')}")
        if options.profile:
            profiles.run(arena, _work(options))
            return None
        around = _around(arena, when)
        results = rounds.run(arena, _work(options), started)
    return Told(
        report.terminal(results, around),
        report.document(results, around),
        (report.BEGIN, report.END),
        partial(report.write_json, results=results, around=around),
    )


def _own(kind: OwnRun, options: argparse.Namespace, directory: Path, when: str) -> Told | None:
    """A run of its own; None where a profile was asked for, which prints itself."""
    started = time.monotonic()
    work = kind.run.QUICK if options.quick else kind.run.Work()
    if options.subscribers:
        work = replace(work, subscribers=options.subscribers)
    if options.workers:
        work = replace(work, workers=options.workers)
    if options.every:
        work = replace(work, every_s=options.every)
    nodes = max(kind.nodes, getattr(work, "nodes", 1))
    with Arena(directory, sampled=options.profile, nodes=nodes, settings=kind.settings) as arena:
        if options.profile:
            kind.run.profile(arena, work)
            return None
        around = _around(arena, when)
        results = kind.run.run(arena, work, started)
    return Told(
        kind.report.terminal(results, around),
        kind.report.document(results, around),
        (kind.report.BEGIN, kind.report.END),
        partial(kind.report.write_json, results=results, around=around),
    )


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    only: frozenset[str] = options.only or frozenset()
    chosen = min(only & set(OWN_RUNS), default=None)
    options.own_run = chosen
    if chosen is not None:
        if len(only) > 1:
            parser.error(f"--only {chosen} is a run of its own")
        profiled = OWN_RUNS[chosen].profiled
        if (options.profile and not profiled) or options.rounds or options.targets or options.limit:
            profile = "--profile, " if profiled else ""
            profile += "--subscribers, " if chosen in (FANOUT, GROUPS) else ""
            profile += "--workers, --every, " if chosen == FANOUT else ""
            parser.error(f"--only {chosen} takes {profile}--quick, --json and --write-docs alone")
    if options.subscribers and options.own_run not in (FANOUT, GROUPS):
        parser.error(f"--subscribers goes with --only {FANOUT} or {GROUPS}")
    if (options.workers or options.every) and options.own_run != FANOUT:
        parser.error(f"--workers and --every go with --only {FANOUT}")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure a node against direct Kafka.")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds: under two minutes")
    parser.add_argument("--rounds", type=int, help=f"rounds at most (default {Work().rounds}, quick {QUICK.rounds})")
    parser.add_argument(
        "--only", type=_parts, metavar="PART,…", help=f"of {', '.join(PARTS)}; or one of {', '.join(OWN_RUNS)}"
    )
    parser.add_argument("--targets", type=_targets, metavar="TARGET,…", help=f"of {', '.join(t.value for t in Target)}")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="begin no round that would end later than this")
    parser.add_argument(
        "--profile", action="store_true", help="no figures: trees of where the node's CPU time goes (--only, --targets)"
    )
    parser.add_argument(
        "--subscribers", type=_sizes, metavar="N,…", help=f"sizes of the crowds of --only {FANOUT} or {GROUPS}"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help=f"nodes that share the crowds of --only {FANOUT}, by who leads a name"
    )
    parser.add_argument(
        "--every", type=float, metavar="SECONDS", help="for fanout: a record every so many seconds (default 1)"
    )
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default bench-results/TIME.json)")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/operate/performance.md")
    return parser


def _parts(text: str) -> frozenset[str]:
    chosen = frozenset(text.split(","))
    if not chosen <= {*PARTS, *OWN_RUNS}:
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(PARTS)}; or one of {', '.join(OWN_RUNS)}")
    return chosen


def _targets(text: str) -> tuple[Target, ...]:
    names = set(text.split(","))
    if not names <= {target.value for target in Target}:
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(target.value for target in Target)}")
    return tuple(target for target in Target if target.value in names)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        sizes = ()
    if not sizes or min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: numbers from 1 on, with commas between them")
    return sizes


def _work(options: argparse.Namespace) -> Work:
    work = PROFILED if options.profile else QUICK if options.quick else Work()
    changes = {"rounds": options.rounds, "parts": options.only, "targets": options.targets, "limit_s": options.limit}
    return replace(work, **{name: value for name, value in changes.items() if value is not None})


def _around(arena: Arena, when: str) -> dict[str, Any]:
    """On what the figures are taken."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "when": when,
        "command": sys.argv[1:],
        "commit": told.stdout.strip() or None,
        "kafka": arena.tools.jars.version,
        "java": arena.tools.java.major,
        "uvloop": uvloop.__version__,
        **machine.description(),
    }


if __name__ == "__main__":
    sys.exit(main())
