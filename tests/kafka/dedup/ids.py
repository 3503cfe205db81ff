"""A producer whose records carry sequence ids, and a client of the sidecar's own APIs: raw sockets both."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TypeVar

from google.protobuf.message import Message

from sidecar.protocol import produce_upstream
from sidecar.protocol.primitives import Octets
from tests.kafka.exclusive.producers import RawProducer, Sent, batch_of, id_headers

AnswerT = TypeVar("AnswerT", bound=Message)
_PATIENCE = 20.0


class IdProducer(RawProducer):
    """An idempotent producer that counts its own sequences; or a plain one."""

    def __init__(self, bootstrap: str, client_id: str, *, plain: bool = False) -> None:
        super().__init__(bootstrap, client_id)
        self._sequences: dict[tuple[str, int], int] = defaultdict(int)
        if not plain:
            self.initialise()

    def write(self, topic: str, *ids: int, partition: int = 0, name: bytes | None = None) -> Sent:
        """One batch of records with these ids, their values too; 5 is tried again for a while."""
        sequence = -1 if self.producer_id < 0 else self._sequences[topic, partition]
        values, headers = [str(each).encode() for each in ids], [id_headers(each, name) for each in ids]
        deadline = time.monotonic() + _PATIENCE
        while True:
            batch = batch_of(values, self.producer_id, self.epoch, sequence, headers=headers)
            records: list[tuple[bytes, int, Octets]] = [(topic.encode(), partition, batch)]
            self._correlation += 1
            parts = produce_upstream.encode_request(self._correlation, self._client_id, 8, -1, 10_000, records)
            self.socket.sendall(b"".join(parts))
            sent = self.finish()
            if sent.error != 5 or time.monotonic() > deadline:
                break
        if sent.error == 0:
            self._sequences[topic, partition] += len(ids)
        return sent
