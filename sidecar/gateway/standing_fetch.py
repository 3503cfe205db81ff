"""A reader that waits with others and sends one request again and again, the offset apart (`sidecar.fanout.repeat`).

One object is the place of all its answers, one after the other, and implements `sidecar.network.handling.Repeating`:
the connection offers it each request before it reads it. So what thousands of readers ask and get each second neither
is parsed anew nor makes objects that Python has to collect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sidecar.gateway.shared_fetch import SharedFetch
from sidecar.protocol.topic_ids import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.fanout.question import Asked, Question
    from sidecar.fanout.repeat import Repeat
    from sidecar.fanout.tails import Tails
    from sidecar.gateway.client import Client
    from sidecar.gateway.fetch_exchange import Node
    from sidecar.gateway.leader_poll import Fetching
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.protocol.calls.tails import Fetched
    from sidecar.protocol.primitives import Octets


class Standing(Protocol):
    """Whether a client may still read what it repeats, and waits with others for it."""

    def __call__(self, client: Client, repeat: Repeat, /) -> bool: ...


class StandingFetch(SharedFetch):
    """The last request of a connection, and those that repeat it. About one partition."""

    __slots__ = ("_called", "_most_weight", "_repeat", "_stands", "_wait_s")

    def __init__(
        self,
        client: Client,
        request: Request,
        node: Node,
        fetching: Fetching,
        tails: Tails,
        repeat: Repeat,
        stands: Standing,
    ) -> None:
        super().__init__(client, request, repeat.fields, node, fetching, tails, (repeat.asked,))
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
