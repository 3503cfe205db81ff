"""A Fetch that waits at the ends of logs together with other clients', for polls of the node (`sidecar.fanout`).

Thousands of these wait at a time: each is one object without a task or timer. A reader that repeats one request with a
new offset (`sidecar.fanout.repeat`) has one object for all repetitions, `StandingFetch`. It gives all their answers in
turn, and implements `sidecar.network.handling.Repeating`: the connection offers it each request before parsing. So the
requests that thousands of readers repeat each second are not parsed again, and create no objects for Python's garbage
collector.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from sidecar.fanout.question import Asked, Question, fitting
from sidecar.fanout.repeat import Repeat
from sidecar.gateway.client import MAIN, Client
from sidecar.gateway.kafka_quotas import SentAs
from sidecar.gateway.leader_poll import Fetching, GatheredFetch, OwnPoll
from sidecar.gateway.whole_fetch import Node
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol import fetch
from sidecar.protocol.calls import tails as calls
from sidecar.protocol.calls.tails import Fetched
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.fetch_parts import FetchPart, FetchRequest
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import reference
from sidecar.shadow.views import Read

_PATIENT: Final = 11
"""The first version of Fetch whose clients accept a longer wait. kafka-go, which uses version 10, has a timeout of its
own.
"""
_UNKNOWN: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""The error for a partition whose end is unknown."""
REST_S: Final = 10.0
"""How long an idle broker connection stays open after the client's last Fetch through it, in seconds."""


class SharedFetch(GatheredFetch):
    """A request that waits at the ends of logs with other clients'. Implements `sidecar.fanout.waiting.Reader`.
    Elements have version 11 until the answer is encoded.
    """

    is_patient: ClassVar[bool] = True
    __slots__ = ("_asked", "_bears_more", "_max_bytes", "_sent_as", "_tails", "_tick", "_until")

    def __init__(
        self,
        client: Client,
        request: Request,
        fields: FetchRequest,
        node: Node,
        fetching: Fetching,
        asked: Sequence[Asked],
    ) -> None:
        super().__init__(client, request, fields, node)
        self._fetching = fetching
        self._tails = tails = node.tails
        self._asked = asked
        self._max_bytes = fields.max_bytes
        self._until = 0.0
        self._tick = -1
        self._sent_as = SentAs.NODE
        reads_more = tails.crowd.reads_more(client.connection.id, len(asked))
        self._bears_more = self.version >= _PATIENT and not reads_more

    @property
    def sent_as(self) -> SentAs:
        return self._sent_as

    def begin(self, seconds: float) -> None:
        """Wait `seconds` for a first byte, or longer if many clients wait (`sidecar.fanout.waiting`).

        A request for only some of the partitions that the connection reads does not wait longer: clients leave out
        partitions whose records are not consumed yet (Java's `fetchablePartitions`), and can request them only by their
        next request.
        """
        self._fetching.shared.add(self)
        self.upstream = math.inf  # the answer may come from a poll that started earlier, or from none
        now = self._tails.now()
        if self._fetching.alone_at and now - self._fetching.alone_at > REST_S:
            self._rest()
        self._until = now + seconds
        if self._bears_more:
            seconds = self._tails.wait_s(seconds, self.connection.id)
        self._tick = self._tails.park(self, self._asked, seconds)

    def _rest(self) -> None:
        """Close the connections that the client used for reading alone, if idle."""
        self._fetching.alone_at = 0.0
        for log, partition in {each.question.position.of for each in self._asked}:
            self._client.links.rest(self.node.upstream.view.leader(log, partition))

    def hurry(self) -> None:
        if self._tick >= 0:
            left = self._until - self._tails.now()
            if left > 0:
                self._tick = self._tails.hurry(self, self._tick, left)
            else:
                self.expired(self._tick)

    def leave(self) -> None:
        """Stop waiting: the client gets its answer, or has disconnected."""
        self._fetching.shared.discard(self)
        if self._tick >= 0:
            self._tails.leave(self, self._asked, self._tick)
            self._tick = -1

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """Answer with the records that fit into the client's limits; if none do, send a poll of its own."""
        if self._tick < 0 or self.connection.closed:
            return  # two polls may bring records before a reader is woken for the first
        self.leave()
        self.give(found)

    def give(self, found: Mapping[Question, Fetched]) -> None:
        """As `arrived`, for a request that does not wait."""
        taken, too_large = fitting(self._asked, found, self._max_bytes)
        if too_large is not None and not any(taken):
            self._ask_alone(too_large)
            return
        elements: list[tuple[bytes, Octets]] = []
        for part, each, fetched in zip(self._parts, self._asked, taken, strict=True):
            if fetched is None:
                elements.append((part.topic, self._empty(part, each)))
            else:
                elements.append((part.topic, self._failed(fetched).element if fetched.error else fetched.element))
        self._give(elements)

    def expired(self, tick: int) -> None:
        """Answer without records: the wait limit is reached."""
        if self._tick != tick or self.connection.closed:
            return
        self.leave()
        both = zip(self._parts, self._asked, strict=True)
        self._give([(part.topic, self._empty(part, each)) for part, each in both])

    def _give(self, elements: list[tuple[bytes, Octets]]) -> None:
        if len(elements) > 1:
            part, version = self._tails.bodies.part, self.version  # shared by all readers, too
            super()._give([(topic, part(version, element)) for topic, element in elements])
        elif not self.answered and not self.connection.closed:  # all readers of one partition share the body
            self.node.readers.answered(self.connection.id, calls.VERSION, elements)
            topic, element = elements[0]
            called = reference(self.ids, topic)
            self.answer(self._tails.bodies.answer(self.correlation_id, self.version, called, element))

    def _failed(self, fetched: Fetched) -> Fetched:
        """Reports an error, and returns it as this client understands it."""
        if self.ids is None:
            fetched = calls.by_name(fetched)
        self.note_error(fetched.error)
        return fetched

    def _empty(self, part: FetchPart, asked: Asked) -> Octets:
        """The element of a partition without new records, with the last known end of its log."""
        return self._tails.ends.empty(asked.question) or calls.error_of(part.partition, _UNKNOWN).element

    def _ask_alone(self, asked: Asked) -> None:
        """Send a poll of its own, so that the broker cuts the records to this client's limits."""
        position = asked.question.position
        read = Read(self._parts[self._asked.index(asked)], position.log, position.topic_id)
        self._sent_as = SentAs.NODE_FOR_CLIENT if read.is_renamed else SentAs.CLIENT
        poll = self._own_poll([read])
        leader = self.node.upstream.view.leader(position.log, position.partition)
        element = calls.element_of(position, asked.most_bytes)
        if self.version >= fetch.FIRST_FLEXIBLE:
            element = fetch.flexible_element(element)
        poll.begin(leader, MAIN, (0, 1, self._max_bytes, self._isolation), [element])

    def poll_ended(self, poll: OwnPoll) -> None:
        elements = () if poll.answer is None else poll.answer.elements
        found = {
            (topic, partition): fetch.converted(element, self.version, calls.VERSION)
            for topic, partition, element in elements
        }
        both = zip(self._parts, self._asked, strict=True)
        self._give([(part.topic, found.get(part[:2]) or self._empty(part, each)) for part, each in both])


class StandingFetch(SharedFetch):
    """The last request of a connection, and the requests that repeat it. It reads one partition."""

    __slots__ = ("_called", "_most_weight", "_repeat", "_stands", "_wait_s")

    def __init__(
        self,
        client: Client,
        request: Request,
        node: Node,
        fetching: Fetching,
        repeat: Repeat,
        stands: Callable[[Client, Repeat], bool],
    ) -> None:
        super().__init__(client, request, repeat.fields, node, fetching, (repeat.asked,))
        self._repeat = repeat
        self._stands = stands
        self._most_weight = self.weight
        self._called = reference(self.ids, repeat.part.topic)
        self._wait_s = repeat.fields.max_wait_ms / 1000

    def again(self, frame: Frame) -> bool:
        """See `Repeating`."""
        repeat = self._repeat
        asked = repeat.asks(frame)
        if asked is None or not self._stands(self._client, repeat):
            return False
        if asked is not self._asked[0]:
            self._asked = (asked,)
        found: Mapping[Question, Fetched] | None = None
        if not self._tails.is_waited_for(asked.question):
            found = self._tails.offer(self._asked, self._max_bytes)
            if found is None:
                return False
        self.renew(repeat.correlation_id)
        self._sent_as = SentAs.NODE
        self.weight = self._most_weight
        self._client.connection.expect(self)
        if found:
            self.give(found)
        else:
            self.begin(self._wait_s)
        return True

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """See `SharedFetch`. Ignores results that answer an earlier request."""
        (asked,) = self._asked
        fetched = found.get(asked.question)
        if fetched is not None and self._tick >= 0 and not self.connection.closed:
            self._fetching.shared.discard(self)
            self._tails.woken(self, self._asked, self._tick)
            self._tick = -1
            self._take(asked, fetched)

    def give(self, found: Mapping[Question, Fetched]) -> None:
        """See `SharedFetch`."""
        self._take(self._asked[0], found[self._asked[0].question])

    def _take(self, asked: Asked, fetched: Fetched) -> None:
        size = fetched.record_bytes
        if size > asked.most_bytes or size > self._max_bytes:
            self._ask_alone(asked)
            return
        if fetched.error:
            fetched = self._failed(fetched)
        self._give_one(fetched.element, size)

    def expired(self, tick: int) -> None:
        """See `SharedFetch`."""
        if self._tick == tick and not self.connection.closed:
            self.leave()
            self._give_one(self._empty(self._parts[0], self._asked[0]), 0)

    def _give_one(self, element: Octets, record_bytes: int) -> None:
        self.node.readers.answered_one(self.connection.id, self._repeat.part.topic, record_bytes)
        self.answer(self._tails.bodies.answer(self.correlation_id, self.version, self._called, element))
