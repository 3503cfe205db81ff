"""Batches on their way to a node on paper, on the simulator's clock: seconds of waiting cost nothing."""

from __future__ import annotations

import asyncio
import random
import struct
import threading
from types import SimpleNamespace
from typing import Any, NoReturn, Self, cast

import pytest

from sidecar.client import transport as module
from sidecar.client.access import PLAIN_TCP
from sidecar.client.claim import Claim
from sidecar.client.receipt import Pending, largest_size
from sidecar.client.transport import BATCH_BYTES, BatchError, Transport
from sidecar.protocol.codec import Codec
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.messages.admin import DESCRIBE_CONFIGS
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.primitives import Reader, at_once
from sidecar.protocol.schema import Message, Values
from tests.sim.host import Host
from tests.sim.loop import SimLoop
from tests.sim.net import Network, Weather

PORT = 9092
PRODUCE = 0


class PaperNodes:
    """Hosts that answer Metadata, Produce and DescribeConfigs of the topic `orders`, whose two partitions `one` leads.

    `lagging` do not know the topic. A batch for a partition in `stuck` waits in vain for its replicas, as long as the
    request allows; each other one is answered with `error`.
    """

    def __init__(self, *names: str) -> None:
        self.loop = SimLoop()
        self.loop.network = Network(self.loop, random.Random(1), Weather())
        self.lagging: set[str] = set()
        self.partitions = [0, 1]
        self.stuck: set[int] = set()
        self.error = 0
        self.asked: list[tuple[str, int, int]] = []
        """Name, number of the connection, API."""
        self._lines = 0
        self._application = Host("application")
        for name in names:
            self.loop.finish(self._listen(name), Host(name))
        claim = SimpleNamespace(
            topic="orders",
            client_id="billing;",
            access=PLAIN_TCP,
            producer=Stamp(ProducerId(1), ProducerEpoch(0)),
            next_sequences={},
            addresses=[(name, PORT) for name in names],
        )
        self.transport = Transport(cast("Claim", claim), Codec.NONE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.transport.close())
        self.loop.run(self.loop.now + 1)

    def run(self, *work: Any) -> list[Any]:
        """What these end with, begun at once."""

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*work, return_exceptions=True)

        return self.loop.finish(all_of_them(), self._application)

    def send(self, partition: int, size: int = 10) -> Any:
        value, outcome = bytes(size), self.loop.create_future()
        return self.transport.send(
            partition, [Pending(None, value, (), None, 0, largest_size(None, value, ()), outcome)]
        )

    async def _listen(self, name: str) -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._lines += 1
            line = self._lines
            try:
                while True:
                    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                    key, version, correlation, client_id = struct.unpack_from(">hhih", frame)
                    self.asked.append((name, line, key))
                    body = Reader(frame, 10 + client_id)
                    if key == PRODUCE:
                        writer.write(await self._append(correlation, body))
                    else:
                        message, values = self._told(name, key)
                        writer.write(at_once(message.answer_steps(version, correlation, values)))
            except asyncio.IncompleteReadError:
                writer.close()

        await asyncio.start_server(serve, name, PORT)

    def _told(self, name: str, key: int) -> tuple[Message, Values]:
        if key == DESCRIBE_CONFIGS.key:
            limit = {"name": "max.message.bytes", "value": "2000"}
            result = {"resource_type": 2, "resource_name": "orders", "configs": [limit]}
            return DESCRIBE_CONFIGS, {"results": [result]}
        topic: Values = {"error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "name": "orders"}
        if name not in self.lagging:
            topic |= {
                "error_code": 0,
                "partitions": [{"partition_index": each, "leader_id": 1} for each in self.partitions],
            }
        return METADATA, {"brokers": [{"node_id": 1, "host": "one", "port": PORT}], "topics": [topic]}

    async def _append(self, correlation: int, body: Reader) -> bytes:
        """As version 8 has it, of one topic."""
        body.skip(4)
        timeout_ms = body.i32()
        body.skip(4)
        body.text()
        partitions = list[int]()
        for _ in range(body.array()):
            partitions.append(body.i32())
            body.nullable_bytes()
        if self.stuck & set(partitions):
            await asyncio.sleep(timeout_ms / 1000)
        out = struct.pack(">iih6si", correlation, 1, 6, b"orders", len(partitions))
        for each in partitions:
            error = ErrorCode.REQUEST_TIMED_OUT if each in self.stuck else self.error
            out += struct.pack(">ihqqqih", each, error, -1 if error else 7, -1, 0, 0, -1)
        out += struct.pack(">i", 0)
        return len(out).to_bytes(4, "big") + out


def test_a_partition_whose_replicas_are_late_takes_no_answer_from_others_in_its_request() -> None:
    with PaperNodes("one") as nodes:
        nodes.stuck = {0}
        nodes.run(nodes.transport.start())
        late, fine = nodes.run(nodes.send(0), nodes.send(1))
        assert [key for _, _, key in nodes.asked].count(PRODUCE) == 1
        assert isinstance(late, BatchError)
        assert late.code == ErrorCode.REQUEST_TIMED_OUT
        assert fine == 7


def test_a_node_that_lags_is_no_word_on_a_record() -> None:
    """Code 3 would be final, and promise that nothing was written."""
    with PaperNodes("one") as nodes:
        nodes.lagging = {"one"}
        (unknown,) = nodes.run(nodes.send(0))
        assert isinstance(unknown, BatchError)
        assert unknown.code is None
        nodes.lagging = set()
        assert nodes.run(nodes.send(0)) == [7]


def test_a_partition_that_a_node_has_not_heard_of_is_waited_for() -> None:
    with PaperNodes("one") as nodes:
        nodes.partitions = [0]
        (unknown,) = nodes.run(nodes.send(1))
        assert isinstance(unknown, BatchError)
        assert unknown.code is None
        nodes.partitions = [0, 1]
        assert nodes.run(nodes.send(1)) == [7]


def test_where_one_node_lags_another_is_asked() -> None:
    with PaperNodes("two", "one") as nodes:
        nodes.lagging = {"two"}
        assert nodes.run(nodes.send(0)) == [7]


def test_no_connection_begins_with_a_batch() -> None:
    """A node refuses a first frame of more than 512 KiB: it may come from anybody."""
    with PaperNodes("one") as nodes:
        assert nodes.run(nodes.send(0, 600_000)) == [7]
        first = {line: key for _, line, key in reversed(nodes.asked)}
        assert PRODUCE not in first.values()


@pytest.mark.parametrize("limit", ["LONGEST_BATCH", "LONGEST_RECORDS"])
def test_what_fits_into_no_request_is_refused_and_never_sent(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    monkeypatch.setattr(module, limit, 1000)
    with PaperNodes("one") as nodes:
        (refused,) = nodes.run(nodes.send(0, 1000))
        assert isinstance(refused, BatchError)
        assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
        assert str(refused).startswith("a batch of 10")
        assert "1000 is the most" in str(refused)
        assert nodes.asked == []


def test_what_a_broker_finds_too_long_is_told_with_its_length_and_the_limit() -> None:
    with PaperNodes("one") as nodes:
        nodes.error = ErrorCode.MESSAGE_TOO_LARGE
        (refused,) = nodes.run(nodes.send(0, 5000))
        assert isinstance(refused, BatchError)
        assert refused.code == ErrorCode.MESSAGE_TOO_LARGE
        assert str(refused) == "a batch of 5070 bytes; the topic's max.message.bytes is 2000"


@pytest.mark.parametrize(
    ("codec", "size", "apart"),
    [(Codec.GZIP, BATCH_BYTES, True), (Codec.GZIP, 1000, False), (Codec.NONE, 10 * BATCH_BYTES, False)],
)
async def test_only_what_takes_long_to_compress_is_compressed_in_a_thread(
    monkeypatch: pytest.MonkeyPatch, codec: Codec, size: int, apart: bool
) -> None:
    """Ten megabytes of gzip would hold the application's event loop for a second."""
    threads: list[threading.Thread] = []

    def stop(*_: object) -> NoReturn:
        threads.append(threading.current_thread())
        raise EOFError

    monkeypatch.setattr(module, "build_batch", stop)
    claim = SimpleNamespace(producer=Stamp(ProducerId(1), ProducerEpoch(0)), next_sequences={})
    future = asyncio.get_running_loop().create_future()
    records = [Pending(None, bytes(size), (), None, 0, size + 100, future)]
    with pytest.raises(EOFError):
        await Transport(cast("Claim", claim), codec).send(0, records)
    assert (threads[0] is not threading.current_thread()) is apart
