"""Clients with quotas on one node, by the world's clock: `python -m tests.sim.metered PART` prints what each got.

A world takes over its process, so `run` starts one. The simulated brokers describe quotas and enforce none: what is
held back here, the node holds back.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.sim.world import World

_ROOT: Final = Path(__file__).parents[2]
QUOTA: Final = 20_000.0
"""Bytes per second."""
SECONDS: Final = 20.0
_RECORD: Final = 10_000
_PAUSE_S: Final = 0.05
"""Between two requests of a client: without a quota it gets ten times as much."""


_SLOW: Final[dict[Any, dict[str, float]]] = {(("client-id", "slow"),): {"producer_byte_rate": QUOTA}}


class Got(NamedTuple):
    """What the clients of one name got: bytes of records that were appended or read, how many answers, the longest
    throttle time that one of them had (ms), and the errors. `logged`: whether the node reported that it cannot read
    quotas.
    """

    size: int
    answers: int
    throttle_ms: int
    errors: list[int]
    logged: bool = False


def run(part: str) -> dict[str, Got]:
    """Play a part of `PARTS`; what each client got, by its client id."""
    done = subprocess.run((sys.executable, "-m", "tests.sim.metered", part), cwd=_ROOT, check=True, capture_output=True)
    return {name: Got(*each) for name, each in json.loads(done.stdout).items()}


class _Clients:
    """All clients of a run, and what they got."""

    def __init__(self, world: World) -> None:
        from tests.sim import wire  # noqa: PLC0415 - it imports the whole product
        from tests.sim.host import Host  # noqa: PLC0415

        self.wire = wire
        self.world = world
        self._host = Host("clients")
        self._reported = world.logged["client_quotas_unreadable"] > 0
        self._totals: dict[str, list[Any]] = {}

    def start(self, work: Any) -> None:
        self.world.spawn(self._host, work)

    def note(self, name: str, size: int, throttle_ms: int, error: int = 0) -> None:
        total = self._totals.setdefault(name, [0, 0, 0, []])
        total[0] += size
        total[1] += 1
        total[2] = max(total[2], throttle_ms)
        if error and error not in total[3]:
            total[3].append(error)

    def got(self) -> dict[str, Any]:
        return {name: [*total, self._reported] for name, total in self._totals.items()}

    def note_log(self, topic: str) -> None:
        """What a log has of each client, whose name its records begin with."""
        for batch in self.world.cluster.committed(topic, 0):
            for record in self.wire.records_of(bytes(batch.data)):
                self.note(record.value[:4].decode(), len(record.value), 0)

    async def produce(self, name: str, topic: str) -> None:
        """One batch after the other, for ever."""
        wire = self.wire
        connection = await wire.Wire.open(self.world.address(1), name)
        _, producer_id, epoch = wire.producer_id(
            await connection.call(wire.INIT_PRODUCER_ID, wire.init_producer_id(), 5.0)
        )
        sequence = 0
        while True:
            records, now = [wire.Writable(bytes(_RECORD))], self.world.scheduler.wall_ms()
            batch = wire.batch_of(records, now, producer_id, epoch, sequence)
            answer = await connection.call(wire.PRODUCE, wire.produce(topic, {0: batch}, 5_000), 900.0)
            error = wire.produced(answer)[0].error
            self.note(name, 0 if error else _RECORD, int.from_bytes(answer[-4:], "big"), error)
            if not error:
                sequence += 1
            await asyncio.sleep(_PAUSE_S)

    async def produce_unanswered(self, name: str, topic: str) -> None:
        """The same with acks=0, without a producer id."""
        wire = self.wire
        connection = await wire.Wire.open(self.world.address(1), name)
        while True:
            batch = wire.batch_of([wire.Writable(name.encode() + bytes(_RECORD))], self.world.scheduler.wall_ms())
            connection.send(wire.PRODUCE, wire.produce(topic, {0: batch}, 5_000, acks=0))
            await asyncio.sleep(_PAUSE_S)

    async def read(self, name: str, topic: str) -> None:
        """From the end on, as the readers do for which a node polls once."""
        wire = self.wire
        connection = await wire.Wire.open(self.world.address(1), name)
        offset = 0
        while True:
            body = wire.shared_fetch(topic, {0: offset}, 500)
            answer = await connection.call(wire.FETCH, body, 900.0, version=wire.SHARED_FETCH)
            found = wire.fetched(answer, shared=True)[0]
            offset = max(offset, wire.end_of(found.records) or 0)
            self.note(name, len(found.records), int.from_bytes(answer[:4], "big"), found.error)
            if found.error:
                await asyncio.sleep(0.1)


def _governed(clients: _Clients) -> None:
    for name in ("slow", "slow", "free"):  # two connections share the quota
        clients.start(clients.produce(name, "shared"))


def _unreadable(clients: _Clients) -> None:
    clients.start(clients.produce("slow", "shared"))


def _later(clients: _Clients) -> None:
    """Nodes read the quota while its client writes, and soon after it was taken back."""
    world = clients.world
    clients.start(clients.produce("slow", "shared"))
    world.run(world.now + 5.0)
    world.cluster.client_quotas = dict(_SLOW)
    world.run(world.now + 10.0)
    before = clients.got()["slow"][0]
    world.run(world.now + SECONDS)
    clients.note("limited", clients.got()["slow"][0] - before, 0)
    world.cluster.client_quotas = {}
    world.run(world.now + 90.0)
    before = clients.got()["slow"][0]
    world.run(world.now + SECONDS)
    clients.note("free again", clients.got()["slow"][0] - before, 0)


def _readers(clients: _Clients) -> None:
    clients.start(clients.produce("writer", "ordinary"))
    for number in range(4):
        clients.start(clients.read(f"reader-{number}", "ordinary"))


def _unanswered(clients: _Clients) -> None:
    for name in ("slow", "free"):
        clients.start(clients.produce_unanswered(name, "shared"))
    clients.world.run(clients.world.now + SECONDS)
    clients.note_log("shared")


def _ordinary(clients: _Clients) -> None:
    """A quota of the node's settings, and records without an answer."""
    clients.start(clients.produce_unanswered("slow", "ordinary"))
    clients.world.run(clients.world.now + SECONDS)
    clients.note_log("ordinary")


PARTS: Final[Mapping[str, tuple[Callable[[_Clients], None], Any]]] = {
    "governed": (_governed, _SLOW),
    "unreadable": (_unreadable, None),
    "later": (_later, {}),
    "readers": (_readers, {(("client-id", None),): {"consumer_byte_rate": QUOTA}}),
    "unanswered": (_unanswered, _SLOW),
    "ordinary": (_ordinary, {}),
}
"""What runs, and the quotas with which the node starts; None: it may not see them."""


def _main(part: str) -> None:
    from metadata.ownership import AccessMode  # noqa: PLC0415
    from tests.sim.world import Shape, TopicPlan, World  # noqa: PLC0415 - it imports the whole product

    name, _, off = part.partition("-")
    own = (("quota_producer_byte_rate", int(QUOTA)),) if name == "ordinary" else ()
    world = World(0, Shape(nodes=1, partitions=1, settings=(("client_quotas", not off), *own)))
    play, world.cluster.client_quotas = PARTS[name]
    world.start({"shared": TopicPlan(mode=AccessMode.SHARED), "ordinary": TopicPlan()})
    clients = _Clients(world)
    world.begin(0)
    play(clients)
    if name not in ("later", "unanswered", "ordinary"):
        world.run(world.now + SECONDS)
    sys.stdout.write(json.dumps(clients.got()))


if __name__ == "__main__":
    _main(sys.argv[1])
