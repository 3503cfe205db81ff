"""A real idempotent producer that never stops, and what it was told of each record."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, Message, Producer

from tests.wait import wait_for

_IN_FLIGHT = 1_000


class CheckedProducer:
    """Writes 0, 1, 2, … to one partition from a thread of its own, from entering to leaving."""

    def __init__(self, bootstrap: str, client_id: str, topic: str, *, prefix: str = "", **settings: object) -> None:
        self.acked: list[bytes] = []
        self.offsets: list[int] = []
        self.failed: list[tuple[bytes, int]] = []
        self._topic = topic
        self._prefix = prefix
        self._sent = 0
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": client_id,
                "enable.idempotence": True,
                "linger.ms": 1,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "message.timeout.ms": 60_000,
                "log_level": 0,
                **settings,
            }
        )
        self._thread = threading.Thread(target=self._run)

    @property
    def sent(self) -> list[bytes]:
        """Every record, in order."""
        return [self._value(index) for index in range(self._sent)]

    def _value(self, index: int) -> bytes:
        return f"{self._prefix}{index}".encode()

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        value = message.value() or b""
        if error is None:
            self.acked.append(value)
            self.offsets.append(message.offset() or 0)
        else:
            self.failed.append((value, error.code()))

    def _run(self) -> None:
        while not self._stop.is_set():
            if len(self._producer) < _IN_FLIGHT:
                value = self._value(self._sent)
                self._producer.produce(self._topic, value, partition=0, on_delivery=self._delivered)
                self._sent += 1
            self._producer.poll(0.0005)

    def goes_on(self, records: int, timeout: float = 30.0) -> None:
        """Wait for so many acknowledgements more."""
        before = len(self.acked)
        wait_for(lambda: len(self.acked) >= before + records, f"{records} acknowledgements", timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        self.goes_on(1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if kind is None:
            assert self._producer.flush(60) == 0, "records without an answer"
