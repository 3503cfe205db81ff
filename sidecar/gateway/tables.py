"""ListOffsets (1-11), OffsetForLeaderEpoch (2-4), DeleteRecords (0-2): routed to leaders, split and merged
(KIP-79, KIP-320, KIP-107). These APIs name topics by name: for a shadow, `source_check` binds the answer to the
source's id.

If all partitions have one leader, the frame is forwarded unchanged. Large requests and answers are processed in slices.
DeleteRecords is a write: it is refused for the sidecar's own topics with 29 TOPIC_AUTHORIZATION_FAILED, and waits for a
snapshot of the sequence ids in what it deletes (`purging`). In all three
APIs topics that Kafka's ACLs do not allow are refused with the same error (`access`).
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from types import MappingProxyType
from typing import TypeVar

from sidecar.cluster.resolver import NameResolver, TopicKind
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import asking
from sidecar.gateway.access.asked import PerTopic
from sidecar.gateway.client import Client
from sidecar.gateway.purging import Purging
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.gateway.source_check import send_read
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import partitioned
from sidecar.protocol.api import ApiKey, api_name
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.limits import AT_ONCE_BYTES, BOUNDS, PORTION
from sidecar.protocol.partitioned import Layout, Table, TablePart, TableResult
from sidecar.protocol.primitives import MalformedFrameError, at_once
from sidecar.shadow.views import Read, Views, layer_steps

ElementT = TypeVar("ElementT")


class TablesApi:
    """Handles one of the three APIs for all clients of a node."""

    def __init__(
        self,
        upstream: KafkaUpstream,
        resolver: NameResolver,
        tasks: Tasks,
        access: PerTopic,
        shadow: ShadowRule,
        purging: Purging | None = None,
    ) -> None:
        """`purging`: saves what DeleteRecords deletes; None for the others."""
        self.upstream = upstream
        self._access = access
        self._refused_kinds = frozenset(kind for kind in TopicKind if shadow.refused(kind) is not None)
        self._purging = purging
        self._view = upstream.view
        self._resolver = resolver
        self._views = Views(shadow.read_by(resolver), upstream.view)
        self.tasks = tasks

    def handle(self, client: Client, request: Request) -> None:
        """Handle one request; the frame may be borrowed."""
        layout = partitioned.layout_of(request.key, request.version)
        if request.frame.size > AT_ONCE_BYTES or self._purging is not None:
            request.own()
            client.connection.hold()
            self.tasks.start(self._handle_held(client, request, layout))
            return
        exchange, table, leader = at_once(self._begin(client, request, layout))
        TURN.elements += len(table.parts)
        client.connection.expect(exchange)
        if leader != NO_LEADER:
            self._pass(client, request, exchange, table, leader)
            return
        if not table.parts:
            exchange.finish()
            return
        if request.own():
            table = partitioned.walk(request.frame.buffer, request.body, request.frame.end, layout)
        if self._views.missing(self._allowed(client, table.parts), client.principal):
            client.connection.hold()
            self.tasks.start(self._handle_held(client, request, layout, (exchange, table, leader)))
        else:
            at_once(self._split(client, request, exchange, table, asked=True))

    async def _handle_held(
        self, client: Client, request: Request, layout: Layout, begun: tuple[_Merged, Table, int] | None = None
    ) -> None:
        """As `handle`, if leaders have to be looked up, and in slices: monitoring may name all partitions of a cluster.
        `begun`: the result of `_begin`, if it was called already.
        """
        connection, asked = client.connection, True
        try:
            purging = self._purging
            uncovered = {} if purging is None else await self._prepare_purge(purging, client, request, layout)
            exchange, table, leader = begun or await in_slices(self._begin(client, request, layout, uncovered))
            if connection.closed:
                return
            if begun is None:
                connection.expect(exchange)
            if leader != NO_LEADER:
                self._pass(client, request, exchange, table, leader)
                return
            if missing := await in_slices(self._missing(client, table)):
                asked = await self.upstream.find_leaders(missing)
            if not connection.closed:
                await in_slices(self._split(client, request, exchange, table, asked=asked))
        except MalformedFrameError as error:
            connection.reject(error.reason, f"{api_name(request.key)} v{request.version}: {error}")
        finally:
            connection.release()

    async def _prepare_purge(
        self, purging: Purging, client: Client, request: Request, layout: Layout
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Save the sequence ids of what a request deletes. Returns the error of each partition that has to stay."""
        table = await in_slices(asking.read_table(request, layout))
        allowed = {topic for topic in {part.topic for part in table.parts} if not self._refused(client, topic)}
        parts = (part for part in table.parts if part.topic in allowed)
        return await purging.prepare(request.frame.buffer, table, parts)

    def _begin(
        self,
        client: Client,
        request: Request,
        layout: Layout,
        uncovered: Mapping[tuple[bytes, int], ErrorCode] = MappingProxyType({}),
    ) -> Generator[None, None, tuple[_Merged, Table, int]]:
        """Returns the exchange, the parsed request, and the leader of all its partitions, if there is one. `uncovered`:
        partitions for which no leader is asked, with their errors.
        """
        table = yield from asking.read_table(request, layout)
        exchange = _Merged(client, request, self, layout)
        exchange.uncovered = uncovered
        leader, is_one = NO_LEADER, not uncovered
        for some in _portions(table.parts):
            exchange.expects(some)
            found = self._single_leader(client, some) if is_one else NO_LEADER
            is_one = found != NO_LEADER and leader in (NO_LEADER, found)
            leader = found if is_one else NO_LEADER
            yield
        return exchange, table, leader

    def _missing(self, client: Client, table: Table) -> Generator[None, None, set[bytes]]:
        """The topics with unknown leaders, of those that the client may use."""
        missing: set[bytes] = set()
        for some in _portions(table.parts):
            missing |= self._views.missing(self._allowed(client, some), client.principal)
            yield
        return missing

    def _pass(self, client: Client, request: Request, exchange: _Merged, table: Table, leader: int) -> None:
        try:
            client.send(client.links.to(leader), request, exchange)
        except DisconnectedError:
            exchange.refuse(table.parts, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _allowed(self, client: Client, parts: list[TablePart]) -> list[TablePart]:
        """The partitions that are not refused: nothing is looked up for the others, as the time would show that their
        topic exists.
        """
        if client.rights is None:
            return parts
        return [part for part in parts if not self._refused(client, part.topic)]

    def _refused(self, client: Client, topic: bytes) -> bool:
        rights = client.rights
        if rights is not None and rights.refuses(self._access.operation, topic):
            instead = self._access.instead
            if instead is None or not rights.cluster(instead):
                return True
        return bool(self._refused_kinds) and self._resolver.kind(topic) in self._refused_kinds

    def _single_leader(self, client: Client, parts: list[TablePart]) -> int:
        found = NO_LEADER
        if self._views.names_shadows(parts):
            return NO_LEADER
        for part in parts:
            leader = self._view.leader(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)) or self._refused(client, part.topic):
                return NO_LEADER
            found = leader
        return found

    def _split(
        self, client: Client, request: Request, exchange: _Merged, table: Table, *, asked: bool
    ) -> Generator[None, None, None]:
        """Send each partition to its leader. `asked` False: Kafka could not be asked for unknown leaders.

        A partition that is named several times is sent once, with its last element, as a leader takes it.
        """
        assert client.identity is not None
        name = client.identity.name.encode()
        by_leader: dict[int, dict[tuple[bytes, int], Read[TablePart]]] = {}
        refused: dict[ErrorCode, list[TablePart]] = {}
        for some in _portions(table.parts, BOUNDS.turn):
            for part in some:
                place = self._place(client, exchange, part, asked=asked)
                if isinstance(place, ErrorCode):
                    refused.setdefault(place, []).append(part)
                else:
                    read, leader = place
                    by_leader.setdefault(leader, {})[part.topic, part.partition] = read
            yield
        for code, parts in refused.items():
            for some in _portions(parts, BOUNDS.turn):
                exchange.refuse(some, code)
                yield
        for leader, of_leader in by_leader.items():
            for reads in (yield from layer_steps(of_leader.values(), apart=client.links.user is not None)):
                asked_for: list[TablePart] = []
                parts_of: dict[tuple[bytes, int], TablePart] = {}
                for some in _portions(reads):
                    asked_for += [read.part._replace(topic=read.log) for read in some]
                    parts_of.update(((read.log, read.part.partition), read.part) for read in some)
                    yield
                head, buffer = (request.key, request.version, request.correlation_id, name), request.frame.buffer
                message = yield from partitioned.request_steps(*head, exchange.layout, buffer, table, asked_for)
                if client.connection.closed:
                    return
                reply = _PartReply(exchange, parts_of)
                try:
                    connection = client.links.to(leader, as_node=reads[0].is_renamed)
                    send_read(self.upstream, connection, message, reply, reads, by_id=False)
                except DisconnectedError:
                    reply.refuse_all()

    def _place(
        self, client: Client, exchange: _Merged, part: TablePart, *, asked: bool
    ) -> tuple[Read[TablePart], int] | ErrorCode:
        """A partition with its log, and the log's leader; or the error if no broker is asked."""
        if self._refused(client, part.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if (uncovered := exchange.uncovered.get((part.topic, part.partition))) is not None:
            return uncovered
        if exchange.key == ApiKey.LIST_OFFSETS and (part.topic, part.partition) in exchange.twice:
            return ErrorCode.INVALID_REQUEST
        read = self._views.read(part, client.principal)
        if read is None:
            return self._views.refusal(part.topic, client.principal)
        leader = self._view.leader(*read.source)
        if leader != NO_LEADER:
            return read, leader
        return self._view.why_no_leader(*read.source) if asked else ErrorCode.LEADER_NOT_AVAILABLE


def _portions(found: list[ElementT], size: int = PORTION) -> Iterator[list[ElementT]]:
    """The list in portions, so that others can run between them."""
    return (found[first : first + size] for first in range(0, len(found), size))


class _Merged(Exchange):
    """A request that was forwarded whole (it is its own reply) or in parts (each has a `_PartReply`)."""

    __slots__ = ("_api", "_done", "_keys", "_order", "_results", "layout", "throttle_ms", "twice", "uncovered")

    def __init__(self, client: Client, request: Request, api: TablesApi, layout: Layout) -> None:
        """`twice`: partitions that the request names more than once. A broker answers them with INVALID_REQUEST
        (ListOffsetsRequest.duplicatePartitions).
        """
        super().__init__(client.connection, request)
        self._api = api
        self.layout = layout
        self.uncovered: Mapping[tuple[bytes, int], ErrorCode] = {}
        self._order: list[tuple[bytes, int]] = []
        self._keys: set[tuple[bytes, int]] = set()
        self.twice: set[tuple[bytes, int]] = set()
        self._results: dict[tuple[bytes, int], TableResult] = {}
        self._done = False
        self.throttle_ms = 0

    def expects(self, parts: list[TablePart]) -> None:
        """Expect results for these partitions, too."""
        order = [(part.topic, part.partition) for part in parts]
        keys = set(order)
        self.twice |= self._keys & keys
        if len(keys) != len(order):
            self.twice.update(key for key, count in Counter(order).items() if count > 1)
        self._order += order
        self._keys |= keys

    def answer_received(self, frame: Frame) -> None:
        self.take(frame, self._pass, self.answer_lost)

    def take(
        self,
        frame: Frame,
        steps: Callable[[Frame], Generator[None, None, None]],
        lost: Callable[[UpstreamLostError], None],
    ) -> None:
        """Read an answer: at once, or in slices if it is large. `lost` is called if it is malformed."""
        if frame.size > AT_ONCE_BYTES:
            self._api.tasks.start(self._take_large(steps(frame.own()), lost))
        else:
            at_once(steps(frame))

    async def _take_large(self, steps: Generator[None, None, None], lost: Callable[[UpstreamLostError], None]) -> None:
        try:
            await in_slices(steps)
        except (MalformedFrameError, struct.error) as error:
            lost(UpstreamLostError(f"an answer that makes no sense: {error}", sent=True))

    def _pass(self, frame: Frame) -> Generator[None, None, None]:
        results, _ = yield from partitioned.answer_steps(frame.buffer, frame.start, frame.end, self.layout)
        for some in _portions(results, BOUNDS.turn):
            self.note(some)
            for result in some:
                if result.error:
                    self.note_error(result.error)
            yield
        if not self.connection.closed:
            self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        if self.connection.closed:
            return
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._api.upstream.refresh_soon({topic for topic, _ in self._order})
        for topic, partition in self._order:
            self.settle(partitioned.refusal(self.layout, topic, partition, code))

    def note(self, results: list[TableResult]) -> None:
        """Look up the leaders of partitions whose broker answered that it does not lead them."""
        stale = {result.topic for result in results if result.error in STALE_ROUTE}
        if stale:
            self._api.upstream.refresh_soon(stale)

    def refuse(self, parts: list[TablePart], code: ErrorCode, logs: set[bytes] | None = None) -> None:
        """Refuse partitions, and look their leaders up again. `logs`: their logs, if not the named topics."""
        if code in STALE_ROUTE:
            self._api.upstream.refresh_soon({part.topic for part in parts} if logs is None else logs)
        for part in parts:
            self.settle(partitioned.refusal(self.layout, part.topic, part.partition, code))

    def settle(self, result: TableResult) -> None:
        self._results[result.topic, result.partition] = result
        if result.error:
            self.note_error(result.error)
        if len(self._results) == len(self._keys):
            self.finish()

    def finish(self) -> None:
        """Answer with the results, in the order of the request: once, even if a partition is settled again."""
        if self._done or self.answered or self.connection.closed:
            return
        self._done = True
        found = map(self._results.__getitem__, self._order)
        steps = partitioned.encode_steps(self.correlation_id, self.layout, found, self.throttle_ms)
        if len(self._order) < PORTION:
            self.answer([at_once(steps)])
        else:
            self._api.tasks.start(self._finish_large(steps))

    async def _finish_large(self, steps: Generator[None, None, bytes]) -> None:
        answer = await in_slices(steps)
        if not (self.answered or self.connection.closed):
            self.answer([answer])


class _PartReply:
    """The answer of one leader. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_merged", "_parts", "correlation_id")

    def __init__(self, merged: _Merged, parts: dict[tuple[bytes, int], TablePart]) -> None:
        """`parts`: by the names that were sent to the leader."""
        self._merged = merged
        self._parts = parts
        self.correlation_id = merged.correlation_id

    def answer_received(self, frame: Frame) -> None:
        self._merged.take(frame, self._take, self.answer_lost)

    def _take(self, frame: Frame) -> Generator[None, None, None]:
        merged = self._merged
        results, throttle_ms = yield from partitioned.answer_steps(frame.buffer, frame.start, frame.end, merged.layout)
        merged.throttle_ms = max(merged.throttle_ms, throttle_ms)
        for some in _portions(results):
            merged.note(some)
            yield
        left = dict(self._parts)
        for count, result in enumerate(results, 1):
            part = left.pop((result.topic, result.partition), None)
            if part is not None:
                merged.settle(result._replace(topic=part.topic))
            if not count % BOUNDS.turn:
                yield
        merged.refuse(list(left.values()), ErrorCode.UNKNOWN_SERVER_ERROR)

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self._merged.connection.closed:
            self.refuse_all()

    def refuse_all(self) -> None:
        """Refuse all partitions, so that the client looks the leaders up again; the node does the same."""
        logs = {log for log, _ in self._parts}
        self._merged.refuse(list(self._parts.values()), ErrorCode.NOT_LEADER_OR_FOLLOWER, logs)
