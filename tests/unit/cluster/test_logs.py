"""Reading a log: to the end that is known, or an error; never to an empty answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from uuid import UUID

import pytest

from sidecar.cluster import logs
from sidecar.cluster.logs import LogMovedError, LogReader
from sidecar.protocol.batch import read_header
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition
from tests.unit.cluster.paper_log import PaperLog
from tests.unit.dedup.paper import logged, recs

if TYPE_CHECKING:
    from sidecar.protocol.caller import Upstream

PARTITION = TopicPartition("orders", 0)


def log_of(*offsets: int) -> PaperLog:
    return PaperLog(*[logged(recs(offset), offset, epoch=4) for offset in offsets])


async def read(log: PaperLog, start: int, end: int) -> list[int]:
    """The offsets of the batches."""
    return [
        read_header(found, 0, len(found)).base_offset
        async for found in LogReader(cast("Upstream", log)).read(PARTITION, start, end)
    ]


async def test_a_log_is_read_to_the_end_that_is_known_and_not_further() -> None:
    log = log_of(*range(10, 20))
    assert await read(log, 12, 15) == [12, 13, 14]
    assert log.fetched == [12, 13, 14]


async def test_where_nothing_is_to_be_read_nobody_is_asked() -> None:
    log = log_of(10)
    assert await read(log, 11, 11) == []
    assert log.fetched == []


async def test_empty_answers_are_asked_again_wherever_they_come() -> None:
    log = log_of(10, 11, 12)
    log.empty_at = {10: 3, 12: 3}
    assert await read(log, 10, 13) == [10, 11, 12]
    assert log.fetched == [10] * 4 + [11] + [12] * 4


async def test_offsets_that_compaction_took_are_stepped_over() -> None:
    log = log_of(10, 18, 30)
    assert await read(log, 10, 25) == [10, 18, 30]


async def test_what_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_LONGEST_PAUSE_S", 0.0)
    log = log_of(10, 11)
    with pytest.raises(KafkaError, match="nothing comes from offset 12 on, in front of 14") as failure:
        await read(log, 10, 14)
    assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    assert log.fetched.count(12) == logs._EMPTY_ANSWERS


async def test_a_log_that_begins_later_by_now_says_where() -> None:
    log = log_of(20, 21)
    log.start = 20
    with pytest.raises(LogMovedError) as failure:
        await read(log, 10, 22)
    assert failure.value.start == 20


async def test_a_leader_that_has_not_heard_of_its_partition_yet_is_not_available() -> None:
    """The topic is there: a client of another partition must not take 3 for final (Sarama gives up)."""
    log = log_of(10)
    log.error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    reader = LogReader(cast("Upstream", log))
    with pytest.raises(KafkaError) as listing:
        await reader.ends("orders", [0])
    with pytest.raises(KafkaError) as reading:
        await reader.fetch(PARTITION, 10, 1000)
    assert {listing.value.code, reading.value.code} == {ErrorCode.LEADER_NOT_AVAILABLE}


async def test_a_reader_of_one_topic_reads_no_later_one_of_its_name() -> None:
    log = log_of(10)
    reader = LogReader(cast("Upstream", log))
    assert await reader.bound(UUID(int=1)).ends("orders", [0]) == {0: 11}
    later = reader.bound(UUID(int=2))
    for work in (later.ends("orders", [0]), later.fetch(PARTITION, 10, 1000), later.topic_id("orders")):
        with pytest.raises(KafkaError, match="orders was created again") as failure:
            await work
        assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_log_that_is_created_again_under_its_reader_is_not_read_on() -> None:
    log = log_of(10, 11)
    log.empty_at = {11: 1}
    found = LogReader(cast("Upstream", log)).read(PARTITION, 10, 12)
    first = await anext(found)
    assert read_header(first, 0, len(first)).base_offset == 10
    log.topic_id = UUID(int=2)
    with pytest.raises(KafkaError, match="created again"):
        await anext(found)
