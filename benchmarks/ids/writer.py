"""A producer of a few lines that is never what is waited for: its batches are built before the clock runs."""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass
from typing import Final

from benchmarks.raw_client import PASSING, RefusedError
from sidecar.client.batches import build as build_batch
from sidecar.client.receipt import Headers
from sidecar.local.ports import HOST
from sidecar.protocol import batch as record_batch
from sidecar.protocol import produce_upstream
from sidecar.protocol.codec import Codec
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp

_IN_FLIGHT: Final = 5
_TIMEOUT_MS: Final = 30_000
_PATIENCE_S: Final = 20.0
CODECS: Final = {"none": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}


@dataclass(frozen=True, slots=True)
class Load:
    """So many batches of so many records of so many bytes each."""

    record_bytes: int
    codec: str
    records: int
    batches: int

    @property
    def total(self) -> int:
        """Records in all."""
        return self.records * self.batches


@dataclass(slots=True)
class _Record:
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


def build(load: Load) -> list[bytearray]:
    """Batches whose records carry rising sequence ids; half of a record's bytes repeat, so that codecs have work."""
    noise = bytes(range(256)) * 8
    built: list[bytearray] = []
    now = int(time.time() * 1000)
    for number in range(load.batches):
        records: list[_Record] = []
        for sequence_id in range(number * load.records, (number + 1) * load.records):
            half = load.record_bytes // 2
            at = sequence_id * 31 % 1_000
            value = noise[at : at + half] + b"x" * (load.record_bytes - half)
            records.append(_Record(None, value, (("sidecar-sequence-id", str(sequence_id).encode()),), now))
        built.append(bytearray(build_batch(records, Stamp(ProducerId(1), ProducerEpoch(0)), 0, CODECS[load.codec])))
    return built


def write(port: int, name: str, topic: str, batches: list[bytearray], load: Load, partition: int = 0) -> float:
    """Produce all of them under a fresh session, five at a time; seconds from the first that is in the log to the
    last. Raises `RefusedError`.
    """
    with socket.create_connection((HOST, port), _PATIENCE_S) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        producer_id = _initialise(sock, name)
        place = topic.encode(), partition
        frames = [_frame(name, place, number, batch, load, producer_id) for number, batch in enumerate(batches)]
        _begin(sock, frames[0])
        began = time.perf_counter()
        sent, answered = 1, 1
        stream = _Answers(sock)
        while answered < len(frames):
            while sent < len(frames) and sent - answered < _IN_FLIGHT:
                sock.sendall(frames[sent])
                sent += 1
            for frame in stream.take():
                _check(frame)
                answered += 1
        return time.perf_counter() - began


def _frame(name: str, place: tuple[bytes, int], number: int, batch: bytearray, load: Load, producer_id: int) -> bytes:
    record_batch.stamp(batch, 0, len(batch), producer_id, 0, number * load.records)
    parts = produce_upstream.encode_request(number, name.encode(), 8, -1, _TIMEOUT_MS, [(*place, batch)])
    return b"".join(parts)


def _begin(sock: socket.socket, frame: bytes) -> None:
    """The first batch makes its session the owner."""
    deadline = time.monotonic() + _PATIENCE_S
    answers = _Answers(sock)
    while True:
        sock.sendall(frame)
        (answer,) = answers.take()
        code = _code(answer)
        if not code:
            return
        if code not in PASSING or time.monotonic() > deadline:
            raise RefusedError("Produce", code)
        time.sleep(0.05)


def _code(frame: bytes) -> int:
    results, _ = produce_upstream.decode_answer(frame, 0, len(frame), 8)
    return results[0].error


def _check(frame: bytes) -> None:
    if code := _code(frame):
        raise RefusedError("Produce", code)


class _Answers:
    """Whole frames out of a socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._data = bytearray()

    def take(self) -> list[bytes]:
        """Those that have come, one at least."""
        found: list[bytes] = []
        while not found:
            if not select.select([self._socket], [], [], _PATIENCE_S)[0]:
                raise RefusedError("no answer to Produce", 7)
            piece = self._socket.recv(1 << 16)
            if not piece:
                raise ConnectionError("closed in the middle of an answer")
            self._data += piece
            while len(self._data) >= 4 and len(self._data) >= 4 + (size := struct.unpack_from(">i", self._data)[0]):
                found.append(bytes(self._data[: 4 + size]))
                del self._data[: 4 + size]
        return found


def _initialise(sock: socket.socket, name: str) -> int:
    """A fresh producer id; also the small first request after which a node takes large ones."""
    answers, client = _Answers(sock), name.encode()
    head = struct.pack(">hhih", 22, 3, 1, len(client)) + client + b"\0"
    body = b"\0" + struct.pack(">iqh", 60_000, -1, -1) + b"\0"
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        sock.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        error, producer_id = struct.unpack_from(">hq", answers.take()[0], 13)
        if not error:
            return producer_id
        time.sleep(0.1)
    raise RefusedError("InitProducerId", error)
