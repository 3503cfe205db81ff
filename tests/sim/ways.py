"""Which modules of the product a batch of a governed topic's owner crosses: `python -m tests.sim.ways` prints them, in
the order in which they come into play. docs/internals/architecture.md has the list, `test_ways.py` compares both.

A world with one node writes several batches. Every function of the product that the node calls between the request and
its answer is seen (`sys.setprofile`), and what ran each time counts: heartbeats and other loops run now and then. Not
counted are generated tables, hooks, clocks, turns and the count of bytes that wait (`ASIDE`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.sim.world import World

_ROOT: Final = Path(__file__).parents[2]
_TIMES: Final = 4
ASIDE: Final = (
    "sidecar/v1/",
    "sidecar/protocol/messages/",
    "sidecar/telemetry/",
    "sidecar/node/hooks.py",
    "sidecar/changelog/clock.py",
    "sidecar/network/memory.py",
    "sidecar/network/turn.py",
)
"""Generated tables, hooks, clocks, turns, and the count of bytes that wait."""


def way() -> list[str]:
    """Recorded in a process of its own, which a world takes over."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.sim.ways", "--json"), cwd=_ROOT, check=True, capture_output=True
    )
    return [str(module) for module in json.loads(done.stdout)]


@contextmanager
def _recording(world: World) -> Iterator[dict[str, None]]:
    """The modules whose functions a node calls, in the order of their first calls."""
    modules: dict[str, None] = {}

    def called(frame: Any, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith((f"{_ROOT}/sidecar/", f"{_ROOT}/metadata/")):
            modules.setdefault(file.removeprefix(f"{_ROOT}/"))

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

    world.loop.around = around
    try:
        yield modules
    finally:
        world.loop.around = None


class _Client:
    """A client that writes one batch after the other."""

    def __init__(self, world: World) -> None:
        from tests.sim import wire  # noqa: PLC0415 - see `_record`
        from tests.sim.host import Host  # noqa: PLC0415

        self._wire = wire
        self._world = world
        self._host = Host("client")
        self._connection: Any = None
        self._producer_id, self._epoch = -1, 0
        self._sequences: dict[str, int] = {}

    def connect(self) -> None:
        self._do(self._connect())

    def write(self, topic: str) -> int:
        """One batch; the error code of its answer."""
        return self._do(self._write(topic))

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


def _record() -> list[str]:
    """The world takes over this process."""
    from metadata.ownership import AccessMode  # noqa: PLC0415
    from tests.sim.world import Shape, TopicPlan, World  # noqa: PLC0415 - it imports the whole product

    world = World(0, Shape(nodes=1))
    world.start({"owned": TopicPlan(mode=AccessMode.EXCLUSIVE)})
    world.begin(0)
    owner = _Client(world)
    owner.connect()
    for _ in range(100):  # the first one takes the topic
        if owner.write("owned") == 0:
            break
        world.run(world.now + 0.1)
    runs: list[dict[str, None]] = []
    for _ in range(_TIMES):
        with _recording(world) as modules:
            assert owner.write("owned") == 0
        runs.append(modules)
        world.run(world.now + 0.05)
    return [module for module in runs[0] if all(module in run for run in runs) and not module.startswith(ASIDE)]


if __name__ == "__main__":
    recorded = _record()
    sys.stdout.write(json.dumps(recorded) if "--json" in sys.argv else "\n".join([*recorded, ""]))
