"""Receive length-prefixed frames with as few copies as possible, and write the output of one turn at once.

All connections of a process share one receive buffer: uvloop and asyncio call `get_buffer` and `buffer_updated`
directly after each other, so one connection cannot overwrite another's bytes (a buffer for each would cost 32 MB for
64 connections). The rest of a frame that has arrived in part is received into its own buffer. That buffer grows with
the bytes that arrive, so a client that only announces 100 MiB uses 64 KiB. `sidecar.network.memory` limits the sum of
these buffers.

A read may bring 13,000 small requests. So a connection with `frames_a_turn` returns to the event loop after that many
frames, or after `limits.Bounds.turn` of their elements. It goes on with the rest after other connections' turns.
"""

import asyncio
import os
from collections.abc import Iterable
from itertools import repeat
from typing import Final, cast

from sidecar.network.memory import HeldBytes, Holder, RequestMemory
from sidecar.network.pool import BufferPool
from sidecar.network.turn import NO_DESCRIPTOR, TURN, Writable
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import I16, I32, Octets

RECEIVE_BYTES: Final = 256 * 1024
FRAMES_A_TURN: Final = range(32)  # requests of one connection that are dispatched in one turn: 0.3 to 3 ms
_LEAST_GRANT: Final = 64 * 1024
_PIECE: Final = 16 * 1024  # bytes of one read while the memory for requests is used up
_KEY_BEHIND: Final = 6  # length prefix and API key
_SHORT: Final = 4 * 1024  # unfinished frames of a trusted peer that get no own buffer: Fetch answers come in 3 parts
_PARTS_AT_ONCE: Final = 16  # buffers written by one system call; Linux allows 1024

_pool: Final = BufferPool()
_shared: Final = bytearray(RECEIVE_BYTES)
_shared_view: Final = memoryview(_shared)


class CopyCounter:
    """Bytes copied from receive buffers since the start, for tests and benchmarks."""

    def __init__(self) -> None:
        self.copied_bytes = 0


COPIES: Final = CopyCounter()  # tests check with it that bytes are copied at most once


class Frame:
    """One frame from its length prefix (`start`) to `end`, exclusive. A borrowed buffer (not `owned`) is valid only
    during this callback. `memory`: where a copy is counted.
    """

    __slots__ = ("buffer", "end", "memory", "owned", "start")

    def __init__(self, buffer: bytearray, start: int, end: int, owned: bool, memory: RequestMemory | None = None):
        self.buffer = buffer
        self.start = start
        self.end = end
        self.owned = owned
        self.memory = memory

    @property
    def size(self) -> int:
        """Bytes, including the length prefix."""
        return self.end - self.start

    def own(self) -> "Frame":
        """Return the frame in memory of its own: itself if it is owned, else a copy."""
        if self.owned:
            return self
        COPIES.copied_bytes += self.end - self.start
        view = _shared_view if self.buffer is _shared else memoryview(self.buffer)
        return Frame(_kept(view[self.start : self.end], self.memory), 0, self.end - self.start, True)

    def view(self, start: int, end: int) -> memoryview:
        """Return a view into an owned frame; call `own` first on a borrowed one."""
        assert self.owned
        return memoryview(self.buffer)[start:end]


def _kept(data: Octets, memory: RequestMemory | None) -> bytearray:
    return bytearray(data) if memory is None else HeldBytes(data, memory)


class Outbox:
    """The output of one turn to one transport.

    Adjacent borrowed frames are stored as one span. At the end of the turn they are written directly to the socket if
    there is a `descriptor` and everything before was sent. Bytes that the socket does not take are copied, once, for
    the transport. `memory`: where the copy is counted until the transport has sent it.
    """

    __slots__ = ("_dirty", "_parts", "_span_end", "_span_start", "descriptor", "memory", "transport")

    def __init__(self) -> None:
        self.descriptor = NO_DESCRIPTOR
        self.memory: RequestMemory | None = None
        self.transport: Writable | None = None
        self._parts: list[Octets] = []
        self._span_start = self._span_end = 0
        self._dirty = False

    def add_frame(self, frame: Frame) -> None:
        """Forward a whole frame unchanged."""
        buffer = frame.buffer
        if buffer is not _shared:
            is_whole = frame.end - frame.start == len(buffer)
            self.add(buffer if is_whole else memoryview(buffer)[frame.start : frame.end])
            return
        if self._span_end != frame.start or self._span_end == self._span_start:
            self._close_span()
            self._span_start = frame.start
        self._span_end = frame.end
        if not self._dirty:
            self._dirty = True
            TURN.touched(self)

    def add(self, data: Octets) -> None:
        """Write bytes that stay valid until they are sent."""
        if self._span_end != self._span_start:
            self._close_span()
        self._parts.append(data)
        if not self._dirty:
            self._dirty = True
            TURN.touched(self)

    def add_all(self, parts: list[Octets]) -> None:
        """As `add`, for several parts in order."""
        if self._span_end != self._span_start:
            self._close_span()
        self._parts += parts
        if not self._dirty:
            self._dirty = True
            TURN.touched(self)

    def send(self, parts: list[Octets]) -> None:
        """As `add_all`, but write at once if no turn is running and nothing waits."""
        transport = self.transport
        if TURN.running or self._dirty or transport is None:
            self.add_all(parts)
        else:
            self._write(transport, parts)

    def _close_span(self) -> None:
        start, end = self._span_start, self._span_end
        if start != end:
            COPIES.copied_bytes += end - start
            self._parts.append(_kept(_shared_view[start:end], self.memory))
            self._span_start = self._span_end = 0

    def flush(self) -> None:
        """Write everything to the socket or the transport; keep it while there is no transport yet."""
        self._dirty = False
        transport = self.transport
        if self._span_end != self._span_start:
            if self.descriptor >= 0 and not self._parts and transport is not None:
                self._write_span(transport)
                return
            self._close_span()
        if self._parts and transport is not None:
            parts, self._parts = self._parts, []
            self._write(transport, parts)

    def _write_span(self, transport: Writable) -> None:
        if transport.is_closing():  # another socket may have its descriptor already
            self._span_start = self._span_end = 0
            return
        if not transport.get_write_buffer_size():
            try:
                sent = os.write(self.descriptor, _shared_view[self._span_start : self._span_end])
            except OSError:
                sent = 0  # full, or broken: the transport finds the error and reports it
            self._span_start += sent
            if self._span_start == self._span_end:
                self._span_start = self._span_end = 0
                return
        self._close_span()
        transport.write(self._parts.pop())

    def _write(self, transport: Writable, parts: list[Octets]) -> None:
        if transport.is_closing():
            return
        if self.descriptor >= 0 and len(parts) <= _PARTS_AT_ONCE and not transport.get_write_buffer_size():
            try:
                sent = os.write(self.descriptor, parts[0]) if len(parts) == 1 else os.writev(self.descriptor, parts)
            except OSError:
                sent = 0  # as above
            if sent == len(parts[0]) and len(parts) == 1:
                return
            parts = _unsent(parts, sent)
            if not parts:
                return
        if len(parts) == 1:
            transport.write(parts[0])
        else:
            transport.writelines(parts)


def _unsent(parts: list[Octets], sent: int) -> list[Octets]:
    """Return the rest of `parts` after the first `sent` bytes."""
    for index, part in enumerate(parts):
        if sent < len(part):
            return [memoryview(part)[sent:] if sent else part, *parts[index + 1 :]]
        sent -= len(part)
    return []


class FrameReceiver(asyncio.BufferedProtocol):
    """Splits input into frames. Subclasses implement `frame_received` and `bad_length`. A subclass that sets
    `frames_a_turn`, whose length is the number of frames per turn, also implements `fell_behind`.
    """

    __slots__ = (
        "_backlog",
        "_begin",
        "_left",
        "_own",
        "_own_size",
        "_position",
        "_stopped",
        "_trusted",
        "frame_limit",
        "is_behind",
        "largest_frame",
        "memory",
        "read_at_once",
    )
    frames_a_turn: Iterable[object] = repeat(None)

    def __init__(self, frame_limit: int, *, trusted: bool = False) -> None:
        """For a `trusted` peer, memory for a whole frame is allocated once its size is announced; for others it grows
        with the bytes that arrive. A frame of more than `frame_limit` bytes, up to `largest_frame`, is received if
        `allows` returns True.
        """
        self.frame_limit = self.largest_frame = frame_limit
        self._trusted = trusted
        self.read_at_once = RECEIVE_BYTES
        self.memory: RequestMemory | None = None
        """The memory that the frames of all peers share; None if it has no limit. Its users implement `Holder`."""
        self._own: bytearray | None = None
        self._own_size = 0
        self._position = 0
        self._left = b""
        self._backlog, self._begin = bytearray(), 0  # frames of the last read, from `_begin` on
        self._stopped = False
        self.is_behind = False  # whether frames that were read are not handed over yet

    def frame_received(self, frame: Frame) -> None:
        raise NotImplementedError

    def bad_length(self, size: int, head: bytes) -> bool | None:
        """Called when the peer announces a frame whose `size` is negative or too large. Parsing stops, unless it
        returns True: then `cut_on` parses the frame again.
        """
        raise NotImplementedError

    def fell_behind(self) -> None:
        """Called when a read brought more frames than one turn allows: stop reading, and call `cut_on` after other
        connections' turns.
        """
        raise NotImplementedError

    def allows(self, size: int, key: int) -> bool:
        """Whether a frame with this API key may have `size` bytes."""
        return False

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have arrived of an unfinished frame."""
        return self._position if self._own is not None else len(self._left)

    def stop_receiving(self) -> None:
        """Ignore all further input (the connection is about to close)."""
        self._stopped = True
        self.is_behind = False
        if self.memory is not None:
            self.memory.end(cast("Holder", self))
        self._own = None
        self._left, self._backlog, self._begin = b"", bytearray(), 0

    # asyncio.BufferedProtocol -------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own
        if own is not None:
            if self._position == len(own):
                more = min(len(own), self._own_size - len(own))
                if isinstance(own, HeldBytes):  # it may wait for memory, but TLS has decrypted more of it
                    own.grow(min(more, _LEAST_GRANT))
                else:
                    own.extend(bytes(more))
            return memoryview(own)[self._position : self._own_size]
        left, memory = self._left, self.memory
        most = self.read_at_once if memory is None or memory.used <= memory.limit else min(_PIECE, self.read_at_once)
        if left:
            COPIES.copied_bytes += len(left)
            _shared_view[: len(left)] = left
            return _shared_view[len(left) : most]
        return _shared_view[:most]

    def buffer_updated(self, nbytes: int) -> None:
        if self._stopped:
            return
        if self._own is not None:
            self._add_to_own(self._own, nbytes)
        elif self.is_behind:  # TLS has decrypted more: it waits after the rest of the last read
            COPIES.copied_bytes += len(self._backlog) - self._begin + nbytes
            more = self._backlog[self._begin :] + _shared_view[:nbytes]
            self._backlog, self._begin = _kept(more, self.memory), 0
        else:
            if self._left:
                nbytes += len(self._left)
                self._left = b""
            TURN.begin()
            try:
                self._cut(_shared, 0, nbytes)
            finally:
                TURN.end()
        memory = self.memory
        if memory is not None and memory.used > memory.limit and not self._stopped:
            memory.hold_up(cast("Holder", self))

    def _add_to_own(self, own: bytearray, nbytes: int) -> None:
        self._position += nbytes
        if self._position == self._own_size:
            self._own = None
            if self.memory is not None:
                self.memory.end(cast("Holder", self))
            TURN.begin()
            try:
                self.frame_received(Frame(own, 0, self._own_size, True))
            finally:
                TURN.end()
        elif self._position == len(own) and self.memory is not None:
            self.memory.more(cast("Holder", self))

    def cut_on(self) -> None:
        """Hand over the rest of the last read, in a turn of its own."""
        backlog, begin = self._backlog, self._begin
        self._backlog, self._begin, self.is_behind = bytearray(), 0, False
        TURN.begin()
        try:
            self._cut(backlog, begin, len(backlog))
        finally:
            TURN.end()

    def _cut(self, buffer: bytearray, offset: int, have: int) -> None:
        """Hand over the frames between `offset` and `have` of the shared buffer, or of a backlog."""
        for _ in self.frames_a_turn:
            rest = have - offset
            if rest < 4:
                self._left = bytes(memoryview(buffer)[offset:have])
                COPIES.copied_bytes += rest
                return
            announced = I32.unpack_from(buffer, offset)[0]
            if announced < 0 or announced > self.frame_limit:
                is_named = 0 <= announced <= self.largest_frame  # then its limit depends on its API key
                if is_named and rest < _KEY_BEHIND:
                    self._left = bytes(memoryview(buffer)[offset:have])
                    COPIES.copied_bytes += rest
                    return
                if not (is_named and self.allows(announced, I16.unpack_from(buffer, offset + 4)[0])):
                    if self.bad_length(announced, bytes(memoryview(buffer)[offset : min(have, offset + 16)])):
                        break
                    return
            size = announced + 4
            if rest < size:
                self._keep(memoryview(buffer)[offset:have], size)
                return
            self.frame_received(Frame(buffer, offset, offset + size, False, self.memory))
            offset += size
            if self._stopped or offset == have:
                return
            if TURN.elements > BOUNDS.turn and not self._trusted:
                break
        if offset < have:
            if buffer is _shared:
                COPIES.copied_bytes += have - offset
                buffer, offset = _kept(_shared_view[offset:have], self.memory), 0
            self._backlog, self._begin = buffer, offset
            self.is_behind = True
            self.fell_behind()

    def _keep(self, begin: memoryview, size: int) -> None:
        """Keep the beginning of a frame whose rest has not arrived."""
        rest = len(begin)
        if self._trusted and size <= _SHORT:  # it is copied into the shared buffer, before the next read
            self._left = bytes(begin)
            COPIES.copied_bytes += rest
            return
        if self._trusted and size > _LEAST_GRANT:
            own = _pool.take(size)
        elif self.memory is not None:
            own = self.memory.begin(cast("Holder", self), rest, size, min(_LEAST_GRANT, self.read_at_once))
        else:
            own = bytearray(min(size, max(4 * rest, _LEAST_GRANT)))
        own[:rest] = begin
        COPIES.copied_bytes += rest
        self._own, self._own_size, self._position = own, size, rest
