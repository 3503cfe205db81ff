"""The base of all Fetch requests (`FetchExchange`), and `WholeFetch`: a request that is forwarded whole to the one
leader of all its partitions. Its answer is forwarded unchanged, or with the names of shadows.

An answer names topics as the request does, by name or by id. An error for a partition names its leader (KIP-951).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fanout.ends import Ends
from sidecar.fanout.tails import Tails
from sidecar.gateway.client import Client
from sidecar.gateway.kafka_quotas import SentAs
from sidecar.gateway.leader_hints import LeaderHints
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import fetch, usual_fetch
from sidecar.protocol.calls import tails as calls
from sidecar.protocol.errors import STALE_ROUTE, ErrorCode
from sidecar.protocol.fetch import FIRST_WITH_LEADERS, with_leader
from sidecar.protocol.fetch_parts import FetchAnswer, FetchPart, FetchRequest
from sidecar.protocol.primitives import Octets
from sidecar.protocol.topic_ids import Ids, names_of, reference
from sidecar.shadow.cursor_room import Readers
from sidecar.shadow.views import Read

Names: TypeAlias = Mapping[bytes, bytes] | None

_MOST_BYTES: Final = 55 * 1024 * 1024
"""Kafka's default for the brokers' `fetch.max.bytes`."""
_INDEX_ERROR: Final = Struct(">ih")


@dataclass(frozen=True, slots=True)
class Node:
    """The parts of the node that every Fetch needs."""

    upstream: KafkaUpstream
    readers: Readers
    hints: LeaderHints
    tails: Tails


class FetchExchange(Exchange):
    """The base of all kinds of Fetch. `ids`: the ids of its topics and of the logs that it reads."""

    __slots__ = ("_client", "_isolation", "_parts", "ids", "node")

    def __init__(self, client: Client, request: Request, fields: FetchRequest, node: Node) -> None:
        super().__init__(client.connection, request)
        self.weight = min(max(0, fields.max_bytes), _MOST_BYTES)  # the client's limit, at most the brokers'
        self.node = node
        self.ids = fields.ids
        self._client = client
        self._parts = fields.parts
        self._isolation = fields.isolation

    @property
    def sent_as(self) -> SentAs:
        """In whose name its logs were read."""
        return SentAs.CLIENT

    def partitions(self) -> Iterable[tuple[bytes, int]]:
        """The partitions of the request, by the client's names."""
        return [(part.topic, part.partition) for part in self._parts]

    def refuse_all(self, code: int) -> None:
        """Answer every partition with an error."""
        self.answer_elements(
            [(part.topic, fetch.error_element(self.version, part.partition, code)) for part in self._parts]
        )

    def answer_elements(self, elements: list[tuple[bytes, Octets]], throttle_ms: int = 0, error: int = 0) -> None:
        """Answer with these elements, each with the client's name of the topic."""
        version, ids = self.version, self.ids
        leaders = {}
        if version >= FIRST_WITH_LEADERS:
            codes = ((topic, *_INDEX_ERROR.unpack_from(element)) for topic, element in elements)
            leaders = self.node.hints.of(self._client.listener, codes)
        if leaders:
            elements = [
                (topic, with_leader(element, leader) if (leader := leaders.get((topic, _index(element)))) else element)
                for topic, element in elements
            ]
        if ids is not None:
            elements = [(reference(ids, topic), element) for topic, element in elements]
        self.answer(fetch.encode_answer(self.correlation_id, version, elements, throttle_ms, error, leaders.values()))


def _index(element: Octets) -> int:
    return _INDEX_ERROR.unpack_from(element)[0]


class LeaderPoll:
    """One unanswered Fetch at one leader. Implements `sidecar.network.upstream.Reply`."""

    __slots__ = ()
    version: int
    ids: Ids | None
    node: Node

    def answer_received(self, frame: Frame) -> None:
        answer = fetch.walk_answer(frame.buffer, frame.start, frame.end, self.version, names_of(self.ids))
        if answer.has_addresses:
            self.node.hints.learn(
                {(each.topic, each.partition): each.leader for each in answer.parts if each.leader is not None},
                self.ids,
            )
        for part in answer.parts:
            if part.error in STALE_ROUTE:
                self.node.upstream.refresh_soon({each.topic for each in answer.parts if each.error in STALE_ROUTE})
                break
        self.take(answer, frame)

    def take(self, answer: FetchAnswer, frame: Frame) -> None:
        """Handle the leader's answer; the frame is borrowed for this call."""
        raise NotImplementedError

    def answer_lost(self, error: UpstreamLostError) -> None:
        """See `sidecar.network.upstream.Reply`."""
        raise NotImplementedError

    @staticmethod
    def elements(answer: FetchAnswer, frame: Frame) -> list[Octets]:
        """The elements of an answer's partitions in owned memory, without the leaders that the broker named."""
        owned = frame.own()
        shift = owned.start - frame.start
        found: list[Octets] = [owned.view(part.start + shift, part.end + shift) for part in answer.parts]
        for number, part in enumerate(answer.parts):
            if part.leader is not None:
                found[number] = with_leader(found[number], None)
        return found


class WholeFetch(LeaderPoll, FetchExchange):
    """A request that was forwarded whole: all its partitions have one leader. `names`: the client's names of the logs,
    by log, if it reads shadows. `ends`: stores the logs' empty answers, which show where the logs end.
    """

    __slots__ = ("_ends", "_names")

    def __init__(
        self, client: Client, request: Request, fields: FetchRequest, node: Node, names: Names, ends: Ends | None
    ) -> None:
        FetchExchange.__init__(self, client, request, fields, node)  # `super` costs more
        self._names = names
        self._ends = ends

    @property
    def sent_as(self) -> SentAs:
        return SentAs.CLIENT if self._names is None else SentAs.NODE_FOR_CLIENT

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
        """Refuse all partitions, so that the client looks the leaders up again; the node does the same."""
        if not self.connection.closed:
            logs = {name: log for log, name in (self._names or {}).items()}
            self.node.upstream.refresh_soon({logs.get(part.topic, part.topic) for part in self._parts})
            self.refuse_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def renamed(client: Client, request: Request, fields: FetchRequest, reads: list[Read[FetchPart]]) -> bytes:
    """The request, encoded with the names of the logs."""
    assert client.identity is not None
    limits = (fields.max_wait_ms, fields.min_bytes, fields.max_bytes, fields.isolation)
    buffer = request.frame.buffer
    elements: list[tuple[bytes, Octets]] = [
        (reference(fields.ids, read.log), buffer[read.part.start : read.part.end]) for read in reads
    ]
    return fetch.encode_request(
        request.correlation_id, client.identity.name.encode(), request.version, limits, elements
    )
