"""`python -m benchmarks`: the command line of the benchmarks."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import machine, profiles, report, rounds
from benchmarks.arena import Arena
from benchmarks.claims import report as claims_report
from benchmarks.claims import run as claims_run
from benchmarks.ids import report as ids_report
from benchmarks.ids import run as ids_run
from benchmarks.measures import Target
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
DOCUMENT = ROOT / "docs" / "performance.md"
OWNERSHIP = "ownership"
IDS = "ids"
SHADOWS = "shadows"
CLAIMS = "claims"
PIPELINE = "pipeline"
OWN_RUNS = (OWNERSHIP, IDS, SHADOWS, CLAIMS, PIPELINE)
"""Parts that are runs of their own."""
PROFILES = (SHADOWS, CLAIMS)
"""Those of them that can be profiled."""


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code: 0 whatever the figures, 1 where they could not be taken, 2 for wrong arguments."""
    options = _options(arguments)
    if not sys.platform.startswith("linux"):
        say("CPU, memory and sockets are read from /proc: the benchmarks run on Linux alone")
        return 1
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    measure = _MEASURES.get(options.own_run, _load)
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


def _ownership(options: argparse.Namespace, directory: Path, when: str) -> Told:
    """How long a topic is without a writer."""
    started = time.monotonic()
    with Arena(directory, nodes=ownership_run.NODES) as arena:
        around = _around(arena, when)
        results = ownership_run.run(arena, ownership_run.QUICK if options.quick else ownership_run.Work(), started)
    return Told(
        ownership_report.terminal(results, around),
        ownership_report.document(results, around),
        (ownership_report.BEGIN, ownership_report.END),
        partial(ownership_report.write_json, results=results, around=around),
    )


def _ids(options: argparse.Namespace, directory: Path, when: str) -> Told:
    """What deduplication by sequence id costs."""
    started = time.monotonic()
    with Arena(directory) as arena:
        around = _around(arena, when)
        results = ids_run.run(arena, ids_run.QUICK if options.quick else ids_run.Work(), started)
    return Told(
        ids_report.terminal(results, around),
        ids_report.document(results, around),
        (ids_report.BEGIN, ids_report.END),
        partial(ids_report.write_json, results=results, around=around),
    )


def _shadows(options: argparse.Namespace, directory: Path, when: str) -> Told | None:
    """What shadow topics cost; None where a profile was asked for, which prints itself."""
    started = time.monotonic()
    work = shadows_run.QUICK if options.quick else shadows_run.Work()
    if options.subscribers:
        work = replace(work, subscribers=options.subscribers)
    with Arena(directory, sampled=options.profile) as arena:
        if options.profile:
            shadows_run.profile(arena, work)
            return None
        around = _around(arena, when)
        results = shadows_run.run(arena, work, started)
    return Told(
        shadows_report.terminal(results, around),
        shadows_report.document(results, around),
        (shadows_report.BEGIN, shadows_report.END),
        partial(shadows_report.write_json, results=results, around=around),
    )


def _claims(options: argparse.Namespace, directory: Path, when: str) -> Told | None:
    """What claims by request cost; None where a profile was asked for, which prints itself."""
    started = time.monotonic()
    work = claims_run.QUICK if options.quick else claims_run.Work()
    with Arena(directory, sampled=options.profile, settings=claims_run.SETTINGS) as arena:
        if options.profile:
            claims_run.profile(arena, work)
            return None
        around = _around(arena, when)
        results = claims_run.run(arena, work, started)
    return Told(
        claims_report.terminal(results, around),
        claims_report.document(results, around),
        (claims_report.BEGIN, claims_report.END),
        partial(claims_report.write_json, results=results, around=around),
    )


def _pipeline(options: argparse.Namespace, directory: Path, when: str) -> Told:
    """What the jobs on Spark cost."""
    started = time.monotonic()
    work = pipeline_run.QUICK if options.quick else pipeline_run.Work()
    with Arena(directory, settings=pipeline_run.SETTINGS) as arena:
        around = _around(arena, when)
        results = pipeline_run.run(arena, work, started)
    return Told(
        pipeline_report.terminal(results, around),
        pipeline_report.document(results, around),
        (pipeline_report.BEGIN, pipeline_report.END),
        partial(pipeline_report.write_json, results=results, around=around),
    )


_MEASURES: dict[str | None, Callable[[argparse.Namespace, Path, str], Told | None]] = {
    OWNERSHIP: _ownership,
    IDS: _ids,
    SHADOWS: _shadows,
    CLAIMS: _claims,
    PIPELINE: _pipeline,
}


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = _parser()
    options = parser.parse_args(arguments)
    only: frozenset[str] = options.only or frozenset()
    own = only & set(OWN_RUNS)
    options.own_run = min(own, default=None)
    if own:
        if len(only) > 1:
            parser.error(f"--only {options.own_run} is a run of its own")
        if (options.profile and options.own_run not in PROFILES) or options.rounds or options.targets or options.limit:
            profile = "--profile, " if options.own_run in PROFILES else ""
            profile += "--subscribers, " if options.own_run == SHADOWS else ""
            parser.error(f"--only {options.own_run} takes {profile}--quick, --json and --write-docs alone")
    if options.subscribers and options.own_run != SHADOWS:
        parser.error(f"--subscribers goes with --only {SHADOWS}")
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
    parser.add_argument("--subscribers", type=_sizes, metavar="N,…", help=f"sizes of the crowds of --only {SHADOWS}")
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default bench-results/TIME.json)")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
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
