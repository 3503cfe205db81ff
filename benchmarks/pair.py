"""One producer, one reader, one record in flight: from the first byte of a Produce to the record at the reader, whose
Fetch waits at the log's end. Blocks of all targets take turns, as in `latency`.

A thousand records a second: each waits until its Fetch has surely reached the broker, and the cores have slept.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from struct import Struct
from typing import TYPE_CHECKING, Final

from benchmarks.latency import VALUE_BYTES, WARM, in_turns, settle
from benchmarks.raw_client import CLIENT_ID, Connection, IdempotentProducer, new_producer
from sidecar.protocol import fetch
from sidecar.protocol.calls.logs import ListOffsets, OffsetAt
from sidecar.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping
    from typing import TypeVar

    TargetT = TypeVar("TargetT", bound=Hashable)

_VERSION: Final = 12
"""The last version of Fetch that names topics."""
_ELEMENT: Final = Struct(">iiqiqiB")
_WAIT_MS: Final = 10_000
_MOST_BYTES: Final = 1024 * 1024
_PAUSE_S: Final = 0.001


class _Pair:
    """One target's two connections, kept for all blocks."""

    def __init__(self, writer: Connection, reader: Connection, topic: str) -> None:
        self._writer, self._reader = writer, reader
        self._topic = topic.encode()
        self._producer = IdempotentProducer(new_producer(writer), topic, VALUE_BYTES)
        settle(writer, self._producer)
        where = TopicPartition(topic, 0)
        self._offset: int = reader.ask(ListOffsets({where: OffsetAt.LATEST}))[where].offset
        self.found: list[int] = []

    def block(self, records: int) -> None:
        """Time `records` of them; a few more before pay for the switch and do not count.

        Raises RuntimeError where the reader gets anything but the record.
        """
        clock, producer = time.perf_counter_ns, self._producer
        for index in range(records + WARM):
            self._reader.send(self._fetch())
            frame = producer.prepare()
            time.sleep(_PAUSE_S)
            start = clock()
            self._writer.send(frame)
            answer = self._reader.receive()
            took = clock() - start
            producer.check(self._writer.receive())
            (part,) = fetch.walk_answer(answer, 0, len(answer), _VERSION).parts
            if part.error or part.record_bytes < VALUE_BYTES:
                raise RuntimeError(f"Fetch at {self._offset}: error {part.error}, {part.record_bytes} bytes of records")
            self._offset += 1
            if index >= WARM:
                self.found.append(took)

    def _fetch(self) -> bytes:
        element = _ELEMENT.pack(0, -1, self._offset, -1, -1, _MOST_BYTES, 0)
        limits = _WAIT_MS, 1, _MOST_BYTES, 0
        return fetch.encode_request(0, CLIENT_ID.encode(), _VERSION, limits, [(self._topic, element)])


def measure(topics: Mapping[TargetT, tuple[int, str]], blocks: int, records: int) -> dict[TargetT, list[int]]:
    """Nanoseconds by target; `topics` says which port and topic each has.

    Raises RefusedError, RuntimeError, OSError.
    """
    with ExitStack() as connections:
        pairs: dict[TargetT, _Pair] = {}
        for target, (port, topic) in topics.items():
            writer, reader = (connections.enter_context(Connection(port)) for _ in range(2))
            pairs[target] = _Pair(writer, reader, topic)
        for each in in_turns(list(pairs.values()), blocks):
            each.block(records)
        return {target: pair.found for target, pair in pairs.items()}
