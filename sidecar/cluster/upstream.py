"""The node's own requests to Kafka. Implements `sidecar.protocol.caller.Upstream`: the calls of `Brokers`, and
questions about the cluster, which concurrent callers share. Leaders are looked up again at most ten times a second;
each request names all topics that are wanted by then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import UUID

from sidecar.cluster.brokers import Brokers
from sidecar.cluster.hedging import Shared
from sidecar.cluster.resolver import is_legal
from sidecar.network.slices import in_slices
from sidecar.protocol.api import ApiKey
from sidecar.protocol.caller import (
    SHARED_CHANNEL,
    AnswerT,
    Channel,
    CoordinatorKind,
    DisconnectedError,
    Request,
    TopicLayout,
    UnknownTopicError,
    UpstreamError,
)
from sidecar.protocol.calls.admin import FEATURES, ApiVersions, FindCoordinator, ServedVersions
from sidecar.protocol.calls.topic_ids import HasLogs, HasTopics
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.metadata import ClusterState, MetadataByIdCall, MetadataCall, MetadataRequest, TopicState
from sidecar.protocol.primitives import at_once

_EVERY_S: Final = 0.1
_AGAIN_S: Final = 1.0
"""How long a broker that has shown a topic may take to say whether it is still there, in seconds."""


class Refresh:
    """Topics whose leaders must be looked up again. `find` asks Kafka; it returns False if Kafka did not answer."""

    def __init__(self, find: Callable[[Iterable[bytes]], Awaitable[bool]]) -> None:
        self._find = find
        self._topics: set[bytes] = set()
        self.running: asyncio.Task[None] | None = None
        """The task that asks until no topic is left; if it is cancelled, waiting callers get False."""
        self._next_round: asyncio.Future[bool] | None = None
        self._last = -1e9

    def soon(self, topics: Iterable[bytes]) -> None:
        """Look up these topics' leaders again, with the next request."""
        self._topics.update(topic for topic in topics if is_legal(topic))
        if self._topics and self.running is None:
            self.running = asyncio.get_running_loop().create_task(self._run())

    async def learn(self, topic: bytes) -> bool:
        """Look up one topic's leaders with the next request, and return whether Kafka answered."""
        if not is_legal(topic):
            return True
        if self._next_round is None:
            self._next_round = asyncio.get_running_loop().create_future()
        asked = self._next_round
        self.soon((topic,))
        return await asyncio.shield(asked)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        asked: asyncio.Future[bool] | None = None
        try:
            while self._topics:
                await asyncio.sleep(max(0.0, self._last + _EVERY_S - loop.time()))
                names, self._topics = self._topics, set()
                asked, self._next_round = self._next_round, None
                self._last = loop.time()
                found = await self._find(names)  # if it fails, waiting requests are refused and clients retry
                if asked is not None:
                    asked.set_result(found)
                    asked = None
        finally:
            self.running = None
            for unanswered in (asked, self._next_round):
                if unanswered is not None and not unanswered.done():
                    unanswered.set_result(False)
            self._next_round = None


_VERSIONS_TIMEOUT_S: Final = 5.0
_VERSIONS_EVERY_S: Final = 1.0
_COORDINATORS: Final = 100_000
_COORDINATORS_CHARS: Final = 16 * 1024 * 1024
"""The limits of remembered keys: their number, and their total length, as clients choose the names of groups."""


class KafkaUpstream(Brokers):
    """The Kafka cluster behind this node. Every answer to Metadata that passes here updates `view`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._coordinators: dict[tuple[str, CoordinatorKind], int] = {}
        self._coordinators_chars = 0
        self._asking = Shared[ClusterState](UpstreamError, KafkaError)
        self._describing = Shared[TopicLayout](UpstreamError, KafkaError)
        self._refresh = Refresh(self.find_leaders)
        self._versions: asyncio.Task[None] | None = None
        self._served: dict[int, ServedVersions] = {}

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
        self._remember(key, kind, answer.broker_id)
        return answer.broker_id

    def _remember(self, key: str, kind: CoordinatorKind, broker_id: int) -> None:
        known = self._coordinators
        if (key, kind) not in known:
            self._coordinators_chars += len(key)
            if len(known) >= _COORDINATORS or self._coordinators_chars > _COORDINATORS_CHARS:
                known.clear()
                self._coordinators_chars = len(key)
        known[key, kind] = broker_id

    def forget_coordinator(self, key: str, kind: CoordinatorKind) -> None:
        """See `Upstream.forget_coordinator`."""
        if self._coordinators.pop((key, kind), None) is not None:
            self._coordinators_chars -= len(key)

    async def metadata(self, request: MetadataRequest) -> ClusterState:
        """Ask a broker for metadata; concurrent calls with an equal request share one."""
        return await self._asking.answer(request, lambda: self._ask_metadata(request))

    async def _ask_metadata(self, request: MetadataRequest) -> ClusterState:
        """Ask any broker. If it does not show a topic that another one has shown, that one is asked, too: the first may
        lag behind a creation. Only the other's own answer shows that the topic was deleted since.
        """
        broker, state = await self.ask_some(MetadataByIdCall(request) if request.ids else MetadataCall(request))
        is_all = request.topics is None and not request.ids
        known: dict[bytes, TopicState] = {}
        if doubted := await in_slices(self.view.doubted(state, broker, is_all=is_all)):
            known = await self._ask_again(doubted, request)
        if request.ids:  # the other broker was asked by name: the name may belong to a newer topic
            known = {name: topic for name, topic in known.items() if topic.topic_id.bytes in request.ids}
        if not known:
            return await in_slices(self.view.apply_steps(state, broker, is_all=is_all))
        names = {topic.topic_id: topic.name for topic in known.values()}
        theirs = [
            topic for topic in state.topics if (topic.name or names.get(topic.topic_id, "")).encode() not in known
        ]
        shown = await in_slices(self.view.apply_steps(replace(state, topics=tuple(theirs)), broker, is_all=is_all))
        return replace(shown, topics=(*shown.topics, *known.values()))

    async def _ask_again(self, topics: Iterable[bytes], request: MetadataRequest) -> dict[bytes, TopicState]:
        """Ask brokers that have shown these topics. Returns those that they still have; the others leave the view, as
        do those of brokers that do not answer in time.
        """
        by_broker: dict[int, list[str]] = {}
        for topic in topics:
            route = self.view.route(topic)
            brokers = sorted(route.shown_by & self.view.brokers.keys()) if route is not None else ()
            for broker in [each for each in brokers if self.may_connect(each) and not self._is_overdue(each)][:1]:
                by_broker.setdefault(broker, []).append(topic.decode())

        async def ask(broker: int, names: list[str]) -> ClusterState | None:
            with_operations = request.include_topic_operations
            call = MetadataCall(MetadataRequest(tuple(names), False, include_topic_operations=with_operations))
            with suppress(UpstreamError, KafkaError, TimeoutError):
                async with asyncio.timeout(_AGAIN_S):
                    return await in_slices(self.view.apply_steps(await self.call(broker, call), broker))
            return None

        answers = await asyncio.gather(*[ask(broker, names) for broker, names in by_broker.items()])
        shown = [topic for answer in answers if answer is not None for topic in answer.topics]
        return {topic.name.encode(): topic for topic in shown if topic.partitions}

    async def find_leaders(self, topics: Iterable[bytes]) -> bool:
        """Look up the leaders of these topics. Returns False if Kafka did not answer; never raises.

        Illegal topic names are left out: Kafka has no such topic.
        """
        names = tuple(sorted(topic.decode() for topic in topics if is_legal(topic)))
        if not names:
            return True
        try:
            await self.metadata(MetadataRequest(names, allow_auto_topic_creation=False))
        except (UpstreamError, KafkaError):
            return False
        return True

    async def find_ids(self, ids: Iterable[bytes]) -> bool:
        """Look up which topics have these ids. Returns False if Kafka did not answer; never raises."""
        try:
            await self.metadata(MetadataRequest((), allow_auto_topic_creation=False, ids=tuple(sorted(ids))))
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
        """See `Upstream.whole_layout`. Concurrent calls for the same topic share one answer."""
        return await self._describing.answer(topic, lambda: self._ask_all(topic))

    async def _ask_all(self, topic: str) -> TopicLayout:
        request = MetadataCall(MetadataRequest((topic,), allow_auto_topic_creation=False))
        live = await self.brokers()
        prompt = [broker for broker in live if self.may_connect(broker) and not self._is_overdue(broker)]

        async def ask(broker: int) -> tuple[int, ClusterState]:
            return broker, await self.call(broker, request)

        answers = await self._hedged.answers(ask, prompt or live)
        states = [state for _, state in answers]
        knowing = [state for state in states if any(found.partitions for found in state.topics)]
        told = [(broker, state) for broker, state in answers if state in knowing]
        undoubted = [each for each in told if not at_once(self.view.doubted(each[1], each[0], is_all=False))]
        for broker, state in undoubted or told or answers:  # the view keeps every partition, with its newest leader
            self.view.apply(state, broker)
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
            if isinstance(state, UpstreamError | KafkaError):
                return ()
            if isinstance(state, BaseException):
                raise state
            if any(broker.id not in live for broker in state.brokers):
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
        """Return the API versions that every live broker serves. A broker that does not answer is not live."""
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
        self._served = served
        return served

    def serves(self, key: int, version: int) -> bool:
        """Return whether all brokers serve a version of an API, by the last `api_versions`."""
        found = self._served.get(key)
        return found is not None and found.lowest <= version <= found.highest

    def topic_check(self, topics: Mapping[bytes, tuple[bytes, int]]) -> Request[bool]:
        """Return the question whether a broker has these topics under these ids: each with its id, and a partition that
        the broker leads. To be sent behind a request that names them by name (`sidecar.protocol.calls.topic_ids`).
        """
        if self.serves(HasLogs.api_key, HasLogs.api_version):
            return HasLogs(dict(topics.values()))
        return HasTopics({name.decode(): UUID(bytes=topic_id) for name, (topic_id, _) in topics.items()})

    async def call_on(
        self, broker_id: int, request: Request[AnswerT], topic: str, topic_id: UUID, partition: int, *,
        channel: Channel = SHARED_CHANNEL,
    ) -> AnswerT:  # fmt: skip
        """See `Upstream.call_on`."""
        check = self.topic_check({topic.encode(): (topic_id.bytes, partition)})
        answer, is_same = await self.call_pair(broker_id, request, check, channel=channel)
        if not is_same:
            self.refresh_soon((topic.encode(),))
            message = f"broker {broker_id} has no partition {partition} of the topic {topic} with the id {topic_id}"
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, message)
        return answer

    def ask_versions_soon(self) -> None:
        """Ask again which API versions brokers serve, at most once a second. To be called when a broker closed a
        connection, as brokers do for a version that they cannot read. That broker may have been down when the versions
        were asked for, or have been replaced by an older one.
        """
        if self._versions is None:
            self._versions = asyncio.get_running_loop().create_task(self._ask_versions())
            self._versions.add_done_callback(lambda _: setattr(self, "_versions", None))

    async def _ask_versions(self) -> None:
        with suppress(UpstreamError):  # asked again when a broker closes the next connection
            await self.api_versions()
        await asyncio.sleep(_VERSIONS_EVERY_S)

    async def features(self, version: int) -> bytes | None:
        """Return the tagged fields of an answer to ApiVersions, in this version, that name the features of the cluster.
        Returns None if brokers do not serve the version, or Kafka does not answer; never raises.
        """
        if not self.serves(ApiKey.API_VERSIONS, version):
            return None
        try:
            return await self.ask_any(FEATURES[version])
        except (UpstreamError, KafkaError):
            return None

    def refresh_soon(self, topics: Iterable[bytes]) -> None:
        """Look up these topics' leaders again; at most ten requests a second for all callers together."""
        self._refresh.soon(topics)

    async def learn(self, topic: bytes) -> bool:
        """See `Upstream.learn`: with the next refresh."""
        return await self._refresh.learn(topic)

    def has_partition(self, topic: bytes, partition: int) -> bool | None:
        """See `Upstream.has_partition`."""
        route = self.view.route(topic)
        return None if route is None else partition in route.leaders

    async def close(self) -> None:
        """Close every connection; calls under way fail with `DisconnectedError`."""
        tasks: list[asyncio.Task[Any]] = [*self._asking.tasks.values(), *self._describing.tasks.values()]
        tasks += [task for task in (self._versions, self._refresh.running) if task is not None]
        for task in tasks:
            task.cancel()
        await self.close_connections()
        await asyncio.gather(*tasks, self._hedged.cancel(), return_exceptions=True)


def _intersection(left: dict[int, ServedVersions], right: dict[int, ServedVersions]) -> dict[int, ServedVersions]:
    both: dict[int, ServedVersions] = {}
    for key in left.keys() & right.keys():
        low, high = max(left[key].lowest, right[key].lowest), min(left[key].highest, right[key].highest)
        if low <= high:
            both[key] = ServedVersions(low, high)
    return both
