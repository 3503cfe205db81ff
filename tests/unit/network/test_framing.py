"""Frames cut out of what arrives, in whatever pieces, with the copies counted."""

from __future__ import annotations

import asyncio
import os
import socket
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.network.framing import COPIES, RECEIVE_BYTES, BadLength, Begun, Frame, Framer, Outbox
from sidecar.network.memory import RequestMemory
from sidecar.network.turn import TURN
from sidecar.network.wire import LoopWire
from sidecar.protocol.primitives import I32
from tests.unit.network.peers import frame_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sidecar.protocol.primitives import Octets

LIMIT = 100 * 1024 * 1024


class PaperWire:
    """Keeps what is sent on it, and takes nothing at once."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def try_send(self, data: memoryview) -> int:
        return 0

    def send(self, parts: list[Octets]) -> None:
        self.sent += map(bytes, parts)

    def unsent(self) -> int:
        return 0

    def read(self, on: bool) -> None: ...
    def close(self, within_s: float = 0.0, *, half: bool = False) -> None: ...

    @property
    def bytes(self) -> bytes:
        return b"".join(self.sent)


class Forwarder:
    """Passes every frame on, as it is, to a wire; at most `most` in a turn."""

    def __init__(self, *, own: bool = False, most: int = 1_000_000, trusted: bool = False) -> None:
        self.framer = Framer(LIMIT, trusted=trusted)
        self.wire = PaperWire()
        self.frames = 0
        self.bad: list[BadLength] = []
        self.outbox = Outbox()
        self.outbox.wire = self.wire
        self._owns = own
        self._most = most

    def forward(self, frame: Frame) -> None:
        self.outbox.add_frame(frame.own() if self._owns else frame)

    def take_up(self) -> None:
        """One turn."""
        TURN.run(self._take_up)

    def _take_up(self) -> None:
        self.framer.go_on()
        for _ in range(self._most):
            frame = self.framer.next_frame()
            if frame is None:
                needs = self.framer.needs()
                if isinstance(needs, Begun):
                    self.framer.receive()
                elif isinstance(needs, BadLength):
                    self.bad.append(needs)
                    self.framer.stop()
                return
            self.frames += 1
            self.forward(frame)
        self.framer.set_aside()


def feed(receiver: Forwarder, data: bytes, most: int = RECEIVE_BYTES) -> None:
    """Hand data over as an event loop does: as much as the buffer takes, and at most `most` bytes, at a time."""
    at = 0
    while at < len(data):
        buffer = receiver.framer.buffer()
        size = min(len(buffer), most, len(data) - at)
        assert size > 0
        buffer[:size] = data[at : at + size]
        del buffer
        if receiver.framer.received(size):
            receiver.take_up()
        at += size


def copies_of(work: object) -> int:
    before = COPIES.copied_bytes
    assert callable(work)
    work()
    return COPIES.copied_bytes - before


SIZES = st.one_of(st.integers(0, 64), st.integers(16_000, 17_000), st.integers(0, 600_000))


@settings(deadline=None, max_examples=60)
@given(st.lists(SIZES, min_size=1, max_size=8), st.lists(st.integers(1, 300_000), min_size=1, max_size=20))
def test_frames_come_out_as_they_were_sent_whatever_the_pieces(sizes: list[int], pieces: list[int]) -> None:
    stream = b"".join(frame_of(bytes([number]) * size) for number, size in enumerate(sizes))
    for own in (False, True):
        receiver = Forwarder(own=own)
        at = number = 0
        while at < len(stream):
            piece = stream[at : at + max(pieces[number % len(pieces)], len(stream) // 2_000)]
            feed(receiver, piece)
            at += len(piece)
            number += 1
        assert receiver.wire.bytes == stream
        assert receiver.frames == len(sizes)


def test_connections_that_share_the_buffer_do_not_disturb_each_other() -> None:
    left, right = Forwarder(), Forwarder()
    first, second = frame_of(b"left" * 5_000), frame_of(b"right" * 5_000)
    for at in range(0, max(len(first), len(second)), 700):
        feed(left, first[at : at + 700])
        feed(right, second[at : at + 700])
    assert left.wire.bytes == first
    assert right.wire.bytes == second


@pytest.mark.parametrize("size", [10, 1_000, 16_000, 60_000, 200_000, 1_000_000, 10_000_000])
def test_a_frame_is_copied_once_at_the_most(size: int) -> None:
    frame = frame_of(bytes(size))
    receiver = Forwarder()
    copied = copies_of(lambda: feed(receiver, frame))
    assert receiver.wire.bytes == frame
    assert copied <= min(len(frame), RECEIVE_BYTES)


@pytest.mark.parametrize("size", [100, 1_000, 15_000, 60_000, 1_000_000])
@pytest.mark.parametrize("pieces", [7, 1_000])
def test_a_frame_that_arrives_in_pieces_is_copied_once_too(size: int, pieces: int) -> None:
    frame = frame_of(bytes(size))
    receiver = Forwarder()
    copied = copies_of(lambda: feed(receiver, frame, most=max(1, size // pieces)))
    assert receiver.wire.bytes == frame
    assert copied <= len(frame) + 8


def test_many_small_frames_are_written_together_and_copied_once() -> None:
    stream = b"".join(frame_of(bytes(100)) for _ in range(500))
    receiver = Forwarder()
    assert copies_of(lambda: feed(receiver, stream)) == len(stream)
    assert receiver.wire.sent == [stream]


def test_a_frame_that_was_received_into_memory_of_its_own_is_not_copied_again() -> None:
    frame = frame_of(bytes(5_000_000))
    receiver = Forwarder(own=True)
    assert copies_of(lambda: feed(receiver, frame)) <= RECEIVE_BYTES


def test_a_peer_that_announces_much_and_sends_little_pins_little() -> None:
    receivers = [Forwarder() for _ in range(50)]
    tracemalloc.start()
    try:
        for receiver in receivers:
            feed(receiver, I32.pack(90 * 1024 * 1024) + b"drip")
            for _ in range(10):
                feed(receiver, b"drip")
        pinned = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert pinned < 50 * 80 * 1024


def test_memory_for_a_frame_grows_with_what_has_arrived() -> None:
    arrived = bytes(3_000_000)
    receiver = Forwarder()
    tracemalloc.start()
    try:
        feed(receiver, I32.pack(90 * 1024 * 1024) + arrived)
        assert tracemalloc.get_traced_memory()[0] < 2.1 * len(arrived)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_length_out_of_bounds_is_told_with_the_first_bytes_and_ends_the_reading(size: int) -> None:
    receiver = Forwarder()
    good = frame_of(b"good")
    feed(receiver, good + I32.pack(size) + b"rest" + good)
    assert receiver.frames == 1
    assert receiver.bad == [(size, (I32.pack(size) + b"rest" + good)[:16], LIMIT)]
    feed(receiver, good)
    assert receiver.frames == 1
    assert receiver.wire.bytes == good


def test_parts_and_frames_leave_in_the_order_they_were_added() -> None:
    wire, outbox = PaperWire(), Outbox()
    outbox.wire = wire

    class Mixed(Forwarder):
        def forward(self, frame: Frame) -> None:
            outbox.add(b"<")
            outbox.add_frame(frame)
            outbox.add(b">")

    feed(Mixed(), frame_of(b"a") + frame_of(b"b"))
    assert wire.bytes == b"<" + frame_of(b"a") + b"><" + frame_of(b"b") + b">"


def test_a_turn_takes_up_no_more_frames_than_it_may_and_later_ones_take_the_rest_in_order() -> None:
    receiver = Forwarder(most=3)
    stream = b"".join(frame_of(b"%d" % number) for number in range(8)) + frame_of(bytes(100))[:50]
    feed(receiver, stream)
    assert (receiver.frames, receiver.framer.is_behind) == (3, True)
    receiver.take_up()
    assert (receiver.frames, receiver.framer.is_behind) == (6, True)
    receiver.take_up()
    assert (receiver.frames, receiver.framer.is_behind) == (8, False)
    feed(receiver, bytes(54))
    assert receiver.wire.bytes == stream + bytes(54)


def test_what_is_read_while_a_receiver_is_behind_comes_behind_what_is_left() -> None:
    receiver = Forwarder(most=3)
    first, second = (b"".join(frame_of(b"%d" % (number + at)) for number in range(4)) for at in (0, 4))
    feed(receiver, first)
    feed(receiver, second)
    while receiver.framer.is_behind:
        receiver.take_up()
    assert receiver.wire.bytes == first + second


def test_a_framer_that_stops_forgets_what_it_had_left() -> None:
    receiver = Forwarder(most=3)
    feed(receiver, b"".join(frame_of(b"%d" % number) for number in range(8)))
    receiver.framer.stop()
    assert not receiver.framer.is_behind
    receiver.take_up()
    assert receiver.frames == 3


def test_what_was_set_aside_takes_no_memory_once_it_is_handed_out() -> None:
    memory = RequestMemory(1_000_000)
    framer = Framer(LIMIT, memory=memory)
    stream = frame_of(b"a") + frame_of(b"b")
    framer.buffer()[: len(stream)] = stream
    framer.received(len(stream))
    framer.set_aside()
    assert memory.used == framer.bytes_set_aside == len(stream)
    framer.go_on()
    frames = [framer.next_frame(), framer.next_frame()]
    assert (None not in frames, framer.rest) == (True, 0)
    frames.clear()
    assert memory.used == 0


def test_a_turn_that_ends_with_its_last_frame_leaves_nothing_behind() -> None:
    """What is read next begins at the beginning of the shared buffer."""
    receiver = Forwarder(most=3)
    stream = b"".join(frame_of(b"%d" % number) for number in range(3))
    feed(receiver, stream)
    assert not receiver.framer.is_behind
    feed(receiver, stream)
    assert receiver.wire.bytes == stream + stream


@pytest.mark.parametrize("size", [84, 4_000, 5_000, 100_000])
def test_an_answer_of_a_broker_that_comes_in_pieces_is_one_frame(size: int) -> None:
    receiver, stream = Forwarder(trusted=True), b""
    for number in range(3):
        frame = frame_of(bytes([number]) * size)
        for piece in (frame[:84], frame[84:-3], frame[-3:] + frame_of(b"next")):
            feed(receiver, piece)
        stream += frame + frame_of(b"next")
    assert receiver.frames == 6
    assert receiver.wire.bytes == stream
    assert receiver.framer.unfinished_bytes == 0


def test_a_short_answer_in_pieces_takes_no_buffer_of_its_own() -> None:
    """What comes next may be read with its end, and it goes on as a borrowed frame does."""
    receiver = Forwarder(trusted=True)
    feed(receiver, frame_of(bytes(1_000))[:584], most=84)
    assert receiver.framer.unfinished_bytes == 584
    assert len(receiver.framer.buffer()) == RECEIVE_BYTES - 584


def test_what_is_added_before_there_is_a_transport_is_written_when_it_comes() -> None:
    outbox = Outbox()
    TURN.begin()
    outbox.add(b"early")
    TURN.end()
    outbox.wire = wire = PaperWire()
    outbox.flush()
    assert wire.bytes == b"early"


async def test_what_fails_at_the_end_of_a_turn_stalls_nobody_else_and_is_told() -> None:
    """Neither the other actions and outboxes of the turn, nor those of later ones."""
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    done: list[int] = []

    class Broken(PaperWire):
        def send(self, parts: list[Octets]) -> None:
            raise RuntimeError("a write that fails")

    def fail() -> None:
        raise LookupError("an action that fails")

    broken, sound = Outbox(), Outbox()
    broken.wire, sound.wire = Broken(), (kept := PaperWire())

    def produce() -> None:
        for action in (lambda: done.append(1), fail, lambda: done.append(2)):
            TURN.at_end(action)
        broken.add(b"lost")
        sound.add(b"kept")

    TURN.run(produce)
    assert (done, kept.bytes) == ([1, 2], b"kept")
    assert told == ["an action that fails", "a write that fails"]
    assert not TURN.running
    sound.add(b" and later")  # outside a turn: at the end of this one of the loop
    await asyncio.sleep(0)
    assert kept.bytes == b"kept and later"


# The socket, written at once ------------------------------------------------------------------------------------------


def with_socket(body: Callable[[Forwarder, asyncio.Transport, socket.socket], Awaitable[None]]) -> None:
    """Run `body` on uvloop, with a receiver that passes frames on to a socket, its transport, and the socket's peer."""

    async def run() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            ours = socket.create_connection(listening.getsockname())
            peer, _ = listening.accept()
        with peer:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
            receiver = Forwarder()
            receiver.outbox.wire = LoopWire(transport)
            await body(receiver, transport, peer)
            transport.abort()

    uvloop.run(run())


def test_a_borrowed_frame_is_at_the_peer_when_its_turn_ends_and_was_never_copied() -> None:
    async def body(receiver: Forwarder, _: asyncio.Transport, peer: socket.socket) -> None:
        frames = frame_of(b"a") + frame_of(b"b")
        copied = COPIES.copied_bytes
        feed(receiver, frames)
        assert peer.recv(100, socket.MSG_DONTWAIT) == frames
        assert COPIES.copied_bytes == copied

    with_socket(body)


def test_what_a_full_socket_does_not_take_arrives_in_order_behind_what_it_took() -> None:
    async def body(receiver: Forwarder, transport: asyncio.Transport, peer: socket.socket) -> None:
        sent, waiting = bytearray(), 0
        for number in range(400):
            frame = frame_of(bytes([number % 256]) * 50_000)
            feed(receiver, frame)
            receiver.outbox.send([frame_of(b"x" * number), frame_of(b"y")])
            sent += frame + frame_of(b"x" * number) + frame_of(b"y")
            waiting = transport.get_write_buffer_size()
        assert waiting, "the socket took all of it"
        got = bytearray()
        peer.setblocking(False)
        for _ in range(100_000):
            try:
                got += peer.recv(1_000_000)
            except BlockingIOError:
                await asyncio.sleep(0)
            if len(got) >= len(sent):
                break
        assert got == sent

    with_socket(body)


def test_the_descriptor_of_a_transport_that_has_ended_is_not_written_to() -> None:
    """It may be another connection's by then."""

    async def body(receiver: Forwarder, transport: asyncio.Transport, _: socket.socket) -> None:
        transport.abort()
        await asyncio.sleep(0.01)
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        assert isinstance(receiver.outbox.wire, LoopWire)
        receiver.outbox.wire._descriptor = writer
        feed(receiver, frame_of(b"a"))
        receiver.outbox.send([frame_of(b"b")])
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
        os.close(reader)
        os.close(writer)

    with_socket(body)


def test_asyncios_own_transport_writes_itself() -> None:
    """It makes no copy of what the socket takes at once."""

    async def run() -> None:
        ours, peer = socket.socketpair()
        with peer:
            transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=ours)
            assert LoopWire(transport).try_send(memoryview(b"borrowed")) == 0
            transport.abort()

    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(run())


def test_what_is_counted_of_a_turn_is_counted_once_it_is_written() -> None:
    wire, outbox, seen = PaperWire(), Outbox(), list[tuple[str, bytes]]()
    outbox.wire = wire

    def work() -> None:
        outbox.add(b"answer")
        TURN.note(lambda text: seen.append((text, wire.bytes)), ("first",))
        TURN.note(lambda text: seen.append((text, wire.bytes)), ("second",))
        assert not seen

    TURN.run(work)
    assert seen == [("first", b"answer"), ("second", b"answer")]
    TURN.note(lambda text: seen.append((text, b"")), ("outside of a turn",))
    assert seen[2:] == [("outside of a turn", b"")]
