"""A Fetch that needs several polls: one for each leader, and for each name of a log.

The client is answered as soon as there are enough records. Pending polls stay open, and the client's next request for
the same positions uses them instead of asking again. So an idle broker never delays a busy one, and never costs more
than one parked poll.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from sidecar.cluster.view import NO_LEADER
from sidecar.gateway.fetching import PollAnswer, PollLane
from sidecar.gateway.passed_fetch import FetchExchange, note_errors, weight_of
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.fetch import FetchPart, FetchRequest
from sidecar.protocol.primitives import Octets
from sidecar.security.acls import Operation
from sidecar.shadow.views import Read, Views, layers

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.resources.readers import ReaderClaims
    from sidecar.shadow.readers import Readers

_POLL_LANE: Final = 1
_PROMPT_LIMIT_S: Final = 1.0
"""How long a broker may take that was asked not to wait, before the client is answered without it."""
_WORTH_ASKING_S: Final = 0.005
"""A poll that ends empty this long before the client's own limit is asked again."""


class _PollReply:
    """Waits for one poll. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ("_client", "_isolation", "_lane", "_place", "_upstream", "_version", "correlation_id")

    def __init__(
        self,
        client: Client,
        upstream: KafkaUpstream,
        place: tuple[int, int],
        lane: PollLane,
        version: int,
        isolation: int,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._place = place
        self._lane = lane
        self._version = version
        self._isolation = isolation
        self.correlation_id = 0

    def answer_received(self, frame: Frame) -> None:
        answer = fetch.walk_answer(frame.buffer, frame.start, frame.end, self._version)
        note_errors(self._upstream, answer.parts)
        record_bytes = sum(part.record_bytes for part in answer.parts)
        failed = any(part.error for part in answer.parts)
        owned = frame.own()
        shift = 0 if owned is frame else frame.start
        elements: list[tuple[bytes, int, Octets]] = []
        names = {(read.log, read.part.partition): read.part.topic for read in self._lane.reads}
        for part in answer.parts:
            name = names.get((part.topic, part.partition), part.topic)
            element = owned.view(part.start - shift, part.end - shift)
            elements.append((name, part.partition, element))
            if not part.error:
                empty = fetch.empty_element(owned.buffer, part.start - shift, self._version)
                self._client.fetching.empty_elements[name, part.partition, self._version, self._isolation] = empty
        self._deliver(PollAnswer(elements, record_bytes, not failed and not record_bytes))

    def answer_lost(self, error: UpstreamLostError) -> None:
        if self._client.fetching.polls.get(self._place) is not self._lane or self._client.connection.closed:
            return  # dropped by this node itself
        self._upstream.refresh_soon({read.log for read in self._lane.reads})
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elements: list[tuple[bytes, int, Octets]] = [
            (read.part.topic, read.part.partition, fetch.error_element(self._version, read.part.partition, code))
            for read in self._lane.reads
        ]
        self._deliver(PollAnswer(elements, 0, False))

    def _deliver(self, answer: PollAnswer) -> None:
        lane, polls = self._lane, self._client.fetching.polls
        if polls.get(self._place) is not lane:
            return  # replaced by a poll for other positions
        lane.answer = answer
        if lane.waiting is not None:
            lane.waiting.poll_ended(self._place, lane)


class SplitFetch(FetchExchange):
    """A request that takes several polls, or of which something is refused. Each poll has its *place*: a broker, and
    which of the polls there it is.
    """

    __slots__ = (
        "_claims",
        "_client",
        "_deadline",
        "_failed",
        "_fields",
        "_found",
        "_frame",
        "_lanes",
        "_polls",
        "_readers",
        "_timer",
        "_upstream",
        "_views",
    )

    def __init__(
        self,
        client: Client,
        upstream: KafkaUpstream,
        views: Views,
        claims: ReaderClaims,
        readers: Readers,
        request: Request,
        fields: FetchRequest,
    ) -> None:
        super().__init__(client.connection, request)
        self.weight = weight_of(fields)
        self._client = client
        self._upstream = upstream
        self._views = views
        self._claims = claims
        self._readers = readers
        self._frame = request.frame
        self._fields = fields._replace(parts=_each_once(fields.parts))
        self._polls = 1
        self._lanes: dict[tuple[int, int], PollLane] = {}
        self._found: dict[tuple[bytes, int], Octets] = {}
        self._deadline = 0.0
        self._failed = False
        self._timer: asyncio.TimerHandle | None = None

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        return [(part.topic, part.partition) for part in self._fields.parts]

    def begin(self, *, asked: bool) -> None:
        """Take up the polls that stand already, begin the others.

        `asked` False: Kafka could not be asked for the leaders that are not known.
        """
        loop = asyncio.get_running_loop()
        wait = max(0, self._fields.max_wait_ms) / 1000
        self._deadline = loop.time() + wait
        by_leader: dict[int, list[Read[FetchPart]]] = {}
        for part in self._fields.parts:
            log = self._views.log(part.topic, self._client.principal)
            leader = NO_LEADER if log is None else self._upstream.view.leader(log, part.partition)
            may = self._may_read(part)
            if may and leader != NO_LEADER and log is not None:
                by_leader.setdefault(leader, []).append(Read(part, log))
                continue
            self._failed = True
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            if not may:
                self.note_error(code)
            elif log is None:
                code = self._views.refusal(part.topic, self._client.principal)
            else:
                why = self._upstream.view.why_no_leader(log, part.partition)
                code = why if asked else ErrorCode.LEADER_NOT_AVAILABLE
            self._found[part.topic, part.partition] = fetch.error_element(self.version, part.partition, code)
        polls = {
            (leader, index): reads
            for leader, of_leader in by_leader.items()
            for index, reads in enumerate(layers(of_leader))
        }
        self._polls = max(1, len(polls))
        self.upstream = math.inf if polls else 0.0  # each poll may have begun before, and outlive this request
        for place, reads in polls.items():
            self._take_up(place, reads, wait)
        self._timer = loop.call_later(wait, self._expire)
        self._consider()

    def _may_read(self, part: FetchPart) -> bool:
        rights = self._client.rights
        if rights is not None and rights.refuses(Operation.READ, part.topic):
            return False
        return self._claims.may_fetch(part.topic, part.partition, self._client)

    def _take_up(self, place: tuple[int, int], reads: list[Read[FetchPart]], wait: float) -> None:
        buffer = self._frame.buffer
        positions = b"".join(bytes(buffer[read.part.start : read.part.end]) for read in reads)
        names = ((read.part.topic, read.log) for read in reads)
        asked = (self.version, self._fields.isolation, positions, *names)
        lane = self._client.fetching.polls.get(place)
        if lane is not None and lane.asked == asked:
            if lane.answer is None:
                lane.waiting = self
                self._lanes[place] = lane
                return
            if not lane.answer.is_fruitless:
                self._lanes[place] = lane
                return
        elif lane is not None and lane.answer is None:
            # Parked at positions that nobody wants any more: a new connection is cheaper than waiting it out.
            self._client.fetching.polls.pop(place)
            self._client.links.drop(place[0], _POLL_LANE + place[1])
        self._poll(place, PollLane(asked, reads), wait)

    def _poll(self, place: tuple[int, int], lane: PollLane, wait: float) -> None:
        """Ask one broker. Partitions never seen empty are asked without waiting, so that their watermarks are known."""
        fields, client = self._fields, self._client
        parts = [read.part for read in lane.reads]
        known = all(
            (part.topic, part.partition, self.version, fields.isolation) in client.fetching.empty_elements
            for part in parts
        )
        limits = (
            int(wait * 1000) if known else 0,
            1,
            max(1, fields.max_bytes // self._polls),
            fields.isolation,
        )
        assert client.identity is not None
        elements: list[tuple[bytes, Octets]] = [
            (read.log, self._frame.view(read.part.start, read.part.end)) for read in lane.reads
        ]
        message = fetch.encode_request(0, client.identity.name.encode(), self.version, limits, elements)
        client.fetching.polls[place] = lane
        lane.waiting = self
        lane.answer = None
        lane.prompt_until = 0.0 if limits[0] else asyncio.get_running_loop().time() + _PROMPT_LIMIT_S
        self._lanes[place] = lane
        reply = _PollReply(client, self._upstream, place, lane, self.version, fields.isolation)
        try:
            client.links.to(place[0], _POLL_LANE + place[1]).send_parts([message], reply)
        except DisconnectedError as error:
            reply.answer_lost(UpstreamLostError(str(error), sent=False))

    def poll_ended(self, place: tuple[int, int], lane: PollLane) -> None:
        """A poll has its answer: answer the client, or ask again while there is time."""
        if self.answered or self._timer is None:
            return  # still in `begin`, which looks at all lanes in the end
        left = self._deadline - asyncio.get_running_loop().time()
        self._consider()
        if not self.answered and left > _WORTH_ASKING_S and lane.answer is not None and lane.answer.is_fruitless:
            self._poll(place, PollLane(lane.asked, lane.reads), left)

    def _expire(self) -> None:
        """The client's limit has come, be it a rounded millisecond early."""
        self._deadline = 0.0
        self._consider()

    def _consider(self) -> None:
        """Answer the client if it is time: there is enough to say, or its limit has come.

        Not before brokers that were asked not to wait have answered: what their partitions hold is not known else.
        """
        now = asyncio.get_running_loop().time()
        if self.answered or not (self._failed or now >= self._deadline or self._enough()):
            return
        prompt = [lane.prompt_until for lane in self._lanes.values() if lane.answer is None and lane.prompt_until > now]
        if not prompt:
            self._finish()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(max(prompt), self._consider)

    def _enough(self) -> bool:
        """Whether there is something that the client should hear of: an error, or enough bytes."""
        record_bytes = 0
        for lane in self._lanes.values():
            if lane.answer is not None:
                record_bytes += lane.answer.record_bytes
                if not lane.answer.is_fruitless and not lane.answer.record_bytes:
                    return True
        return record_bytes >= max(1, self._fields.min_bytes)

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.answered or self.connection.closed:
            return
        for place, lane in self._lanes.items():
            lane.waiting = None
            if lane.answer is not None:
                for topic, partition, element in lane.answer.elements:
                    self._found[topic, partition] = element
                if self._client.fetching.polls.get(place) is lane:
                    del self._client.fetching.polls[place]
        elements: list[tuple[bytes, Octets]] = []
        for part in self._fields.parts:
            element = self._found.get((part.topic, part.partition))
            if element is None:
                element = self._client.fetching.empty_elements.get(
                    (part.topic, part.partition, self.version, self._fields.isolation)
                )
            if element is None:  # its broker is silent: nothing is known of it, not even where it ends
                element = fetch.error_element(self.version, part.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elements.append((part.topic, element))
        self._readers.answered(self.connection.id, self.version, elements)
        self.answer(fetch.encode_answer(self.correlation_id, self.version, elements))


def _each_once(parts: list[FetchPart]) -> list[FetchPart]:
    """Of a partition that is named again the last element counts, as for a broker (`FetchRequest.fetchData`)."""
    return list({(part.topic, part.partition): part for part in parts}.values())
