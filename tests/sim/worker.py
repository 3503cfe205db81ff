"""A process that plays histories: one world is started, and each history plays on a fork of it.

So the start of nodes, topics and policies is paid once, and nothing of a history is left for the next. Requests and
outcomes are pickles behind their length, on standard input and output. `Worker` starts it, and sets the hash seed.
"""

from __future__ import annotations

import gc
import os
import pickle
import resource
import struct
import subprocess
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from tests.sim import lines

if TYPE_CHECKING:
    from types import TracebackType

    from tests.sim.histories import History
    from tests.sim.mutants.edits import Edit
    from tests.sim.play import Outcome
    from tests.sim.world import Shape

_LENGTH: Final = struct.Struct(">I")
_CPU_S: Final = 60
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Wish:
    """A history to play; `trace`: tell everything that happened."""

    history: History
    trace: bool = False


class WorkerError(Exception):
    """A worker ended, or a history could not be played; the message holds what it wrote."""


class Worker:
    """A process for histories of one shape. `edits`: with these changes of the product's text (`mutants`). `watches`:
    outcomes say which lines ran (`lines`).
    """

    def __init__(self, shape: Shape, edits: tuple[Edit, ...] = (), *, watches: bool = False) -> None:
        self.shape = shape
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.sim.worker", *(("--watch",) if watches else ())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(_ROOT)},
        )
        self._send(edits)
        self._send(shape)

    def play(self, history: History, *, trace: bool = False) -> Outcome:
        """Play one history. Raises `WorkerError`."""
        self._send(Wish(history, trace))
        assert self._process.stdout is not None
        found = _receive(self._process.stdout)
        if found is None:
            raise WorkerError("the worker ended")
        if isinstance(found, str):
            raise WorkerError(found)
        return found

    def _send(self, what: Any) -> None:
        assert self._process.stdin is not None
        try:
            _send(self._process.stdin, what)
        except BrokenPipeError:
            raise WorkerError("the worker ended") from None

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _send(to: BinaryIO | Any, what: Any) -> None:
    data = pickle.dumps(what)
    to.write(_LENGTH.pack(len(data)) + data)
    to.flush()


def _receive(source: BinaryIO | Any) -> Any:
    head = source.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    return pickle.loads(source.read(_LENGTH.unpack(head)[0]))


def _main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not get between the answers
    if "--watch" in sys.argv:
        lines.watch()
    edits = _receive(requests)
    if edits:
        from tests.sim.mutants.edits import install  # noqa: PLC0415 - it must come before the product is imported

        install(edits)
    shape = _receive(requests)
    from tests.sim import play  # noqa: F401, PLC0415 - all of it, before the world takes over
    from tests.sim.world import World  # noqa: PLC0415

    world = World(0, shape)
    world.start()
    gc.collect()
    gc.freeze()
    gc.disable()
    while (wish := _receive(requests)) is not None:
        child = os.fork()
        if child == 0:
            _play(world, wish, answers)
        _, status = os.waitpid(child, 0)
        if status:
            _send(answers, f"seed {wish.history.seed}: its process ended with status {status} (SIGXCPU: it hung)")


def _play(world: Any, wish: Wish, answers: Any) -> None:
    from tests.sim.play import Play  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 1))
    told: list[str] = []
    if wish.trace:
        world.keeps_events = True
        world.cluster.trace = told.append
    try:
        play = Play(world, wish.history)
        outcome = play.run()
        outcome.trace = sorted([*told, *map(str, world.events)])
        outcome.lines = {file: bytes(marks) for file, marks in lines.MARKS.items()}
        _send(answers, outcome)
    except BaseException:  # noqa: BLE001 - it has to be told, whatever it is
        _send(answers, f"seed {wish.history.seed}: {traceback.format_exc()}")
    os._exit(0)


if __name__ == "__main__":
    _main()
