"""One request in flight at a time, timed to the nanosecond; blocks of all targets take turns many times a second.

So whatever the machine's neighbours do meets all targets alike, and differences of medians hold where medians wander.
"""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.raw_client import (
    PASSING,
    Connection,
    IdempotentProducer,
    RefusedError,
    list_offsets_frame,
    new_producer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.measures import Target

LaneT = TypeVar("LaneT")
VALUE_BYTES: Final = 1024
WARM: Final = 3
_SETTLE_S: Final = 30.0


@dataclass(slots=True)
class Latencies:
    """Round trips of one target in nanoseconds."""

    produce: list[int] = field(default_factory=list[int])
    list_offsets: list[int] = field(default_factory=list[int])


def settle(connection: Connection, producer: IdempotentProducer) -> None:
    """Append until it works: a new topic may still be unknown, an exclusive one is being claimed. Raises RefusedError,
    OSError.
    """
    deadline = time.monotonic() + _SETTLE_S
    while True:
        try:
            producer.check(connection.exchange(producer.prepare()))
        except RefusedError as error:
            if error.code not in PASSING or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


class _Lane:
    """One target's connection, kept for all blocks: an exclusive topic belongs to it."""

    def __init__(self, connection: Connection, topic: str) -> None:
        self._connection = connection
        self._producer = IdempotentProducer(new_producer(connection), topic, VALUE_BYTES)
        self._list_offsets = list_offsets_frame(topic)
        self.found = Latencies()
        settle(connection, self._producer)

    def append_block(self, calls: int) -> None:
        """Time `calls` appends; a few more before them pay for the switch and do not count."""
        exchange, clock, producer = self._connection.exchange, time.perf_counter_ns, self._producer
        for index in range(calls + WARM):
            frame = producer.prepare()
            start = clock()
            answer = exchange(frame)
            took = clock() - start
            producer.check(answer)
            if index >= WARM:
                self.found.produce.append(took)

    def list_offsets_block(self, calls: int) -> None:
        """The same for ListOffsets."""
        exchange, clock = self._connection.exchange, time.perf_counter_ns
        for index in range(calls + WARM):
            start = clock()
            exchange(self._list_offsets)
            took = clock() - start
            if index >= WARM:
                self.found.list_offsets.append(took)


def measure(
    topics: Mapping[Target, tuple[int, str]], blocks: int, calls: int, *, list_offsets: bool = True
) -> dict[Target, Latencies]:
    """Round trips by target; `topics` says which port and topic each has. Raises RefusedError, OSError."""
    with ExitStack() as connections:
        lanes: dict[Target, _Lane] = {}
        for target, (port, topic) in topics.items():
            lanes[target] = _Lane(connections.enter_context(Connection(port)), topic)
        for lane in in_turns(list(lanes.values()), blocks):
            lane.append_block(calls)
            if list_offsets:
                lane.list_offsets_block(calls)
        return {target: lane.found for target, lane in lanes.items()}


def in_turns(lanes: Sequence[LaneT], blocks: int) -> Iterator[LaneT]:
    """All lanes, `blocks` times; each time the next one begins. Python collects no garbage meanwhile."""
    gc.collect()
    gc.disable()
    try:
        for turn in range(blocks):
            shift = turn % len(lanes)
            yield from (*lanes[shift:], *lanes[:shift])
    finally:
        gc.enable()


def percentile(values: list[int], share: float) -> float:
    """The value below which `share` of them lie (nearest rank), in microseconds."""
    ranked = sorted(values)
    return ranked[min(len(ranked) - 1, int(len(ranked) * share))] / 1000
