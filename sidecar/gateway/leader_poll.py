"""One long poll of a leader, and the Fetch that needs several.

`LeaderPoll` reads the leader's answer; a subclass decides what is done with it:

- `OwnPoll` stores it for the waiting request, or for the client's next one: a poll may outlive the request.
- `whole_fetch.WholeFetch` forwards it to the client directly. Poll and request are one object.

`SplitFetch` has a poll for each leader, and for each name of a log. The client is answered as soon as there are enough
records. Pending polls stay open, and the client's next request for the same positions uses them instead of new polls.
So an idle broker never delays a busy one, and never costs more than one parked poll.

`fetch` chooses the way of a request, and has the polls that all clients share.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sidecar.gateway.client import Client
from sidecar.gateway.kafka_quotas import SentAs
from sidecar.gateway.source_check import send_read
from sidecar.gateway.whole_fetch import FetchExchange, LeaderPoll, Node
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.fetch_parts import FetchAnswer, FetchPart, FetchRequest
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import Ids, is_stand_in, reference
from sidecar.shadow.views import Read, layers

_POLL_LANE: Final = 1
_PROMPT_LIMIT_S: Final = 1.0
"""How long the client's answer waits for a broker that was asked to answer at once, in seconds."""
_WORTH_ASKING_S: Final = 0.005
"""A poll that ends empty is repeated if more than this is left of the client's wait, in seconds."""

_Place = tuple[int, int]
"""A broker's id, and the index of the poll among the client's polls of that broker."""


@dataclass(slots=True)
class Fetching:
    """The state of Fetch on one client connection that outlives a request. `polls`: the open polls, by place.
    `empty_elements`: the answer for a partition without new records, by name or id, partition, version and isolation
    level.
    """

    polls: dict[_Place, OwnPoll] = field(default_factory=dict[_Place, "OwnPoll"])
    empty_elements: dict[tuple[bytes, int, int, int], bytes] = field(
        default_factory=dict[tuple[bytes, int, int, int], bytes]
    )
    shared: set[GatheredFetch] = field(default_factory=set["GatheredFetch"])
    """The requests that wait for polls of the node."""
    alone_at: float = 0.0
    """When the client last read alone although it could have shared a poll; 0.0 if no connection for that is open."""


# Polls ----------------------------------------------------------------------------------------------------------------


class PollAnswer(NamedTuple):
    """The result of one poll: topic, partition and encoded element of each partition, by the client's names."""

    elements: list[tuple[bytes, int, Octets]]
    record_bytes: int
    is_fruitless: bool


@dataclass(slots=True, eq=False)
class OwnPoll(LeaderPoll):
    """A poll on its client's own connection. A poll with a `place` is kept in `Fetching.polls` for a next request with
    the same `asked` (version, isolation level, positions and names).
    """

    _client: Client
    node: Node
    _fetching: Fetching
    waiting: GatheredFetch | None
    reads: list[Read[FetchPart]]
    _isolation: int
    version: int
    ids: Ids | None
    place: _Place | None = None
    asked: tuple[object, ...] = ()
    answer: PollAnswer | None = None
    prompt_until: float = 0.0
    correlation_id: int = 0

    def begin(self, broker: int, lane: int, limits: tuple[int, int, int, int], elements: Sequence[Octets]) -> None:
        """Send the poll of `reads` to a broker, on the client's connection for `lane`."""
        client = self._client
        assert client.identity is not None
        named = [(reference(self.ids, read.log), element) for read, element in zip(self.reads, elements, strict=True)]
        message = fetch.encode_request(0, client.identity.name.encode(), self.version, limits, named)
        if self.place is not None:
            self._fetching.polls[self.place] = self
        try:
            connection = client.links.to(broker, lane, as_node=self.reads[0].is_renamed)
            send_read(self.node.upstream, connection, message, self, self.reads, by_id=self.ids is not None)
        except DisconnectedError as error:
            self.answer_lost(UpstreamLostError(str(error), sent=False))

    @property
    def _is_wanted(self) -> bool:
        """False if the client has disconnected, or if a poll for other positions replaced this one."""
        place = self.place
        return not self._client.connection.closed and (place is None or self._fetching.polls.get(place) is self)

    def take(self, answer: FetchAnswer, frame: Frame) -> None:
        if not self._is_wanted:
            return
        names = {(read.log, read.part.partition): read.part.topic for read in self.reads}
        empties, version, isolation = self._fetching.empty_elements, self.version, self._isolation
        elements: list[tuple[bytes, int, Octets]] = []
        record_bytes, failed = 0, False
        for part, element in zip(answer.parts, self.elements(answer, frame), strict=True):
            name = names.get((part.topic, part.partition), part.topic)
            elements.append((name, part.partition, element))
            record_bytes += part.record_bytes
            if part.error:
                failed = True
            else:
                key = reference(self.ids, name), part.partition, version, isolation
                empties[key] = fetch.empty_element(element, 0, version)
        self._end(PollAnswer(elements, record_bytes, not failed and not record_bytes))

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self._is_wanted:
            return
        self.node.upstream.refresh_soon({read.log for read in self.reads})
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elements: list[tuple[bytes, int, Octets]] = [
            (read.part.topic, read.part.partition, fetch.error_element(self.version, read.part.partition, code))
            for read in self.reads
        ]
        self._end(PollAnswer(elements, 0, False))

    def _end(self, answer: PollAnswer) -> None:
        self.answer = answer
        if self.waiting is not None:
            self.waiting.poll_ended(self)


# Requests -------------------------------------------------------------------------------------------------------------


class GatheredFetch(FetchExchange):
    """A Fetch that is answered with the results of several polls, in the order of the request."""

    __slots__ = ("_fetching",)
    _fetching: Fetching

    def leave(self) -> None:
        """Stop waiting for polls of the node."""

    def _own_poll(
        self, reads: list[Read[FetchPart]], place: _Place | None = None, asked: tuple[object, ...] = ()
    ) -> OwnPoll:
        """Returns a new poll on the client's own connection, for which this request waits."""
        client, version, ids = self._client, self.version, self.ids
        return OwnPoll(client, self.node, self._fetching, self, reads, self._isolation, version, ids, place, asked)

    def poll_ended(self, poll: OwnPoll) -> None:
        """Called when a poll of this request has its answer."""
        raise NotImplementedError

    def _give(self, elements: list[tuple[bytes, Octets]]) -> None:
        if not self.answered and not self.connection.closed:
            self.node.readers.answered(self.connection.id, self.version, elements)
            self.answer_elements(elements)


class SplitFetch(GatheredFetch):
    """A request that needs several polls on its client's own connections, or that is refused in part."""

    __slots__ = ("_deadline", "_fields", "_frame", "_poll_bytes", "_refused", "_taken", "_timer")

    def __init__(self, client: Client, request: Request, fields: FetchRequest, node: Node, fetching: Fetching) -> None:
        super().__init__(client, request, fields, node)
        self._fetching = fetching
        self._timer: asyncio.TimerHandle | None = None
        self._fields = fields
        self._frame = request.frame
        self._taken: dict[_Place, OwnPoll] = {}
        self._poll_bytes = fields.max_bytes
        self._deadline = 0.0
        self._refused: dict[tuple[bytes, int], Octets] = {}

    @property
    def sent_as(self) -> SentAs:
        """See `FetchExchange`. A request that reads shadows besides other topics counts as theirs."""
        renames = any(poll.reads[0].is_renamed for poll in self._taken.values())
        return SentAs.NODE_FOR_CLIENT if renames else SentAs.CLIENT

    def refuse(self, part: FetchPart, code: int) -> None:
        """Refuse a partition. The client gets the error at once, with the results of other partitions so far."""
        self._refused[part.topic, part.partition] = fetch.error_element(self.version, part.partition, code)
        self.note_error(code)
        self._client.note_refusal(b"" if is_stand_in(part.topic) else part.topic, code, None)

    def begin(self, by_leader: Mapping[int, Iterable[Read[FetchPart]]]) -> None:
        """Use the open polls that match, and start the others."""
        loop = asyncio.get_running_loop()
        wait = max(0, self._fields.max_wait_ms) / 1000
        self._deadline = loop.time() + wait
        places = {
            (leader, index): reads
            for leader, of_leader in by_leader.items()
            for index, reads in enumerate(layers(of_leader, apart=self._client.links.user is not None))
        }
        self._poll_bytes = max(1, self._fields.max_bytes // max(1, len(places)))
        self.upstream = math.inf if places else 0.0  # a poll may have started earlier, and may outlive this request
        for place, reads in places.items():
            self._take_up(place, reads, wait)
        self._timer = loop.call_later(wait, self._expire)
        self._consider()

    def _take_up(self, place: _Place, reads: list[Read[FetchPart]], wait: float) -> None:
        buffer, kept = self._frame.buffer, self._fetching.polls
        positions = b"".join(bytes(buffer[read.part.start : read.part.end]) for read in reads)
        ids = self.ids
        names = ((read.part.topic, read.log, read.topic_id if ids is None else ids[read.log]) for read in reads)
        asked = (self.version, self._isolation, positions, *names)
        poll = kept.get(place)
        if poll is not None and poll.asked == asked:
            if poll.answer is None or not poll.answer.is_fruitless:
                poll.waiting, poll.reads = self, reads  # the same reads, at their offsets in this request's frame
                self._taken[place] = poll
                return
        elif poll is not None and poll.answer is None:
            # The open poll is for old positions: a new connection is cheaper than waiting for its end.
            kept.pop(place)
            self._client.links.drop(place[0], _POLL_LANE + place[1])
        self._poll(place, reads, asked, wait)

    def _poll(self, place: _Place, reads: list[Read[FetchPart]], asked: tuple[object, ...], wait: float) -> None:
        """Poll one broker. If some partition has no known empty answer yet, the broker is asked to answer at once, so
        that its watermarks become known.
        """
        poll = self._own_poll(reads, place, asked)
        is_known = all(self._empty(read.part) is not None for read in reads)
        limits = (int(wait * 1000) if is_known else 0, 1, self._poll_bytes, self._isolation)
        poll.prompt_until = 0.0 if limits[0] else asyncio.get_running_loop().time() + _PROMPT_LIMIT_S
        self._taken[place] = poll
        elements = [self._frame.view(read.part.start, read.part.end) for read in reads]
        poll.begin(place[0], _POLL_LANE + place[1], limits, elements)

    def _empty(self, part: FetchPart) -> Octets | None:
        key = reference(self.ids, part.topic), part.partition, self.version, self._isolation
        return self._fetching.empty_elements.get(key)

    def _unknown(self, part: FetchPart) -> Octets:
        """The element of a partition whose broker has not answered and whose end is unknown."""
        return fetch.error_element(self.version, part.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def poll_ended(self, poll: OwnPoll) -> None:
        """Answer the client, or repeat an empty poll while there is time."""
        if self.answered or self._timer is None:
            return  # still in `begin`, which checks all polls at its end
        left = self._deadline - asyncio.get_running_loop().time()
        self._consider()
        fruitless = poll.answer is not None and poll.answer.is_fruitless
        if not self.answered and left > _WORTH_ASKING_S and fruitless and poll.place is not None:
            self._poll(poll.place, poll.reads, poll.asked, left)

    def _expire(self) -> None:
        """The client's wait limit is reached; the timer may fire up to a millisecond early."""
        self._deadline = 0.0
        self._consider()

    def _consider(self) -> None:
        """Answer the client if an error or enough bytes are there, or its wait limit is reached.

        First waits for the brokers that were asked to answer at once (at most `_PROMPT_LIMIT_S`): nothing is known of
        their partitions before that.
        """
        now = asyncio.get_running_loop().time()
        if self.answered or not (self._refused or now >= self._deadline or self._enough()):
            return
        prompt = [each.prompt_until for each in self._taken.values() if each.answer is None and each.prompt_until > now]
        if not prompt:
            self._finish()
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(max(prompt), self._consider)

    def _enough(self) -> bool:
        """Whether the polls have brought an error, or enough bytes."""
        record_bytes = 0
        for poll in self._taken.values():
            if poll.answer is not None:
                record_bytes += poll.answer.record_bytes
                if not poll.answer.is_fruitless and not poll.answer.record_bytes:
                    return True
        return record_bytes >= max(1, self._fields.min_bytes)

    def _finish(self) -> None:
        """Answer with the results of the polls; unanswered polls stay for the client's next request."""
        kept, found = self._fetching.polls, self._refused
        for place, poll in self._taken.items():
            poll.waiting = None
            if poll.answer is not None:
                for topic, partition, element in poll.answer.elements:
                    found[topic, partition] = element
                if kept.get(place) is poll:
                    del kept[place]
        self._give(
            [
                (part.topic, found.get((part.topic, part.partition)) or self._empty(part) or self._unknown(part))
                for part in self._parts
            ]
        )
