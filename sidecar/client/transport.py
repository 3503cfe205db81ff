"""Sends the batches of one session to the nodes that lead its partitions.

Batches that wait for a node are sent in one request once the request before has its answer. Nothing is retried here:
the caller does that, under the batch's first sequence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, TypeVar

from sidecar.client._requests import Appended, Produce
from sidecar.client.claim import Claim, again
from sidecar.client.connection import Address, Connection, connect, first
from sidecar.client.errors import SidecarError, SidecarUnavailableError
from sidecar.client.receipt import Pending
from sidecar.protocol.caller import Request
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, DescribeTopics, Resource
from sidecar.protocol.codec import Codec
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.new_batch import NewRecord, build_batch

_Sent = dict[int, tuple[bytes, asyncio.Future[Appended]]]
"""By partition."""

AnswerT = TypeVar("AnswerT")

BATCH_BYTES: Final = 64 * 1024
"""The most bytes of a batch with more than one record. Longer batches are compressed in a thread."""
LONGEST_BATCH: Final = 100 * 1024 * 1024 - 1024
"""A request of 100 MiB, less the bytes around its batch. By default nodes (`MAX_REQUEST_BYTES`) and brokers
(`socket.request.max.bytes`) close the connection of a longer request.
"""
LONGEST_RECORDS: Final = 2**31 - 1
"""The most bytes of a batch before compression: lengths in it have 32 bits."""
_REQUEST_BYTES: Final = 1024 * 1024
"""The most bytes of a request with more than one batch."""
_REQUEST_S: Final = 10.0
_BROKER_S: Final = _REQUEST_S - 2
"""How long a broker may wait for replicas. Shorter than the request's timeout, so that its answer arrives in time."""
_SHORT_S: Final = 5.0
_LIMIT_NAME: Final = "max.message.bytes"


class BatchError(Exception):
    """A batch failed. `code` is None if there was no answer."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(message)
        self.code = code


class Transport:
    """Sends for the session that `claim` has now; `close` it before that session changes."""

    def __init__(self, claim: Claim, codec: Codec) -> None:
        self._claim = claim
        self._codec = codec
        self._nodes: dict[Address, _Node] = {}
        self._leaders: dict[int, Address | None] = {}
        self._is_stale = True
        self._looking = asyncio.Lock()

    async def start(self) -> None:
        """Find the nodes. Raises `SidecarError`."""
        await self._look()

    async def send(self, partition: int, records: Sequence[Pending]) -> int:
        """Send a batch under the session's next sequence and wait for its outcome. Returns its base offset, -1 if not
        known. Raises `BatchError`.
        """
        claim = self._claim
        made = [NewRecord(each.key, each.value, each.headers, each.timestamp_ms) for each in records]
        parts = (
            made,
            claim.producer.producer_id,
            claim.producer.epoch,
            claim.next_sequences.get(partition, 0),
            self._codec,
        )
        size = sum(each.size for each in records)
        _check_length(size, LONGEST_RECORDS)
        if self._codec is not Codec.NONE and size > BATCH_BYTES:
            batch = await asyncio.to_thread(build_batch, *parts)
        else:
            batch = build_batch(*parts)
        _check_length(len(batch), LONGEST_BATCH)
        try:
            found = await (await self._node(partition)).send(partition, bytes(batch))
        except SidecarUnavailableError as error:
            self._is_stale = True
            raise BatchError(None, error.message) from error
        except SidecarError as error:
            raise BatchError(error.code, error.message) from error
        if found.error == ErrorCode.NONE:
            return found.base_offset
        if found.error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        self._is_stale = True
        message = found.message
        if found.error == ErrorCode.MESSAGE_TOO_LARGE:
            limit = await self._limit()
            message = f"a batch of {len(batch)} bytes; the topic's {_LIMIT_NAME} is {limit or 'less'}"
        raise BatchError(found.error, message)

    async def _limit(self) -> str | None:
        """The topic's `max.message.bytes`; None if no node answers, or this client may not read it."""
        topic = Resource(ConfigResource.TOPIC, self._claim.topic)
        try:
            described = await self._ask(self._claim.addresses[0], DescribeConfigs((topic,), (_LIMIT_NAME,)))
        except SidecarUnavailableError:
            return None
        return described[topic].values.get(_LIMIT_NAME) if topic in described else None

    async def close(self) -> None:
        """Close all connections; batches under way fail."""
        nodes, self._nodes = self._nodes, {}
        await asyncio.gather(*(each.close() for each in nodes.values()))

    async def _node(self, partition: int) -> _Node:
        """Raises `SidecarError`."""
        async with self._looking:
            if self._is_stale or partition not in self._leaders:
                await self._look()
        leader = self._leaders.get(partition)
        if leader is None:  # or the node has not heard of the partition: the session began with it
            self._is_stale = True
            raise SidecarUnavailableError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader now")
        return self._nodes.setdefault(leader, _Node(leader, self._claim))

    async def _look(self) -> None:
        self._leaders = await first(self._claim.addresses, self._leaders_at)
        self._is_stale = False

    async def _leaders_at(self, address: Address) -> dict[int, Address | None]:
        layout = await self._ask(address, DescribeTopics((self._claim.topic,)))
        found = layout.topic(self._claim.topic)
        if found.error:  # of a node that lags, perhaps: what was sent before may be in the log
            raise SidecarUnavailableError(found.error, f"{self._claim.topic} is not known there now", retryable=True)
        return {index: layout.brokers.get(leader) for index, leader in found.leaders.items()}

    async def _ask(self, address: Address, request: Request[AnswerT]) -> AnswerT:
        connection = await connect(address, self._claim.client_id, _SHORT_S, self._claim.access)
        try:
            return await connection.call(request, _SHORT_S)
        finally:
            await connection.close()


class _Node:
    """The batches for one node, sent on one connection."""

    def __init__(self, address: Address, claim: Claim) -> None:
        self._address = address
        self._claim = claim
        self._connection: Connection | None = None
        self._waiting: _Sent = {}
        self._task: asyncio.Task[None] | None = None

    async def send(self, partition: int, batch: bytes) -> Appended:
        """Raises `SidecarUnavailableError`."""
        outcome: asyncio.Future[Appended] = asyncio.get_running_loop().create_future()
        self._waiting[partition] = batch, outcome
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send_all())
        return await outcome

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _send_all(self) -> None:
        while self._waiting:
            sent = self._portion()
            try:
                answered = await self._exchange({partition: batch for partition, (batch, _) in sent.items()})
            except SidecarError as error:
                _fail(sent, error)
            except asyncio.CancelledError:
                _fail(sent, SidecarError(ErrorCode.NETWORK_EXCEPTION, "the connection was given up"))
                raise
            except Exception as defect:
                _fail(sent, SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(defect)))
                raise
            else:
                for partition, (_, outcome) in sent.items():
                    if not outcome.done():
                        outcome.set_result(answered.get(partition) or Appended(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _portion(self) -> _Sent:
        """Remove and return the batches of the next request, at least one."""
        found: _Sent = {}
        size = 0
        for partition, waiting in self._waiting.items():
            size += len(waiting[0])
            if found and size > _REQUEST_BYTES:
                break
            found[partition] = waiting
        for partition in found:
            del self._waiting[partition]
        return found

    async def _exchange(self, batches: dict[int, bytes]) -> dict[int, Appended]:
        if self._connection is not None and not self._connection.is_open:
            await self._connection.close()
            self._connection = None
        if self._connection is None:
            self._connection = await connect(self._address, self._claim.client_id, _SHORT_S, self._claim.access)
            await self._connection.call(DescribeTopics(()), _SHORT_S)  # a node refuses a long frame as the first one
        request = Produce(self._claim.topic, batches, int(_BROKER_S * 1000))
        return await self._connection.call(request, _REQUEST_S)


def _check_length(size: int, limit: int) -> None:
    if size > limit:
        raise BatchError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {size} bytes: {limit} is the most that can be sent")


def _fail(sent: _Sent, error: SidecarError) -> None:
    for _, outcome in sent.values():
        if not outcome.done():
            outcome.set_exception(again(error))
