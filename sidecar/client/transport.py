"""An aiokafka producer that goes on with a session's producer id and sequences.

Everything that this SDK knows of aiokafka beyond what that shows is here: it is written against 0.14, which
`pyproject.toml` holds. There a producer asks for an id of its own and counts from 0, never restarts its numbering after
an error that is final, calls codes that it does not know (87, 90) -1, and does not stop while a batch waits for a node
that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError, RequestTimedOutError, UnknownTopicOrPartitionError

from sidecar.client.errors import SidecarUnavailableError, code_of
from sidecar.protocol import api
from sidecar.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecar.client._requests import Producer
    from sidecar.client.receipt import Pending

BATCH_BYTES: Final = 64 * 1024
"""Of a batch with more than one record."""
_REQUEST_S: Final = 10.0
_RETRY_MS: Final = 50
_CANCELLATIONS: Final = 5
_STEP_S: Final = 0.05


class BatchError(Exception):
    """A batch has a final answer that is an error, or aiokafka gave it up: then `code` is None."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(message)
        self.code = code


class Transport:
    """One aiokafka producer under way; `open_transport` makes it."""

    def __init__(self, producer: AIOKafkaProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._codes: dict[int, int] = {}
        """The newest answer by partition."""
        self._ask: Any = producer.client.send
        producer.client.send = self._listen

    async def _listen(self, *arguments: Any, **named: Any) -> Any:
        answer = await self._ask(*arguments, **named)
        if answer is not None and answer.API_KEY == api.PRODUCE:
            for _, partitions in answer.topics:
                self._codes.update({partition: code for partition, code, *_ in partitions})
        return answer

    async def send(self, partition: int, records: Sequence[Pending]) -> int:
        """Send a batch and wait for its outcome; its base offset, -1 where that is not told.

        aiokafka sends it again, under the same sequence, until something final is answered. Raises `BatchError`.
        """
        self._codes.pop(partition, None)
        try:
            return await self._send(partition, records)
        except KafkaError as error:
            code = code_of(error)
            raise BatchError(self._codes.get(partition) or code if code is not None else None, str(error)) from error

    async def _send(self, partition: int, records: Sequence[Pending]) -> int:
        producer = self._producer
        if partition not in await producer.partitions_for(self._topic):
            await producer.client.force_metadata_update()
            if partition not in await producer.partitions_for(self._topic):
                raise UnknownTopicOrPartitionError
        batch = producer.create_batch()
        for each in records:
            appended = batch.append(
                timestamp=each.timestamp_ms, key=each.key, value=each.value, headers=list(each.headers)
            )
            assert appended is not None, "sizes are upper bounds"
        told = await (await producer.send_batch(batch, self._topic, partition=partition))
        return told.offset

    async def stop(self, *, force: bool = False) -> None:
        """End it; `force`: whatever is still under way."""
        if force:
            await _break(self._producer)
        await self._producer.stop()
        await self._producer.client.close()  # an earlier `stop` may have been cancelled before it came to this


async def open_transport(
    addresses: Sequence[tuple[str, int]],
    client_id: str,
    topic: str,
    producer: Producer,
    next_sequences: Mapping[int, int],
    compression: str | None,
) -> Transport:
    """Start one. Raises `SidecarUnavailableError`; where it is cancelled nothing stays open."""
    settings: dict[str, Any] = {
        "bootstrap_servers": [f"{host}:{port}" for host, port in addresses],
        "client_id": client_id,
        "enable_idempotence": True,
        "compression_type": compression,
        "max_batch_size": BATCH_BYTES + 1024,
        "request_timeout_ms": int(_REQUEST_S * 1000),
        "retry_backoff_ms": _RETRY_MS,
        "connections_max_idle_ms": None,  # a node takes the end of an owner's last connection for its leave
    }
    kafka = AIOKafkaProducer(**settings)
    session: Any = kafka._txn_manager  # noqa: SLF001  the public ways to a producer id ask for a new one
    session.set_pid_and_epoch(producer.id, producer.epoch)
    for partition, sequence in next_sequences.items():
        session.increment_sequence_number(TopicPartition(topic, partition), sequence)
    starting = asyncio.ensure_future(_start(kafka, topic))
    try:
        await asyncio.shield(starting)
    except BaseException as error:
        if not starting.done():  # cancelled in the middle it would leave its first connection open
            await asyncio.wait({starting}, timeout=_REQUEST_S)
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        await Transport(kafka, topic).stop(force=True)
        if isinstance(error, KafkaError | OSError):
            message = f"aiokafka cannot start: {error}"
            raise SidecarUnavailableError(ErrorCode.NETWORK_EXCEPTION, message, retryable=True) from error
        raise
    return Transport(kafka, topic)


async def _start(kafka: AIOKafkaProducer, topic: str) -> None:
    await kafka.start()
    await kafka.partitions_for(topic)


async def _break(kafka: AIOKafkaProducer) -> None:
    """Give up what is under way, so that `stop` has nothing to wait for."""
    sender: Any = kafka._sender  # noqa: SLF001  nothing public ends a batch that is tried again and again
    waiting: Any = kafka._message_accumulator  # noqa: SLF001
    batches = [*waiting._pending_batches, *(batch for queue in waiting._batches.values() for batch in queue)]  # noqa: SLF001
    waiting.fail_all(RequestTimedOutError())
    for batch in batches:
        for outcome in (batch.future, batch._drain_waiter):  # noqa: SLF001
            if outcome.done() and not outcome.cancelled():
                outcome.exception()  # asked for, so that nothing complains that nobody did
    for _ in range(_CANCELLATIONS):  # the first is met by waiting for requests under way, the next ends such a wait
        if sender.sender_task is None or sender.sender_task.done():
            break
        sender.sender_task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({sender.sender_task}, timeout=_STEP_S)
