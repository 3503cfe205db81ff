"""The node's own calls to Kafka, and the addresses and reconnect backoff that clients' connections share.

Implements `sidecar.protocol.caller.Upstream`: one connection per broker and lane, opened when first needed. Nothing
is retried.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from sidecar.cluster.hedging import PATIENCE_S, Hedged
from sidecar.cluster.resolver import is_legal
from sidecar.cluster.view import ClusterView
from sidecar.network.framing import Frame
from sidecar.network.slices import in_slices
from sidecar.network.upstream import ReconnectBackoff, UpstreamConnection, UpstreamLostError
from sidecar.protocol.api import api_name
from sidecar.protocol.caller import (
    SHARED_LANE,
    AnswerT,
    BadAnswerError,
    CallTimeoutError,
    CoordinatorKind,
    DisconnectedError,
    Lane,
    Request,
    SecondT,
    TopicLayout,
    UnknownTopicError,
    UpstreamError,
    encode_frame,
    frame_steps,
)
from sidecar.protocol.calls import ApiVersions, FindCoordinator, ServedVersions
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import ClusterState, MetadataCall, MetadataRequest

CLIENT_ID: Final = "sidecar"
_VERSIONS_TIMEOUT_S: Final = 5.0
_SILENT_S: Final = 5.0
_BOOTSTRAP: Final = -1000
"""Connection keys of bootstrap addresses count down from here; broker ids are never negative."""


class _Waiter:
    """A `Reply` that hands the whole answer to a future."""

    __slots__ = ("asked_at", "correlation_id", "future")

    def __init__(self, correlation_id: int, future: asyncio.Future[Frame]) -> None:
        self.correlation_id = correlation_id
        self.future = future
        self.asked_at = future.get_loop().time()

    def answer_received(self, frame: Frame) -> None:
        if not self.future.done():
            self.future.set_result(frame.own())

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self.future.done():
            self.future.set_exception(DisconnectedError(str(error), sent=error.sent))


class KafkaUpstream:
    """The cluster behind this node. `view` is kept current by every Metadata answer that passes here."""

    def __init__(
        self,
        bootstrap: list[tuple[str, int]],
        *,
        connect_timeout: float,
        request_timeout: float,
        rng: random.Random | None = None,
    ) -> None:
        self.view = ClusterView()
        self.connect_timeout = connect_timeout
        self.request_timeout = request_timeout
        self.on_connection_error: Callable[[int, str], None] = lambda broker, reason: None
        self._bootstrap = bootstrap
        self._seeds = [_BOOTSTRAP - index for index in range(len(bootstrap))]
        self._hedged = Hedged()
        self._random = rng or random.Random()
        self._connections: dict[tuple[int, Lane], UpstreamConnection] = {}
        self._backoff: dict[int, ReconnectBackoff] = {}
        self._silent: dict[int, float] = {}
        self._correlation = 0
        self._coordinators: dict[tuple[str, CoordinatorKind], int] = {}
        self._asking: dict[MetadataRequest, asyncio.Task[ClusterState]] = {}
        self._describing: dict[str, asyncio.Task[TopicLayout]] = {}
        self._refresh: set[bytes] = set()
        self._refreshing: asyncio.Task[None] | None = None
        self._next_round: asyncio.Future[bool] | None = None
        self._last_refresh = -1e9

    # Addresses and backoff ----------------------------------------------------------------------------------------

    def address(self, broker_id: int) -> tuple[str, int]:
        """Host and port of a broker. Raises `DisconnectedError` for one that is not known."""
        if broker_id <= _BOOTSTRAP:
            return self._bootstrap[_BOOTSTRAP - broker_id]
        broker = self.view.brokers.get(broker_id)
        if broker is None:
            raise DisconnectedError(f"broker {broker_id} is not known", sent=False)
        return broker.host, broker.port

    def may_connect(self, broker_id: int) -> bool:
        """False while a broker that failed is left alone (exponential backoff with jitter, at most 2 s)."""
        backoff = self._backoff.get(broker_id)
        return backoff is None or asyncio.get_running_loop().time() >= backoff.not_before

    def connect_failed(self, broker_id: int, reason: str) -> None:
        """Told by whoever tried: the next try waits longer."""
        backoff = self._backoff.setdefault(broker_id, ReconnectBackoff(self._random))
        now = asyncio.get_running_loop().time()
        if now >= backoff.not_before:
            backoff.failed(now)
        self.on_connection_error(broker_id, reason)

    def forget_connection(self, key: tuple[int, Lane], connection: UpstreamConnection) -> None:
        """One of the node's own connections has ended."""
        if self._connections.get(key) is connection:
            del self._connections[key]

    def connect_succeeded(self, broker_id: int) -> None:
        self._backoff.pop(broker_id, None)

    def live_broker(self, asked: Collection[int] = ()) -> int:
        """A broker that is likely to answer soon, and not one that was `asked` already where there is another.

        In this order: one to which this node has a connection without an overdue answer, one that may be tried, a
        bootstrap address that may be tried, any.
        """
        brokers = [broker for broker in self.view.brokers if broker not in asked]
        self._random.shuffle(brokers)
        seeds = [seed for seed in self._seeds if seed not in asked]
        self._random.shuffle(seeds)
        prompt = [broker for broker in brokers if not self._is_overdue(broker)]
        choices = (
            (broker for broker in prompt if self._is_connected(broker)),
            (broker for broker in (*prompt, *seeds) if self.may_connect(broker)),
            (*brokers, *seeds, *self._seeds),
        )
        return next(broker for choice in choices for broker in choice)

    def _is_connected(self, broker_id: int) -> bool:
        found = self._connections.get((broker_id, SHARED_LANE))
        return found is not None and found.connected

    def _is_overdue(self, broker_id: int) -> bool:
        """Whether an answer has been missing for so long that others should be asked instead."""
        if self._silent.get(broker_id, 0.0) > asyncio.get_running_loop().time():
            return True
        found = self._connections.get((broker_id, SHARED_LANE))
        reply = found.oldest_unanswered if found is not None else None
        return isinstance(reply, _Waiter) and asyncio.get_running_loop().time() - reply.asked_at > PATIENCE_S

    def fell_silent(self, broker_id: int) -> None:
        """Told by whoever waited in vain for what any broker answers: for a while others are asked."""
        self._silent[broker_id] = asyncio.get_running_loop().time() + _SILENT_S

    async def ask_any(self, request: Request[AnswerT]) -> AnswerT:
        """Ask whichever brokers answer; for questions that all of them answer alike and that change nothing."""
        limit = 1 + len(self.view.brokers) + len(self._seeds)

        def choose(asked: Collection[int]) -> int | None:
            return self.live_broker(asked) if len(asked) < limit else None

        return await self._hedged.first_answer(lambda broker: self.call(broker, request), choose)

    def controller(self) -> int:
        """The broker that takes changes: upstream's controller, else any."""
        controller = self.view.controller
        usable = controller in self.view.brokers and self.may_connect(controller) and not self._is_overdue(controller)
        return controller if usable else self.live_broker()

    # Calls --------------------------------------------------------------------------------------------------------

    def _connection(self, broker_id: int, lane: Lane) -> UpstreamConnection:
        key = broker_id, lane
        found = self._connections.get(key)
        address = self.address(broker_id)
        if found is not None and not found.closed and found.address == address:
            return found
        if not self.may_connect(broker_id):
            raise DisconnectedError(f"{_name(broker_id)} failed a moment ago", sent=False)
        if found is not None:
            found.close("the broker moved")
        connection = UpstreamConnection(_LaneOwner(self, key), address, self.connect_timeout)
        self._connections[key] = connection
        connection.open()
        return connection

    def _send(self, connection: UpstreamConnection, request: Request[Any]) -> tuple[int, asyncio.Future[Frame]]:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        waiter = _Waiter(self._correlation, future)
        connection.send_parts([encode_frame(request, self._correlation, CLIENT_ID)], waiter)
        return self._correlation, future

    async def _answer(
        self,
        connection: UpstreamConnection,
        request: Request[AnswerT],
        correlation: int,
        future: asyncio.Future[Frame],
        timeout: float | None,
    ) -> AnswerT:
        limit = self.request_timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                frame = await future
        except TimeoutError:
            connection.close(f"no answer within {limit:g} s")
            host, port = connection.address
            raise CallTimeoutError(
                f"{host}:{port} did not answer {api_name(request.api_key)} within {limit:g} s"
            ) from None
        try:
            return await in_slices(frame_steps(request, correlation, frame.buffer, frame.start + 4, frame.end))
        except BadAnswerError:
            connection.close("an answer that makes no sense")
            raise

    async def call(
        self,
        broker_id: int | None,
        request: Request[AnswerT],
        *,
        timeout: float | None = None,
        lane: Lane = SHARED_LANE,
    ) -> AnswerT:
        """See `Upstream.call`."""
        connection = self._connection(self.live_broker() if broker_id is None else broker_id, lane)
        correlation, future = self._send(connection, request)
        return await self._answer(connection, request, correlation, future, timeout)

    async def call_pair(
        self,
        broker_id: int,
        first: Request[AnswerT],
        second: Request[SecondT],
        *,
        timeout: float | None = None,
        lane: Lane = SHARED_LANE,
    ) -> tuple[AnswerT, SecondT]:
        """See `Upstream.call_pair`: both leave in one write, as an outbox is flushed once per loop turn."""
        connection = self._connection(broker_id, lane)
        sent_first = self._send(connection, first)
        sent_second = self._send(connection, second)
        try:
            answer = await self._answer(connection, first, *sent_first, timeout)
        except BaseException:
            sent_second[1].cancel()
            raise
        return answer, await self._answer(connection, second, *sent_second, timeout)

    async def coordinator(self, key: str, kind: CoordinatorKind) -> int:
        """See `Upstream.coordinator`."""
        found = self._coordinators.get((key, kind))
        if found is not None and found in self.view.brokers:
            return found
        answer = await self.ask_any(FindCoordinator(key, kind))
        if answer.error:
            raise KafkaError(answer.error, answer.message or f"no coordinator for {key}")
        if answer.broker_id not in self.view.brokers:
            await self.metadata(MetadataRequest(()))
        if len(self._coordinators) > 100_000:
            self._coordinators.clear()
        self._coordinators[key, kind] = answer.broker_id
        return answer.broker_id

    def cached_coordinator(self, key: str, kind: CoordinatorKind) -> int | None:
        """The coordinator if it is known, without asking."""
        found = self._coordinators.get((key, kind))
        return found if found in self.view.brokers else None

    def forget_coordinator(self, key: str, kind: CoordinatorKind) -> None:
        """See `Upstream.forget_coordinator`."""
        self._coordinators.pop((key, kind), None)

    async def metadata(self, request: MetadataRequest) -> ClusterState:
        """Ask a broker; questions that are the same and under way together are asked once."""
        task = self._asking.get(request)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask_metadata(request))
            self._asking[request] = task
            task.add_done_callback(lambda done: self._asked(request, done))
        return await asyncio.shield(task)

    def _asked(self, request: MetadataRequest, task: asyncio.Task[ClusterState]) -> None:
        self._asking.pop(request, None)
        if not task.cancelled():
            task.exception()  # everybody who asked may have gone meanwhile

    async def _ask_metadata(self, request: MetadataRequest) -> ClusterState:
        state = await self.ask_any(MetadataCall(request))
        await in_slices(self.view.apply_steps(state))
        return state

    async def find_leaders(self, topics: Iterable[bytes]) -> bool:
        """Ask for topics that the view does not know. False where Kafka could not be asked; never raises.

        Names that no topic can have are not asked for: Kafka knows none of them.
        """
        names = tuple(sorted(topic.decode() for topic in topics if is_legal(topic)))
        if not names:
            return True
        try:
            await self.metadata(MetadataRequest(names, allow_auto_topic_creation=False))
        except (UpstreamError, KafkaError):
            return False
        return True

    async def layout(self, topic: str, *, refresh: bool = False) -> TopicLayout:
        """See `Upstream.layout`."""
        route = None if refresh else self.view.route(topic.encode())
        if route is None:
            state = await self.metadata(MetadataRequest((topic,), allow_auto_topic_creation=False))
            for found in state.topics:
                if found.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise UnknownTopicError(topic)
                if found.error and not found.partitions:
                    raise KafkaError(found.error, f"topic {topic}")
            route = self.view.route(topic.encode())
            if route is None:
                raise UnknownTopicError(topic)
        return TopicLayout(route.topic_id, route.leaders)

    async def whole_layout(self, topic: str) -> TopicLayout:
        """See `Upstream.whole_layout`. Who asks for the same topic meanwhile gets the same answer."""
        task = self._describing.get(topic)
        if task is None:
            task = self._describing[topic] = asyncio.get_running_loop().create_task(self._ask_all(topic))
            task.add_done_callback(lambda done: self._described(topic, done))
        return await asyncio.shield(task)

    def _described(self, topic: str, task: asyncio.Task[TopicLayout]) -> None:
        self._describing.pop(topic, None)
        if not task.cancelled():
            task.exception()  # everybody who asked may have gone meanwhile

    async def _ask_all(self, topic: str) -> TopicLayout:
        request = MetadataCall(MetadataRequest((topic,), allow_auto_topic_creation=False))
        live = await self.brokers()
        prompt = [broker for broker in live if self.may_connect(broker) and not self._is_overdue(broker)]
        states = await self._hedged.answers(lambda broker: self.call(broker, request), prompt or live)
        knowing = [state for state in states if any(found.partitions for found in state.topics)]
        for state in states:  # the view keeps every partition, and the newest leader of each
            if state not in knowing:
                self.view.apply(state)
        for state in knowing:
            self.view.apply(state)
        if len({found.topic_id for state in knowing for found in state.topics}) > 1:
            message = f"brokers do not agree on which topic {topic} is: it was created anew a moment ago"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        route = self.view.route(topic.encode()) if knowing else None
        if route is None:
            code = next((found.error for state in states for found in state.topics if found.error), 0)
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                raise UnknownTopicError(topic)
            raise KafkaError(code, f"topic {topic}")
        return TopicLayout(route.topic_id, route.leaders)

    async def absent(self, topics: Collection[str]) -> Collection[str]:
        """See `Upstream.absent`."""
        request = MetadataCall(MetadataRequest(tuple(topics), allow_auto_topic_creation=False))
        live = {broker.id for broker in (await self.metadata(MetadataRequest(()))).brokers}
        states = await asyncio.gather(*[self.call(broker, request) for broker in live], return_exceptions=True)
        found = set(topics) if live else set[str]()
        for state in states:
            if isinstance(state, BaseException) or any(broker.id not in live for broker in state.brokers):
                return ()
            said = {topic.name: topic.error for topic in state.topics}
            found = {topic for topic in found if said.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        return found

    async def brokers(self) -> Collection[int]:
        """See `Upstream.brokers`."""
        if not self.view.brokers:
            await self.metadata(MetadataRequest(()))
        return list(self.view.brokers)

    async def api_versions(self) -> dict[int, ServedVersions]:
        """What every live broker serves: the intersection of their ranges. One that does not answer does not live."""
        limit = min(self.request_timeout, _VERSIONS_TIMEOUT_S)
        calls = (self.call(broker, ApiVersions(), timeout=limit) for broker in await self.brokers())
        answers = await asyncio.gather(*calls, return_exceptions=True)
        served: dict[int, ServedVersions] | None = None
        for answer in answers:
            if isinstance(answer, dict):
                served = answer if served is None else _intersection(served, answer)
            elif not isinstance(answer, UpstreamError):
                raise answer
        if served is None:
            raise DisconnectedError("no broker says what it serves", sent=False)
        return served

    # Refresh ------------------------------------------------------------------------------------------------------

    def refresh_soon(self, topics: Iterable[bytes]) -> None:
        """Ask for these topics' leaders again, at most about ten times a second whoever asks."""
        self._refresh.update(topic for topic in topics if is_legal(topic))
        if self._refresh and self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_now())

    async def learn(self, topic: bytes) -> bool:
        """See `Upstream.learn`: with the next refresh, whose one question names every topic that is wanted by then."""
        if not is_legal(topic):
            return True
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().create_future()
        asked = self._next_round
        self.refresh_soon((topic,))
        return await asyncio.shield(asked)

    async def _refresh_now(self) -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bool] | None = None
        try:
            while self._refresh:
                await asyncio.sleep(max(0.0, self._last_refresh + 0.1 - loop.time()))
                names, self._refresh = self._refresh, set()
                asked, self._next_round = self._next_round, None
                self._last_refresh = loop.time()
                found = await self.find_leaders(names)  # if it fails, waiting requests are refused and clients retry
                if asked is not None:
                    asked.set_result(found)
                    asked = None
        finally:
            self._refreshing = None
            for unanswered in (asked, self._next_round):
                if unanswered is not None and not unanswered.done():
                    unanswered.set_result(False)
            self._next_round = None

    def has_partition(self, topic: bytes, partition: int) -> bool | None:
        """See `Upstream.has_partition`."""
        route = self.view.route(topic)
        return None if route is None else partition in route.leaders

    async def close(self) -> None:
        """Close every connection; calls under way fail with `DisconnectedError`."""
        tasks: list[asyncio.Task[Any]] = [*self._asking.values(), *self._describing.values()]
        if self._refreshing is not None:
            tasks.append(self._refreshing)
        for task in tasks:
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        await asyncio.gather(*tasks, self._hedged.cancel(), return_exceptions=True)


class _LaneOwner:
    """Tells the upstream about one of its own connections."""

    __slots__ = ("_key", "_upstream")

    def __init__(self, upstream: KafkaUpstream, key: tuple[int, Lane]) -> None:
        self._upstream = upstream
        self._key = key

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self._upstream.connect_succeeded(self._key[0])

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        """The node's own calls are few and small: nothing to hold back."""

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        upstream = self._upstream
        if connection.failure is not None:
            upstream.connect_failed(self._key[0], connection.failure)
        upstream.forget_connection(self._key, connection)


def _intersection(left: dict[int, ServedVersions], right: dict[int, ServedVersions]) -> dict[int, ServedVersions]:
    both: dict[int, ServedVersions] = {}
    for key in left.keys() & right.keys():
        low, high = max(left[key].lowest, right[key].lowest), min(left[key].highest, right[key].highest)
        if low <= high:
            both[key] = ServedVersions(low, high)
    return both


def _name(broker_id: int) -> str:
    return f"broker {broker_id}" if broker_id >= 0 else "every bootstrap server"
