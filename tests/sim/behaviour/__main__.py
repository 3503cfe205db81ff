"""`python -m tests.sim.behaviour`: record what the product does in the histories of many seeds, and compare.

    record --out FILE --seeds 0-1999     what the product of this tree does
    record --out FILE --of REV           what the product of a revision does in the histories of this tree's simulator
    compare FILE                         play the seeds of a record with the product of this tree: what is different?
    compare REV --seeds 0-299            record that revision first
    compare FILE --accepted FILE         without the differences that may be (`differences.rules`)

For each seed that differs `compare` tells the first difference and what went before it, and in the end how many there
are of each sort. The exit code is 1 where there is any that nobody accepted.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha1
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.sim import histories
from tests.sim.behaviour.archive import About, ArchiveError, create, read
from tests.sim.behaviour.differences import label, numbers, parting, rules, story
from tests.sim.behaviour.entries import parse
from tests.sim.worker import Worker, WorkerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.sim.behaviour.archive import Archive
    from tests.sim.behaviour.differences import Rule

_ROOT: Final = Path(__file__).parents[3]
_SIMULATOR: Final = Path("tests/sim")
_PRODUCT: Final = ("sidecar", "metadata", "proto")
_COMPILED: Final = Path("sidecar/protocol")
_SEEDS: Final = "0-1999"
_WORKERS: Final = 2
_STORIES: Final = 20
_CANNOT: Final = 2
"""The exit code of a command that could not begin, as of `argparse`."""


class _Lanes:
    """Plays seeds in workers, one for each thread."""

    def __init__(self, mix: str) -> None:
        self._mix = histories.MIXES[mix]
        self._mine = threading.local()
        self._workers: list[Worker] = []

    def play(self, seed: int) -> bytes | str:
        """The record of a seed; a text where there is none, because the history could not be played."""
        worker: Worker | None = getattr(self._mine, "worker", None)
        if worker is None:
            worker = self._mine.worker = Worker(records=True)
            self._workers.append(worker)
        try:
            return worker.play(histories.make(seed, self._mix)).record
        except WorkerError as error:
            if str(error) == "the worker ended":
                self._mine.worker = None
            return str(error)

    def close(self) -> None:
        for worker in self._workers:
            worker.close()


def _played(seeds: Sequence[int], mix: str, workers: int) -> Iterator[tuple[int, bytes | str]]:
    """In the order of the seeds."""
    lanes = _Lanes(mix)
    try:
        with ThreadPoolExecutor(workers) as pool:
            yield from zip(seeds, pool.map(lanes.play, seeds), strict=True)
    finally:
        lanes.close()


def record(path: Path, seeds: Sequence[int], mix: str, workers: int) -> bool:
    """Write a file; whether all histories could be played."""
    began, failed = time.monotonic(), list[int]()
    with create(path, About(_revision(), mix, _simulator())) as archive:
        for seed, played in _played(seeds, mix, workers):
            if isinstance(played, str):
                failed.append(seed)
                print(f"seed {seed}: {played}", flush=True)
            else:
                archive.add(seed, played)
    took, size = time.monotonic() - began, path.stat().st_size
    print(
        f"{len(seeds) - len(failed)} histories in {took:.0f} s, {size / 1e6:.1f} MB in {path}: {archive.about.revision}"
    )
    return not failed


def compare(archive: Archive, seeds: Sequence[int], workers: int, allowed: Sequence[Rule], stories: int) -> bool:
    """Play the seeds of a record anew, and say what is different; whether nothing is."""
    sorts, reasons, others, same, accepted = Counter[str](), Counter[str](), list[int](), 0, 0
    is_old = archive.about.simulator != _simulator()
    if is_old:
        print("the simulator has changed since this record was made: differences may come from that\n", flush=True)
    for seed, played in _played(seeds, archive.about.mix, workers):
        before = archive.record(seed)
        if played == before:
            same += 1
            continue
        if isinstance(played, str):
            sorts["the history cannot be played"] += 1
            print(f"seed {seed}: {played}", flush=True)
            continue
        old, new = parse(before), parse(played)
        if old.history != new.history:
            others.append(seed)
            continue
        parted = parting(seed, old, new, allowed)
        reasons.update(set(parted.accepted))
        if parted.first is None:
            same += not parted.accepted
            accepted += bool(parted.accepted)
            continue
        sorts[label(parted.first, old, new)] += 1
        if sum(sorts.values()) <= stories:
            print(story(seed, parted.first, old, new) + "\n", flush=True)
    counts = f"{same} the same, " + (f"{accepted} differ as accepted, " if allowed else "")
    print(f"{len(seeds)} seeds against {archive.about.revision}: {counts}{sum(sorts.values())} differ")
    for sort, count in sorts.most_common():
        print(f"{count:6} {sort}")
    if is_old and sorts:
        print("the simulator has changed since this record was made: make it again (record --of)")
    if reasons:
        print("accepted differences, in how many seeds (another difference may follow):")
        print(*(f"{count:6} {why}" for why, count in reasons.most_common()), sep="\n")
    if others:
        print(f"{len(others)} seeds have other histories by now, from {others[0]} on: the simulator has changed")
    return not sorts and not others


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=_ROOT, check=True, capture_output=True, text=True).stdout.strip()


def _expect_revision(name: str) -> None:
    """Raises ValueError."""
    try:
        _git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        raise ValueError(f"{name} is neither a record file nor a revision of this repository") from None


def _revision() -> str:
    """Of the product in this tree."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *_PRODUCT)
    return _git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _simulator() -> str:
    """A digest of all that plays and records histories in this tree."""
    digest = sha1(usedforsecurity=False)
    for path in sorted((_ROOT / _SIMULATOR).rglob("*.py")):
        if not path.name.startswith("test_") and "mutants" not in path.parts:
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@contextmanager
def _tree_of(revision: str, *, whole: bool) -> Iterator[Path]:
    """A tree with the product of a revision, and the simulator of this tree (`whole`: of the revision)."""
    with tempfile.TemporaryDirectory(prefix="behaviour-") as directory:
        tree = Path(directory) / "tree"
        _git("worktree", "add", "--detach", str(tree), revision)
        try:
            if not whole:
                shutil.rmtree(tree / _SIMULATOR)
                shutil.copytree(_ROOT / _SIMULATOR, tree / _SIMULATOR, ignore=shutil.ignore_patterns("__pycache__"))
            if not _git("diff", "--name-only", revision, "--", *(f"{_COMPILED}/*.{end}" for end in ("pyx", "pxi"))):
                for module in (_ROOT / _COMPILED).glob("*.so"):
                    shutil.copy2(module, tree / _COMPILED)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def _record_of(revision: str, path: Path, chosen: Any) -> bool:
    command = [sys.executable, "-m", "tests.sim.behaviour", "record", "--out", str(path.absolute())]
    command += ["--seeds", chosen.seeds, "--mix", chosen.mix, "--workers", str(chosen.workers)]
    with _tree_of(revision, whole=chosen.whole) as tree:
        env = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(command, cwd=tree, env=env, check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode == _CANNOT or not path.is_file():
        raise ValueError(_unfit(revision, done.stderr, whole=chosen.whole))
    sys.stderr.write(done.stderr)
    return not done.returncode


def _unfit(revision: str, said: str, *, whole: bool = False) -> str:
    """Why a revision cannot be recorded, and what can be done. `said`: what its process wrote."""
    lines = said.strip().splitlines() or ["no history was played"]
    why = next((line for line in reversed(lines) if re.match(r"\w+Error\b", line)), lines[-1])
    if whole:
        return f"the simulator of {revision} cannot play its product: {why}"
    return f"the simulator of this tree cannot play the product of {revision} ({why}); --whole takes the revision's own"


def _compare(chosen: Any) -> bool:
    allowed = rules(chosen.accepted) if chosen.accepted else []
    with tempfile.TemporaryDirectory(prefix="behaviour-") as directory:
        path, seeds = Path(chosen.base), chosen.seeds
        if not path.is_file():
            _expect_revision(chosen.base)
            path, chosen.seeds = Path(directory) / "record.zip", seeds or _SEEDS
            _record_of(chosen.base, path, chosen)
        with read(path) as archive:
            wanted = archive.seeds if not seeds else sorted({*archive.seeds} & {*numbers(seeds)})
            if not wanted:
                is_file = Path(chosen.base).is_file()
                raise ValueError(f"{path} has none of these seeds" if is_file else _unfit(chosen.base, ""))
            return compare(archive, wanted, chosen.workers, allowed, chosen.stories)


def main() -> int:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.behaviour", description=str(__doc__).partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording, comparing = commands.add_parser("record"), commands.add_parser("compare")
    recording.add_argument("--out", type=Path, required=True, metavar="FILE")
    recording.add_argument("--of", metavar="REV", help="record the product of this revision")
    recording.add_argument("--seeds", default=_SEEDS, help="A-B, or several, with commas")
    comparing.add_argument("base", metavar="FILE|REV", help="a record, or a revision to be recorded first")
    comparing.add_argument("--seeds", help="only these")
    comparing.add_argument("--accepted", type=Path, metavar="FILE", help="differences that may be, in TOML")
    comparing.add_argument("--stories", type=int, default=_STORIES, help="tell so many differences")
    for each in (recording, comparing):
        each.add_argument("--mix", choices=histories.MIXES, default="usual", help="what histories are made of")
        each.add_argument("--whole", action="store_true", help="with the revision's own simulator")
        each.add_argument("--workers", type=int, default=_WORKERS)
    chosen = parser.parse_args()
    try:
        if chosen.command == "compare":
            return not _compare(chosen)
        if chosen.of:
            return not _record_of(chosen.of, chosen.out, chosen)
        return not record(chosen.out, list(numbers(chosen.seeds)), chosen.mix, chosen.workers)
    except (ArchiveError, OSError, ValueError, WorkerError) as error:
        parser.error(str(error))
    except subprocess.CalledProcessError as error:
        parser.error(error.stderr.strip() or str(error))


if __name__ == "__main__":
    sys.exit(main())
