"""Ordinary traffic in the background of a test that disturbs somebody else: every acknowledgement is counted."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, Self

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from tests.wait import wait_for

if TYPE_CHECKING:
    from types import TracebackType

_PAUSE_S: Final = 0.008
"""Between records: a hundred in a second show whether others are held up, and leave the machine to them."""


class Traffic:
    """A producer and a consumer of one partition, each in a thread, until the end of the context.

    Records are numbered. `acked` counts acknowledgements, `read` what the consumer has seen; both may only grow, and
    what is read must be 0, 1, 2… without a gap or a repeat: the producer is idempotent and there is one.
    """

    def __init__(self, bootstrap: str, topic: str, *, idempotent: bool = True) -> None:
        self.acked = 0
        self.read = 0
        self.failures: list[str] = []
        self._topic = topic
        self._idempotent = idempotent
        self._bootstrap = bootstrap
        self._end = threading.Event()
        self._threads = [threading.Thread(target=work, daemon=True) for work in (self._produce, self._consume)]
        self._sent = 0

    def _produce(self) -> None:
        settings = {"bootstrap.servers": self._bootstrap, "linger.ms": 1, "enable.idempotence": self._idempotent}
        producer = Producer({**settings, "client.id": "traffic", "error_cb": self._error})

        def done(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.acked += 1
            else:
                self.failures.append(f"not delivered: {error}")

        while not self._end.is_set():
            if self._sent - self.acked < 200:
                producer.produce(self._topic, b"%d" % self._sent, partition=0, on_delivery=done)
                self._sent += 1
            producer.poll(0)
            self._end.wait(_PAUSE_S)
        if producer.flush(30):
            self.failures.append("records without an acknowledgement at the end")

    def _consume(self) -> None:
        group = f"{self._topic}-readers"
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": group, "error_cb": self._error})
        consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
        while not self._end.is_set() or (self.read < self._sent and not self.failures):
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                self.failures.append(f"not read: {message.error()}")
                break
            if message.value() != b"%d" % self.read:
                self.failures.append(f"read {message.value()!r} where {self.read} should be")
                break
            self.read += 1
        consumer.close()

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.failures.append(f"fatal: {error}")

    def goes_on(self, more: int = 20) -> None:
        """Wait until this many more records were acknowledged and read, from now."""
        acked, read = self.acked + more, self.read + more
        wait_for(lambda: self.failures or (self.acked >= acked and self.read >= read), "other traffic to go on", 30)
        assert self.failures == []

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.goes_on()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(60)
        assert self.failures == []
        assert self.read == self.acked == self._sent
