"""What goes into one batch, and what becomes of those behind one whose outcome nobody knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from sidecar.client import pipeline as module
from sidecar.client.claim import Claim
from sidecar.client.errors import SidecarError
from sidecar.client.numbering import Numbering
from sidecar.client.pipeline import PartitionPipeline, Pipeline
from sidecar.client.receipt import Pending
from sidecar.client.transport import BatchError, Transport
from sidecar.protocol.errors import APPEND_IN_DOUBT, ErrorCode
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp


def record(number: int | None, size: int = 100) -> Pending:
    return Pending(None, b"", (), number, 0, size, asyncio.get_running_loop().create_future())


def batches(records: list[Pending], last_id: int = -1) -> list[list[int | None]]:
    """The numbers of the records of each batch."""
    part = PartitionPipeline(0)
    for each in records:
        part.add(each)
    found: list[list[int | None]] = []
    while part.fill(last_id):
        assert part.fill(last_id)  # a head stays what it is until it is settled
        found.append([each.number for each in part.settled()])
    return found


@pytest.mark.parametrize(
    ("numbers", "last_id", "wanted"),
    [
        ([0, 1, 5], -1, [[0, 1, 5]]),
        ([None, None], -1, [[None, None]]),
        ([0, 1, 2, 3], 1, [[0, 1], [2, 3]]),
        ([6, 6, 7], 5, [[6], [6, 7]]),
        ([7, 6], 5, [[7], [6]]),
        ([], -1, []),
    ],
)
async def test_a_batch_is_of_rising_ids_all_known_or_all_new(
    numbers: list[int | None], last_id: int, wanted: list[list[int | None]]
) -> None:
    assert batches([record(number) for number in numbers], last_id) == wanted


async def test_a_batch_ends_where_it_is_full_and_has_one_record_at_least() -> None:
    sizes = [200_000, 40_000, 20_000, 10_000, 200_000]
    assert batches([record(number, size) for number, size in enumerate(sizes)]) == [[0], [1, 2], [3], [4]]


async def test_what_was_given_up_before_it_left_is_left_out() -> None:
    records = [record(number) for number in range(4)]
    for number in (0, 2):
        records[number].outcome.cancel()
    assert batches(records) == [[1, 3]]
    for each in records:
        each.outcome.cancel()
    assert batches(records) == []


async def test_what_was_given_up_under_way_stays_in_its_batch() -> None:
    """It is sent again as the same batch, or Kafka would not know it."""
    part, records = PartitionPipeline(0), [record(number) for number in range(2)]
    for each in records:
        part.add(each)
    assert part.fill(-1)
    records[0].outcome.cancel()
    assert part.fill(-1)
    assert part.head == records


class Owned:
    """A claim that holds. Its session and the next sequence in it are where a batch lies."""

    def __init__(self) -> None:
        self.next_sequences: dict[int, int] = {}
        self.producer = Stamp(ProducerId(0), ProducerEpoch(0))

    def generation_of(self, partition: int) -> int:
        return 1

    async def succeed(self) -> None:
        self.producer, self.next_sequences = Stamp(ProducerId(self.producer.producer_id + 1), ProducerEpoch(0)), {}


class Log:
    """A node that appends the first batch and answers it with an error (None: with nothing), then its repeats with the
    others; when there is none left a repeat of its sequences is acknowledged.
    """

    def __init__(self, claim: Owned, *errors: int | None) -> None:
        self.values: list[bytes | None] = []
        self._claim = claim
        self._errors = list(errors)
        self._known: dict[tuple[Stamp, int], int] = {}

    async def send(self, partition: int, records: Sequence[Pending]) -> int:
        place = self._claim.producer, self._claim.next_sequences.get(partition, 0)
        base = self._known.setdefault(place, len(self.values))
        if base == len(self.values):
            self.values += [each.value for each in records]
        if self._errors:
            raise BatchError(self._errors.pop(0), "the leader moved")
        return base

    async def close(self) -> None: ...


REFUSALS = [ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_RECORD]
IN_DOUBT = [None, *sorted(APPEND_IN_DOUBT)]


@pytest.mark.parametrize(
    "errors", [*([each] for each in IN_DOUBT), *([each, refusal] for each in IN_DOUBT for refusal in REFUSALS)], ids=str
)
async def test_a_record_behind_one_in_doubt_is_never_taken_for_its_repeat(
    monkeypatch: pytest.MonkeyPatch, errors: list[int | None]
) -> None:
    """Whether its last answer leaves it in doubt, or an earlier one did and the last is a refusal (KIP-360)."""
    claim = Owned()
    log = Log(claim, *errors)

    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    numbering = Numbering("orders", {}, [0])
    sent = [record(number) for number in range(2)]
    pipeline = Pipeline(cast("Claim", claim), numbering, cast("Transport", log), lambda error: None)
    told: list[int | str] = []
    for number, each in enumerate(sent):
        each.value = b"%d" % number
        numbering.take(0, number, given=True)
        pipeline.add(0, each)
        await pipeline.drain()
        try:
            told.append((await each.outcome).offset)
        except SidecarError as error:
            told.append(error.message)
    assert log.values == [b"0", b"1"]
    assert told[1] == 1
    assert told[0] == 0 or "an earlier try of it may have been written" in str(told[0])
    assert (told[0] == 0) is (len(errors) == 1)


async def test_a_topic_that_stays_unknown_fails_a_record_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_AGAIN_S", 0.0)
    claim = Owned()
    log = Log(claim, *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * module._UNKNOWN_TRIES)
    pipeline = Pipeline(
        cast("Claim", claim), Numbering("orders", None, [0]), cast("Transport", log), lambda error: None
    )
    first = record(None)
    pipeline.add(0, first)
    await pipeline.drain()
    with pytest.raises(SidecarError, match="may have been written") as unknown:
        await first.outcome
    assert (unknown.value.code, unknown.value.retryable) == (3, True)
    assert claim.producer == Stamp(ProducerId(1), ProducerEpoch(0)), "its sequences are nobody else's"


async def test_what_is_refused_at_once_leaves_its_sequences_to_the_next_record() -> None:
    claim = Owned()
    log = Log(claim, ErrorCode.MESSAGE_TOO_LARGE)
    pipeline = Pipeline(
        cast("Claim", claim), Numbering("orders", None, [0]), cast("Transport", log), lambda error: None
    )
    first = record(None)
    pipeline.add(0, first)
    await pipeline.drain()
    with pytest.raises(SidecarError, match="the leader moved"):
        await first.outcome
    assert (claim.producer, claim.next_sequences) == (Stamp(ProducerId(0), ProducerEpoch(0)), {})


async def test_behind_the_last_sequence_comes_the_first() -> None:
    claim = Owned()
    log = Log(claim)
    claim.next_sequences[0] = 2**31 - 2
    pipeline = Pipeline(
        cast("Claim", claim), Numbering("orders", None, [0]), cast("Transport", log), lambda error: None
    )
    for _ in range(5):
        pipeline.add(0, record(None))
    await pipeline.drain()
    assert claim.next_sequences == {0: 3}
