"""A process that plays histories. It imports everything; a fork of it for each shape starts a world, and each history
plays on a fork of that.

So imports, and the start of nodes, topics and policies, are paid once, and nothing of a history is left for the next.
How the forks come by their memory is in `pages`. Requests and outcomes are pickles behind their length, on standard
input and output. `Worker` starts it, and sets the hash seed.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import resource
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Self

from tests.sim import lines, pages

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from tests.sim.history import History
    from tests.sim.mutants.edits import Edit
    from tests.sim.play import Outcome
    from tests.sim.world import Shape

_LENGTH: Final = struct.Struct(">I")
_WATCH: Final = "--watch"
_RECORD: Final = "--record"
_NOTICE: Final = "--notice"
_ROOT: Final = Path(__file__).parents[2]
CPU_S = 60
"""After so many CPU seconds a history hangs."""
_ROOM: Final = 6 * 1024 * 1024
"""What a world and most histories need."""
_PACKAGES: Final = (
    "aiohttp", "cramjam", "crc32c", "google._upb._message", "google.protobuf.json_format", "hiredis", "lupa.lua51",
    "pydantic_settings", "redis.asyncio", "structlog", "zstandard",
)  # fmt: skip
"""What others have written, most of which no history runs: it is imported first, and lies apart (`pages`)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A history to play; `trace`: report everything that happened."""

    history: History
    trace: bool = False


class WorkerError(Exception):
    """A worker ended, or a history could not be played; the message holds what it wrote."""


class Worker:
    """A process for histories of any shape. `edits`: with these changes of the product's text (`mutants`). `watches`:
    outcomes say which lines ran (`lines`). `records`: in steady worlds (`chance`), and outcomes have what is to be seen
    from outside (`behaviour`). `notices`: they say which situations there were (`noticing`).
    """

    def __init__(
        self,
        edits: tuple[Edit, ...] = (),
        *,
        watches: bool = False,
        records: bool = False,
        notices: bool = False,
        hash_seed: int = 0,
    ) -> None:
        options = [option for option, is_on in ((_WATCH, watches), (_RECORD, records), (_NOTICE, notices)) if is_on]
        self._process = subprocess.Popen(
            (sys.executable, "-m", "tests.sim.worker", *options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=_ROOT,
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(_ROOT)},
        )
        self._send(edits)

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
    _write(to, pickle.dumps(what))


def _write(to: BinaryIO | Any, data: bytes) -> None:
    to.write(_LENGTH.pack(len(data)) + data)
    to.flush()


def _receive(source: BinaryIO | Any) -> Any:
    data = _read(source)
    return None if data is None else pickle.loads(data)


def _read(source: BinaryIO | Any) -> bytes | None:
    head = source.read(_LENGTH.size)
    return source.read(_LENGTH.unpack(head)[0]) if len(head) == _LENGTH.size else None


class WorldProcess:
    """A fork with a world of one shape, and the pipes to and from it."""

    def __init__(self, shape: Shape, others: Iterable[WorldProcess], before: list[pages.Span]) -> None:
        (requests, to), (source, answers) = os.pipe(), os.pipe()
        self._child = os.fork()
        if self._child == 0:
            for end in (0, to, source, *(end for other in others for end in other.ends)):
                os.close(end)
            with os.fdopen(requests, "rb") as read, os.fdopen(answers, "wb") as written:
                try:
                    _serve(shape, before, read, written)
                except BaseException:  # noqa: BLE001 - the process ends in any case
                    traceback.print_exc()
                os._exit(0)
        os.close(requests)
        os.close(answers)
        self.ends = to, source
        self._to, self._source = os.fdopen(to, "wb"), os.fdopen(source, "rb")

    def play(self, wish: bytes) -> bytes | None:
        """The answer to a wish, both as pickles; None where the process has ended."""
        try:
            _write(self._to, wish)
        except BrokenPipeError:
            return None
        return _read(self._source)

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self._to.close()
        self._source.close()
        os.waitpid(self._child, 0)


def _main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints does not get between the answers
    if _WATCH in sys.argv:
        lines.watch()
    edits = _receive(requests)
    if edits:
        from tests.sim.mutants.edits import install  # noqa: PLC0415 - it must come before the product is imported

        install(edits)
    before = warm_up()
    worlds: dict[Shape, WorldProcess] = {}
    while (wish := _read(requests)) is not None:
        shape = pickle.loads(wish).history.shape
        if shape not in worlds:
            worlds[shape] = WorldProcess(shape, worlds.values(), before)
        answer = worlds[shape].play(wish)
        if answer is None:
            worlds.pop(shape).end()
            answer = pickle.dumps("the world ended")
        _write(answers, answer)
    for each in worlds.values():
        each.end()


def warm_up() -> list[pages.Span]:
    """Import everything that a world needs. Returns the memory of other packages."""
    for name in _PACKAGES:
        importlib.import_module(name)
    gc.collect()
    before = pages.spans()
    pages.keep_memory()
    pages.pad()
    from sidecar.protocol import codecs  # noqa: F401, PLC0415 - the product imports it with the first packed batch
    from tests.sim import play, world  # noqa: F401, PLC0415 - all of it, before a world takes over

    if _NOTICE in sys.argv:
        from tests.sim import noticing  # noqa: PLC0415 - it is for such runs alone

        noticing.install()
    pages.make_room(_ROOM)
    gc.collect()
    gc.freeze()
    warm = pages.newer(before)
    pages.own([page for page in pages.newer([]) if page not in warm])  # the table that a fork copies is shorter then
    return before


def _serve(shape: Shape, before: list[pages.Span], requests: BinaryIO, answers: BinaryIO) -> None:
    from tests.sim.world import World  # noqa: PLC0415 - see `_main`

    world = World(0, shape, steady=_RECORD in sys.argv)
    world.start()
    gc.collect()
    gc.freeze()
    gc.disable()
    warm = pages.newer(before)
    while (wish := _receive(requests)) is not None:
        child = os.fork()
        if child == 0:
            pages.own(warm)
            _play(world, wish, answers)
        _, status = os.waitpid(child, 0)
        if status:
            _send(answers, f"seed {wish.history.seed}: its process ended with status {status} (SIGXCPU: it hung)")


def _play(world: Any, wish: Wish, answers: Any) -> None:
    from tests.sim.behaviour.recorder import Recorder  # noqa: PLC0415
    from tests.sim.play import Play  # noqa: PLC0415

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))
    told: list[tuple[float, str]] = []
    if wish.trace:
        world.keeps_events = True
        world.cluster.trace = lambda at, line: told.append((at, line))
    recorder = Recorder(world) if _RECORD in sys.argv else None
    try:
        play = Play(world, wish.history)
        noticing = sys.modules.get("tests.sim.noticing")
        if noticing is not None:
            noticing.begin(play)
        outcome = play.run()
        if recorder is not None:
            outcome.record = recorder.written(wish.history, outcome.wrong)
        if noticing is not None:
            outcome.situations = noticing.end(play)
        happened = sorted([*told, *((each.at, each.line) for each in world.events)])
        outcome.trace = [f"{at - world.loop.zero:9.4f}  {line}" for at, line in happened]
        outcome.lines = {file: bytes(marks) for file, marks in lines.MARKS.items()}
        _send(answers, outcome)
    except BaseException:  # noqa: BLE001 - it has to be reported, whatever it is
        _send(answers, f"seed {wish.history.seed}: {traceback.format_exc()}")
    os._exit(0)


if __name__ == "__main__":
    _main()
