"""A producer whose records carry sequence ids, and a client of the sidecar's own APIs: raw sockets both."""

from __future__ import annotations

import socket
import struct
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Self, TypeVar

from google.protobuf.message import Message

from sidecar.protocol import produce_upstream
from sidecar.protocol.primitives import Octets
from sidecar.v1 import control_pb2 as control
from tests.integration.exclusive.producers import RawProducer, Sent, batch_of, id_headers

if TYPE_CHECKING:
    from types import TracebackType

AnswerT = TypeVar("AnswerT", bound=Message)
_PATIENCE = 20.0


class IdProducer(RawProducer):
    """An idempotent producer that counts its own sequences."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        super().__init__(bootstrap, client_id)
        self._sequences: dict[tuple[str, int], int] = defaultdict(int)
        self.initialise()

    def write(self, topic: str, *ids: int, partition: int = 0, name: bytes | None = None) -> Sent:
        """One batch of records with these ids, their values too; 5 is tried again for a while."""
        sequence = self._sequences[topic, partition]
        values, headers = [str(each).encode() for each in ids], [id_headers(each, name) for each in ids]
        deadline = time.monotonic() + _PATIENCE
        while True:
            batch = batch_of(values, self.producer_id, self.epoch, sequence, headers=headers)
            records: list[tuple[bytes, int, Octets]] = [(topic.encode(), partition, batch)]
            self._correlation += 1
            parts = produce_upstream.encode_request(self._correlation, self._client_id, 8, -1, 10_000, records)
            self._socket.sendall(b"".join(parts))
            sent = self.finish()
            if sent.error != 5 or time.monotonic() > deadline:
                break
        if sent.error == 0:
            self._sequences[topic, partition] += len(ids)
        return sent


class OwnClient:
    """Asks the sidecar's own questions over one connection."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_PATIENCE)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def last_sequence(self, topic: str, name: str) -> control.LastSequenceResponse:
        asked = control.LastSequenceRequest(topic=topic, producer_name=name)
        return self.ask(1003, asked.SerializeToString(), control.LastSequenceResponse)

    def owners(self, *resources: control.Resource, group: str = "") -> control.DescribeOwnersResponse:
        asked = control.DescribeOwnersRequest(group=group, resources=resources)
        return self.ask(1002, asked.SerializeToString(), control.DescribeOwnersResponse)

    def ask(self, key: int, body: bytes, kind: type[AnswerT], *, version: int = 0) -> AnswerT:
        """Request header v1, response header v0. Raises `ConnectionError` where the node hangs up."""
        self._correlation += 1
        head = struct.pack(">hhih", key, version, self._correlation, 3) + b"own"
        self._socket.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        size, correlation = struct.unpack(">ii", self._exactly(8))
        assert correlation == self._correlation
        return kind.FromString(self._exactly(size - 4))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the node closed the connection")
            data += part
        return bytes(data)
