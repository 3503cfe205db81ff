"""A Fetch that waits at the ends of logs with those of others, and is answered by the node's polls (`sidecar.fanout`).

Thousands of these wait at a time: one object each, no task and no timer of its own. A reader that sends one request
again and again, the offset apart (`sidecar.fanout.repeat`), has one object for all of them, `StandingFetch`. It is the
place of all its answers, one after the other, and implements `sidecar.network.handling.Repeating`: the connection
offers it each request before it reads it. So what thousands of readers ask and get each second neither is parsed anew
nor makes objects that Python has to collect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

from sidecar.fanout.question import Asked, Question, fitting
from sidecar.fanout.repeat import Repeat
from sidecar.gateway.client import MAIN, Client
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
"""The first version of Fetch whose clients bear a longer wait: kafka-go, which asks with 10, ends its wait itself."""
_UNKNOWN: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""Of a partition of which nothing was heard, not even where it ends."""
REST_S: Final = 10.0
"""How long an idle broker connection stays open after the client's last Fetch through it, in seconds."""


class SharedFetch(GatheredFetch):
    """A request that waits at the ends of logs with those of others. Implements `sidecar.fanout.waiting.Reader`.
    Elements are of v11 until they are given.
    """

    is_patient: ClassVar[bool] = True
    __slots__ = ("_asked", "_bears_more", "_max_bytes", "_tails", "_tick", "_until")

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
        reads_more = tails.crowd.reads_more(client.connection.id, len(asked))
        self._bears_more = self.version >= _PATIENT and not reads_more

    def begin(self, seconds: float) -> None:
        """Wait so long for a first byte, or longer where many do (`sidecar.fanout.waiting`).

        No longer for a part of what the connection reads: clients leave out partitions whose records are not consumed
        yet (Java's `fetchablePartitions`), and ask for those by the next request alone.
        """
        self._fetching.shared.add(self)
        self.upstream = math.inf  # a poll that others began may bring it, or nothing does within its time
        now = self._tails.now()
        if self._fetching.alone_at and now - self._fetching.alone_at > REST_S:
            self._rest()
        self._until = now + seconds
        if self._bears_more:
            seconds = self._tails.wait_s(seconds, self.connection.id)
        self._tick = self._tails.park(self, self._asked, seconds)

    def _rest(self) -> None:
        """Give up the connection that the client needed for reading alone, and has not for a while."""
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
        """Wait no more: the client is answered, or gone."""
        self._fetching.shared.discard(self)
        if self._tick >= 0:
            self._tails.leave(self, self._asked, self._tick)
            self._tick = -1

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """Answer with what fits into the client's limits; ask alone where nothing does."""
        if self._tick < 0 or self.connection.closed:
            return  # two polls may bring something before a reader is woken for the first
        self.leave()
        self.give(found)

    def give(self, found: Mapping[Question, Fetched]) -> None:
        """The same for one that does not wait."""
        taken, too_large = fitting(self._asked, found, self._max_bytes)
        if too_large is not None and not any(taken):
            self._ask_alone(too_large)
            return
        elements: list[tuple[bytes, Octets]] = []
        for part, each, fetched in zip(self._parts, self._asked, taken, strict=True):
            elements.append((part.topic, self._empty(part, each) if fetched is None else fetched.element))
            if fetched is not None and fetched.error:
                self.note_error(fetched.error)
        self._give(elements)

    def expired(self, tick: int) -> None:
        """Its time has come: answer with nothing."""
        if self._tick != tick or self.connection.closed:
            return
        self.leave()
        both = zip(self._parts, self._asked, strict=True)
        self._give([(part.topic, self._empty(part, each)) for part, each in both])

    def _give(self, elements: list[tuple[bytes, Octets]]) -> None:
        if len(elements) > 1:
            part, version = self._tails.bodies.part, self.version  # the same for all readers, too
            super()._give([(topic, part(version, element)) for topic, element in elements])
        elif not self.answered and not self.connection.closed:  # the same body for all readers of one partition
            self.node.readers.answered(self.connection.id, calls.VERSION, elements)
            topic, element = elements[0]
            called = reference(self.ids, topic)
            self.answer(self._tails.bodies.answer(self.correlation_id, self.version, called, element))

    def _empty(self, part: FetchPart, asked: Asked) -> Octets:
        """A partition that brought nothing, as its log's end was last heard of."""
        return self._tails.ends.empty(asked.question) or calls.error_of(part.partition, _UNKNOWN).element

    def _ask_alone(self, asked: Asked) -> None:
        """Let the broker cut what is too large, as it does for this client's limits."""
        position = asked.question.position
        poll = self._own_poll([Read(self._parts[self._asked.index(asked)], position.log)])
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
    """The last request of a connection, and those that repeat it. About one partition."""

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
        self.weight = self._most_weight
        self._client.connection.expect(self)
        if found:
            self.give(found)
        else:
            self.begin(self._wait_s)
        return True

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """See `SharedFetch`; what was found for an earlier request is nothing to this one."""
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
            self.note_error(fetched.error)
        self._give_one(fetched.element, size)

    def expired(self, tick: int) -> None:
        """See `SharedFetch`."""
        if self._tick == tick and not self.connection.closed:
            self.leave()
            self._give_one(self._empty(self._parts[0], self._asked[0]), 0)

    def _give_one(self, element: Octets, record_bytes: int) -> None:
        self.node.readers.answered_one(self.connection.id, self._repeat.part.topic, record_bytes)
        self.answer(self._tails.bodies.answer(self.correlation_id, self.version, self._called, element))
