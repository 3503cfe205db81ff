"""A Fetch that is passed on whole: all of its partitions have one leader. For a shadow the source's name replaces the
shadow's in the request, and the other way round in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sidecar.network.request import Exchange
from sidecar.protocol import fetch
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.fetch import FetchAnswer, FetchedPart, FetchRequest
from sidecar.protocol.primitives import Octets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.fanout.ends import Ends
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.shadow.readers import Readers

_MOST_BYTES: Final = 55 * 1024 * 1024
"""Kafka's default for `fetch.max.bytes` of brokers."""


def note_errors(upstream: KafkaUpstream, parts: list[FetchedPart]) -> None:
    """Look for the leaders again where these answers say that they have moved."""
    stale = {part.topic for part in parts if part.error in STALE_ROUTE}
    if stale:
        upstream.refresh_soon(stale)


def weight_of(fields: FetchRequest) -> int:
    """How large the answer may be, in bytes: as the client allows, within what brokers give at a time."""
    return min(max(0, fields.max_bytes), _MOST_BYTES)


class FetchExchange(Exchange):
    """A Fetch, whichever way it takes."""

    __slots__ = ()

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        """What it reads, by the client's names."""
        raise NotImplementedError


class PassedFetch(FetchExchange):
    """A request that went on whole. `names`: what the client calls the logs that it reads by another name; `ends`:
    answered where they end.
    """

    __slots__ = ("_ends", "_isolation", "_names", "_parts", "_readers", "_upstream")

    def __init__(
        self,
        client: Client,
        request: Request,
        upstream: KafkaUpstream,
        readers: Readers,
        fields: FetchRequest,
        names: Mapping[bytes, bytes] | None = None,
        ends: Ends | None = None,
    ) -> None:
        super().__init__(client.connection, request)
        self.weight = weight_of(fields)
        self._upstream = upstream
        self._parts = fields.parts
        self._isolation = fields.isolation
        self._names = names
        self._ends = ends
        self._readers = readers

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        return [(part.topic, part.partition) for part in self._parts]

    def answer_received(self, frame: Frame) -> None:
        answer = fetch.walk_answer(frame.buffer, frame.start, frame.end, self.version)
        note_errors(self._upstream, answer.parts)
        for part in answer.parts:
            if part.error:
                self.note_error(part.error)
            elif self._ends is not None and not self.connection.closed:
                empty = fetch.empty_element(frame.buffer, part.start, self.version)
                self._ends.note(part.topic, part.partition, self._isolation, empty)
        if self._names is None or not answer.parts:
            self.answer_frame(frame)
        else:
            self._answer_renamed(frame, answer, self._names)

    def _answer_renamed(self, frame: Frame, answer: FetchAnswer, names: Mapping[bytes, bytes]) -> None:
        for part in answer.parts:
            if (name := names.get(part.topic, part.topic)) != part.topic:
                self._readers.read(name, self.connection.id, part.record_bytes)
        version, first = self.version, answer.parts[0].topic
        if all(part.topic == first for part in answer.parts):
            head, rest = fetch.with_first_topic(frame.buffer, frame.start, frame.end, version, names.get(first, first))
            self.answer_behind(head, frame, rest)
            return
        owned = frame.own()
        shift = owned.start - frame.start
        elements: list[tuple[bytes, Octets]] = [
            (names.get(part.topic, part.topic), owned.view(part.start + shift, part.end + shift))
            for part in answer.parts
        ]
        self.answer(
            fetch.encode_answer(
                self.correlation_id, version, elements, throttle_ms=answer.throttle_ms, error=answer.error
            )
        )

    def _logs(self) -> set[bytes]:
        logs = {name: log for log, name in (self._names or {}).items()}
        return {logs.get(part.topic, part.topic) for part in self._parts}

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.refuse()

    def refuse(self) -> None:
        """Nothing was read: the client asks for the leaders again, so does the node."""
        if self.connection.closed:
            return
        self._upstream.refresh_soon(self._logs())
        elements: list[tuple[bytes, Octets]] = [
            (part.topic, fetch.error_element(self.version, part.partition, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            for part in self._parts
        ]
        self.answer(fetch.encode_answer(self.correlation_id, self.version, elements))
