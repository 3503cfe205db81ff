"""Receive length-prefixed frames with as few copies as possible, and write the output of one turn at once.

All connections of a process share one receive buffer: uvloop and asyncio call `get_buffer` and `buffer_updated`
directly after each other, so one connection cannot overwrite another's bytes (a buffer for each would cost 32 MB for
64 connections). The rest of a frame that has arrived in part is received into its own buffer. That buffer grows with
the bytes that arrive, so a client that only announces 100 MiB uses 64 KiB. `sidecar.network.memory` limits the sum of
these buffers.
"""

from enum import Enum, auto
from typing import Final, NamedTuple

from sidecar.network.memory import HeldBytes, RequestMemory
from sidecar.network.pool import BufferPool
from sidecar.network.turn import TURN
from sidecar.network.wire import Wire
from sidecar.protocol import limits
from sidecar.protocol.api import ApiKey, api_name
from sidecar.protocol.primitives import I16, I32, Octets

RECEIVE_BYTES: Final = 256 * 1024
LEAST_GRANT: Final = 64 * 1024
"""Bytes of memory that an unfinished frame gets at first, if there is some."""
_PREFIX: Final = 4
"""Bytes of a frame's length."""
_PIECE: Final = 16 * 1024  # bytes of one read while the memory for requests is used up
_KEY_BEHIND: Final = 6  # length prefix and API key
_SHORT: Final = 4 * 1024  # unfinished frames of a trusted peer that get no own buffer: Fetch answers come in 3 parts

_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN")
_TLS: Final = b"\x16\x03"

_pool: Final = BufferPool()
SHARED: Final = bytearray(RECEIVE_BYTES)
"""The receive buffer of all connections."""
_shared_view: Final = memoryview(SHARED)


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
        view = _shared_view if self.buffer is SHARED else memoryview(self.buffer)
        return Frame(_kept(view[self.start : self.end], self.memory), 0, self.end - self.start, True)

    def view(self, start: int, end: int) -> memoryview:
        """Return a view into an owned frame; call `own` first on a borrowed one."""
        assert self.owned
        return memoryview(self.buffer)[start:end]


def _kept(data: Octets, memory: RequestMemory | None) -> bytearray:
    return bytearray(data) if memory is None else HeldBytes(data, memory)


class Outbox:
    """The output of one turn to one wire.

    Adjacent borrowed frames are stored as one span. At the end of the turn they are sent; bytes that the socket does
    not take at once are copied, once. `memory`: where the copy is counted until it is sent.
    """

    __slots__ = ("_dirty", "_memory", "_parts", "_span_end", "_span_start", "wire")

    def __init__(self, memory: RequestMemory | None = None) -> None:
        self._memory = memory
        self.wire: Wire | None = None
        self._parts: list[Octets] = []
        self._span_start = self._span_end = 0
        self._dirty = False

    @property
    def unsent(self) -> int:
        """Bytes that were flushed and that the socket has not taken."""
        return 0 if self.wire is None else self.wire.unsent()

    def add_frame(self, frame: Frame) -> None:
        """Forward a whole frame unchanged."""
        buffer = frame.buffer
        if buffer is not SHARED:
            is_whole = frame.end - frame.start == len(buffer)
            self.add(buffer if is_whole else memoryview(buffer)[frame.start : frame.end])
            return
        self.add_span(frame.start, frame.end)

    def add_span(self, start: int, end: int) -> None:
        """As `add_frame`, for the whole frames from `start` to `end` in `SHARED`."""
        if self._span_end != start or self._span_end == self._span_start:
            if self._span_end != self._span_start:
                self._close_span()
            self._span_start = start
        self._span_end = end
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
        if not self._dirty:
            wire = self.wire
            if wire is not None and not TURN.running:
                wire.send(parts)
                return
            self._dirty = True
            TURN.touched(self)
        if self._span_end != self._span_start:
            self._close_span()
        self._parts += parts

    def _close_span(self) -> None:
        start, end = self._span_start, self._span_end
        if start != end:
            COPIES.copied_bytes += end - start
            self._parts.append(_kept(_shared_view[start:end], self._memory))
            self._span_start = self._span_end = 0

    def flush(self) -> None:
        """Send everything; keep it while there is no wire yet."""
        self._dirty = False
        wire = self.wire
        if self._span_end != self._span_start:
            if wire is not None and not self._parts:
                self._span_start += wire.try_send(_shared_view[self._span_start : self._span_end])
            if self._span_end != self._span_start:
                self._close_span()
        if self._parts and wire is not None:
            parts, self._parts = self._parts, []
            wire.send(parts)


class Need(Enum):
    """What a frame needs that is not whole (`Framer.needs`)."""

    DATA = auto()
    """Bytes of the peer."""
    MEMORY = auto()
    """Memory: that of the unfinished frame is full (`sidecar.network.memory.RequestMemory.more`)."""


class Begun(NamedTuple):
    """`arrived` bytes of a frame of `size` bytes are here. It needs memory of its own: call `Framer.receive`."""

    arrived: int
    size: int


class BadLength(NamedTuple):
    """The peer announces a frame whose `size` is negative or too large. `head`: its first bytes, at most 16, with the
    length prefix. `largest`: the most that any frame of this peer may have.
    """

    size: int
    head: bytes
    largest: int

    @property
    def reason(self) -> tuple[str, str]:
        """Why the frame is refused before it is received: a word for the metrics and a sentence for people."""
        size, head, largest = self
        if head.startswith(_HTTP):
            return "http", "an HTTP request on the Kafka port"
        if head.startswith(_TLS):
            return "tls", "a TLS handshake on a plaintext Kafka port"
        if size < 0:
            return "malformed", f"a frame of {size} bytes"
        key = I16.unpack_from(head, 4)[0] if len(head) >= _KEY_BEHIND else ApiKey.PRODUCE
        limit = limits.frame_bytes(key, largest)
        return "too_large", f"a frame of {size} bytes, the limit is {limit} for {api_name(key)}"


class Framer:
    """Cuts the bytes of one peer into frames. It does no IO and calls nobody: `buffer` is what to read into, `received`
    takes note of what was read, and `next_frame` returns the frames in it, one by one. A caller that has had enough of
    them calls `set_aside`, and `go_on` later.

    `data`, `end`, `rest`: what was read ends at `end` in `data`, and its last `rest` bytes are not handed out. A caller
    that finds whole frames in `SHARED` itself subtracts their size from `rest`.
    `read_at_once`: the most bytes to read at a time.
    """

    __slots__ = (
        "_left",
        "_own",
        "_own_size",
        "_position",
        "_trusted",
        "data",
        "end",
        "frame_limit",
        "is_behind",
        "is_stopped",
        "largest_frame",
        "memory",
        "read_at_once",
        "rest",
    )

    def __init__(self, frame_limit: int, *, trusted: bool = False, memory: RequestMemory | None = None) -> None:
        """A frame of more than `frame_limit` bytes, up to `largest_frame`, is received if its API may have so many. For
        a `trusted` peer, memory for a whole frame is allocated once its size is announced; for others it grows with the
        bytes that arrive. `memory`: where copies are counted.
        """
        self.frame_limit = self.largest_frame = frame_limit
        self.memory = memory
        self._trusted = trusted
        self.read_at_once = RECEIVE_BYTES
        self.data, self.end, self.rest = SHARED, 0, 0  # what was read; the last `rest` bytes are left of it
        self._left = b""  # the beginning of a frame, which the next read continues in the shared buffer
        self._own: bytearray | None = None  # memory of an unfinished frame
        self._own_size = self._position = 0
        self.is_stopped = False
        self.is_behind = False  # whether frames that were read are set aside

    def limit_frames(self, size: int) -> None:
        """Limit each frame to `size` bytes from now on, and to the limit of its API in `protocol.limits`."""
        self.largest_frame = size
        self.frame_limit = min(limits.SMALL_FRAME_BYTES, size)

    @property
    def unfinished_bytes(self) -> int:
        """Bytes that have arrived of an unfinished frame."""
        return self._position if self._own is not None else len(self._left)

    @property
    def missing_bytes(self) -> int:
        """Bytes that have not arrived of an unfinished frame with memory of its own."""
        return self._own_size - self._position if self._own is not None else 0

    @property
    def bytes_set_aside(self) -> int:
        """Bytes of the last read that wait for a later turn."""
        return self.rest if self.is_behind else 0

    def stop(self) -> None:
        """Ignore all further input (the connection is about to close)."""
        self.is_stopped = True
        self._own = None
        self._left = b""
        self._clear()

    def _clear(self) -> None:
        self.data, self.end, self.rest, self.is_behind = SHARED, 0, 0, False

    def buffer(self, sizehint: int = -1) -> memoryview:
        """Return the memory for the next bytes. It belongs to the caller until `received`, which has to follow before
        another connection of the process is read.
        """
        own = self._own
        if own is not None:
            if self._position == len(own):
                more = min(len(own), self._own_size - len(own))
                if isinstance(own, HeldBytes):  # it may wait for memory, but TLS has decrypted more of it
                    own.grow(min(more, LEAST_GRANT))
                else:
                    own.extend(bytes(more))
            return memoryview(own)[self._position : self._own_size]
        left, memory, most = self._left, self.memory, self.read_at_once
        if memory is not None and memory.used > memory.limit:
            most = min(_PIECE, most)
        if left:
            COPIES.copied_bytes += len(left)
            _shared_view[: len(left)] = left
            return _shared_view[len(left) : most]
        return _shared_view[:most]

    def received(self, nbytes: int) -> bool:
        """Take note of `nbytes` in the last `buffer`. Returns whether there is something to do: call `next_frame`."""
        own = self._own
        if own is not None:
            self._position += nbytes
            return self._position == min(self._own_size, len(own))  # it is whole, or needs memory
        if self.is_behind:  # TLS has decrypted more: it waits after the rest of the last read
            more = self.data[-self.rest :] + _shared_view[:nbytes]
            COPIES.copied_bytes += len(more)
            self.data, self.end, self.rest = _kept(more, self.memory), len(more), len(more)
            return False
        if self.is_stopped:
            return False
        self.data, self.end = SHARED, nbytes + len(self._left)
        self.rest = self.end
        self._left = b""
        return True

    def next_frame(self) -> Frame | None:
        """Return the next frame, which is borrowed until the next `buffer`. None: call `needs`."""
        rest = self.rest
        if rest < _PREFIX:
            return self._whole_own()
        buffer, offset = self.data, self.end - rest
        announced = I32.unpack_from(buffer, offset)[0]
        if not 0 <= announced <= self.frame_limit and not self._allows(announced):
            return None
        size = announced + _PREFIX
        if size > rest:
            return None
        self.rest = rest - size
        if size == rest:
            self.data = SHARED
        return Frame(buffer, offset, offset + size, False, self.memory)

    def _whole_own(self) -> Frame | None:
        own = self._own
        if own is None or self._position < self._own_size:
            return None
        self._own = None
        return Frame(own, 0, self._own_size, True)

    def _allows(self, announced: int) -> bool | None:
        """Whether a frame may have more than `frame_limit` bytes; None if the key of its API has not arrived."""
        if not 0 <= announced <= self.largest_frame:
            return False
        if self.rest < _KEY_BEHIND:
            return None
        key = I16.unpack_from(self.data, self.end - self.rest + _PREFIX)[0]
        return announced <= limits.frame_bytes(key, self.largest_frame)

    def needs(self) -> Need | Begun | BadLength:
        """Return what the next frame needs, of which `next_frame` returned nothing. All but `Need.DATA` is left to the
        caller, and returned again until something is done about it.
        """
        own, rest = self._own, self.rest
        if own is not None:
            return Need.MEMORY if self._position == len(own) else Need.DATA
        if rest >= _PREFIX:
            announced = I32.unpack_from(self._unread())[0]
            is_allowed = 0 <= announced <= self.frame_limit or self._allows(announced)
            if is_allowed is False:
                return BadLength(announced, bytes(self._unread()[:16]), self.largest_frame)
            if is_allowed and not (self._trusted and announced + _PREFIX <= _SHORT):
                return Begun(rest, announced + _PREFIX)
        self._left = bytes(self._unread())  # it is copied into the shared buffer, before the next read
        COPIES.copied_bytes += rest
        self._clear()
        return Need.DATA

    def _unread(self) -> memoryview:
        return memoryview(self.data)[self.end - self.rest : self.end]

    def receive(self, own: bytearray | None = None) -> None:
        """Receive the frame that is `Begun` into memory of its own: into `own`, which has room for what has arrived and
        grows when it is full; by default into as much as this peer may have.
        """
        begun, arrived = self._unread(), self.rest
        size = _PREFIX + I32.unpack_from(begun)[0]
        if own is None:
            if self._trusted and size > LEAST_GRANT:
                own = _pool.take(size)
            else:
                own = bytearray(min(size, max(4 * arrived, LEAST_GRANT)))
        own[:arrived] = begun
        COPIES.copied_bytes += arrived
        self._own, self._own_size, self._position = own, size, arrived
        self._clear()

    def set_aside(self) -> bool:
        """End the turn: keep what is not handed out for `go_on`, in memory of its own. Returns whether anything is."""
        rest = self.rest
        if not rest:
            self._clear()
            return False
        if self.data is SHARED:
            COPIES.copied_bytes += rest
            self.data, self.end = _kept(self._unread(), self.memory), rest
        self.is_behind = True
        return True

    def go_on(self) -> None:
        """Begin another turn with what was set aside: `next_frame` returns it."""
        self.is_behind = False
