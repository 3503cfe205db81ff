"""Answers that clients do not read: who is closed when there are too many of them, and who is not."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from sidecar.network import unread as unread_module
from sidecar.network.framing import Outbox
from sidecar.network.replies import Replies
from sidecar.network.unread import LEAST, AnswerMemory
from sidecar.network.upstream import UpstreamConnection
from tests.unit.network.peers import (
    LOOPBACK,
    Asked,
    Owner,
    Peer,
    Recorder,
    answer,
    answer_frame,
    broker,
    feed,
    listening,
    on_uvloop,
    request,
)
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from sidecar.network.client import ClientConnection
    from sidecar.network.request import Exchange, Request

MIB = 1024 * 1024


async def until(condition: object, what: str) -> None:
    async def holds() -> bool:
        return bool(condition())  # type: ignore[operator]

    await wait_for_async(holds, what, timeout=20)


@dataclass
class Paper:
    """A connection on paper."""

    memory: Any
    unread_bytes: int = 0
    taken_bytes: int = 0
    closed: list[int] = field(default_factory=list[int])

    def has(self, size: int) -> None:
        self.unread_bytes = size
        self.memory.note(self)

    def refuse(self, reason: str, detail: str, *, at_once: bool = False) -> None:
        assert (reason, at_once) == ("unread", True)
        self.closed.append(self.unread_bytes)

    def __hash__(self) -> int:
        return id(self)


async def looks(count: int = 3) -> None:
    await asyncio.sleep(count * unread_module.LOOK_S)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread_module, "LOOK_S", 0.02)


async def test_beyond_the_limit_those_are_closed_that_take_nothing_the_largest_first() -> None:
    memory = AnswerMemory(10 * MIB)
    small, large, reads, other = (Paper(memory) for _ in range(4))
    for each, size in ((small, 2), (large, 5), (reads, 4)):
        each.has(size * MIB)
    reading = asyncio.get_running_loop()
    for step in range(1, 200):
        reading.call_later(step * 0.01, lambda: setattr(reads, "taken_bytes", reads.taken_bytes + 1))
    await until(lambda: large.closed, "the one with the most that takes nothing")
    await looks()
    assert (small.closed, reads.closed) == ([], []), "there is room now"
    assert memory.used == 6 * MIB
    other.has(6 * MIB)
    await until(lambda: other.closed, "another one that takes nothing")
    assert (small.closed, reads.closed, memory.closed) == ([], [], 2)


async def test_beyond_one_and_a_half_times_the_limit_the_largest_is_closed_at_once_whatever_it_takes() -> None:
    memory = AnswerMemory(12 * MIB)
    first, second, third = (Paper(memory) for _ in range(3))
    first.has(8 * MIB)
    second.has(9 * MIB)
    assert not second.closed
    third.has(4 * MIB)
    assert [each.closed for each in (first, second, third)] == [[], [9 * MIB], []]
    assert memory.used == 12 * MIB


async def test_what_was_read_since_does_not_count() -> None:
    memory = AnswerMemory(10 * MIB)
    first, second = Paper(memory), Paper(memory)
    first.has(14 * MIB)
    first.unread_bytes = LEAST - 1  # nobody said so
    second.has(5 * MIB)
    assert (first.closed, second.closed, memory.used) == ([], [], 5 * MIB)
    await looks()
    second.memory.forget(second)
    assert (memory.used, memory.closed) == (0, 0)


async def test_below_the_limit_nobody_is_closed_however_long_he_reads_nothing() -> None:
    memory = AnswerMemory(10 * MIB)
    only = Paper(memory)
    only.has(10 * MIB)
    await looks()
    assert (only.closed, memory.used) == ([], 10 * MIB)


# On sockets -----------------------------------------------------------------------------------------------------------


class Sharing(Recorder):
    """A handler that answers with 4 MiB, requests of key 7 not yet; its connections share a bound."""

    def __init__(self, memory: AnswerMemory) -> None:
        super().__init__(act=self._answer, answers=memory)

    def _answer(self, _connection: ClientConnection, asked: Request, exchange: Exchange) -> None:
        if asked.key != 7:
            exchange.answer(answer(asked.correlation_id, bytes(4 * MIB)))


async def connected(recorder: Sharing, count: int, stack: AsyncExitStack) -> list[Peer]:
    connect = await stack.enter_async_context(listening(recorder))
    return [await stack.enter_async_context(connect()) for _ in range(count)]


@on_uvloop
async def test_strangers_that_ask_and_do_not_read_are_closed_and_a_reader_is_served() -> None:
    memory = AnswerMemory(16 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as stack:
        *strangers, reader = await connected(recorder, 21, stack)
        for each in strangers:
            each.writer.transport.pause_reading()  # type: ignore[attr-defined]
            each.writer.write(request(1) + request(2))
        await until(lambda: memory.closed, "the end of some of them")
        await until(lambda: memory.used <= memory.limit, "no more than there may be")
        assert {reason for reason, _, _ in recorder.rejected} == {"unread"}
        before = len(recorder.rejected)
        for number in range(5):
            reader.writer.write(request(number))
            assert await reader.answers(1) == [number]
        assert len(recorder.rejected) == before
        for each in strangers:
            each.close()
        await until(lambda: recorder.closed == 20, "all of them to go")
        assert memory.used == 0


@on_uvloop
async def test_an_answer_counts_as_a_whole_until_all_of_it_is_sent() -> None:
    """The kernel took most of 3.6 MB at once; the node kept all of it, and counted what was left: 73 MiB of 360."""
    memory = AnswerMemory(64 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as stack:
        (peer,) = await connected(recorder, 1, stack)
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write(request(1))
        await until(lambda: memory.used, "what its client does not read")
        (connection,) = recorder.connections
        assert 4 * MIB <= memory.used < 4 * MIB + 100
        assert connection._budget.taken_bytes > 0, "the kernel has some of it"
        peer.writer.transport.resume_reading()  # type: ignore[attr-defined]
        assert await peer.answers(1) == [1]
        await until(lambda: not memory.used, "all of it to be taken")
        assert connection._budget.unread_bytes == 0


class Slow:
    """A wire whose peer takes some of what is sent."""

    left = 0

    def unsent(self) -> int:
        return self.left


def test_an_answer_that_was_taken_long_ago_does_not_count() -> None:
    """It was the largest since the socket was full last: a reader of small answers counted for megabytes, and was
    closed at once where there were some of them.
    """
    outbox = Outbox()
    outbox.wire = slow = Slow()  # type: ignore[assignment]
    replies = Replies(outbox, lambda *_: None)
    replies.written = 4 * MIB
    replies.note_large(4 * MIB)
    replies.written += 100_000
    replies.note_large(100_000)
    slow.left = 100_000
    assert replies.unread_bytes == 100_000, "it has taken the large one"
    replies.written += MIB
    replies.note_large(MIB)
    slow.left = 200_000
    assert replies.unread_bytes == MIB, "it has not taken all of this one"
    slow.left = 0
    assert replies.unread_bytes == 0


@on_uvloop
async def test_answers_that_wait_behind_a_request_without_one_count_too() -> None:
    memory = AnswerMemory(6 * MIB)
    recorder = Sharing(memory)
    async with AsyncExitStack() as stack:
        (peer,) = await connected(recorder, 1, stack)
        peer.writer.write(request(1, key=7) + request(2))
        await until(lambda: memory.used >= 4 * MIB, "an answer that waits")
        peer.writer.write(request(3))
        assert await peer.ended()
        assert [reason for reason, _, _ in recorder.rejected] == ["unread"]
        await until(lambda: memory.used == 0, "all of it to be given back")


# Answers on their way from a broker ----------------------------------------------------------------------------------


class Sender:
    """A broker that sends an answer of 4 MiB on each connection, at first all but the last KiB."""

    def __init__(self) -> None:
        self.goes_on = asyncio.Event()

    async def talk(self, peer: Peer) -> None:
        await peer.reader.readexactly(4)
        frame = answer_frame(1, bytes(4 * MIB))
        peer.writer.write(frame[:-1024])
        await self.goes_on.wait()
        peer.writer.write(frame[-1024:])
        await peer.reader.read()


def asking(memory: AnswerMemory, address: tuple[str, int]) -> tuple[UpstreamConnection, Asked]:
    link, asked = UpstreamConnection(Owner(), address, 5.0, answers=memory), Asked(1)
    link.open()
    link.send_parts([b"asks"], asked)
    return link, asked


@on_uvloop
async def test_a_large_answer_is_received_when_there_is_room_and_whole() -> None:
    memory, sender = AnswerMemory(10 * MIB), Sender()
    async with broker(sender.talk) as address:
        links = [asking(memory, address) for _ in range(5)]
        await until(lambda: memory.waiting == 3, "those for which there is no room")
        assert memory.arriving <= memory.limit
        links[3][0].pause()  # its client is full
        links[4][0].close()
        await until(lambda: memory.waiting == 2, "one that nobody wants any more")
        sender.goes_on.set()
        await until(lambda: sum(asked.got is not None for _, asked in links) == 3, "those that are read")
        links[3][0].resume()
        await until(lambda: links[3][1].got, "the last one")
        assert all(asked.got == bytes(4 * MIB) for _, asked in links[:4])
        assert (memory.arriving, memory.waiting) == (0, 0)
        for link, _ in links:
            link.close()


@on_uvloop
async def test_one_answer_that_is_larger_than_the_memory_is_received_all_the_same() -> None:
    memory, sender = AnswerMemory(MIB), Sender()
    sender.goes_on.set()
    async with broker(sender.talk) as address:
        links = [asking(memory, address) for _ in range(3)]
        await until(lambda: all(asked.got for _, asked in links), "all of them, one after the other")
        for link, _ in links:
            link.close()


@on_uvloop
async def test_who_reads_nothing_is_closed_while_answers_wait_for_room() -> None:
    memory, sender = AnswerMemory(6 * MIB), Sender()
    stalled = Paper(memory)
    stalled.has(5 * MIB)
    async with broker(sender.talk) as address:
        links = [asking(memory, address) for _ in range(2)]
        await until(lambda: memory.waiting == 1, "one that waits")
        await until(lambda: stalled.closed, "who holds the rest")
        sender.goes_on.set()
        await until(lambda: all(asked.got for _, asked in links), "both")
        for link, _ in links:
            link.close()


async def test_what_tls_had_read_already_is_received_although_there_is_no_room() -> None:
    memory = AnswerMemory(MIB)
    first, second = (UpstreamConnection(Owner(), (LOOPBACK, 9092), 5.0, answers=memory) for _ in range(2))
    asked = Asked(1)
    second.waiters.append(asked)
    second._sent_at.append(0.0)
    frame = answer_frame(1, bytes(MIB))
    for link in (first, second):
        feed(link, frame[:1000])
    assert memory.waiting == 1
    feed(second, frame[1000:])
    assert asked.got == bytes(MIB)
    await until(lambda: memory.arriving == len(frame), "the first one alone")
    assert memory.waiting == 0
    first.close()
    assert memory.arriving == 0
