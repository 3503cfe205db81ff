"""What the tailer tells its clock: when it had seen the end of the log, though an answer may lie unread for long."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from sidecar.changelog import Clock
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.changelog.tailer import Tailer
from sidecar.protocol.calls.logs import Fetched, FetchPartition, ListedOffset
from sidecar.protocol.ids import Offset, TopicPartition

PARTITION = TopicPartition("__sidecar_test", 0)
HOUR_S = 3600.0


class Machine:
    """Kafka, and a node that stands still for an hour behind an answer that tells the end of the log: the record that
    the next answer brings was written a moment after that.
    """

    def __init__(self) -> None:
        self.elapsed_s = 0.0
        self.answers = 0

    async def layout(self, topic: str, *, refresh: bool = False) -> Any:
        return SimpleNamespace(topic_id=UUID(int=1), leaders={0: 1})

    async def call(self, broker: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchPartition):
            return {PARTITION: ListedOffset(0, -1, Offset(0), 0)}
        self.answers += 1
        if self.answers == 1:
            self.elapsed_s += HOUR_S
            return Fetched(0, Offset(0), Offset(0), Offset(0), b"")
        if self.answers == 2:
            return Fetched(0, Offset(1), Offset(1), Offset(0), bytes(self.record()))
        return await asyncio.Event().wait()

    def record(self) -> bytearray:
        return build_batch([RawRecord(b"somebody's", b"else")], None)


async def test_a_record_that_was_written_while_the_node_stood_still_sets_no_clock_back() -> None:
    machine = Machine()
    began = time.time()
    clock = Clock(wall=lambda: began, elapsed=lambda: machine.elapsed_s)
    tailer = Tailer(cast(Any, machine), PARTITION, UUID(int=1), clock=clock)
    tailer.start()
    try:
        await tailer.reached(Offset(0), timeout=10)
    finally:
        await tailer.close()
    assert clock.now_ms() / 1000 >= began + HOUR_S - 60


class Moved(Machine):
    """The leader that showed an empty log had lost the cluster: the next one has a record from an hour before."""

    async def call(self, broker: int, request: Any, **options: Any) -> Any:
        if not isinstance(request, FetchPartition):
            return {PARTITION: ListedOffset(0, -1, Offset(0), 0)}
        self.answers += 1
        if self.answers > 3:
            return await asyncio.Event().wait()
        error, records = (6, b"") if self.answers == 2 else (0, bytes(self.record()) if self.answers == 3 else b"")
        end = Offset(int(self.answers == 3))
        return Fetched(error, end, end, Offset(0), records)


async def test_the_end_that_a_former_leader_showed_sets_no_clock_back() -> None:
    an_hour_later = time.time() + HOUR_S
    clock = Clock(wall=lambda: an_hour_later, elapsed=lambda: 0.0)
    tailer = Tailer(cast(Any, Moved()), PARTITION, UUID(int=1), clock=clock)
    tailer.start()
    try:
        await tailer.reached(Offset(0), timeout=10)
    finally:
        await tailer.close()
    assert clock.now_ms() / 1000 >= an_hour_later - 60
