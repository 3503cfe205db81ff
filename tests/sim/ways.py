"""Which modules of the product a request crosses: `python -m tests.sim.ways` prints them, in the order in which they
come into play, for a batch of a governed topic's owner and for a takeover. docs/architecture.md has the lists, and
`test_ways.py` compares them with a run.

A world with one node plays each way several times. Every function of the product that the node calls between the
request and its answer is seen (`sys.setprofile`), and what ran each time counts: heartbeats and other loops run now and
then. Not counted are generated tables, hooks, clocks, turns and the count of bytes that wait (`ASIDE`). A takeover is
recorded in three parts: the request until its batch is judged, the takeover until its session owns the topic here, and
what comes after that.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

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
    "sidecar/network/memory.py",
    "sidecar/network/turn.py",
)
"""Generated tables, hooks, clocks, turns, and the count of bytes that wait."""
CARRIERS: Final = (
    "sidecar/network/",
    "sidecar/protocol/",
    "sidecar/cluster/brokers.py",
    "sidecar/cluster/hedging.py",
    "sidecar/cluster/upstream.py",
    "sidecar/cluster/view.py",
    "metadata/connection.py",
    "metadata/ownership.py",
    "metadata/replies.py",
    "sidecar/changelog/records.py",
    "sidecar/changelog/keys.py",
)
"""What carries and encodes for every request of a node, whatever it is about: sockets and tasks, Kafka's wire format,
which broker is asked and how, Redis' wire format, how records of the ownership topic are spelled and handed on.
"""
_BEGINS: Final = "TopicTakeovers.claim"
_SERVES: Final = "TopicOwner.taken_over"
"""The functions between whose first call and return the takeover proper is."""


class Takeover(NamedTuple):
    """The modules of a takeover, each in the part in which it comes into play. `again`: those of `before` that run in
    the takeover proper too.
    """

    before: list[str]
    proper: list[str]
    after: list[str]
    again: list[str]


class Ways(NamedTuple):
    """The modules of each way, in the order in which they come into play."""

    batch: list[str]
    takeover: Takeover


def ways() -> Ways:
    """Recorded in a process of its own, which a world takes over."""
    done = subprocess.run(
        (sys.executable, "-m", "tests.sim.ways", "--json"), cwd=_ROOT, check=True, capture_output=True
    )
    batch, takeover = json.loads(done.stdout)
    return Ways(batch, Takeover(*takeover))


class _Run:
    """What the node called for one request."""

    def __init__(self) -> None:
        self.modules: dict[str, int] = {}
        """By module, the part in which it comes into play: 0 before a takeover proper, 1 in it, 2 after it."""
        self.in_takeover: set[str] = set()
        self.part = 0

    def called(self, frame: Any, event: str, _: object) -> None:
        """See `sys.setprofile`."""
        file, name = frame.f_code.co_filename, frame.f_code.co_qualname
        if not file.startswith((f"{_ROOT}/sidecar/", f"{_ROOT}/metadata/")):
            return
        if event == "call":
            if self.part == 0 and name == _BEGINS:
                self.part = 1
            module = file.removeprefix(f"{_ROOT}/")
            self.modules.setdefault(module, self.part)
            if self.part == 1:
                self.in_takeover.add(module)
        elif event == "return" and self.part == 1 and name == _SERVES:
            self.part = 2


@contextmanager
def _recording(world: World) -> Iterator[_Run]:
    """The modules whose functions a node calls, in the order of their first calls."""
    run = _Run()

    def around(handle: Any) -> None:
        if handle.host is not None and handle.host.name.startswith("node"):
            sys.setprofile(run.called)
        try:
            if handle.context is None:
                handle.callback(*handle.args)
            else:
                handle.context.run(handle.callback, *handle.args)
        finally:
            sys.setprofile(None)

    world.loop.around = around
    try:
        yield run
    finally:
        world.loop.around = None


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


def _record() -> Ways:
    """Play each way some times. The world takes over this process."""
    from metadata.ownership import AccessMode  # noqa: PLC0415
    from tests.sim.world import Shape, TopicPlan, World  # noqa: PLC0415 - it imports the whole product

    world = World(0, Shape(nodes=1))
    world.start({"owned": TopicPlan(mode=AccessMode.EXCLUSIVE)})
    world.begin(0)
    owner = _Client(world, 0)
    owner.connect()
    _take_over(world, owner)  # the first one also learns what the node has not needed before
    takeovers: list[_Run] = []
    batches = [_written(world, owner) for _ in range(_TIMES)]
    for number in range(1, _TIMES + 1):
        owner.close()
        world.run(world.now + 3.0)  # nobody owns it any more
        owner = _Client(world, number)
        owner.connect()
        takeovers.append(_take_over(world, owner))
    modules = _always(takeovers)
    parts = [[each for each, number in modules.items() if number == part] for part in range(3)]
    again = [each for each in parts[0] if all(each in run.in_takeover for run in takeovers)]
    return Ways([*_always(batches)], Takeover(parts[0], parts[1], parts[2], again))


def _take_over(world: World, owner: _Client) -> _Run:
    for _ in range(100):
        with _recording(world) as run:
            code = owner.write("owned")
        if code == 0:
            return run
        world.run(world.now + 0.1)
    raise AssertionError(f"the topic has no owner: error code {code}")


def _written(world: World, owner: _Client) -> _Run:
    with _recording(world) as run:
        assert owner.write("owned") == 0
    world.run(world.now + 0.05)
    return run


def _always(runs: Sequence[_Run]) -> dict[str, int]:
    """What ran each time."""
    return {each: part for each, part in runs[0].modules.items() if all(each in run.modules for run in runs)}


def counted(modules: Sequence[str]) -> list[str]:
    """Those that count."""
    return [each for each in modules if not each.startswith(ASIDE)]


def deciding(modules: Sequence[str]) -> list[str]:
    """Those of a takeover that decide or act, without what carries and encodes."""
    return [each for each in counted(modules) if not each.startswith(CARRIERS)]


def _main() -> None:
    found = _record()
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps(found))
        return
    _print("batch", found.batch, ASIDE)
    for part, modules in found.takeover._asdict().items():
        _print(f"takeover, {part}", modules, ASIDE + CARRIERS)


def _print(title: str, modules: Sequence[str], left_out: tuple[str, ...]) -> None:
    count = sum(not each.startswith(left_out) for each in modules)
    sys.stdout.write(f"{title}: {count} of {len(counted(modules))}\n")
    for each in modules:
        sys.stdout.write(f"  ({each})\n" if each.startswith(left_out) else f"  {each}\n")


if __name__ == "__main__":
    _main()
