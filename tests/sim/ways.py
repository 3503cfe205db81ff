"""Which modules of the product a request crosses: `python -m tests.sim.ways` prints them, in the order in which they
come into play, for a batch of a governed topic's owner and for a takeover. docs/architecture.md has the lists, and
`test_ways.py` compares them with a run.

A world with one node plays each way several times. Every function of the product that the node calls between the
request and its answer is seen (`sys.setprofile`), and what ran each time counts: heartbeats and other loops run now and
then. Not counted are generated tables, hooks and clocks (`ASIDE`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.sim.world import World

_ROOT: Final = Path(__file__).parents[2]
_TIMES: Final = 4
ASIDE: Final = (
    "sidecar/v1/",
    "sidecar/protocol/messages/",
    "sidecar/telemetry/",
    "sidecar/node/hooks.py",
    "sidecar/changelog/clock.py",
)
"""Generated tables, hooks and clocks."""


def ways() -> dict[str, list[str]]:
    """By way, the modules that it crosses: recorded in a process of its own, which a world takes over."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.sim.ways", "--json"), cwd=_ROOT, check=True, capture_output=True
    )
    return json.loads(done.stdout)


@contextmanager
def _recording(world: World) -> Iterator[list[str]]:
    """The modules whose functions a node calls, in the order of their first calls."""
    found: dict[str, None] = {}
    root = f"{_ROOT}/"

    def called(frame: Any, event: str, _: object) -> None:
        if event == "call":
            file = frame.f_code.co_filename
            if file.startswith((f"{root}sidecar/", f"{root}metadata/")):
                found[file.removeprefix(root)] = None

    def around(handle: Any) -> None:
        if handle.host is not None and handle.host.name.startswith("node"):
            sys.setprofile(called)
        try:
            if handle.context is None:
                handle.callback(*handle.args)
            else:
                handle.context.run(handle.callback, *handle.args)
        finally:
            sys.setprofile(None)

    modules: list[str] = []
    world.loop.around = around
    try:
        yield modules
    finally:
        world.loop.around = None
    modules += found


class _Client:
    """A client that writes one batch after the other."""

    def __init__(self, world: World, number: int) -> None:
        from tests.sim import wire  # noqa: PLC0415 - see `_record`
        from tests.sim.host import Host  # noqa: PLC0415

        self._wire = wire
        self._world = world
        self._host = Host(f"client-{number}")
        self._connection: Any = None
        self._producer_id, self._epoch = -1, 0
        self._sequences: dict[str, int] = {}

    def connect(self) -> None:
        self._do(self._connect())

    def write(self, topic: str) -> int:
        """One batch; the error code of its answer."""
        return self._do(self._write(topic))

    def close(self) -> None:
        with self._world.loop.on(self._host):
            self._connection.close()

    def _do(self, work: Any) -> Any:
        return self._world.loop.finish(work, self._host)

    async def _connect(self) -> None:
        wire = self._wire
        self._connection = await wire.Wire.open(self._world.address(1), "app")
        answer = await self._connection.call(wire.INIT_PRODUCER_ID, wire.init_producer_id(), 5.0)
        _, self._producer_id, self._epoch = wire.producer_id(answer)

    async def _write(self, topic: str) -> int:
        wire = self._wire
        sequence = self._sequences.get(topic, 0)
        records, now = [wire.Writable(b"a record")], self._world.scheduler.wall_ms()
        batch = wire.batch_of(records, now, self._producer_id, self._epoch, sequence)
        answer = await self._connection.call(wire.PRODUCE, wire.produce(topic, {0: batch}, 5000), 10.0)
        code = wire.produced(answer)[0].error
        if not code:
            self._sequences[topic] = sequence + 1
        return code


def _record() -> dict[str, list[str]]:
    """Play each way some times. The world takes over this process."""
    from metadata.ownership import AccessMode  # noqa: PLC0415
    from tests.sim.world import Shape, TopicPlan, World  # noqa: PLC0415 - it imports the whole product

    world = World(0, Shape(nodes=1))
    world.start({"owned": TopicPlan(mode=AccessMode.EXCLUSIVE)})
    world.begin(0)
    owner = _Client(world, 0)
    owner.connect()
    takeovers = [_take_over(world, owner)]
    batches = [_written(world, owner) for _ in range(_TIMES)]
    for number in range(1, _TIMES + 1):
        owner.close()
        world.run(world.now + 3.0)  # nobody owns it any more
        owner = _Client(world, number)
        owner.connect()
        takeovers.append(_take_over(world, owner))
    return {"first": takeovers[0], "batch": _always(batches), "takeover": _always(takeovers[1:])}


def _take_over(world: World, owner: _Client) -> list[str]:
    for _ in range(100):
        with _recording(world) as modules:
            code = owner.write("owned")
        if code == 0:
            return modules
        world.run(world.now + 0.1)
    raise AssertionError(f"the topic has no owner: error code {code}")


def _written(world: World, owner: _Client) -> list[str]:
    with _recording(world) as modules:
        assert owner.write("owned") == 0
    world.run(world.now + 0.05)
    return modules


def _always(runs: Sequence[list[str]]) -> list[str]:
    return [each for each in runs[0] if all(each in run for run in runs[1:])]


def counted(modules: Sequence[str]) -> list[str]:
    """Those that count."""
    return [each for each in modules if not each.startswith(ASIDE)]


def _main() -> None:
    found = _record()
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps(found))
        return
    for way, modules in found.items():
        sys.stdout.write(f"{way}: {len(counted(modules))}\n")
        for each in modules:
            sys.stdout.write(f"  ({each})\n" if each.startswith(ASIDE) else f"  {each}\n")


if __name__ == "__main__":
    _main()
