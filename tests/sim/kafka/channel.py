"""A client's connection to a broker: frames out of a stream, one request at a time, answers in order (`SocketServer`).

A broker reads the next request of a connection only after it has sent the answer to the one before (the channel is
muted), and with a throttle time some while after that (KIP-219).
"""

from __future__ import annotations

from collections import deque
from functools import lru_cache, partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.schema import Message, Values
from tests.sim.kafka.tables import MESSAGES, name_of

if TYPE_CHECKING:
    from tests.sim.kafka.broker import Broker
    from tests.sim.kafka.settings import Peer

_SIZE: Final = Struct(">i")
_HEAD: Final = Struct(">ihhih")
LONGEST_FRAME: Final = 104_857_600
"""socket.request.max.bytes."""


class Request:
    """One request as it stands on its connection. Answer it once: `answer`, `answer_bytes` or `no_answer`."""

    __slots__ = (
        "body",
        "channel",
        "correlation",
        "frame",
        "key",
        "message",
        "override",
        "throttle_ms",
        "values",
        "version",
    )

    def __init__(self, channel: Channel, frame: bytes) -> None:
        _, key, version, correlation, size = _HEAD.unpack_from(frame)
        self.channel = channel
        self.frame = frame
        self.key = key
        self.version = version
        self.correlation = correlation
        self.body = _HEAD.size + max(0, size)
        self.message: Message | None = MESSAGES.get(key)
        self.values: Values = {}
        self.override = 0
        """The error that stands in the answer although the request was carried out."""
        self.throttle_ms = 0

    def decode(self) -> Values:
        assert self.message is not None
        if self.key == METADATA.key:
            self.values = _wanted(self.version, self.frame[self.body :])
            return self.values
        self.values = self.message.decode_request(self.frame, self.body, len(self.frame), self.version)
        return self.values

    def answer(self, values: Values) -> None:
        assert self.message is not None
        if self.override:
            put_error(values, self.override)
        if self.throttle_ms:
            values["throttle_time_ms"] = self.throttle_ms
        self.answer_bytes(self.encoded(values))

    def encoded(self, values: Values) -> bytes:
        """An answer as a frame."""
        assert self.message is not None
        return self.message.encode_answer(self.version, self.correlation, values)

    def answer_again(self, frame: bytes) -> None:
        """Answer as an equal request was answered."""
        self.answer_bytes(frame[:4] + _SIZE.pack(self.correlation) + frame[8:])

    def answer_bytes(self, frame: bytes) -> None:
        self.channel.answer_to(self, frame)

    def no_answer(self) -> None:
        """Produce with acks=0."""
        self.channel.answer(b"", self.throttle_ms)


@lru_cache(maxsize=512)
def _wanted(version: int, body: bytes) -> Values:
    """A Metadata request, which nodes repeat; nobody changes what it holds."""
    return METADATA.decode_request(body, 0, len(body), version)


def put_error(values: Any, code: int) -> None:
    """Make every error code of an answer this one, and say no offset."""
    if isinstance(values, list):
        for each in values:
            put_error(each, code)
    elif isinstance(values, dict):
        for name, value in values.items():
            if name in ("error_code", "partition_error_code"):
                values[name] = code
            elif name in ("base_offset", "offset", "producer_id", "producer_epoch"):
                values[name] = -1
            elif isinstance(value, list):
                put_error(value, code)


class Channel:
    """The broker's end. `received` takes the stream in any pieces; nothing is ever sent after `closed`."""

    __slots__ = ("_broker", "_buffer", "_busy", "_frames", "_peer", "number", "open")

    def __init__(self, broker: Broker, peer: Peer, number: int) -> None:
        self._broker = broker
        self._peer = peer
        self._buffer = bytearray()
        self._frames: deque[bytes] = deque()
        self._busy = False
        self.number = number
        self.open = True

    def received(self, data: bytes) -> None:
        """Bytes from the client. Also while the broker is frozen: they lie in the kernel's buffer."""
        if not self.open:
            return
        buffer = self._buffer
        buffer += data
        at = 0
        while len(buffer) - at >= 4:
            size = _SIZE.unpack_from(buffer, at)[0]
            if not 0 <= size <= LONGEST_FRAME:
                self.close()
                return
            if len(buffer) - at < size + 4:
                break
            self._frames.append(bytes(buffer[at : at + size + 4]))
            at += size + 4
        if at:
            del buffer[:at]
        self._work()

    def closed(self) -> None:
        """The client's end is gone. What it asked for is still carried out, as far as it was read."""
        self.open = False
        self._broker.channels.discard(self)

    def close(self) -> None:
        """The broker ends the connection."""
        if self.open:
            self.closed()
            self._peer.close()

    def _work(self) -> None:
        if self._frames and not self._busy:
            self._busy = True
            self._broker.later(self._broker.cluster.delay(self._broker.cluster.settings.serve), self._serve)

    def _serve(self) -> None:
        request = Request(self, self._frames.popleft())
        if self._broker.cluster.trace is not None:
            self._broker.trace("asked", name_of(request.key), f"v{request.version} by connection {self.number}")
        self._broker.dispatch(request)

    def answer_to(self, request: Request, frame: bytes) -> None:
        """As `answer`, unless somebody has it kept back."""
        for watches in tuple(self._broker.watchers):
            watches(request)
        if self._broker.keeps_back is not None and self._broker.keeps_back(request):
            self._broker.kept.append(partial(self.answer, frame, request.throttle_ms))
        else:
            self.answer(frame, request.throttle_ms)

    def answer(self, frame: bytes, throttle_ms: int) -> None:
        """Send an answer (empty: none) and go on with the next request."""
        if frame and self.open:
            self._peer.send(frame)
        if throttle_ms:
            self._broker.later(throttle_ms / 1000, self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._busy = False
        self._work()
