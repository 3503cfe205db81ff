"""ListOffsets (1-11), OffsetForLeaderEpoch (2-4), DeleteRecords (0-2): routed to leaders, split and merged
(KIP-79, KIP-320, KIP-107). These APIs name topics by name: for a shadow, `source_check` binds the answer to the
source's id.

If all partitions have one leader, the frame is forwarded unchanged. Large requests and answers are processed in slices.
DeleteRecords is a write: it is refused for the sidecar's own topics with 29 TOPIC_AUTHORIZATION_FAILED, and waits for a
snapshot of the sequence ids in what it deletes (`purging`). In all three
APIs topics that Kafka's ACLs do not allow are refused with the same error (`access`).
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, Final, TypeVar

from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import asking
from sidecar.gateway.access.asked import PerTopic
from sidecar.gateway.client import Client
from sidecar.gateway.plan import Fact, Facts, Missing, Routes, Rule, Verdict, denied, only_verdict, plan
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
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode, KafkaError
from sidecar.protocol.limits import AT_ONCE_BYTES, BOUNDS, PORTION
from sidecar.protocol.partitioned import Layout, Table, TablePart, TableResult
from sidecar.protocol.primitives import MalformedFrameError, at_once, new_tuple
from sidecar.shadow.views import Read, layer_steps

ElementT = TypeVar("ElementT")
_NOTHING: Final[Mapping[Any, Any]] = {}


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
        self._rule = Rule.of(shadow)
        self._purging = purging
        self._resolver = resolver
        self.tasks = tasks

    def handle(self, client: Client, request: Request) -> None:
        """Handle one request; the frame may be borrowed."""
        if request.frame.size > AT_ONCE_BYTES or self._purging is not None:
            request.own()
            client.connection.hold()
            self.tasks.start(self._handle_held(client, request))
            return
        exchange, table = at_once(self._begin(client, request))
        TURN.elements += len(table.parts)
        client.connection.expect(exchange)
        if missing := at_once(self._send(client, request, exchange, table)):
            client.connection.hold()
            self.tasks.start(self._handle_held(client, request, (exchange, missing)))

    async def _handle_held(
        self, client: Client, request: Request, begun: tuple[_Merged, set[Missing]] | None = None
    ) -> None:
        """As `handle`, if leaders have to be looked up, and in slices: monitoring may name all partitions of a cluster.
        `begun`: a request whose leaders are missing.
        """
        connection = client.connection
        try:
            if begun is None:
                exchange, table = await in_slices(self._begin(client, request))
                if self._purging is not None:
                    exchange.withheld.update(await self._prepare_purge(self._purging, client, request, table))
                if connection.closed:
                    return
                connection.expect(exchange)
                missing = await in_slices(self._send(client, request, exchange, table))
            else:
                exchange, missing = begun
                table = await in_slices(asking.read_table(request, exchange.layout))
            if missing:
                asked = await asking.look_up(self.upstream, missing)
                if not connection.closed:
                    await in_slices(self._send(client, request, exchange, table, asked))
        except MalformedFrameError as error:
            connection.reject(error.reason, f"{api_name(request.key)} v{request.version}: {error}")
        finally:
            connection.release()

    def _begin(self, client: Client, request: Request) -> Generator[None, None, tuple[_Merged, Table]]:
        """Returns the exchange and the parsed request."""
        layout = partitioned.layout_of(request.key, request.version)
        table = yield from asking.read_table(request, layout)
        exchange = _Merged(client, request, self, layout)
        for some in _portions(table.parts):
            exchange.expects(some)
            yield
        return exchange, table

    async def _prepare_purge(
        self, purging: Purging, client: Client, request: Request, table: Table
    ) -> dict[tuple[bytes, int], ErrorCode]:
        """Save the sequence ids of what a request deletes. Returns the error of each partition that has to stay."""
        allowed: list[TablePart] = []
        for some in _portions(table.parts, BOUNDS.turn):
            verdicts = self._plan(client, some)
            allowed += (part for part, verdict in zip(some, verdicts, strict=True) if type(verdict) is not KafkaError)
            await asyncio.sleep(0)
        return await purging.prepare(request.frame.buffer, table, allowed)

    def _plan(
        self,
        client: Client,
        parts: list[TablePart],
        withheld: Mapping[tuple[bytes, int], ErrorCode] = _NOTHING,
        asked: Mapping[Fact, bool] = _NOTHING,
    ) -> list[Verdict]:
        """The verdicts on these partitions. `withheld`, `asked`: see `Facts`."""
        refused = _NOTHING if client.rights is None else denied(client.rights, self._access, parts)
        known = self.upstream.view, self._resolver, client.principal, refused, withheld, asked, False, False
        return plan(parts, self._rule, new_tuple(Facts, known))

    def _send(
        self,
        client: Client,
        request: Request,
        exchange: _Merged,
        table: Table,
        asked: Mapping[Fact, bool] = _NOTHING,
    ) -> Generator[None, None, set[Missing]]:
        """Send each partition to its leader; the request unchanged, if all have the same one. Returns the facts that
        have to be looked up first: then nothing was sent.
        """
        verdicts: list[Verdict] = []
        for some in _portions(table.parts, BOUNDS.turn):
            verdicts += self._plan(client, some, exchange.withheld, asked)
            yield
        if isinstance(leader := only_verdict(verdicts), int):
            try:
                client.send(client.links.to(leader), request, exchange)
            except DisconnectedError:
                exchange.refuse(table.parts, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return set()
        if request.own():
            table = yield from asking.read_table(request, exchange.layout)
        routes: Routes[TablePart] = Routes()
        for first in range(0, len(verdicts), PORTION):
            routes.add(table.parts[first : first + PORTION], verdicts[first : first + PORTION])
            yield
        if routes.missing:
            return routes.missing
        for code, parts in routes.refused.items():
            for some in _portions(parts, BOUNDS.turn):
                exchange.refuse(some, code)
                yield
        for leader, reads in routes.by_leader.items():
            for layer in (yield from layer_steps(reads.values(), apart=client.links.user is not None)):
                yield from self._send_layer(client, request, exchange, table, leader, layer)
        if not table.parts:
            exchange.finish()
        return routes.missing

    def _send_layer(
        self,
        client: Client,
        request: Request,
        exchange: _Merged,
        table: Table,
        leader: int,
        reads: list[Read[TablePart]],
    ) -> Generator[None, None, None]:
        """Send a leader some partitions."""
        assert client.identity is not None
        asked_for: list[TablePart] = []
        parts_of: dict[tuple[bytes, int], TablePart] = {}
        for some in _portions(reads):
            asked_for += [read.part._replace(topic=read.log) for read in some]
            parts_of.update(((read.log, read.part.partition), read.part) for read in some)
            yield
        head = request.key, request.version, request.correlation_id, client.identity.name.encode()
        message = yield from partitioned.request_steps(*head, exchange.layout, request.frame.buffer, table, asked_for)
        if client.connection.closed:
            return
        reply = _PartReply(exchange, parts_of)
        try:
            connection = client.links.to(leader, as_node=reads[0].is_renamed)
            send_read(self.upstream, connection, message, reply, reads, by_id=False)
        except DisconnectedError:
            reply.refuse_all()


def _portions(elements: list[ElementT], size: int = PORTION) -> Iterator[list[ElementT]]:
    """The list in portions, so that others can run between them."""
    return (elements[first : first + size] for first in range(0, len(elements), size))


class _Merged(Exchange):
    """A request that was forwarded whole (it is its own reply) or in parts (each has a `_PartReply`)."""

    __slots__ = ("_api", "_done", "_keys", "_order", "_results", "layout", "throttle_ms", "withheld")

    def __init__(self, client: Client, request: Request, api: TablesApi, layout: Layout) -> None:
        """`withheld`: see `Facts`."""
        super().__init__(client.connection, request)
        self._api = api
        self.layout = layout
        self.withheld: dict[tuple[bytes, int], ErrorCode] = {}
        self._order: list[tuple[bytes, int]] = []
        self._keys: set[tuple[bytes, int]] = set()
        self._results: dict[tuple[bytes, int], TableResult] = {}
        self._done = False
        self.throttle_ms = 0

    def expects(self, parts: list[TablePart]) -> None:
        """Expect results for these partitions, too. A broker refuses partitions that a ListOffsets names more than once
        (`ListOffsetsRequest.duplicatePartitions`).
        """
        order = [(part.topic, part.partition) for part in parts]
        keys = set(order)
        if self.key == ApiKey.LIST_OFFSETS:
            twice = self._keys & keys
            if len(keys) != len(order):
                twice.update(key for key, count in Counter(order).items() if count > 1)
            self.withheld.update(dict.fromkeys(twice, ErrorCode.INVALID_REQUEST))
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

    def refuse(self, parts: list[TablePart], code: int, logs: set[bytes] | None = None) -> None:
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
        results = map(self._results.__getitem__, self._order)
        steps = partitioned.encode_steps(self.correlation_id, self.layout, results, self.throttle_ms)
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
