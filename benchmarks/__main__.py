"""`python -m benchmarks`: the command line of the benchmarks."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import machine, profiles, report, rounds
from benchmarks.arena import Arena
from benchmarks.measures import Target
from benchmarks.rounds import PARTS, PROFILED, QUICK, Work, say
from sidecar.local.errors import LocalError

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench-results"
DOCUMENT = ROOT / "docs" / "performance.md"


def main(arguments: list[str] | None = None) -> int:
    """Run; the exit code: 0 whatever the figures, 1 where they could not be taken, 2 for wrong arguments."""
    options = _parser().parse_args(arguments)
    if not sys.platform.startswith("linux"):
        say("CPU, memory and sockets are read from /proc: the benchmarks run on Linux alone")
        return 1
    started, when = time.monotonic(), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    try:
        with (
            tempfile.TemporaryDirectory(prefix="sidecar-bench-") as directory,
            Arena(Path(directory), sampled=options.profile) as arena,
        ):
            say(f"node: pid {arena.pid('node')}, port {arena.port(Target.UNGOVERNED)}; Kafka: pid {arena.pid('kafka')}")
            if options.profile:
                profiles.run(arena, _work(options))
                return 0
            around = _around(arena, when)
            results = rounds.run(arena, _work(options), started)
    except (LocalError, RuntimeError, OSError) as error:
        say("\n".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
        return 1
    print(report.terminal(results, around))
    path = Path(options.json) if options.json else RESULTS / f"{when}.json"
    report.write_json(path, results, around)
    print(f"\n{path}")
    if options.write_docs:
        text = report.replace_between(DOCUMENT.read_text(), report.document(results, around))
        DOCUMENT.write_text(text)
        print(DOCUMENT)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure a node against direct Kafka.")
    parser.add_argument("--quick", action="store_true", help="less work and fewer rounds: under two minutes")
    parser.add_argument("--rounds", type=int, help=f"rounds at most (default {Work().rounds}, quick {QUICK.rounds})")
    parser.add_argument("--only", type=_parts, metavar="PART,…", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--targets", type=_targets, metavar="TARGET,…", help=f"of {', '.join(t.value for t in Target)}")
    parser.add_argument("--limit", type=float, metavar="SECONDS", help="begin no round that would end later than this")
    parser.add_argument(
        "--profile", action="store_true", help="no figures: trees of where the node's CPU time goes (--only, --targets)"
    )
    parser.add_argument("--json", metavar="FILE", help="where the figures go (default bench-results/TIME.json)")
    parser.add_argument("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    return parser


def _parts(text: str) -> frozenset[str]:
    chosen = frozenset(text.split(","))
    if not chosen <= set(PARTS):
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(PARTS)}")
    return chosen


def _targets(text: str) -> tuple[Target, ...]:
    names = set(text.split(","))
    if not names <= {target.value for target in Target}:
        raise argparse.ArgumentTypeError(f"{text!r}: choose from {', '.join(target.value for target in Target)}")
    return tuple(target for target in Target if target.value in names)


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
