"""A Fetch that goes on whole, to the one leader of all its partitions, and its answer, which the client gets as it came
or by the names of its shadows. Which request does: `gateway.fetch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.gateway.fetch_exchange import FetchExchange, Node
from sidecar.gateway.leader_poll import LeaderPoll
from sidecar.protocol import fetch, usual_fetch
from sidecar.protocol.calls import tails as calls
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.topic_ids import reference

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.fanout.ends import Ends
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.network.upstream import UpstreamLostError
    from sidecar.protocol.fetch_parts import FetchAnswer, FetchPart, FetchRequest
    from sidecar.protocol.primitives import Octets
    from sidecar.shadow.views import Read

    Names = Mapping[bytes, bytes] | None


class WholeFetch(LeaderPoll, FetchExchange):
    """A request that went on whole: all of its partitions have one leader. `names`: what the client calls the logs that
    it reads by another name; `ends` learns where they end.
    """

    __slots__ = ("_ends", "_names")

    def __init__(
        self, client: Client, request: Request, fields: FetchRequest, node: Node, names: Names, ends: Ends | None
    ) -> None:
        FetchExchange.__init__(self, client, request, fields, node)  # `super` costs more
        self._names = names
        self._ends = ends

    def answer_received(self, frame: Frame) -> None:
        if (
            self._ends is None
            and self._names is None
            and usual_fetch.is_plain(frame.buffer, frame.start, frame.end, self.version)
        ):
            self.answer_frame(frame)
        else:
            LeaderPoll.answer_received(self, frame)

    def take(self, answer: FetchAnswer, frame: Frame) -> None:
        for part in answer.parts:
            if part.error:
                self.note_error(part.error)
            elif self._ends is not None and not self.connection.closed:
                empty = fetch.empty_element(frame.buffer, part.start, self.version)
                as_polled = bytes(fetch.converted(empty, self.version, calls.VERSION))
                self._ends.note(part.topic, part.partition, self._isolation, as_polled)
        if answer.parts and (self._names is not None or answer.has_addresses):
            self._answer_renamed(frame, answer, self._names or {})
        else:
            self.answer_frame(frame)

    def _answer_renamed(self, frame: Frame, answer: FetchAnswer, names: Mapping[bytes, bytes]) -> None:
        parts, version = answer.parts, self.version
        for part in parts:
            if (name := names.get(part.topic, part.topic)) != part.topic:
                self.node.readers.read(name, self.connection.id, part.record_bytes)
        first = parts[0].topic
        if not answer.has_addresses and all(part.topic == first for part in parts):
            called = reference(self.ids, names.get(first, first))
            head, rest = fetch.with_first_topic(frame.buffer, frame.start, frame.end, version, called)
            self.answer_behind(head, frame, rest)
        elif not self.connection.closed:
            elements = [
                (names.get(part.topic, part.topic), element)
                for part, element in zip(parts, self.elements(answer, frame), strict=True)
            ]
            self.answer_elements(elements, answer.throttle_ms, answer.error)

    def answer_lost(self, error: UpstreamLostError) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Nothing was read: the client asks for the leaders again, so does the node."""
        if not self.connection.closed:
            logs = {name: log for log, name in (self._names or {}).items()}
            self.node.upstream.refresh_soon({logs.get(part.topic, part.topic) for part in self._parts})
            self.refuse_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def renamed(client: Client, request: Request, fields: FetchRequest, reads: list[Read[FetchPart]]) -> bytes:
    """The request by the names of the logs."""
    assert client.identity is not None
    limits = (fields.max_wait_ms, fields.min_bytes, fields.max_bytes, fields.isolation)
    buffer = request.frame.buffer
    elements: list[tuple[bytes, Octets]] = [
        (reference(fields.ids, read.log), buffer[read.part.start : read.part.end]) for read in reads
    ]
    return fetch.encode_request(
        request.correlation_id, client.identity.name.encode(), request.version, limits, elements
    )
