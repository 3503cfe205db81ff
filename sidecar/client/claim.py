"""The claim of one producer to its topic: taken by one Own request, watched, kept over reconnects, never taken back.

The connection that claims stays open and counts as the session's. So the topic stays owned while nothing is sent, and
while connections that send records open and close. Once the topic is owned, every further connection (in its client.id)
and every further Own name its generation. If another session took the topic since, the generation is higher and the
node refuses them, even if the topic is free again. So no connection and no repeated batch takes back a lost topic.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from sidecar.client._requests import describe_owners
from sidecar.client.access import PLAIN_TCP, NodeAccess
from sidecar.client.connection import Connection, connect, first
from sidecar.client.errors import (
    ProducerBusyError,
    ProducerFencedError,
    SidecarError,
    SidecarUnavailableError,
    of_kafka,
    of_own,
)
from sidecar.client.names import MODES
from sidecar.protocol.calls.admin import DescribeTopics
from sidecar.protocol.calls.transactions import NO_STAMP, InitProducerId
from sidecar.protocol.errors import ErrorCode, no_topic
from sidecar.protocol.ids import Stamp
from sidecar.protocol.own import AS_KAFKAS, LastSequence, Own, Release, Watch
from sidecar.v1 import control_pb2 as control

ResultT = TypeVar("ResultT")

_AGAIN_S: Final = 0.1
"""The pause between two tries; a node keeps a place in the queue for seconds."""
_SHORT_S: Final = 5.0
"""The timeout of requests that a node answers from memory; it waits about as long for an owner that lost its node."""
_HOPS: Final = 3
_WAIT_S: Final = 5.0
"""How long a node may hold an Own request that waits for the topic."""
_FAREWELL_S: Final = 1.0
_TOKEN_BYTES: Final = 16
_NO_TRANSACTION_MS: Final = 60_000
_WAITS: Final = "wait_for_exclusive"


class Standing(NamedTuple):
    """Who owns the topic. `owned`: the generations that this session owns, by partition; None stands for the whole
    topic. `owner`: a sentence for people.
    """

    owned: dict[int | None, int]
    owner: str


class Claim:
    """A session and what it owns. `wanted`: the partitions to own, in rising order, of a topic whose partitions have
    their own owners; None: all. `timeout` (seconds) limits each request, and how long to try while no node answers.

    Methods raise `SidecarUnavailableError` if no node can answer in that time; the next call connects again.
    """

    def __init__(
        self,
        bootstrap: tuple[tuple[str, int], ...],
        topic: str,
        name: str,
        mode: str,
        timeout: float,
        wanted: tuple[int, ...] | None = None,
        access: NodeAccess = PLAIN_TCP,
    ) -> None:
        self.topic = topic
        self.wanted = wanted
        self.producer: Stamp = NO_STAMP
        self.next_sequences: dict[int, int] = {}
        """The session's next sequence by partition; `Pipeline` updates it."""
        self.count: int = 0
        """The number of partitions of the topic."""
        self.access = access
        self._bootstrap = bootstrap
        self._name = name
        self._mode = mode
        self._timeout = timeout
        self._connection: Connection | None = None
        self._listener: Connection | None = None
        self._token = b""
        self._asking: tuple[tuple[str, int], bytes] | None = None
        self._nodes: dict[int, tuple[str, int]] = {}
        self._owned: dict[int | None, int] = {}
        self._successor: Stamp | None = None
        self._turn = asyncio.Lock()

    @property
    def generation(self) -> int:
        """The generation of the topic, or the highest one if partitions have their own owners; 0 before the claim."""
        return max(self._owned.values(), default=0)

    @property
    def partitions(self) -> Sequence[int]:
        """The owned partitions, in rising order. If partitions have their own owners, none is added later."""
        if None in self._owned:
            return range(self.count)
        return tuple(sorted(index for index in self._owned if index is not None))

    def generation_of(self, partition: int) -> int:
        """The generation under which a record is written to a partition."""
        return self._owned.get(partition, self._owned.get(None, 0))

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        """The addresses of possible nodes, the most likely one first."""
        known = () if self._connection is None else (self._connection.address,)
        return tuple(dict.fromkeys((*known, *self._nodes.values(), *self._bootstrap)))

    @property
    def client_id(self) -> str:
        """The client.id: the name, the mode and, once the topic was owned, the lowest generation of what was owned."""
        settings = f"{self._name};mode={self._mode};"
        return settings + f"generation={min(self._owned.values())};" if self._owned else settings

    # Taking ---------------------------------------------------------------------------------------------------------

    async def take(self) -> None:
        """Own the topic, or the wanted partitions if each partition has its own owner. Waits if the mode is
        `wait_for_exclusive`.

        Raises `ProducerBusyError`, and `SidecarError` if waiting does not help.
        """
        async with self._turn:
            producer = await self._patiently(self._begin)
            owned = await self._own(producer)
            self.producer, self._owned = producer, owned

    async def succeed(self) -> None:
        """Continue as a new session under the next generation, after Kafka lost the old session's sequence.

        Raises `ProducerFencedError` if another session owned the topic meanwhile. It also raises it if the connection
        ends during the request and the next generation is taken: its owner cannot be known.
        """
        async with self._turn:
            if self._successor is None:
                self._successor = await self._patiently(lambda: self._begin(self.producer))
            successor = self._successor
            try:
                owned = await self._ask_for(self._owned, successor)
            except ProducerBusyError as error:
                raise _lost(error.message) from None
            if owned != {index: generation + 1 for index, generation in self._owned.items()}:
                raise _lost(f"{self.topic} had another owner meanwhile")
            self.producer, self._owned, self.next_sequences, self._successor = successor, owned, {}, None

    async def _own(self, producer: Stamp) -> dict[int | None, int]:
        """Claim everything by one request, so that two claimants of the same partitions never wait for each other."""
        if self.wanted is None:
            try:
                return await self._ask_for((None,), producer)
            except SidecarError as error:
                if error.code != ErrorCode.INVALID_REQUEST:  # it is where each partition has its own owner
                    raise
        return await self._ask_for(self.wanted or range(self.count), producer)

    async def _ask_for(self, parts: Iterable[int | None], producer: Stamp) -> dict[int | None, int]:
        wanted, token = dict.fromkeys(parts), os.urandom(_TOKEN_BYTES)
        waits = self._mode == _WAITS
        return await self._patiently(lambda: self._claim(wanted, producer, token), waits=waits)

    async def last_ids(self) -> dict[int, int] | None:
        """The highest sequence ids in the log by partition; None for a topic without deduplication."""
        async with self._turn:
            return await self._patiently(self._ask_ids)

    # Watching -------------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Check that the topic is still owned; never waits for it. On a new connection it claims first, because a node
        waits only a short time for an owner that lost its node. Raises `ProducerFencedError` if the topic is lost.
        """
        async with self._turn:
            try:
                if self._connection is None or not self._connection.is_open:
                    await self._claim(self._owned, self._successor or self.producer, os.urandom(_TOKEN_BYTES))
                standing = await self._look(self.producer)
            except ProducerBusyError as error:
                raise _lost(error.message) from None
            if standing.owned != self._owned and self._successor is None:
                raise _lost(standing.owner)

    async def news(self, seconds: float) -> None:
        """Return when a node reports a change of the claim, after `seconds` at the latest; `check` finds out which."""
        now = asyncio.get_running_loop().time
        until, owner = now() + seconds, self._connection
        with contextlib.suppress(SidecarUnavailableError):
            if owner is not None and owner.is_open:
                if self._listener is None or not self._listener.is_open or self._listener.address != owner.address:
                    await self._stop_listening()
                    self._listener = await connect(owner.address, self.client_id, seconds, self.access)
                answer = await self._listener.call(
                    Watch(control.WatchRequest(token=self._token, wait_ms=int(seconds * 1000))), seconds + _SHORT_S
                )
                if answer.changed:
                    return
        await asyncio.sleep(until - now())

    async def refresh(self) -> None:
        """Update the number of partitions."""
        async with self._turn:
            await self._leader(await self._connected())

    async def close(self) -> None:
        """Close the connections, which ends the claim."""
        connection, self._connection = self._connection, None
        try:
            await self._stop_listening()
        finally:
            if connection is not None:
                await connection.close()

    async def end(self) -> None:
        """Close, and also give up a place in the queue, which a node keeps for a session that may reconnect."""
        await self.close()
        if self._asking is not None:
            address, token = self._asking
            with contextlib.suppress(SidecarUnavailableError):
                connection = await connect(address, self.client_id, _FAREWELL_S, self.access)
                try:
                    await connection.call(Release(control.ReleaseRequest(token=token)), _FAREWELL_S)
                finally:
                    await connection.close()

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()

    # Steps ----------------------------------------------------------------------------------------------------------

    async def _patiently(self, step: Callable[[], Awaitable[ResultT]], *, waits: bool = False) -> ResultT:
        """Repeat `step` for `timeout` while no node can do it; with `waits` for ever, while a node queues the claim."""
        now = asyncio.get_running_loop().time
        until = now() + self._timeout
        while True:
            try:
                return await step()
            except SidecarUnavailableError as error:
                if waits and error.code == ErrorCode.REQUEST_TIMED_OUT:
                    until = now() + self._timeout
                elif now() > until:
                    raise
            await asyncio.sleep(_AGAIN_S)

    async def _begin(self, after: Stamp = NO_STAMP) -> Stamp:
        connection = await self._connected()
        answer = await connection.call(InitProducerId(None, _NO_TRANSACTION_MS, after), self._timeout)
        if answer.error:
            raise of_kafka(answer.error, f"a producer id to write to {self.topic} with was refused")
        return answer.stamp

    async def _claim(
        self, wanted: Mapping[int | None, int | None], producer: Stamp, token: bytes
    ) -> dict[int | None, int]:
        """Send one Own for all of `wanted`, with the generations that are known. Returns the granted generations."""
        connection = await self._connected()
        asked = control.OwnRequest(
            mode=MODES[self._mode],
            producer_name=self._name,
            producer_id=producer.producer_id,
            token=token,
            wait_ms=int(min(_WAIT_S, self._timeout / 2) * 1000),
        )
        for index, generation in wanted.items():
            asked.claims.add(resource=control.Resource(topic=self.topic, partition=index), generation=generation)
        self._asking = connection.address, token
        answer = await connection.call(Own(asked), self._timeout)
        self._asking, self._token = None, token
        if answer.error == control.NONE:
            return {index: each.generation for index, each in zip(wanted, answer.ownerships, strict=True)}
        if answer.error == control.NOT_SERVING:
            await self.close()
        messages = [answer.message, *(each.message for each in answer.ownerships)]
        message = next(filter(None, messages), "")
        if answer.error not in AS_KAFKAS:
            raise SidecarError(ErrorCode.UNKNOWN_SERVER_ERROR, message)
        raise of_kafka(AS_KAFKAS[answer.error], message)

    async def _look(self, producer: Stamp) -> Standing:
        connection = await self._connected()
        answer = await connection.call(describe_owners(self.topic), _SHORT_S)
        if answer.error != control.NONE or not answer.ownerships:
            raise of_own(answer.error or control.UNAVAILABLE, answer.message)
        whole, *parts = answer.ownerships
        if whole.error != control.NONE:
            raise of_own(whole.error, whole.message)
        if self._nodes.get(whole.serving_node, connection.address) != connection.address:
            await self.close()
            raise of_own(control.NOT_SERVING, f"another node serves {self.topic} now")
        session = f"pid:{producer.producer_id}"
        owned = dict[int | None, int]()
        if whole.owner_session == session:
            owned[None] = whole.generation
        else:
            owned.update({each.resource.partition: each.generation for each in parts if each.owner_session == session})
        owner = f"{whole.owner_name or whole.owner_session} owns" if whole.owner_session else "nobody owns"
        text = f"{owner} {self.topic} now (generation {whole.generation})"
        return Standing(owned, text)

    async def _ask_ids(self) -> dict[int, int] | None:
        connection = await self._connected()
        answer = await connection.call(
            LastSequence(control.LastSequenceRequest(topic=self.topic, producer_name=self._name)), self._timeout
        )
        if answer.error == control.UNKNOWN_RESOURCE:
            return None
        if answer.error != control.NONE:
            if answer.error == control.NOT_SERVING:
                await self.close()
            raise of_own(answer.error, answer.message)
        return dict(answer.last_sequence_ids)

    # Connections ----------------------------------------------------------------------------------------------------

    async def _connected(self) -> Connection:
        """A connection to the node that leads the topic."""
        if self._connection is not None and self._connection.is_open:
            return self._connection
        candidates = self.addresses
        await self.close()
        self._connection = await first(candidates, self._open)
        return self._connection

    async def _open(self, address: tuple[str, int]) -> Connection:
        for _ in range(_HOPS):
            connection = await connect(address, self.client_id, min(_SHORT_S, self._timeout), self.access)
            try:
                leader = await self._leader(connection)
                if leader == connection.address:
                    await connection.call(describe_owners(self.topic), _SHORT_S)  # a Kafka broker closes the connection
                    return connection
            except BaseException:
                await connection.close()
                raise
            await connection.close()
            address = leader
        raise of_kafka(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the leader of {self.topic} cannot be found")

    async def _leader(self, connection: Connection) -> tuple[str, int]:
        layout = await connection.call(DescribeTopics((self.topic,)), _SHORT_S)
        found = layout.topic(self.topic)
        if found.error and not found.leaders:
            messages: dict[int, str] = {
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: no_topic(self.topic),
                ErrorCode.INVALID_TOPIC_EXCEPTION: f"{self.topic!r} is no name for a topic",
            }
            raise of_kafka(found.error, messages.get(found.error, f"{self.topic} is not described"))
        self.count, self._nodes = len(found.leaders), layout.brokers
        leader = layout.brokers.get(found.leaders.get(0, -1))
        if leader is None:
            raise of_kafka(ErrorCode.LEADER_NOT_AVAILABLE, f"{self.topic} has no leader now")
        return leader


def _lost(message: str) -> ProducerFencedError:
    return ProducerFencedError(ErrorCode.PRODUCER_FENCED, message)


def again(error: SidecarError, in_doubt: bool | None = None) -> SidecarError:
    """Return a copy of an error, for another caller to raise; `in_doubt` replaces that of the error unless None."""
    doubt = error.in_doubt if in_doubt is None else in_doubt
    return type(error)(error.code, error.message, retryable=error.retryable, in_doubt=doubt)
