"""Many records at once: an outcome for each, none behind one that failed, and no more in memory than there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest

from sidecar.client import pipeline as module
from sidecar.client import sending
from sidecar.client.claim import Claim
from sidecar.client.errors import ProducerFencedError, SidecarError, SidecarUnavailableError
from sidecar.client.numbering import Numbering
from sidecar.client.pipeline import Pipeline
from sidecar.client.receipt import Pending, Receipt, Record
from sidecar.client.sending import Sender
from sidecar.client.transport import BatchError, Transport
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

FENCED = ProducerFencedError(ErrorCode.PRODUCER_FENCED, "another owns it")


class Owned:
    """A claim to two partitions that holds until `lost`."""

    def __init__(self) -> None:
        self.topic, self.count, self.wanted, self.partitions = "orders", 2, None, [0, 1]
        self.next_sequences: dict[int, int] = {}
        self.producer = Stamp(ProducerId(0), ProducerEpoch(0))
        self.lost = False

    def generation_of(self, partition: int) -> int:
        return 1

    async def check(self) -> None:
        if self.lost:
            raise FENCED

    async def succeed(self) -> None:
        self.producer, self.next_sequences = Stamp(ProducerId(self.producer.producer_id + 1), ProducerEpoch(0)), {}


class Node:
    """Appends batches of at most `most` records, and answers those that contain a value of `answers` so, once for each
    code: None is no answer to a batch that was appended.
    """

    def __init__(self, claim: Owned, **answers: list[int | None]) -> None:
        self.logs: dict[int, list[bytes | None]] = {0: [], 1: []}
        self.open = asyncio.Event()
        self.open.set()
        self._claim = claim
        self._answers = {value.encode(): codes for value, codes in answers.items()}

    async def send(self, partition: int, records: Sequence[Pending]) -> int:
        await self.open.wait()
        log, values = self.logs[partition], [each.value for each in records]
        for value in values:
            for code in self._answers.get(value or b"", [])[:1]:
                self._answers[value or b""].pop(0)
                self._claim.lost |= code == ErrorCode.PRODUCER_FENCED
                if code is None:
                    log += values
                raise BatchError(code, "so it is")
        if values[0] not in log:
            log += values
        return log.index(values[0])

    async def close(self) -> None: ...


class Bench:
    def __init__(self, timeout: float = 30.0, **answers: list[int | None]) -> None:
        self.claim = Owned()
        self.node = Node(self.claim, **answers)
        self.numbering = Numbering("orders", {}, [0, 1])
        self.pipeline = Pipeline(
            cast("Claim", self.claim), self.numbering, cast("Transport", self.node), lambda error: None
        )
        self.sender = Sender(cast("Claim", self.claim), self.numbering, self.pipeline, timeout)


def numbered(count: int, partition: int = 0) -> list[Record]:
    return [Record(f"p{partition}n{number}".encode(), partition=partition) for number in range(count)]


def values(records: Sequence[Record]) -> list[bytes | None]:
    return [each.value for each in records]


def shown(outcomes: Sequence[Receipt | SidecarError]) -> list[Any]:
    """Offsets; of errors code and doubt."""
    return [each.offset if isinstance(each, Receipt) else (each.code, each.in_doubt) for each in outcomes]


@pytest.fixture(autouse=True)
def one_record_per_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BATCH_BYTES", 1)
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)


async def test_each_record_has_its_receipt_in_the_order_given() -> None:
    bench = Bench()
    mixed = [record for pair in zip(numbered(5), numbered(5, 1), strict=True) for record in pair]
    outcomes = await bench.sender.send_all(mixed)
    assert shown(outcomes) == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert [each.sequence_id for each in outcomes if isinstance(each, Receipt)] == list(range(10))
    assert bench.node.logs == {0: values(numbered(5)), 1: values(numbered(5, 1))}
    assert shown(await bench.sender.send_all([b"bytes", None])) == [5, 5]
    assert await bench.sender.send_all([]) == []


async def test_behind_a_record_that_is_refused_none_of_its_partition_is_written() -> None:
    bench = Bench(p0n1=[ErrorCode.MESSAGE_TOO_LARGE])
    outcomes = await bench.sender.send_all([*numbered(4), *numbered(2, 1)])
    assert shown(outcomes) == [0, (10, False), (55, False), (55, False), 0, 1]
    assert bench.node.logs == {0: [b"p0n0"], 1: values(numbered(2, 1))}
    given = [*numbered(4), *numbered(2, 1)]
    rest = [record for record, each in zip(given, outcomes, strict=True) if isinstance(each, SidecarError)]
    assert shown(await bench.sender.send_all(rest)) == [1, 2, 3]  # as the docstring says, in another call
    assert bench.node.logs == {0: values(numbered(4)), 1: values(numbered(2, 1))}


async def test_what_is_taken_behind_a_failure_is_not_sent_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "IN_FLIGHT_RECORDS", 1)
    bench = Bench(p0n0=[ErrorCode.MESSAGE_TOO_LARGE])
    assert shown(await bench.sender.send_all(numbered(3))) == [(10, False), (55, False), (55, False)]
    assert bench.node.logs[0] == []


async def test_what_can_be_no_record_stops_no_other() -> None:
    bench = Bench()
    wrong: list[Any] = [Record(b"a", partition=7), Record(b"b", headers=[(sending.ID_HEADER, b"1")]), "text"]
    assert shown(await bench.sender.send_all([*wrong, *numbered(2)])) == [(3, False), (87, False), (87, False), 0, 1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"headers": [(b"name", b"1")]},
        {"headers": [(None, b"1")]},
        {"headers": None},
        {"sequence_id": 1.0},
        {"sequence_id": True},
        {"sequence_id": "9"},
    ],
    ids=str,
)
async def test_a_part_of_another_type_has_an_error_of_its_own_and_the_others_their_receipts(wrong: Any) -> None:
    bench = Bench()
    outcomes = await bench.sender.send_all(
        [Record(b"a", partition=0), Record(b"b", **wrong), Record(b"c", partition=0)]
    )
    assert shown(outcomes) == [0, (87, False), 1]
    assert bench.node.logs == {0: [b"a", b"c"], 1: []}


async def test_once_the_topic_is_lost_the_rest_is_fenced_and_nothing_of_it_is_written() -> None:
    bench = Bench(p0n2=[ErrorCode.PRODUCER_FENCED])
    outcomes = await bench.sender.send_all([*numbered(5)])
    assert shown(outcomes) == [0, 1, (90, False), (90, False), (90, False)]
    assert all(isinstance(each, ProducerFencedError) for each in outcomes[2:])
    assert bench.node.logs[0] == [b"p0n0", b"p0n1"]
    assert shown(await bench.sender.send_all(numbered(1))) == [(90, False)]


async def test_a_record_whose_answer_was_lost_before_the_topic_was_is_in_doubt() -> None:
    bench = Bench(p0n1=[None, ErrorCode.PRODUCER_FENCED])
    outcomes = await bench.sender.send_all(numbered(3))
    assert shown(outcomes) == [0, (90, True), (90, False)]
    assert bench.node.logs[0] == [b"p0n0", b"p0n1"]


async def test_a_record_in_doubt_is_not_sent_again_in_a_session_that_another_partition_began() -> None:
    bench = Bench()
    bench.sender.numbering = bench.pipeline._numbering = Numbering("orders", None, [0, 1])  # pyright: ignore[reportPrivateUsage]
    sent: list[tuple[int, int]] = []

    async def send(partition: int, records: Sequence[Pending]) -> int:
        """The answer of the first batch of partition 0 is lost; then partition 1 has lost its place."""
        sent.append((partition, bench.claim.producer.producer_id))
        if sent == [(0, 0)] or (partition == 1 and len(sent) == 2):
            bench.node.logs[partition] += [each.value for each in records] if partition == 0 else []
            raise BatchError(None if partition == 0 else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "so it is")
        bench.node.logs[partition] += [each.value for each in records]
        return len(bench.node.logs[partition]) - len(records)

    bench.node.send = send
    outcomes = await bench.sender.send_all([*numbered(1), *numbered(1, 1)])
    assert sent == [(0, 0), (1, 0)]  # without ids nobody can tell what the log has: neither is tried in session 1
    assert shown(outcomes) == [(45, True), (45, True)]
    assert bench.node.logs[0] == [b"p0n0"]
    assert shown(await bench.sender.send_all(numbered(2)[1:])) == [1]


async def test_records_are_read_as_far_as_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "IN_FLIGHT_RECORDS", 10)
    bench, read = Bench(), 0
    bench.node.open.clear()

    def endless() -> Iterator[Record]:
        nonlocal read
        for record in numbered(100):
            read += 1
            yield record

    sends = asyncio.create_task(bench.sender.send_all(endless()))
    for _ in range(100):
        await asyncio.sleep(0)
    assert read == 10
    bench.node.open.set()
    assert shown(await sends) == list(range(100))


async def test_large_records_take_the_room_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "IN_FLIGHT_BYTES", 3_000)
    bench = Bench()
    bench.node.open.clear()
    records = iter([Record(b"x" * 1_000 + b"%d" % number, partition=0) for number in range(8)])
    sends = asyncio.create_task(bench.sender.send_all(records))
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(list(records)) == 5  # three are on their way
    bench.node.open.set()
    assert shown(await sends) == [0, 1, 2]


async def test_too_late_what_has_left_is_in_doubt_and_the_rest_is_not_sent() -> None:
    bench = Bench(timeout=0.01)
    bench.node.open.clear()
    outcomes = await bench.sender.send_all(numbered(3))
    assert shown(outcomes) == [(7, True), (55, False), (55, False)]
    assert isinstance(outcomes[0], SidecarUnavailableError)
    bench.node.open.set()
    await bench.pipeline.drain()
    assert bench.node.logs[0] == [b"p0n0"]  # it was written yet, and nothing else


async def test_cancelled_it_takes_back_what_has_not_left() -> None:
    bench = Bench()
    bench.node.open.clear()
    sends = asyncio.create_task(bench.sender.send_all(numbered(3)))
    for _ in range(10):
        await asyncio.sleep(0)
    sends.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sends
    bench.node.open.set()
    await bench.pipeline.drain()
    assert bench.node.logs[0] == [b"p0n0"]
