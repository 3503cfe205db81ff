"""Cursors that fall too far behind: what is counted, how long one waits for it, and which are reset."""

from __future__ import annotations

import asyncio
from typing import Any, cast
from uuid import UUID

import pytest

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.cluster.logs import LogReader
from sidecar.cluster.resolver import Source
from sidecar.protocol.calls.logs import FetchPartition
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.ids import TopicPartition
from sidecar.shadow import auto_reset
from sidecar.shadow.auto_reset import AutoReset, Backlogs, Moved, Stretch, detail, reset_of
from tests.unit.cluster.paper_log import PaperLog

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=1)


def records(offset: int, count: int = 1, *, is_control: bool = False) -> bytes:
    data = bytearray(build_batch([RawRecord(b"", b"v")] * count, None))
    data[:8] = offset.to_bytes(8, "big")
    data[22] |= 0x20 * is_control
    return bytes(data)


def compacted(offset: int, kept: int, of: int) -> bytes:
    """A batch of which compaction kept the first records."""
    data = bytearray(records(offset, kept))
    data[23:27] = (of - 1).to_bytes(4, "big")
    return bytes(data)


class Log(PaperLog):
    """Counts its fetches, and holds them while it is held."""

    def __init__(self, *batches: bytes) -> None:
        super().__init__(*batches)
        self.open = asyncio.Event()
        self.open.set()

    async def call(self, broker_id: int | None, request: Any, **how: Any) -> Any:
        if isinstance(request, FetchPartition):
            await self.open.wait()
        return await super().call(broker_id, request, **how)


def backlogs(log: PaperLog) -> Backlogs:
    return Backlogs(LogReader(cast(Any, log)))


def stretch(offset: int) -> Stretch:
    return Stretch(TOPIC_ID, ORDERS, offset)


@pytest.mark.parametrize(
    ("batches", "offset", "end", "count"),
    [
        ([records(0, 10)], 0, 10, 10),
        ([records(0, 10)], 4, 10, 6),  # within a batch
        ([records(0, 3), records(3, 1, is_control=True), records(4, 3)], 0, 7, 6),
        ([compacted(0, 3, of=8), records(8, 2)], 0, 10, 5),
        ([compacted(0, 3, of=8), records(8, 2)], 1, 10, 4),
        ([compacted(0, 3, of=8), records(8, 2)], 5, 10, 2),
        ([records(0, 3), records(3, 4)], 0, 3, 3),  # no further than the end
        ([records(0, 1, is_control=True) + records(1, 2) + records(3, 4)], 0, 3, 2),  # also within an answer
    ],
)
async def test_records_are_counted_and_nothing_else(batches: list[bytes], offset: int, end: int, count: int) -> None:
    for limit, passes in ((count - 1, True), (count, False)):
        assert await backlogs(Log(*batches)).passes(stretch(offset), end, limit, 5.0) is passes


async def test_offsets_within_the_limit_need_no_reading() -> None:
    log = Log(records(0, 10))
    assert await backlogs(log).passes(stretch(0), 10, 10, 5.0) is False
    assert log.fetched == []


async def test_the_log_is_read_once_and_no_further_than_the_limit() -> None:
    log = Log(*[records(offset, 2) for offset in range(0, 20, 2)])
    counts = backlogs(log)
    assert await counts.passes(stretch(0), 20, 3, 5.0) is True
    assert log.fetched == [0, 2]
    assert await counts.passes(stretch(0), 20, 2, 5.0) is True
    assert log.fetched == [0, 2]
    single = Log(*[records(offset) for offset in range(8)])
    counts_of_single = backlogs(single)
    for limit in (2, 3, 4):
        assert await counts_of_single.passes(stretch(0), 8, limit, 5.0) is True, "it goes on where it stopped"
    assert single.fetched == [0, 1, 2, 3, 4]
    assert await counts.passes(stretch(0), 20, 5, 5.0) is True
    assert log.fetched == [0, 2, 4]
    assert await counts.passes(stretch(0), 20, 19, 5.0) is True
    assert log.fetched == list(range(0, 20, 2))


async def test_records_that_retention_deleted_do_not_count() -> None:
    log = Log(records(6, 4))
    log.start = 6
    assert await backlogs(log).passes(stretch(0), 10, 4, 5.0) is False
    assert await backlogs(log).passes(stretch(0), 10, 3, 5.0) is True
    log.start = 12
    assert await backlogs(log).passes(stretch(0), 10, 1, 5.0) is False


async def test_a_count_that_takes_longer_goes_on_and_is_there_for_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = Log(records(0, 10))
    counts = backlogs(log)
    log.open.clear()
    assert await counts.passes(stretch(0), 10, 5, 0.0) is None
    assert await counts.passes(stretch(0), 10, 5, 0.0) is None
    monkeypatch.setattr(auto_reset, "_UNDER_WAY", 1)
    assert await counts.passes(stretch(1), 10, 5, 0.0) is None
    log.open.set()
    assert await counts.passes(stretch(0), 10, 5, 5.0) is True
    assert log.fetched == [0]
    assert await counts.passes(stretch(1), 10, 5, 5.0) is True


@pytest.mark.parametrize(("true_s", "fetched"), [(60.0, [0]), (-1.0, [0, 0])])
async def test_a_count_is_repeated_when_it_is_old(
    monkeypatch: pytest.MonkeyPatch, true_s: float, fetched: list[int]
) -> None:
    monkeypatch.setattr(auto_reset, "_TRUE_S", true_s)
    log = Log(records(0, 10))
    counts = backlogs(log)
    for _ in range(2):
        assert await counts.passes(stretch(0), 10, 5, 5.0) is True
    assert log.fetched == fetched


async def test_the_count_that_was_used_longest_ago_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_reset, "_REMEMBERED", 2)
    log = Log(*[records(offset) for offset in range(10)])
    counts = backlogs(log)
    for offset in (0, 1, 0, 2):
        await counts.passes(stretch(offset), 10, 1, 5.0)
    log.fetched.clear()
    for offset, reads in ((0, False), (2, False), (1, True)):
        await counts.passes(stretch(offset), 10, 1, 5.0)
        assert bool(log.fetched) is reads


async def test_a_count_that_nobody_came_back_for_is_forgotten_like_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_reset, "_REMEMBERED", 3)
    log = Log(*[records(offset) for offset in range(10)])
    counts = backlogs(log)
    for offset in range(8):
        log.open.clear()
        log.fetched.clear()
        assert await counts.passes(stretch(offset), 10, 1, 0.0) is None
        log.open.set()
        await asyncio.sleep(1)
    assert len(counts._counts) == 3
    assert await counts.passes(stretch(7), 10, 1, 0.0) is True
    assert log.fetched == [7, 8], "the newest is still there, and not counted again"


async def test_a_log_that_cannot_be_read_is_an_error_and_read_again_the_next_time() -> None:
    log = Log(records(0, 10))
    counts = backlogs(log)
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for _ in range(3):
        with pytest.raises(KafkaError):
            await counts.passes(stretch(0), 10, 5, 5.0)
    log.error = 0
    assert await counts.passes(stretch(0), 10, 5, 5.0) is True


async def test_counting_ends_with_the_node() -> None:
    log = Log(records(0, 10))
    counts = backlogs(log)
    log.open.clear()
    assert await counts.passes(stretch(0), 10, 5, 0.0) is None
    await counts.close()
    assert len(asyncio.all_tasks()) == 1


# Cursors ------------------------------------------------------------------------------------------------------------


class Shadows:
    """A node's cursors of shadows, and what it says of them."""

    def __init__(self, log: PaperLog, **limits: int) -> None:
        self.log = log
        self.failed: list[str] = []
        self.told: list[tuple[str, str, int, list[Moved]]] = []
        self.now: Source | None = Source(b"orders", TOPIC_ID)
        self.cursors = AutoReset(
            cast(Any, log),
            cast(Any, self),
            lambda shadow, _: self.failed.append(shadow),
            lambda shadow, group, limit, moved: self.told.append((shadow, group, limit, list(moved))),
            limits,
        )

    def source(self, name: bytes) -> Source | None:
        """As much of `NameResolver` as is needed."""
        return self.now


async def test_a_cursor_too_far_behind_is_reset_to_the_end_and_this_is_told_once() -> None:
    log = Log(records(0, 10))
    made = Shadows(log, mirror=5)
    assert await made.cursors.reset("g", "mirror", {0: 4}) == {0: 10}
    assert made.told == [("mirror", "g", 5, [Moved(0, 4, 10)])]
    assert await made.cursors.reset("g", "mirror", {0: 4}) == {0: 10}
    assert len(made.told) == 1
    log.batches = (*log.batches, records(10, 5))
    assert await made.cursors.reset("g", "mirror", {0: 4}) == {0: 10}, "until the group commits"
    assert await made.cursors.reset("g", "mirror", {0: 12}) == {}
    assert await made.cursors.reset("other", "mirror", {0: 4}) == {0: 15}
    log.batches = (*log.batches, records(15, 1))
    assert await made.cursors.reset("g", "mirror", {0: 4}) == {0: 16}


@pytest.mark.parametrize(
    "how", ["no limit", "no shadow", "closed", "no cursor", "another topic", "no such partition", "near", "control"]
)
async def test_no_other_cursor_is_reset(how: str) -> None:
    log = Log(records(0, 9), records(9, 1, is_control=True))
    made = Shadows(log, mirror={"no limit": 0, "near": 10, "control": 9}.get(how, 5))
    topic_id = UUID(int=2) if how == "another topic" else TOPIC_ID
    made.now = None if how == "no shadow" else Source(b"orders", topic_id, is_closed=how == "closed")
    committed = {} if how == "no cursor" else {7 if how == "no such partition" else 0: 0}
    assert await made.cursors.reset("g", "mirror", committed) == {}
    assert (made.told, made.failed) == ([], [])


async def test_a_cursor_whose_backlog_is_not_known_stays() -> None:
    log = Log(records(0, 10))
    made = Shadows(log, mirror=5)
    log.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert await made.cursors.reset("g", "mirror", {0: 0}) == {}
    assert made.failed == ["mirror"]
    assert made.told == []


async def test_a_node_that_ends_counts_no_more_for_its_cursors() -> None:
    log = Log(records(0, 10))
    log.open.clear()
    made = Shadows(log, mirror=5)
    assert await made.cursors.reset("g", "mirror", {0: 0}) == {}, "it takes longer than a group waits"
    await made.cursors.close()
    assert len(asyncio.all_tasks()) == 1


async def test_resets_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_reset, "_REMEMBERED", 2)
    made = Shadows(Log(records(0, 10)), mirror=5)
    for group in ("a", "b", "c", "c", "b", "a"):
        await made.cursors.reset(group, "mirror", {0: 0})
    assert [group for _, group, _, _ in made.told] == ["a", "b", "c", "a"]
    await made.cursors.close()


def test_a_reset_is_described_for_people_and_for_programs() -> None:
    moved = [Moved(index, index * 10, 100) for index in range(12)]
    assert detail("g", 5, moved[:1]).endswith("more than 5 records lay behind it (partition 0: 0 to 100)")
    assert detail("g", 5, moved[:10]).endswith("9: 90 to 100)")
    assert detail("g", 5, moved).endswith("9: 90 to 100 and 2 more)")
    message = reset_of("g", 5, moved[:2])
    assert (message.group, message.limit) == ("g", 5)
    assert (list(message.partition), list(message.from_offset), list(message.to_offset)) == (
        [0, 1], [0, 10], [100, 100],
    )  # fmt: skip
