"""Readers are told whatever befalls one of them, and none of the others waits for all."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.fanout import recent
from sidecar.fanout import tails as module
from sidecar.fanout.question import Asked, Question
from sidecar.fanout.tails import Tails
from sidecar.network.tasks import Tasks
from sidecar.protocol import fetch
from sidecar.protocol.calls.tails import Fetched, Position, error_of
from sidecar.protocol.errors import ErrorCode
from tests.wait import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUESTION = Question(Position(b"orders", 0, -1, 7), 0)
_NOTHING = bytes(30) + b"\xff" * 8 + bytes(4)
_NEXT = _QUESTION._replace(position=_QUESTION.position._replace(offset=8))
_READERS = 200


class PaperUpstream:
    """One broker that leads everything, and has a record when it is asked."""

    def __init__(self) -> None:
        self.view = self
        self.calls = 0
        self.parked = asyncio.Event()
        self.parked.set()
        self.fails = False
        self.stale: list[set[bytes]] = []

    def refresh_soon(self, topics: set[bytes]) -> None:
        self.stale.append(topics)

    def leader(self, _topic: bytes, _partition: int) -> int:
        return 1

    async def call(self, _broker: int, _request: Any, **_: Any) -> dict[tuple[bytes, int], Fetched]:
        self.calls += 1
        await self.parked.wait()
        if self.fails:
            raise ZeroDivisionError
        return {(b"orders", 0): Fetched(0, 10, _NOTHING + bytes(10))}


class Reader:
    def __init__(self, *, fails: bool = False) -> None:
        self.found: list[Mapping[Question, Fetched]] = []
        self.expiries = 0
        self._fails = fails

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        self.found.append(found)
        if self._fails:
            raise RuntimeError("a fault of one reader")

    def expired(self, tick: int) -> None:
        self.expiries += 1


async def test_readers_are_told_when_their_poll_comes_to_nothing_that_anybody_foresaw() -> None:
    faults: list[Any] = []
    upstream, tasks = PaperUpstream(), Tasks(faults.append)
    upstream.fails = True
    tails = Tails(upstream, tasks, longest_s=5.0)  # pyright: ignore[reportArgumentType]
    reader = Reader()
    tails.park(reader, [Asked(_QUESTION, 1000)], 60.0)
    await wait_until(lambda: reader.found, "it is told")
    assert reader.found[0][_QUESTION].error == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (len(faults), upstream.stale, tails.waiting, tails.polls) == (1, [{b"orders"}], 0, 0)


@pytest.mark.parametrize("failing", [None, 0, 70, _READERS - 1])
async def test_every_reader_is_told_once_a_few_at_a_time(failing: int | None) -> None:
    faults: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    upstream, tasks = PaperUpstream(), Tasks(faults.append)
    tails = Tails(upstream, tasks, longest_s=5.0)  # pyright: ignore[reportArgumentType]
    readers = [Reader(fails=number == failing) for number in range(_READERS)]
    for reader in readers:
        tails.park(reader, [Asked(_QUESTION, 1000)], 60.0)
    at_once: list[int] = []
    while sum(len(reader.found) for reader in readers) < _READERS:
        before = sum(len(reader.found) for reader in readers)
        async with asyncio.timeout(5):
            await asyncio.sleep(0)
        at_once.append(sum(len(reader.found) for reader in readers) - before)
    assert max(at_once) < _READERS / 2
    assert all(list(reader.found[0]) == [_QUESTION] for reader in readers)
    assert len(faults) == (failing is not None)
    assert (upstream.calls, tails.waiting, tails.polls) == (1, 0, 0)


async def test_kept_answers_are_given_while_polls_stand_and_not_behind_a_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic that was deleted and created anew meanwhile would be answered for by the old one's records."""
    monkeypatch.setattr(module, "UNWATCHED_S", 5.0)
    upstream, faults = PaperUpstream(), list[Any]()
    tails = Tails(upstream, Tasks(faults.append), longest_s=5.0)  # pyright: ignore[reportArgumentType]
    tails.park(Reader(), [Asked(_QUESTION, 1000)], 60.0)
    await wait_until(lambda: not tails.waiting, "everyone is told")
    assert tails.answer(_QUESTION, 1000) is not None
    upstream.parked.clear()
    tails.park(Reader(), [Asked(_NEXT, 1000)], 60.0)
    await asyncio.sleep(0.2)
    assert tails.answer(_QUESTION, 1000) is not None, "a poll has stood ever since"
    upstream.parked.set()
    await wait_until(lambda: not tails.waiting, "everyone is told")
    monkeypatch.setattr(module, "UNWATCHED_S", 0.01)
    await asyncio.sleep(0.05)
    assert tails.answer(_QUESTION, 1000) is None
    upstream.parked.clear()
    later = _NEXT._replace(position=_NEXT.position._replace(offset=9))
    tails.park(Reader(), [Asked(later, 1000)], 60.0)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert tails.polls == 1
    assert tails.answer(_QUESTION, 1000) is None, "nobody looked for a while"
    upstream.parked.set()
    await wait_until(lambda: not tails.waiting, "everyone is told")
    assert not faults


async def test_a_reader_that_nothing_comes_for_is_told_so_once_at_its_time() -> None:
    upstream, faults = PaperUpstream(), list[Any]()
    upstream.parked.clear()
    tails = Tails(upstream, Tasks(faults.append), longest_s=5.0)  # pyright: ignore[reportArgumentType]
    readers = [Reader() for _ in range(_READERS)]
    asked = [Asked(_QUESTION, 1000)]
    ticks = [tails.park(reader, asked, 0.02 if number % 2 else 60.0) for number, reader in enumerate(readers)]
    await wait_until(lambda: sum(reader.expiries for reader in readers) == _READERS / 2, "half of them are told")
    assert [reader.expiries for reader in readers] == [number % 2 for number in range(_READERS)]
    for number, (reader, tick) in enumerate(zip(readers, ticks, strict=True)):
        if number % 2:
            tails.leave(reader, asked, tick)
    tails.hurry(readers[0], ticks[0], 0.02)
    await wait_until(lambda: readers[0].expiries == 1, "the one in a hurry is told")
    assert tails.waiting == _READERS / 2
    for reader, tick in zip(readers[::2], ticks[::2], strict=True):
        tails.leave(reader, asked, tick)
    assert tails.waiting == 0
    assert not faults
    upstream.parked.set()


async def test_readers_wait_longer_where_many_do() -> None:
    upstream, faults = PaperUpstream(), list[Any]()
    upstream.parked.clear()
    tails = Tails(upstream, Tasks(faults.append), longest_s=5.0)  # pyright: ignore[reportArgumentType]
    asked = [Asked(_QUESTION, 1000)]
    assert tails.wait_s(0.5, number=1) == 0.5
    ticks = [(reader, tails.park(reader, asked, 60.0)) for reader in (Reader() for _ in range(5_000))]
    tails.crowd.gathers(1, [_QUESTION.position.of])
    assert tails.wait_s(0.5, number=1) == 0.5, "they are requests of one client"
    for connection in range(5_000):
        tails.crowd.gathers(connection, [_QUESTION.position.of])
    assert 3.8 <= tails.wait_s(0.5, number=1) <= 5.0
    for reader, tick in ticks:
        tails.leave(reader, asked, tick)
    assert tails.wait_s(0.5, number=1) == 0.5
    upstream.parked.set()


async def test_answers_that_grow_too_old_one_by_one_are_dropped_many_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look takes its time: with one for each answer a node did nothing else a minute after a busy one."""
    monkeypatch.setattr(recent, "KEPT_S", 0.1)
    tails, looks = Tails(PaperUpstream(), Tasks(print), longest_s=5.0), list[int]()  # pyright: ignore[reportArgumentType]
    monkeypatch.setattr(tails, "_changed", lambda: looks.append(tails._recent._bytes))
    now = asyncio.get_running_loop().time()
    for number in range(40):
        question = _QUESTION._replace(position=_QUESTION.position._replace(offset=number))
        tails._recent.keep(question, Fetched(0, 10, bytes(10)), now + number / 100)
    tails._age(now)
    await wait_until(lambda: not tails._recent._bytes, "all are dropped")
    assert len(looks) <= 2


class Log(PaperUpstream):
    """A broker with one log of one record a batch; `asked` are the offsets that it was asked for."""

    def __init__(self, end: int) -> None:
        super().__init__()
        self.end = end
        self.error = 0
        self.asked: list[int] = []

    async def call(self, _broker: int, request: Any, **_: Any) -> dict[tuple[bytes, int], Fetched]:
        (position,) = request.positions
        self.asked.append(position.offset)
        if self.error:
            return {(b"orders", 0): error_of(0, self.error)}
        if position.offset >= self.end:
            await asyncio.sleep(0.02)
        if position.offset >= self.end:
            return {(b"orders", 0): Fetched(0, 0, _NOTHING)}
        batch = bytearray(build_batch([RawRecord(b"", b"paid")], None))
        batch[:8] = position.offset.to_bytes(8, "big")
        return {(b"orders", 0): Fetched(0, len(batch), _NOTHING[:-4] + len(batch).to_bytes(4, "big") + batch)}


@pytest.mark.parametrize("readers", [3, 4])
async def test_what_is_behind_records_is_asked_for_before_any_reader_comes(
    monkeypatch: pytest.MonkeyPatch, readers: int
) -> None:
    """A busy node needs long for thousands of readers. Without a poll it could not vouch for what it kept, and each
    that was behind read alone, over a broker connection of its own: of 40,000, all but 10,000 came to nothing.
    """
    monkeypatch.setattr(module, "AHEAD_S", 2.0)
    upstream, faults = Log(end=8), list[Any]()
    tails = Tails(upstream, Tasks(faults.append), longest_s=5.0)  # pyright: ignore[reportArgumentType]
    for number in range(readers):
        tails.crowd.gathers(number, [(b"orders", 0)])
    tails.park(Reader(), [Asked(_QUESTION, 1000)], 60.0)
    await wait_until(lambda: not tails.waiting, "everyone is told")
    if readers < 4:
        assert upstream.asked == [7], "these few ask by themselves"
        return
    upstream.end = 12
    await wait_until(lambda: upstream.asked[-1] == 12, "the end")
    asked = [offset for offset, before in zip(upstream.asked, [0, *upstream.asked], strict=False) if offset != before]
    assert asked == [7, 8, 9, 10, 11, 12], "one poll after the other, without a reader"
    await asyncio.sleep(4 * module.UNWATCHED_S)
    kept = tails.answer(_QUESTION, 10_000)
    assert kept is not None, "polls have stood ever since"
    assert fetch.offset_behind(kept.element, kept.record_bytes) == 12, "who comes late is up to date at once"
    late = Reader()
    tails.park(late, [Asked(_NEXT._replace(position=_NEXT.position._replace(offset=12)), 1000)], 60.0)
    upstream.end = 13
    await wait_until(lambda: late.found, "the reader that came late")
    await wait_until(lambda: tails.polls == 0, "the polls to end where nobody comes back")
    assert (tails.waiting, faults) == (0, [])


@pytest.mark.parametrize("ends", ["a record is stored", "the partition fails", "answers grow old"])
async def test_a_joined_answer_ends_with_what_it_was_made_of(monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    """It serves all readers with the same question. Another record belongs to it as soon as it is stored."""
    monkeypatch.setattr(module, "UNWATCHED_S", 60.0)
    monkeypatch.setattr(module, "_AGING_S", 0.0)
    upstream, faults = Log(end=9), list[Any]()
    tails = Tails(upstream, Tasks(faults.append), longest_s=5.0)  # pyright: ignore[reportArgumentType]

    async def read(offset: int) -> Reader:
        reader = Reader()
        tails.park(reader, [Asked(_QUESTION._replace(position=Position(b"orders", 0, -1, offset)), 1000)], 60.0)
        await wait_until(lambda: reader.found, "an answer")
        return reader

    def until() -> int | None:
        kept = tails.answer(_QUESTION, 10_000)
        return None if kept is None else fetch.offset_behind(kept.element, kept.record_bytes)

    await read(7)
    assert until() == 8
    await read(8)
    assert until() == 9
    joined = tails.answer(_QUESTION, 10_000)
    assert joined is tails.answer(_QUESTION, 10_000), "made once for all readers"
    upstream.end = 10
    if ends == "a record is stored":
        await read(9)
        assert until() == 10
    elif ends == "the partition fails":
        upstream.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        reader = await read(9)
        assert [fetched.error for found in reader.found for fetched in found.values()] == [6]
        assert until() is None
        assert upstream.stale == [{b"orders"}]
    else:
        monkeypatch.setattr(recent, "KEPT_S", 0.0)
        await read(9)
        await wait_until(lambda: until() is None, "the answers to be dropped")
    assert not faults
