"""ListOffsets (1-11), OffsetForLeaderEpoch (2-4), DeleteRecords (0-2): routed to leaders, split and merged
(KIP-79, KIP-320, KIP-107).

All partitions with one leader: the frame passes unchanged. Large requests and answers are processed in slices.
DeleteRecords is a write: topics of the sidecar's own are refused with 29 TOPIC_AUTHORIZATION_FAILED.
So is, in each of the three, what Kafka's ACLs do not allow (`access`).
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Container, Coroutine, Generator, Iterator
from typing import Final, TypeVar

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.gateway.access.asked import PerTopic
from sidecar.gateway.access.table import ACCESS
from sidecar.gateway.client import Client
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.slices import in_slices
from sidecar.network.tasks import Tasks
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import partitioned
from sidecar.protocol.api import APIS, DELETE_RECORDS, LIST_OFFSETS
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.limits import AT_ONCE_BYTES, BOUNDS, PORTION
from sidecar.protocol.partitioned import Layout, Table, TablePart, TableResult
from sidecar.protocol.primitives import MalformedFrameError, at_once
from sidecar.shadow.views import Read, Views, layer_steps

ElementT = TypeVar("ElementT")

_TAKES: Final = {key: takes for key, takes in ACCESS.items() if isinstance(takes, PerTopic)}


class TablesApi:
    """Handles the three APIs for all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, tasks: Tasks) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._resolver = resolver
        self._views = Views(resolver, upstream.view)
        self._tasks = tasks

    def handle(self, client: Client, request: Request) -> None:
        """One request; the frame may be borrowed."""
        layout = partitioned.layout_of(request.key, request.version)
        if request.frame.size > AT_ONCE_BYTES:
            request.own()
            client.connection.hold()
            self._tasks.start(self._handle_held(client, request, layout))
            return
        table = partitioned.walk(request.frame.buffer, request.body, request.frame.end, layout)
        TURN.elements += len(table.parts)
        exchange = _Merged(client, request, self._upstream, self._tasks, layout)
        exchange.expects(table.parts)
        client.connection.expect(exchange)
        leader = self._single_leader(client, table.parts, request.key)
        if leader != NO_LEADER:
            self._pass(client, request, exchange, table, leader)
            return
        if not table.parts:
            exchange.finish()
            return
        if request.own():
            table = partitioned.walk(request.frame.buffer, request.body, request.frame.end, layout)
        if self._views.missing(table.parts, client.principal):
            client.connection.hold()
            self._tasks.start(self._handle_held(client, request, layout, exchange, table))
        else:
            at_once(self._split(client, request, exchange, table, asked=True))

    async def _handle_held(
        self,
        client: Client,
        request: Request,
        layout: Layout,
        exchange: _Merged | None = None,
        table: Table | None = None,
    ) -> None:
        """As `handle`, where leaders have to be asked for, and in slices: monitoring may ask for every partition of a
        cluster. `exchange`, `table`: the place of the answer and what was walked, where that is known.
        """
        connection, frame = client.connection, request.frame
        try:
            if table is None:
                table = await in_slices(partitioned.walk_steps(frame.buffer, request.body, frame.end, layout))
            is_new = exchange is None
            if exchange is None:
                exchange = _Merged(client, request, self._upstream, self._tasks, layout)
            leader, missing = await in_slices(self._look_up(client, request, exchange, table, is_new=is_new))
            asked = True
            if connection.closed:
                return
            if is_new:
                connection.expect(exchange)
            if leader != NO_LEADER:
                self._pass(client, request, exchange, table, leader)
                return
            if missing:
                asked = await self._upstream.find_leaders(missing)
            if not connection.closed:
                await in_slices(self._split(client, request, exchange, table, asked=asked))
        except MalformedFrameError as error:
            connection.reject(error.reason, f"{APIS[request.key].name} v{request.version}: {error}")
        finally:
            connection.release()

    def _look_up(
        self, client: Client, request: Request, exchange: _Merged, table: Table, *, is_new: bool
    ) -> Generator[None, None, tuple[int, set[bytes]]]:
        """The one leader of all of it, if there is one, and topics whose leaders are not known."""
        leader, is_one = NO_LEADER, True
        missing: set[bytes] = set()
        for some in _portions(table.parts):
            if is_new:
                exchange.expects(some)
            found = self._single_leader(client, some, request.key) if is_one else NO_LEADER
            is_one = found != NO_LEADER and leader in (NO_LEADER, found)
            leader = found if is_one else NO_LEADER
            missing |= self._views.missing(some, client.principal)
            yield
        return leader, missing

    def _pass(self, client: Client, request: Request, exchange: _Merged, table: Table, leader: int) -> None:
        try:
            client.send(client.links.to(leader), request, exchange)
        except DisconnectedError:
            exchange.refuse(table.parts, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _refused(self, client: Client, key: int, topic: bytes) -> bool:
        rights = client.rights
        if rights is not None and rights.refuses(_TAKES[key].operation, topic):
            instead = _TAKES[key].instead
            if instead is None or not rights.cluster(instead):
                return True
        return key == DELETE_RECORDS and self._resolver.kind(topic).change_refused is not None

    def _single_leader(self, client: Client, parts: list[TablePart], key: int) -> int:
        found = NO_LEADER
        if self._views.names_shadows(parts):
            return NO_LEADER
        for part in parts:
            leader = self._view.leader(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)) or self._refused(client, key, part.topic):
                return NO_LEADER
            found = leader
        return found

    def _split(
        self, client: Client, request: Request, exchange: _Merged, table: Table, *, asked: bool
    ) -> Generator[None, None, None]:
        """Each partition to its leader. `asked` False: Kafka could not be asked for those that are not known.

        A partition that is named again is asked for once: a leader takes the last that it was asked.
        """
        assert client.identity is not None
        name = client.identity.name.encode()
        by_leader: dict[int, dict[tuple[bytes, int], Read[TablePart]]] = {}
        refused: dict[ErrorCode, list[TablePart]] = {}
        twice = exchange.twice if request.key == LIST_OFFSETS else ()
        for first in range(0, len(table.parts), BOUNDS.turn):
            for part in table.parts[first : first + BOUNDS.turn]:
                log = self._views.log(part.topic, client.principal)
                leader = NO_LEADER if log is None else self._view.leader(log, part.partition)
                code = self._why_not(client, request.key, part, log, leader, twice, asked=asked)
                if code is not None or log is None:
                    refused.setdefault(code or ErrorCode.UNKNOWN_SERVER_ERROR, []).append(part)
                else:
                    by_leader.setdefault(leader, {})[part.topic, part.partition] = Read(part, log)
            yield
        for code, parts in refused.items():
            for first in range(0, len(parts), BOUNDS.turn):
                exchange.refuse(parts[first : first + BOUNDS.turn], code)
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
                    client.links.to(leader, as_node=reads[0].is_renamed).send_parts([message], reply)
                except DisconnectedError:
                    reply.refuse_all()

    def _why_not(
        self,
        client: Client,
        key: int,
        part: TablePart,
        log: bytes | None,
        leader: int,
        twice: Container[tuple[bytes, int]],
        *,
        asked: bool,
    ) -> ErrorCode | None:
        """Why no broker is asked for a partition."""
        if self._refused(client, key, part.topic):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if (part.topic, part.partition) in twice:
            return ErrorCode.INVALID_REQUEST
        if log is None:
            return self._views.refusal(part.topic, client.principal)
        if leader != NO_LEADER:
            return None
        return self._view.why_no_leader(log, part.partition) if asked else ErrorCode.LEADER_NOT_AVAILABLE


def _portions(found: list[ElementT]) -> Iterator[list[ElementT]]:
    """Some of a list at a time, between which others may have their turn."""
    return (found[first : first + PORTION] for first in range(0, len(found), PORTION))


class _Merged(Exchange):
    """A request that went on whole (it is its own reply) or in parts (each has a `_PartReply`)."""

    __slots__ = ("_done", "_keys", "_order", "_results", "_tasks", "_upstream", "layout", "throttle_ms", "twice")

    def __init__(
        self,
        client: Client,
        request: Request,
        upstream: KafkaUpstream,
        tasks: Tasks,
        layout: Layout,
    ) -> None:
        """`twice`: partitions that the request names more than once. A broker answers them with INVALID_REQUEST
        (ListOffsetsRequest.duplicatePartitions).
        """
        super().__init__(client.connection, request)
        self._upstream = upstream
        self.layout = layout
        self._tasks = tasks
        self._order: list[tuple[bytes, int]] = []
        self._keys: set[tuple[bytes, int]] = set()
        self.twice: set[tuple[bytes, int]] = set()
        self._results: dict[tuple[bytes, int], TableResult] = {}
        self._done = False
        self.throttle_ms = 0

    def expects(self, parts: list[TablePart]) -> None:
        """Answer these partitions, too."""
        order = [(part.topic, part.partition) for part in parts]
        keys = set(order)
        self.twice |= self._keys & keys
        if len(keys) != len(order):
            self.twice.update(key for key, count in Counter(order).items() if count > 1)
        self._order += order
        self._keys |= keys

    def answer_received(self, frame: Frame) -> None:
        if frame.size > AT_ONCE_BYTES:
            self._tasks.start(self._pass_large(frame.own()))
            return
        results, _ = partitioned.decode_answer(frame.buffer, frame.start, frame.end, self.layout)
        self._look(results)
        self.answer_frame(frame)

    async def _pass_large(self, frame: Frame) -> None:
        steps = partitioned.answer_steps(frame.buffer, frame.start, frame.end, self.layout)
        try:
            results, _ = await in_slices(steps)
        except (MalformedFrameError, struct.error) as error:
            self.answer_lost(UpstreamLostError(f"an answer that makes no sense: {error}", sent=True))
            return
        for first in range(0, len(results), BOUNDS.turn):
            self._look(results[first : first + BOUNDS.turn])
            await asyncio.sleep(0)
        if not self.connection.closed:
            self.answer_frame(frame)

    def _look(self, results: list[TableResult]) -> None:
        self.note(results)
        for result in results:
            if result.error:
                self.note_error(result.error)

    def answer_lost(self, error: UpstreamLostError) -> None:
        if self.connection.closed:
            return
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._upstream.refresh_soon({topic for topic, _ in self._order})
        for topic, partition in self._order:
            self.settle(partitioned.refusal(self.layout, topic, partition, code))

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Run a task that nobody awaits."""
        self._tasks.start(work)

    def note(self, results: list[TableResult]) -> None:
        """Look for new leaders of partitions whose old ones disclaim them."""
        stale = {result.topic for result in results if result.error in STALE_ROUTE}
        if stale:
            self._upstream.refresh_soon(stale)

    def refuse(self, parts: list[TablePart], code: ErrorCode, logs: set[bytes] | None = None) -> None:
        """`logs`: whose leaders are to be asked for, where those are not the topics named."""
        if code in STALE_ROUTE:
            self._upstream.refresh_soon({part.topic for part in parts} if logs is None else logs)
        for part in parts:
            self.settle(partitioned.refusal(self.layout, part.topic, part.partition, code))

    def settle(self, result: TableResult) -> None:
        self._results[result.topic, result.partition] = result
        if result.error:
            self.note_error(result.error)
        if len(self._results) == len(self._keys):
            self.finish()

    def finish(self) -> None:
        """Answer with what was found, in the order of the request: once, also where a partition is settled again."""
        if self._done or self.answered or self.connection.closed:
            return
        self._done = True
        found = map(self._results.__getitem__, self._order)
        steps = partitioned.encode_steps(self.correlation_id, self.layout, found, self.throttle_ms)
        if len(self._order) < PORTION:
            self.answer([at_once(steps)])
        else:
            self._tasks.start(self._finish_large(steps))

    async def _finish_large(self, steps: Generator[None, None, bytes]) -> None:
        answer = await in_slices(steps)
        if not (self.answered or self.connection.closed):
            self.answer([answer])


class _PartReply:
    """The answer of one leader. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_merged", "_parts", "correlation_id")

    def __init__(self, merged: _Merged, parts: dict[tuple[bytes, int], TablePart]) -> None:
        """`parts` by the names under which they were asked for."""
        self._merged = merged
        self._parts = parts
        self.correlation_id = merged.correlation_id

    def answer_received(self, frame: Frame) -> None:
        if frame.size > AT_ONCE_BYTES:
            self._merged.start(self._take_large(frame.own()))
        else:
            at_once(self._take(frame))

    async def _take_large(self, frame: Frame) -> None:
        try:
            await in_slices(self._take(frame))
        except (MalformedFrameError, struct.error) as error:
            self.answer_lost(UpstreamLostError(f"an answer that makes no sense: {error}", sent=True))

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
        """Nothing came of it: the client asks for the leaders again, so does the node."""
        logs = {log for log, _ in self._parts}
        self._merged.refuse(list(self._parts.values()), ErrorCode.NOT_LEADER_OR_FOLLOWER, logs)
