"""ListOffsets (1-7), OffsetForLeaderEpoch (2-4), DeleteRecords (0-2): routed to leaders, split and merged.

All partitions with one leader: the frame goes on as it is. DeleteRecords is a write: topics of the sidecar's own are
refused (29).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sidecar.cluster.view import NO_LEADER
from sidecar.gateway import passing
from sidecar.network.client import Exchange
from sidecar.protocol import partitioned
from sidecar.protocol.api import DELETE_RECORDS, LIST_OFFSETS
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.partitioned import LAYOUTS, Layout, Table, TablePart, TableResult
from sidecar.shadow.views import Read, Views, layers

if TYPE_CHECKING:
    from sidecar.cluster.resolver import NameResolver
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.network.client import RequestHead
    from sidecar.network.framing import Frame
    from sidecar.network.tasks import Tasks
    from sidecar.network.upstream import UpstreamLostError


class TablesApi:
    """Handles the three APIs for all clients of a node."""

    def __init__(self, upstream: KafkaUpstream, resolver: NameResolver, tasks: Tasks) -> None:
        self._upstream = upstream
        self._view = upstream.view
        self._resolver = resolver
        self._views = Views(resolver, upstream.view)
        self._tasks = tasks

    def handle(self, client: Client, frame: Frame, head: RequestHead) -> None:
        """One request; the frame may be borrowed."""
        layout = LAYOUTS[head.key](head.version)
        table = partitioned.walk(frame.buffer, head.body, frame.end, layout)
        exchange = _Merged(client, head, frame.size, self._upstream, layout, table)
        client.connection.expect(exchange)
        leader = self._single_leader(table, head.key)
        if leader != NO_LEADER:
            try:
                passing.send(client.links.to(leader), client, frame, head, exchange)
            except DisconnectedError:
                exchange.refuse(table.parts, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if not table.parts:
            exchange.finish()
            return
        owned = frame.own()
        if owned is not frame:
            head.body -= frame.start
            table = partitioned.walk(owned.buffer, head.body, owned.end, layout)
        missing = self._views.missing(table.parts, client.principal)
        if missing:
            client.connection.hold()
            self._tasks.start(self._find_leaders(client, owned, head, exchange, table, missing))
        else:
            self._split(client, owned, head, exchange, table, asked=True)

    def _refused(self, key: int, topic: bytes) -> bool:
        return key == DELETE_RECORDS and self._resolver.kind(topic).change_refused is not None

    def _single_leader(self, table: Table, key: int) -> int:
        found = NO_LEADER
        if self._views.names_shadows(table.parts):
            return NO_LEADER
        for part in table.parts:
            leader = self._view.leader(part.topic, part.partition)
            if leader == NO_LEADER or (found not in (NO_LEADER, leader)) or self._refused(key, part.topic):
                return NO_LEADER
            found = leader
        return found

    async def _find_leaders(
        self,
        client: Client,
        frame: Frame,
        head: RequestHead,
        exchange: _Merged,
        table: Table,
        topics: set[bytes],
    ) -> None:
        found = await self._upstream.find_leaders(topics)
        try:
            if not client.connection.closed:
                self._split(client, frame, head, exchange, table, asked=found)
        finally:
            client.connection.release()

    def _split(
        self, client: Client, frame: Frame, head: RequestHead, exchange: _Merged, table: Table, *, asked: bool
    ) -> None:
        """Each partition to its leader. `asked` False: Kafka could not be asked for those that are not known."""
        assert client.identity is not None
        name = client.identity.name.encode()
        by_leader: dict[int, list[Read[TablePart]]] = {}
        twice = _named_twice(table) if head.key == LIST_OFFSETS else ()
        for part in table.parts:
            log = self._views.log(part.topic, client.principal)
            leader = NO_LEADER if log is None else self._view.leader(log, part.partition)
            if self._refused(head.key, part.topic):
                exchange.refuse([part], ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif (part.topic, part.partition) in twice:
                exchange.refuse([part], ErrorCode.INVALID_REQUEST)
            elif log is None:
                exchange.refuse([part], self._views.refusal(part.topic, client.principal))
            elif leader == NO_LEADER:
                why = self._view.why_no_leader(log, part.partition)
                exchange.refuse([part], why if asked else ErrorCode.LEADER_NOT_AVAILABLE)
            else:
                by_leader.setdefault(leader, []).append(Read(part, log))
        for leader, of_leader in by_leader.items():
            for reads in layers(of_leader):
                asked_for = [read.part._replace(topic=read.log) for read in reads]
                message = partitioned.encode_request(
                    head.key, head.version, head.correlation_id, name, exchange.layout, frame.buffer, table, asked_for
                )
                reply = _PartReply(exchange, {(read.log, read.part.partition): read.part for read in reads})
                try:
                    client.links.to(leader).send_parts([message], reply)
                except DisconnectedError:
                    reply.refuse_all()


def _named_twice(table: Table) -> set[tuple[bytes, int]]:
    """What a broker answers with INVALID_REQUEST (ListOffsetsRequest.duplicatePartitions)."""
    counted = Counter((part.topic, part.partition) for part in table.parts)
    return {key for key, count in counted.items() if count > 1}


class _Merged(Exchange):
    """A request that went on whole (it is its own reply) or in parts (each has a `_PartReply`)."""

    __slots__ = ("_order", "_results", "_upstream", "layout", "throttle_ms")

    def __init__(
        self, client: Client, head: RequestHead, size: int, upstream: KafkaUpstream, layout: Layout, table: Table
    ) -> None:
        super().__init__(client.connection, head.key, head.version, head.correlation_id, head.client_id, size)
        self._upstream = upstream
        self.layout = layout
        self._order = [(part.topic, part.partition) for part in table.parts]
        self._results: dict[tuple[bytes, int], TableResult] = {}
        self.throttle_ms = 0

    def answer_received(self, frame: Frame) -> None:
        results, _ = partitioned.decode_answer(frame.buffer, frame.start, frame.end, self.layout)
        self.note(results)
        for result in results:
            if result.error:
                self.note_error(result.error)
        self.answer_frame(frame)

    def answer_lost(self, error: UpstreamLostError) -> None:
        if self.connection.closed:
            return
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._upstream.refresh_soon({topic for topic, _ in self._order})
        for topic, partition in self._order:
            self.settle(partitioned.refusal(self.layout, topic, partition, code))

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
        if len(self._results) == len(set(self._order)):
            self.finish()

    def finish(self) -> None:
        """Answer with what was found, in the order of the request."""
        if self.answered or self.connection.closed:
            return
        results = [self._results[key] for key in self._order]
        self.answer([partitioned.encode_answer(self.correlation_id, self.layout, results, self.throttle_ms)])


class _PartReply:
    """The answer of one leader. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_merged", "_parts", "correlation_id")

    def __init__(self, merged: _Merged, parts: dict[tuple[bytes, int], TablePart]) -> None:
        """`parts` by the names under which they were asked for."""
        self._merged = merged
        self._parts = parts
        self.correlation_id = merged.correlation_id

    def answer_received(self, frame: Frame) -> None:
        results, throttle_ms = partitioned.decode_answer(frame.buffer, frame.start, frame.end, self._merged.layout)
        self._merged.throttle_ms = max(self._merged.throttle_ms, throttle_ms)
        self._merged.note(results)
        left = dict(self._parts)
        for result in results:
            part = left.pop((result.topic, result.partition), None)
            if part is not None:
                self._merged.settle(result._replace(topic=part.topic))
        self._merged.refuse(list(left.values()), ErrorCode.UNKNOWN_SERVER_ERROR)

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self._merged.connection.closed:
            self.refuse_all()

    def refuse_all(self) -> None:
        """Nothing came of it: the client asks for the leaders again, so does the node."""
        logs = {log for log, _ in self._parts}
        self._merged.refuse(list(self._parts.values()), ErrorCode.NOT_LEADER_OR_FOLLOWER, logs)
