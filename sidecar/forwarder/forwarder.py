"""Lanes by partition, a few connections to each leader, and the bound on what waits. If no batch waits, a client's own
request is passed on whole: unchanged, except for its header and the stamps of its batches. That is the usual case, and
the cheapest: neither request nor answer is encoded again. Each batch is in its lane all the same. If the leader answers
with an error, or not at all, each lane gets the outcome of its batch, and retries it if needed.

Otherwise the batches of one turn of the event loop are sent in one request (`gathered`). A few requests may be in
flight on a connection; meanwhile later batches are collected. A partition always uses the same connection, so its
batches arrive in the order in which they were shipped.

A silent broker is not waited for longer than the request's timeout. A broker whose process is stopped keeps its
connections while the cluster elects other leaders: so after two seconds without an answer the leaders are looked up
again, and the connection is dropped if another broker leads the partitions now.
"""

import asyncio
import random
from collections import deque
from dataclasses import KW_ONLY, dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID
from zlib import crc32

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.cluster.view import NO_LEADER
from sidecar.forwarder.gathered import GatheredReply, UnderWay, encode, ids_of, take
from sidecar.forwarder.lane import Lane, LaneOwner
from sidecar.forwarder.outcome import Outcome
from sidecar.forwarder.sequences import Append, PlainSequences
from sidecar.network.framing import Frame
from sidecar.network.turn import TURN
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol import produce, produce_upstream
from sidecar.protocol.batch import Numbers
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Stamp
from sidecar.protocol.primitives import Octets, new_tuple
from sidecar.protocol.produce import ProducePart

_LINKS_PER_LEADER: Final = 4
"""A topic stays on one of them: its partitions share requests, which halves the cost of a request per partition."""
_UNDER_WAY: Final = 5
_GRACE_S: Final = 5.0
_SILENT_S: Final = 2.0
_WATCH_S: Final = 1.0
_NOT_ASKED: Final[dict[int, Outcome]] = {}


class Asker(Protocol):
    """The sender of a request: it gets either the leader's unchanged answer, or each batch's outcome, once."""

    correlation_id: int
    version: int

    def answer_frame(self, frame: Frame) -> None: ...
    def settle_outcome(self, part: ProducePart, numbers: Numbers, outcome: Outcome) -> None: ...


class WholeRequest(NamedTuple):
    """A Produce request with acks=all for partitions of one topic and nothing besides. `body` is where in the owned
    frame the client id ends; `batches` are windows on that frame.
    """

    frame: Frame
    body: int
    timeout_ms: int
    batches: list[tuple[ProducePart, memoryview, Numbers]]
    asker: Asker


class LeaderLink:
    """One connection to one leader. Implements `sidecar.network.upstream.Owner`."""

    def __init__(self, upstream: KafkaUpstream, broker_id: int, linger: float, request_bytes: int) -> None:
        self._upstream = upstream
        self._broker_id = broker_id
        self._linger = linger
        self._request_bytes = request_bytes
        self._loop = asyncio.get_running_loop()  # asking for it is a system call (getpid)
        self._connection: UpstreamConnection | None = None
        self._waiting: deque[tuple[Lane, Append]] = deque()
        self._under_way: dict[UnderWay, float] = {}
        self._gathered = 0
        self._scheduled = False
        self._lingering: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._correlation = 0

    def ship(self, lane: Lane, append: Append) -> None:
        """Send a batch with the next request; the lane gets its outcome."""
        self._waiting.append((lane, append))
        self._gathered += append.size
        if not self._scheduled:
            self._schedule()
        elif self._lingering is not None and self._gathered >= self._request_bytes:
            self._lingering.cancel()
            self._lingering = None
            TURN.at_end(self._flush)

    def take_whole(self) -> bool:
        """Whether a whole request may be sent now: no batch waits here, and a connection is open or may be opened."""
        if self._waiting or self._linger > 0 or len(self._under_way) >= _UNDER_WAY:
            return False
        try:
            self._connected()
        except DisconnectedError:
            return False
        return True

    def send_whole(self, request: WholeRequest, sent: list[tuple[Lane, Append]]) -> None:
        """Sends a client's own request, whose batches are stamped. Call it right after `take_whole` returned True."""
        rest = request.frame.view(request.body, request.frame.end)
        correlation = self._next_correlation()
        head = produce.whole_head(correlation, request.asker.version, len(rest))
        reply = WholeReply(self, correlation, sent, self._loop.time(), request.asker)
        self._send(self._connected(), [head, rest], reply, request.timeout_ms)

    def _next_correlation(self) -> int:
        self._correlation = (self._correlation + 1) & 0x7FFFFFFF
        return self._correlation

    def _schedule(self) -> None:
        """Schedules the next request: at the end of the read turn if the connection is idle, in the loop's next turn if
        requests are in flight. A linger ends early once `request_bytes` have gathered.
        """
        self._scheduled = True
        if self._linger > 0 and self._gathered < self._request_bytes:
            self._lingering = self._loop.call_later(self._linger, TURN.run, self._flush)
        elif self._under_way:
            self._loop.call_soon(TURN.run, self._flush)
        else:
            TURN.at_end(self._flush)

    def _flush(self) -> None:
        self._scheduled, self._lingering, self._gathered = False, None, 0
        while self._waiting and len(self._under_way) < _UNDER_WAY:
            try:
                connection = self._connected()
            except DisconnectedError:
                self._fail_waiting()
                return
            batches, self._waiting = take(self._waiting, self._request_bytes)
            correlation = self._next_correlation()
            ids = ids_of(batches) if self._upstream.serves(produce.KEY, produce_upstream.BY_ID_VERSION) else None
            message, timeout_ms = encode(correlation, batches, ids)
            reply = GatheredReply(self, correlation, list(batches.values()), self._loop.time(), ids)
            self._send(connection, message, reply, timeout_ms)

    def _connected(self) -> UpstreamConnection:
        if self._connection is None:
            address = self._upstream.address(self._broker_id)
            if not self._upstream.may_connect(self._broker_id):
                raise DisconnectedError(f"broker {self._broker_id} failed a moment ago", sent=False)
            self._connection = self._upstream.open(self, address)
        return self._connection

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for lane, append in waiting:
            lane.settled(append, Outcome.lost(sent=False))

    def _send(self, connection: UpstreamConnection, message: list[Octets], reply: UnderWay, timeout_ms: int) -> None:
        self._under_way[reply] = reply.sent_at + timeout_ms / 1000 + _GRACE_S
        if self._watch is None:
            self._watch = self._loop.call_later(_WATCH_S, self._check)
        connection.send_parts(message, reply)

    def _check(self) -> None:
        """Closes the connection to a broker that exceeds a request's timeout, or is silent and no longer the leader."""
        self._watch = None
        if not self._under_way:
            return
        now = self._loop.time()
        oldest = next(iter(self._under_way))
        reason = None
        if min(self._under_way.values()) < now:
            reason = "Kafka did not answer a Produce within its timeout"
        elif now - oldest.sent_at > _SILENT_S and self._leads_no_more(oldest):
            reason = "no answer to a Produce, and another broker leads the partition"
        if reason is not None and self._connection is not None:
            self._connection.close(reason)
        else:
            self._watch = self._loop.call_later(_WATCH_S, self._check)

    def _leads_no_more(self, reply: UnderWay) -> bool:
        """Whether the known leader of a partition in this request is another broker. Requests fresh metadata, too."""
        self._upstream.refresh_soon({lane.topic for lane, _ in reply.sent})
        leaders = {self._upstream.view.leader(lane.topic, lane.partition) for lane, _ in reply.sent}
        return bool(leaders - {self._broker_id, NO_LEADER})

    def answered(self, reply: UnderWay) -> None:
        """A request was answered or lost: the next one may be sent."""
        self._under_way.pop(reply, None)
        if self._waiting and not self._scheduled:
            self._schedule()

    def close(self) -> None:
        """Drop the connection; every batch under way gets an outcome."""
        if self._watch is not None:
            self._watch.cancel()
        if self._connection is not None:
            self._connection.close()

    # Owner --------------------------------------------------------------------------------------------------------

    def upstream_opened(self, connection: UpstreamConnection) -> None:
        self._upstream.connect_succeeded(self._broker_id)

    def upstream_full(self, connection: UpstreamConnection, full: bool) -> None:
        """Bounded by the forwarder's buffer: nothing to hold back here."""

    def upstream_closed(self, connection: UpstreamConnection) -> None:
        if self._connection is connection:
            self._connection = None
        if connection.lost and connection.stood:
            self._upstream.ask_versions_soon()
        if connection.failure is not None:
            self._upstream.connect_failed(self._broker_id, connection.failure)


@dataclass(slots=True, eq=False)
class WholeReply(UnderWay):
    """Waits for the answer to a whole request."""

    _asker: Asker

    def answer_received(self, frame: Frame) -> None:
        asker = self._asker
        appended = self._appended(frame)
        if appended is None or self._overtakes():
            results, _ = produce_upstream.decode_answer(frame.buffer, frame.start, frame.end, asker.version)
            topic = self.sent[0][0].topic
            outcomes = {(topic, result.partition): Outcome.of(result) for result in results}
            self.settle(outcomes, Outcome(ErrorCode.UNKNOWN_SERVER_ERROR))
            return
        self.link.answered(self)
        sent, self.sent = self.sent, ()
        for lane, append in sent:
            lane.acknowledged(append, appended.get(lane.partition))
        produce.rename_answer(frame.buffer, frame.start, frame.end, asker.version, asker.correlation_id)
        asker.answer_frame(frame)

    def _overtakes(self) -> bool:
        for lane, append in self.sent:  # noqa: SIM110  a generator costs more
            if lane.muted and lane.overtakes(append):
                return True
        return False

    def _appended(self, frame: Frame) -> dict[int, Outcome] | None:
        """Returns the batches' outcomes, if a witness needs them; None if not all batches were appended."""
        place = frame.buffer, frame.start, frame.end, self._asker.version, len(self.sent)
        if self.sent[0][1].witness is None:  # with sequence ids all of a topic's batches have one
            return _NOT_ASKED if produce.all_appended(*place) else None
        found = produce.appended(*place)
        if found is None:
            return None
        outcomes: dict[int, Outcome] = {}
        for partition, offset, append_time, log_start in found:
            outcomes[partition] = new_tuple(Outcome, (0, offset, append_time, log_start, None))
        return outcomes


@dataclass(eq=False)
class Forwarder:
    """Sends governed batches to Kafka. `buffer_bytes` limits the batches waiting or in flight, over all topics."""

    _upstream: KafkaUpstream
    _: KW_ONLY
    linger: float
    buffer_bytes: int
    request_bytes: int = 1024 * 1024

    def __post_init__(self) -> None:
        self.held_bytes = 0
        self._random = random.Random()
        self._links: dict[tuple[int, int], LeaderLink] = {}
        self._drained: asyncio.Event | None = None

    def lane(
        self,
        topic: bytes,
        partition: int,
        stamp: Stamp,
        plain: PlainSequences | None,
        owner: LaneOwner,
        topic_id: UUID | None = None,
    ) -> Lane:
        """Returns a lane for one partition under one slot epoch. It ends if the topic is created again (another id)."""
        return Lane(topic, partition, stamp, plain, self, owner, self._random, topic_id)

    def admit(self, size: int) -> bool:
        """Reserves `size` bytes of the buffer. False if it is full: the client gets NOT_ENOUGH_REPLICAS and retries."""
        if self.held_bytes + size > self.buffer_bytes:
            return False
        self.held_bytes += size
        return True

    async def drain(self) -> None:
        """Wait until nothing is held."""
        if self.held_bytes:
            self._drained = asyncio.Event()
            await self._drained.wait()

    def close(self) -> None:
        """Drop all connections."""
        for link in self._links.values():
            link.close()

    # Shipper ------------------------------------------------------------------------------------------------------

    def ship(self, lane: Lane, append: Append) -> None:
        link = self.link_of(lane)
        if link is None:
            outcome = Outcome(ErrorCode.LEADER_NOT_AVAILABLE)
            asyncio.get_running_loop().call_soon(lane.settled, append, outcome)
        else:
            link.ship(lane, append)

    def link_of(self, lane: Lane) -> LeaderLink | None:
        """The connection to the leader of a lane's partition; None while no leader is known."""
        view, route = self._upstream.view, lane.route
        if route is not None and route[0] == view.version:
            return route[1]
        found = view.route(lane.topic)
        if found is not None and lane.topic_id not in (None, found.topic_id):
            lane.foreign_topic()
            return None
        leader = view.leader(lane.topic, lane.partition)
        if leader == NO_LEADER:
            return None
        key = leader, crc32(lane.topic) % _LINKS_PER_LEADER
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = LeaderLink(self._upstream, leader, self.linger, self.request_bytes)
        lane.route = view.version, link
        return link

    def leader_lost(self, topic: bytes) -> None:
        self._upstream.refresh_soon({topic})

    def released(self, size: int) -> None:
        self.held_bytes -= size
        if self.held_bytes == 0 and self._drained is not None:
            self._drained.set()
