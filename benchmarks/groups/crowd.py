"""A process that is many groups: `python -m benchmarks.groups.crowd ORDER`, the order a JSON of `Order`.

Prints how many seconds it took until every group was in balance. Then a line on standard input is a step: `rest` and
the next one end what is counted, and print it as JSON of `Counted`; `back` waits until every member was answered on the
connection that it has, and says after how many seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

import uvloop

from benchmarks.groups.member import Member
from sidecar.local.ports import HOST
from sidecar.protocol.errors import error_name
from sidecar.protocol.messages.groups import HEARTBEAT

if TYPE_CHECKING:
    from sidecar.protocol.schema import Message

_AT_ONCE: Final = 200
_ALL_S: Final = 180.0
_LOOK_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Order:
    """So many groups of a name and a number each, who commit for partition 0 of a topic, by way of a port."""

    port: int
    prefix: str
    topic: str
    size: int


@dataclass(slots=True)
class Counted:
    """Since the last look: milliseconds of joins, heartbeats and commits; how often which error was answered."""

    joins: list[float] = field(default_factory=list[float])
    heartbeats: list[float] = field(default_factory=list[float])
    commits: list[float] = field(default_factory=list[float])
    refused: dict[str, int] = field(default_factory=dict[str, int])

    def joined(self, took_s: float) -> None:
        """A group is in balance."""
        self.joins.append(round(took_s * 1000, 2))

    def answered(self, message: Message, took_s: float) -> None:
        """A heartbeat or a commit."""
        (self.heartbeats if message is HEARTBEAT else self.commits).append(round(took_s * 1000, 2))

    def refused_by(self, message: Message, code: int) -> None:
        """An error code."""
        what = f"{code} {error_name(code)} to api key {message.key}"
        self.refused[what] = self.refused.get(what, 0) + 1


class Crowd:
    """All members."""

    def __init__(self, order: Order) -> None:
        self.counted = Counted()
        self._port = order.port
        self._limit = asyncio.Semaphore(_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._members = [
            Member(f"{order.prefix}-{number}", order.topic, self.connect, self) for number in range(order.size)
        ]

    def joined(self, took_s: float) -> None:
        """See `Counted`."""
        self.counted.joined(took_s)

    def answered(self, message: Message, took_s: float) -> None:
        """See `Counted`."""
        self.counted.answered(message, took_s)

    def refused(self, message: Message, code: int) -> None:
        """See `Counted`."""
        self.counted.refused_by(message, code)

    def connect(self, member: Member) -> None:
        """Soon: a few connect at a time."""
        task = asyncio.get_running_loop().create_task(self._connect(member))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, member: Member) -> None:
        async with self._limit:
            try:
                await asyncio.get_running_loop().create_connection(lambda: member, HOST, self._port)
            except OSError:
                member.connect_again()

    def begin(self) -> None:
        """Everybody connects."""
        for member in self._members:
            self.connect(member)

    async def settled(self) -> float:
        """Until everybody was answered on the connection that it has; in how many seconds. Raises TimeoutError."""
        began = time.perf_counter()
        while missing := sum(not member.heard for member in self._members):
            if time.perf_counter() - began > _ALL_S:
                raise TimeoutError(f"{missing} members were not answered within {_ALL_S:.0f} s: {self.counted.refused}")
            await asyncio.sleep(_LOOK_S)
        return time.perf_counter() - began


async def _run(order: Order) -> None:
    crowd = Crowd(order)
    crowd.begin()
    _say(str(await crowd.settled()))
    read = asyncio.get_running_loop().run_in_executor
    while line := await read(None, sys.stdin.readline):
        if line.strip() == "back":
            _say(str(await crowd.settled()))
        else:
            counted, crowd.counted = crowd.counted, Counted()
            _say(json.dumps(asdict(counted)))


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> int:
    """Run the order of the command line."""
    uvloop.run(_run(Order(**json.loads(sys.argv[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
