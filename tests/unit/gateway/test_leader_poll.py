"""A client's long polls outlive its requests: the next one takes them up, and nobody waits for a broker in vain."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from struct import pack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from sidecar.fanout.question import Asked, asked_by
from sidecar.fanout.tails import Tails
from sidecar.gateway.leader_poll import Fetching, SplitFetch
from sidecar.gateway.shared_fetch import SharedFetch
from sidecar.gateway.whole_fetch import Node
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.tasks import Tasks
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol import fetch
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.tails import Fetched, Position, element_of
from sidecar.protocol.errors import ErrorCode
from sidecar.shadow.views import Read
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.network.upstream import Reply
    from sidecar.protocol.fetch import FetchedPart
    from sidecar.protocol.primitives import Octets

VERSION = 11
WAIT_MS = 60_000
MOVED = ErrorCode.NOT_LEADER_OR_FOLLOWER
_HIGH_WATERMARK = 50


def element(partition: int, records: bytes = b"", error: int = 0) -> bytes:
    head = pack(">ihqqq", partition, error, _HIGH_WATERMARK, _HIGH_WATERMARK, 0)
    return head + pack(">iii", -1, -1, len(records)) + records


@dataclass
class Link:
    """A connection to a broker: what was asked on it, oldest first."""

    broker: int
    lane: int
    asked: list[tuple[fetch.FetchRequest, Reply]] = field(default_factory=list)

    def send_parts(self, parts: list[Octets], reply: Reply) -> None:
        message = bytearray(b"".join(parts))
        body = 14 + int.from_bytes(message[12:14], "big")
        self.asked.append((fetch.walk(message, body, len(message), VERSION), reply))

    @property
    def wait_ms(self) -> list[int]:
        return [fields.max_wait_ms for fields, _ in self.asked]

    @property
    def partitions(self) -> list[int]:
        return [part.partition for fields, _ in self.asked for part in fields.parts]

    def answers(self, *elements: tuple[bytes, Octets]) -> None:
        _, reply = self.asked[-1]
        data = bytearray(b"".join(fetch.encode_answer(0, VERSION, list(elements))))
        reply.answer_received(Frame(data, 0, len(data), owned=True))

    def loses(self) -> None:
        _, reply = self.asked[-1]
        reply.answer_lost(UpstreamLostError("it died", sent=True))


@dataclass
class Links:
    open: dict[tuple[int, int], Link] = field(default_factory=dict[tuple[int, int], Link])
    dropped: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_away: bool = False
    user: str | None = None

    def to(self, broker: int, lane: int = 0, *, as_node: bool = False) -> Link:
        if self.is_away:
            raise DisconnectedError("left alone", sent=False)
        return self.open.setdefault((broker, lane), Link(broker, lane))

    def drop(self, broker: int, lane: int) -> None:
        self.open.pop((broker, lane))
        self.dropped.append((broker, lane))


class Connection:
    """A client's connection that keeps the answers."""

    def __init__(self) -> None:
        self.id, self.peer, self.closed = 1, "here", False
        self.answers: list[list[FetchedPart]] = []
        self.errors: list[int] = []

    def answer_ready(self, exchange: Exchange) -> None:
        data = b"".join(exchange.parts or [])
        self.answers.append(fetch.walk_answer(data, 0, len(data), VERSION).parts)

    def error_answered(self, _: Exchange, code: int) -> None:
        self.errors.append(code)

    @property
    def told(self) -> list[tuple[int, int, int]]:
        """Of the last answer, by partition: error, bytes of records."""
        return [(part.partition, part.error, part.record_bytes) for part in self.answers[-1]]


class Reader:
    """A client of `orders`, whose partitions are led by brokers of their numbers, and the node around it."""

    def __init__(self) -> None:
        self.connection, self.links, self.fetching = Connection(), Links(), Fetching()
        self.identity = SimpleNamespace(name="reader")
        self.moved: list[set[bytes]] = []
        self.refused: list[tuple[bytes, int]] = []
        self.view = SimpleNamespace(leader=lambda _topic, partition: partition)
        self.tails = Tails(cast("Any", self), Tasks(lambda _: None), longest_s=5.0)

    async def call(self, *_: Any, **__: Any) -> None:
        """A poll that nothing comes for."""
        await asyncio.Event().wait()

    def refresh_soon(self, topics: set[bytes]) -> None:
        self.moved.append(topics)

    def note_refusal(self, topic: bytes, code: int, reason: str | None) -> None:
        self.refused.append((topic, code))

    def answered(self, *_: Any) -> None:
        """Nobody reads a shadow."""

    def request(
        self, positions: dict[int, int], min_bytes: int = 1, most_bytes: int = 1000
    ) -> tuple[Request, fetch.FetchRequest]:
        parts: list[tuple[bytes, Octets]] = [
            (b"orders", element_of(Position(b"orders", partition, -1, offset), most_bytes))
            for partition, offset in positions.items()
        ]
        message = bytearray(fetch.encode_request(7, b"", VERSION, (WAIT_MS, min_bytes, 1000, 0), parts))
        fields = fetch.walk(message, 14, len(message), VERSION)
        return Request(1, VERSION, 7, b"", Frame(message, 0, len(message), owned=True), 14), fields

    def split(self, positions: dict[int, int], min_bytes: int = 1, refused: int | None = None) -> SplitFetch:
        request, fields = self.request(positions, min_bytes)
        node = cast("Any", self)
        found = SplitFetch(node, request, fields, Node(node, node, node, cast(Any, None)), self.fetching)
        by_leader = {part.partition: [Read(part, b"orders")] for part in fields.parts if part.partition != refused}
        for part in fields.parts:
            if part.partition == refused:
                found.refuse(part, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        found.begin(by_leader)
        return found

    def seen_empty(self, *partitions: int) -> None:
        """What an answer without records says of a log is known."""
        for partition in partitions:
            empty = fetch.empty_element(element(partition), 0, VERSION)
            self.fetching.empty_elements[b"orders", partition, VERSION, 0] = empty

    def link(self, broker: int) -> Link:
        return self.links.open[broker, 1]


@pytest.fixture
async def reader() -> Reader:
    return Reader()


async def test_what_one_leader_has_is_answered_although_another_is_silent(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1, b"records")))
    assert reader.connection.told == [(1, 0, 7), (2, 0, 0)]


async def test_the_next_request_takes_up_the_poll_that_is_parked(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1, b"records")))
    reader.split({1: 6, 2: 5})
    assert (len(reader.link(1).asked), len(reader.link(2).asked)) == (2, 1)
    reader.link(2).answers((b"orders", element(2, b"others")))
    assert reader.connection.told == [(1, 0, 0), (2, 0, 6)]


async def test_what_a_poll_brought_between_two_requests_is_answered_at_once(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1, b"records")))
    reader.link(2).answers((b"orders", element(2, b"others")))
    assert len(reader.connection.answers) == 1
    reader.split({1: 6, 2: 5})
    assert reader.connection.told == [(1, 0, 0), (2, 0, 6)]


async def test_a_poll_at_other_positions_is_dropped_with_its_connection(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1, b"records")))
    reader.split({1: 6, 2: 9})
    assert reader.links.dropped == [(2, 1)]
    assert len(reader.link(2).asked) == 1, "on a new connection"


async def test_a_partition_that_was_never_seen_empty_is_asked_without_waiting(reader: Reader) -> None:
    reader.seen_empty(2)
    reader.split({1: 5, 2: 5})
    assert (reader.link(1).wait_ms, reader.link(2).wait_ms) == ([0], [WAIT_MS])


async def test_a_poll_that_brought_nothing_is_asked_again_while_there_is_time(reader: Reader) -> None:
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1)))
    assert not reader.connection.answers
    assert reader.link(1).wait_ms[0] == 0
    assert reader.link(1).wait_ms[1] > 0


async def test_a_poll_that_was_taken_up_asks_again_for_its_own_partition_wherever_that_stands_now(
    reader: Reader,
) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(1).answers((b"orders", element(1, b"records")))
    reader.split({2: 5, 1: 6})
    reader.link(2).answers((b"orders", element(2)))
    assert reader.link(2).partitions == [2, 2]


async def test_fewer_bytes_than_the_client_waits_for_are_not_answered_yet(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5}, min_bytes=10)
    reader.link(1).answers((b"orders", element(1, b"records")))
    assert not reader.connection.answers
    reader.link(2).answers((b"orders", element(2, b"others")))
    assert reader.connection.told == [(1, 0, 7), (2, 0, 6)]


async def test_a_partition_that_is_refused_is_told_at_once_beside_what_is_known(reader: Reader) -> None:
    reader.seen_empty(1)
    reader.split({1: 5, 2: 5}, refused=2)
    assert reader.connection.told == [(1, 0, 0), (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)]
    assert reader.refused == [(b"orders", ErrorCode.TOPIC_AUTHORIZATION_FAILED)]


async def test_of_a_leader_that_is_lost_the_client_and_the_node_look_for_another(reader: Reader) -> None:
    reader.seen_empty(1, 2)
    reader.split({1: 5, 2: 5})
    reader.link(2).loses()
    assert reader.connection.told == [(1, 0, 0), (2, MOVED, 0)]
    assert reader.moved == [{b"orders"}]


async def test_a_leader_that_says_it_leads_no_more_is_looked_for_anew(reader: Reader) -> None:
    reader.seen_empty(1)
    reader.split({1: 5})
    reader.link(1).answers((b"orders", element(1, error=MOVED)))
    assert (reader.connection.told, reader.moved) == ([(1, MOVED, 0)], [{b"orders"}])


async def test_a_client_that_is_gone_is_answered_nothing(reader: Reader) -> None:
    reader.seen_empty(1)
    reader.split({1: 5})
    reader.connection.closed = True
    reader.link(1).answers((b"orders", element(1, b"records")))
    reader.split({1: 5})
    reader.link(1).loses()
    assert not reader.connection.answers
    assert not reader.moved


def questions(request: Request, fields: fetch.FetchRequest) -> list[Asked]:
    buffer = request.frame.buffer
    found = [asked_by(buffer[part.start : part.end], b"orders", 0, VERSION) for part in fields.parts]
    return [asked for asked in found if asked is not None]


def shared(reader: Reader, most_bytes: int) -> tuple[SharedFetch, Fetched]:
    """A request at offset 5 of partition 1, and what the node's poll brought for it: 7 bytes."""
    request, fields = reader.request({1: 5}, most_bytes=most_bytes)
    asked = questions(request, fields)
    node = cast("Any", reader)
    exchange = SharedFetch(node, request, fields, Node(node, node, node, reader.tails), reader.fetching, asked)
    exchange.begin(WAIT_MS / 1000)
    return exchange, Fetched(0, 7, element(1, b"records"))


def question(exchange: SharedFetch) -> Any:
    return exchange._asked[0].question


async def test_one_that_waits_with_others_is_answered_by_their_poll(reader: Reader) -> None:
    exchange, fetched = shared(reader, most_bytes=7)
    exchange.arrived({question(exchange): fetched})
    assert reader.connection.told == [(1, 0, 7)]
    assert not reader.fetching.shared


async def test_what_is_too_large_for_it_it_asks_for_alone(reader: Reader) -> None:
    exchange, fetched = shared(reader, most_bytes=6)
    exchange.arrived({question(exchange): fetched})
    assert not reader.connection.answers
    alone = reader.links.open[1, 0]
    assert alone.wait_ms == [0]
    alone.answers((b"orders", element(1, b"record")))
    assert reader.connection.told == [(1, 0, 6)]
    assert not reader.fetching.polls, "no other request takes it up"


async def test_alone_at_a_leader_that_is_away_it_is_told_to_look_for_another(reader: Reader) -> None:
    """Told nothing but an empty partition it would ask again at once, for ever."""
    exchange, fetched = shared(reader, most_bytes=6)
    reader.links.is_away = True
    exchange.arrived({question(exchange): fetched})
    assert (reader.connection.told, reader.moved) == ([(1, MOVED, 0)], [{b"orders"}])


async def test_one_that_nothing_comes_for_is_told_where_its_log_ends(reader: Reader) -> None:
    reader.tails.ends.note(b"orders", 1, 0, element(1))
    request, fields = reader.request({1: _HIGH_WATERMARK})
    asked = questions(request, fields)
    node = cast("Any", reader)
    SharedFetch(node, request, fields, Node(node, node, node, reader.tails), reader.fetching, asked).begin(0)
    await wait_until(lambda: reader.connection.answers, "it is answered")
    assert reader.connection.told == [(1, 0, 0)]
