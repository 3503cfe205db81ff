"""Decides when a client's connection is read: while nothing pauses it and there is memory for its requests."""

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final

from sidecar.network.framing import RECEIVE_BYTES, Frame, FrameReceiver
from sidecar.network.handling import Pause
from sidecar.network.keepalive import LOOK_S, has_silent_peer, unread_at_end
from sidecar.network.memory import RequestMemory
from sidecar.network.request import Exchange
from sidecar.protocol import limits
from sidecar.protocol.api import ApiKey, api_name
from sidecar.protocol.primitives import I16

FIRST_FRAME_LIMIT: Final = 512 * 1024
_WAITING: Final = 32  # requests that are read after a parked one
_STRANGERS: Final = 2 * 1024
"""Bytes that are read at a time, or after a parked request, from a client that has not sent a valid first request.
Requests of a login have a few hundred bytes, and thousands of strangers may wait for one.
"""
_HELD_BACK: Final = 512 * 1024
"""Bytes that TLS may have read from a socket and not passed on: one read of 256 KiB, and more than a record's rest."""

_KEY_BEHIND: Final = 6
"""Length prefix and API key."""
_HTTP: Final = (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"DELE", b"PATC", b"CONN")
_TLS: Final = b"\x16\x03"


class Reading(FrameReceiver):
    """Base of `ClientConnection`: its waiting and its unanswered requests, whether it is read, and which bytes of its
    answers the client has not taken. Implements `sidecar.network.memory.Holder`.
    """

    __slots__ = (
        "_exchanges",
        "_is_parked",
        "_kept",
        "_largest",
        "_largest_end",
        "_looks_left",
        "_pause",
        "_reading",
        "_request_limit",
        "_requests_seen",
        "_starves",
        "_transport",
        "_waiting",
        "_weight",
        "bytes_out",
        "closed",
        "requests",
    )

    def __init__(self, request_limit: int, memory: RequestMemory | None) -> None:
        super().__init__(min(limits.SMALL_FRAME_BYTES, request_limit))
        self.largest_frame = min(FIRST_FRAME_LIMIT, request_limit)
        self._request_limit = request_limit
        self.requests = self._requests_seen = self._looks_left = 0
        self.memory = memory
        self.read_at_once = _STRANGERS
        self._pause = self._weight = 0
        self.closed = False
        self.bytes_out = self._kept = 0  # bytes of answers: handed to the socket; waiting for their turn
        self._largest = self._largest_end = 0  # the largest unsent answer, and `bytes_out` at its end
        self._is_parked = self._starves = False
        self._exchanges: deque[Exchange] = deque()
        self._waiting: deque[Frame] = deque()
        self._reading = True
        self._transport: asyncio.Transport | None = None

    @property
    def unanswered(self) -> int:
        """Requests that have no answer yet."""
        return len(self._exchanges)

    @property
    def pending(self) -> Iterator[Exchange]:
        """The requests without an answer, the oldest first."""
        return iter(self._exchanges)

    def first_request_valid(self) -> None:
        """Allow larger frames, and more bytes at a time: the client has sent a valid Kafka request."""
        self.limit_frames(self._request_limit)
        self.read_at_once = RECEIVE_BYTES

    def limit_frames(self, size: int) -> None:
        """Limit each frame to `size` bytes from now on, and to the limit of its API in `protocol.limits`."""
        self.largest_frame = min(size, self._request_limit)
        self.frame_limit = min(limits.SMALL_FRAME_BYTES, self.largest_frame)

    def allows(self, size: int, key: int) -> bool:
        return size <= limits.frame_bytes(key, self.largest_frame)

    def reject(self, reason: str, detail: str) -> None:
        """Close the connection because of what the client sent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close at once."""
        raise NotImplementedError

    def _stop_reading(self) -> None:
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def _read_on(self) -> None:
        if self._starves and self.memory is not None and not self.held_bytes:
            self.memory.let_go(self)
        if self._starves or self._reading or self.is_behind or self._transport is None or self._transport.is_closing():
            return
        self._reading = True
        self._transport.resume_reading()

    def _is_crowded(self) -> bool:
        return len(self._waiting) >= _WAITING or sum(frame.size for frame in self._waiting) >= self.read_at_once

    def is_silent(self, limit_s: float) -> bool:
        """Whether the client's machine no longer answers. Called every `keepalive.LOOK_S` seconds.

        A client's packets acknowledge what it has received. So there is no system call for a client that sent a request
        less than half the limit ago, as thousands of idle readers do.
        """
        if self.requests != self._requests_seen:
            self._requests_seen, self._looks_left = self.requests, int(limit_s / 2 / LOOK_S)
        if self._looks_left:
            self._looks_left -= 1
            return False
        return self._transport is not None and not self.closed and has_silent_peer(self._transport, limit_s)

    def _behind(self) -> int:
        """The weight of the answers after the first one, in bytes."""
        return self._weight - self._exchanges[0].weight if self._exchanges else 0

    # Recipient (`sidecar.network.unread`) -------------------------------------------------------------------------

    @property
    def unread_bytes(self) -> int:
        """Bytes that the node stores for the client. An answer is one piece of memory until its last byte is sent,
        although the kernel may take three of its four megabytes at once.
        """
        unsent = self._unsent()
        if unsent and self.bytes_out - unsent < self._largest_end:
            unsent = max(unsent, self._largest)
        return self._kept + unsent

    @property
    def taken_bytes(self) -> int:
        return self.bytes_out - self._unsent()

    def _note_large(self, size: int) -> None:
        """Note that the socket gets a large answer of `size` bytes. The largest counts until its last byte is taken."""
        if size > self._largest or self.taken_bytes - size >= self._largest_end:
            self._largest, self._largest_end = size, self.bytes_out

    def too_much_unread(self) -> None:
        """Close at once: the client does not read its answers, and all such answers together take too much memory."""
        self.reject("unread", f"{self.unread_bytes} bytes of answers that it did not read, and too much of that in all")
        self.abort()

    def _unsent(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # Holder -------------------------------------------------------------------------------------------------------

    @property
    def is_awaited(self) -> bool:
        return self._is_parked or self._reading  # parked: the client decides how long

    @property
    def is_parked(self) -> bool:
        return self._is_parked

    @property
    def held_bytes(self) -> int:
        waiting = sum(frame.size for frame in self._waiting) + len(self._backlog) - self._begin
        return waiting + sum(exchange.request_bytes for exchange in self._exchanges)

    def starve(self) -> None:
        """Stop reading. Requests that were read are handled as usual, so that their memory becomes free."""
        self._starves = True
        self._stop_reading()

    def feed(self) -> None:
        self._starves = False
        if not self._pause or (self._is_parked and self._pause == Pause.HELD and not self._is_crowded()):
            self._read_on()

    @property
    def has_left(self) -> bool:
        """Whether the peer has closed while the connection was not read, and has sent no whole request that was not
        handled. A request without an answer (acks=0) must be handled although nobody waits for it.
        """
        if self._reading or self._stopped or self._transport is None:
            return False
        if not self._is_parked and (self._waiting or self.is_behind or self._pause & Pause.HELD):
            return False
        unread = unread_at_end(self._transport)
        if unread is None:
            return False
        is_tls = self._transport.get_extra_info("ssl_object") is not None
        if self._own is None:
            return not unread and not is_tls
        return self._position + unread + (_HELD_BACK if is_tls else 0) < self._own_size

    @property
    def has_left_muted(self) -> bool:
        """Whether the peer has closed while its requests wait for its quota alone, maybe for days. Its claims last as
        long as the connection, and the connection as long as a request waits (`has_left`).
        """
        is_muted = self._pause == Pause.THROTTLED and not self._stopped
        return is_muted and self._transport is not None and unread_at_end(self._transport) is not None

    def too_slow(self) -> None:
        size = self._own_size - 4
        self.reject("too_slow", f"{self.unfinished_bytes} bytes of a frame of {size}, and others wait for memory")

    def too_much(self) -> None:
        held = self.held_bytes + self.unfinished_bytes
        self.reject("memory", f"{held} bytes of requests that wait, and nothing else gives memory back to others")


def reason_of(size: int, head: bytes, largest: int) -> tuple[str, str]:
    """Return why a frame is refused by its length, before it is received: a word for the metrics and a sentence for
    people. `size`: the length in the first four bytes; `head`: the bytes that have arrived; `largest`: the frame limit
    of this connection, in bytes.
    """
    if head.startswith(_HTTP):
        return "http", "an HTTP request on the Kafka port"
    if head.startswith(_TLS):
        return "tls", "a TLS handshake on a plaintext Kafka port"
    if size < 0:
        return "malformed", f"a frame of {size} bytes"
    key = I16.unpack_from(head, 4)[0] if len(head) >= _KEY_BEHIND else ApiKey.PRODUCE
    limit = limits.frame_bytes(key, largest)
    return "too_large", f"a frame of {size} bytes, the limit is {limit} for {api_name(key)}"
