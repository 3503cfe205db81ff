"""A Fetch that waits at the ends of logs together with those of other clients (`sidecar.fanout`).

Only if no client can see a difference: version 11, min_bytes of one at most, every partition read by several
connections and at its end, or so near it that its records arrived in the last seconds. In all other cases (for example
more records than the client accepts at a time) the request is passed on by itself.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.fanout.question import Question
from sidecar.gateway.passed_fetch import FetchExchange, note_errors, weight_of
from sidecar.protocol import fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls import tails as calls
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.primitives import Octets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.fanout.tails import Tails
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.calls.tails import Fetched
    from sidecar.protocol.fetch import FetchPart, FetchRequest
    from sidecar.shadow.readers import Readers

VERSION: Final = calls.VERSION
REST_S: Final = 10.0
"""How long an idle broker connection stays open after the client's last Fetch through it, in seconds."""


class Wanted(NamedTuple):
    """One partition of a request: the name that the client has for it, the question, the bytes that it takes."""

    name: bytes
    question: Question
    most_bytes: int


def may_share(fields: FetchRequest, version: int) -> bool:
    """Whether a request waits for whatever comes first."""
    return version == VERSION and fields.min_bytes <= 1 and fields.max_wait_ms > 0


def wanted(buffer: Octets, parts: Sequence[FetchPart], logs: Sequence[bytes], isolation: int) -> list[Wanted]:
    """The partitions of a request, each with the log that is read."""
    found: list[Wanted] = []
    for part, log in zip(parts, logs, strict=True):
        position, most = calls.position_of(log, buffer[part.start : part.end])
        found.append(Wanted(part.topic, Question(position, isolation), most))
    return found


class SharedFetch(FetchExchange):
    """One client's request. Implements `sidecar.fanout.tails.Reader`, and `sidecar.network.upstream.Reply` where it has
    to ask alone.
    """

    __slots__ = (
        "_alone",
        "_client",
        "_isolation",
        "_max_bytes",
        "_readers",
        "_tails",
        "_timer",
        "_upstream",
        "_wanted",
    )

    def __init__(
        self,
        client: Client,
        request: Request,
        upstream: KafkaUpstream,
        tails: Tails,
        readers: Readers,
        fields: FetchRequest,
        wanted: Sequence[Wanted],
    ) -> None:
        super().__init__(client.connection, request)
        self.weight = weight_of(fields)
        self._client = client
        self._upstream = upstream
        self._tails = tails
        self._readers = readers
        self._isolation = fields.isolation
        self._max_bytes = fields.max_bytes
        self._wanted = wanted
        self._timer: asyncio.TimerHandle | None = None
        self._alone = False

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        return [(each.name, each.question.position.partition) for each in self._wanted]

    def begin(self, seconds: float) -> None:
        """How long to wait for a first byte."""
        client = self._client
        client.fetching.shared.add(self)
        self.upstream = math.inf  # a poll that others began may bring it, or nothing does within its time
        if client.fetching.alone_at:
            self._rest()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._expire)
        for each in self._wanted:
            self._tails.wait(each.question, self)

    def _rest(self) -> None:
        """Give up the connection that the client needed for reading alone, once it has not for a while."""
        client = self._client
        if asyncio.get_running_loop().time() - client.fetching.alone_at > REST_S:
            client.fetching.alone_at = 0.0
            for log, partition in {each.question.position.of for each in self._wanted}:
                client.links.rest(self._upstream.view.leader(log, partition))

    def leave(self) -> None:
        """Wait no more: the client is answered, or gone."""
        self._client.fetching.shared.discard(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for each in self._wanted:
            self._tails.leave(each.question, self)

    def arrived(self, found: Mapping[Question, Fetched]) -> None:
        """Answer with what fits into the client's limits; ask alone where nothing does."""
        if self.answered or self._alone or self.connection.closed:
            return  # two polls may bring something before a reader gets the first
        self.leave()
        left = self._max_bytes
        elements: list[tuple[bytes, Octets]] = []
        too_large: Wanted | None = None
        taken = False
        for each in self._wanted:
            fetched = found.get(each.question)
            if fetched is not None and fetched.record_bytes > min(each.most_bytes, left):
                too_large, fetched = each, None
            if fetched is None:
                elements.append((each.name, self._empty(each)))
                continue
            taken = True
            left -= fetched.record_bytes
            elements.append((each.name, fetched.element))
            if fetched.error:
                self.note_error(fetched.error)
        if too_large is not None and not taken:
            self._ask_alone(too_large)
        else:
            self._give(elements)

    def _expire(self) -> None:
        self.leave()
        if not self.connection.closed:
            self._give([(each.name, self._empty(each)) for each in self._wanted])

    def _empty(self, each: Wanted) -> Octets:
        known = self._tails.ends.empty(each.question)
        partition = each.question.position.partition
        return known or fetch.error_element(self.version, partition, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _give(self, elements: list[tuple[bytes, Octets]]) -> None:
        self._readers.answered(self.connection.id, self.version, elements)
        self.answer(fetch.encode_answer(self.correlation_id, self.version, elements))

    # Alone ----------------------------------------------------------------------------------------------------------

    def _ask_alone(self, each: Wanted) -> None:
        """Let the broker cut what is too large, as it does for this client's limits."""
        self._alone = True
        log, partition, *_ = each.question.position
        leader = self._upstream.view.leader(log, partition)
        limits = (0, 1, self._max_bytes, self._isolation)
        element = calls.element_of(each.question.position, each.most_bytes)
        assert self._client.identity is not None
        name = self._client.identity.name.encode()
        message = fetch.encode_request(self.correlation_id, name, self.version, limits, [(log, element)])
        try:
            self._client.links.to(leader).send_parts([message], self)
        except DisconnectedError:
            self._give([(wanted.name, self._empty(wanted)) for wanted in self._wanted])

    def answer_received(self, frame: Frame) -> None:
        answer = fetch.walk_answer(frame.buffer, frame.start, frame.end, self.version)
        note_errors(self._upstream, answer.parts)
        owned = frame.own()
        shift = owned.start - frame.start
        found = {
            (part.topic, part.partition): owned.view(part.start + shift, part.end + shift) for part in answer.parts
        }
        self._give([(each.name, found.get(each.question.position.of) or self._empty(each)) for each in self._wanted])

    def answer_lost(self, error: UpstreamLostError) -> None:
        if not self.connection.closed:
            self._give([(each.name, self._empty(each)) for each in self._wanted])
