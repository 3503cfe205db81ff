"""A partition's leader moves while the former one has a batch of a producer: the next one does not go ahead of it.

The new leader may not know the producer, and then takes any sequence for its first (KIP-98).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import pytest

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.cluster.resolver import ANONYMOUS, NameResolver
from sidecar.cluster.view import ClusterView
from sidecar.forwarder.outcome import Outcome
from sidecar.gateway.gaps import OrdinaryBatches
from sidecar.gateway.ordinary_produce import OrdinaryProduce, PartReply, PassedProduce, behind_lost, signatures
from sidecar.gateway.plan import Facts
from sidecar.gateway.produce import MergedProduce, ProduceApi
from sidecar.network.framing import Frame
from sidecar.network.request import Exchange, Request
from sidecar.network.upstream import UpstreamLostError
from sidecar.protocol.batch import Numbers
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ClientSequence, ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.protocol.primitives import at_once
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult, encode_answer
from sidecar.protocol.topic_ids import stand_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TOPIC = b"orders"


class Sending:
    """One client, the two brokers of its cluster, and the requests that it sent."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.leads({0: 1, 1: 1})
        self.pending: list[Exchange] = []
        connection = SimpleNamespace(
            meter=None,
            pending=self.pending, expect=self.pending.append, closed=False, answer_ready=self._leaves,
            error_answered=lambda *_: None, close=self._closes,
        )  # fmt: skip
        self.went: list[tuple[int, int]] = []
        """The brokers to which batches went, and the partition of each."""
        self.client = SimpleNamespace(
            connection=connection, ordinary=OrdinaryBatches(), links=SimpleNamespace(to=self._link), listener=None,
            identity=SimpleNamespace(name="app"), note_refusal=lambda *_: None, governed=SimpleNamespace(claimants=()),
        )  # fmt: skip
        upstream = SimpleNamespace(view=self.view, refresh_soon=lambda _: None)
        self.hints = SimpleNamespace(produced=lambda *_: b"", learn=lambda *_: None)
        self.produce = OrdinaryProduce(cast(Any, upstream), NameResolver().kinds, cast(Any, self.hints))

    def leads(self, leaders: dict[int, int], epoch: int = 0) -> None:
        brokers = tuple(Broker(each, "b", 9) for each in (1, 2))
        partitions = tuple(PartitionState(index, 0, leader, epoch) for index, leader in leaders.items())
        topic = TopicState("orders", 0, UUID(int=1), False, partitions)
        self.view.apply(ClusterState(0, brokers, "cluster", 1, (topic,)))

    def _leaves(self, exchange: Exchange) -> None:
        self.pending.remove(exchange)

    def _link(self, leader: int) -> Any:
        def send_parts(_message: list[bytes], reply: PartReply) -> None:
            self.went.extend((leader, part.partition) for part in reply.parts)

        return SimpleNamespace(send_parts=send_parts, send_parts_of=send_parts)

    def _closes(self) -> None:
        self.client.connection.closed = True

    def asks(self, *sequences: int | None) -> tuple[Request, ProduceRequest]:
        """A request with a batch for each partition from 0 on. None: without one; -1: of a plain producer."""
        buffer, parts = bytearray(), []
        for partition, sequence in enumerate(sequences):
            if sequence is not None:
                stamp = None if sequence < 0 else Stamp(ProducerId(7), ProducerEpoch(0))
                batch = build_batch([RawRecord(b"k", b"v")], stamp, max(sequence, 0))
                parts.append(ProducePart(TOPIC, partition, len(buffer), len(buffer) + len(batch)))
                buffer += batch
        request = Request(0, 8, 1, b"app", Frame(buffer, 0, len(buffer), True), 0)
        return request, ProduceRequest(None, -1, 1_000, parts)

    def sends_whole(self, *sequences: int | None) -> PassedProduce:
        request, fields = self.asks(*sequences)
        assert self.produce.may_pass(cast(Any, self.client), request, fields)
        leader = self.view.only_leader(part[:2] for part in fields.parts)
        kept = signatures(request.frame.buffer, fields.parts)
        head = request.version, request.correlation_id, request.client_id
        exchange = PassedProduce(cast(Any, self.client), head, 0, self.produce, leader, fields.parts, fields.ids, kept)
        self.pending.append(exchange)
        return exchange

    def sends_parts(self, *sequences: int | None) -> MergedProduce:
        request, fields = self.asks(*sequences)
        merge = MergedProduce(cast(Any, self.client), request, cast(Any, self.hints), fields)
        self.pending.append(merge)
        for part in fields.parts:
            leader = self.view.leader(part.topic, part.partition)
            self.produce.send(merge, request, leader, [part])
        return merge

    def refuses(self, sequence: int, code: ErrorCode, topic: bytes = TOPIC, topic_id: bytes | None = None) -> None:
        """A batch is answered by the node itself."""
        request, fields = self.asks(sequence)
        (part,) = [each._replace(topic=topic) for each in fields.parts]
        ids = None if topic_id is None else {topic: topic_id}
        fields = ProduceRequest(None, -1, 1_000, [part], ids)
        merge = MergedProduce(cast(Any, self.client), request, cast(Any, self.hints), fields)
        self.pending.append(merge)
        merge.refuse(request.frame, part, code)

    def waits(self, *sequences: int | None, topic_id: bytes | None = None) -> list[int]:
        """The partitions whose batch may not go now."""
        request, fields = self.asks(*sequences)
        if topic_id is not None:
            fields = fields._replace(ids={TOPIC: topic_id})
        behind = behind_lost(cast(Any, self.client), request.frame, fields)
        goes_whole = not behind and self.produce.may_pass(cast(Any, self.client), request, fields)
        found = sorted(index for _, index in self.produce.not_now(cast(Any, self.client), request.frame, fields))
        assert not (goes_whole and found)
        return found


@pytest.fixture
def sending() -> Sending:
    return Sending()


def test_a_batch_waits_while_a_former_leader_has_an_earlier_one(sending: Sending) -> None:
    first = sending.sends_whole(0)
    assert sending.waits(1) == []
    sending.leads({0: 2, 1: 1}, epoch=1)
    assert sending.waits(2, 0) == [0]
    first.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sending.waits(2) == [0], "it went ahead of the one that is to be sent again"
    assert sending.waits(0) == sending.waits(2) == []


def test_what_was_refused_so_comes_again_before_what_follows_it(sending: Sending) -> None:
    first = sending.sends_whole(0)
    sending.leads({0: 2, 1: 1}, epoch=1)
    assert sending.waits(1) == [0]
    first.answer([b""])
    assert sending.waits(2) == [0]
    assert sending.waits(1) == sending.waits(2) == []


def test_parts_of_a_request_count_until_their_leader_answers(sending: Sending) -> None:
    merge = sending.sends_parts(0, 0)
    sending.leads({0: 2, 1: 2}, epoch=1)
    merge.replies[0].refuse(ErrorCode.REQUEST_TIMED_OUT)
    assert sending.waits(0, 1) == [1]


def test_a_plain_producer_has_no_order_to_keep(sending: Sending) -> None:
    sending.sends_whole(-1)
    sending.leads({0: 2, 1: 1}, epoch=1)
    assert sending.waits(-1) == []


def test_who_has_nothing_under_way_is_looked_at_once_for_each_view(sending: Sending) -> None:
    sending.leads({0: 2, 1: 1}, epoch=1)
    assert sending.waits(0) == []
    assert sending.client.ordinary.sent_under == sending.view.version


@pytest.mark.parametrize("code", [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_batch_without_a_leader_comes_again_before_what_follows_it(sending: Sending, code: ErrorCode) -> None:
    sending.refuses(0, code)
    assert sending.waits(1) == [0], "there is a leader meanwhile, and it went ahead"
    assert sending.waits(0) == sending.waits(1) == []


def test_a_batch_that_is_refused_for_good_is_not_waited_for(sending: Sending) -> None:
    sending.refuses(0, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert sending.waits(1) == []


def test_a_topic_id_without_a_name_is_the_same_topic_later(sending: Sending) -> None:
    topic_id = bytes(range(16))
    sending.refuses(0, ErrorCode.UNKNOWN_TOPIC_ID, stand_in(topic_id), topic_id)
    assert sending.waits(1, topic_id=topic_id) == [0]
    assert sending.waits(0, topic_id=topic_id) == sending.waits(1, topic_id=topic_id) == []
    assert not sending.client.ordinary.expected


def test_a_client_has_only_so_many_partitions_to_send_again(sending: Sending, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.gateway.ordinary_produce._MOST_EXPECTED", 2)
    for topic in (b"a", b"b"):
        sending.refuses(0, ErrorCode.LEADER_NOT_AVAILABLE, topic)
    assert not sending.client.connection.closed
    sending.refuses(0, ErrorCode.LEADER_NOT_AVAILABLE, b"c")
    assert sending.client.connection.closed


def _loses_a_broker(sending: Sending) -> None:
    sending.sends_whole(0, 0).answer_lost(UpstreamLostError("lost", sent=True))


def _loses_a_broker_of_some(sending: Sending) -> None:
    for reply in sending.sends_parts(0, 0).replies:
        reply.answer_lost(UpstreamLostError("lost", sent=True))


def _asks_a_former_leader(sending: Sending) -> None:
    stale = [ProduceResult(TOPIC, index, ErrorCode.NOT_LEADER_OR_FOLLOWER) for index in (0, 1)]
    answer = bytearray(encode_answer(1, 8, stale))
    sending.client.connection.forward_now = lambda *_: True
    sending.sends_whole(0, 0).answer_received(Frame(answer, 0, len(answer), True))


def _overtakes(sending: Sending) -> None:
    sending.sends_whole(0, 0)
    sending.leads({0: 2, 1: 2}, epoch=1)
    assert sending.waits(1, 1) == [0, 1]


def _writes_to_governed_topics(sending: Sending) -> None:
    request, fields = sending.asks(0, 0)
    merge = MergedProduce(cast(Any, sending.client), request, cast(Any, sending.hints), fields)
    sending.pending.append(merge)
    for part, kept in zip(fields.parts, signatures(request.frame.buffer, fields.parts), strict=True):
        merge.settle_governed(part, kept, ProduceResult(*part[:2], ErrorCode.REQUEST_TIMED_OUT))


def _writes_whole_requests_to_governed_topics(sending: Sending) -> None:
    request, fields = sending.asks(0, 0)
    merge = MergedProduce(cast(Any, sending.client), request, cast(Any, sending.hints), fields)
    sending.pending.append(merge)
    for part in fields.parts:
        merge.settle_outcome(part, Numbers(7, 0, ClientSequence(0), 1, 0), Outcome(ErrorCode.REQUEST_TIMED_OUT))


@pytest.mark.parametrize(
    "lose",
    [
        _loses_a_broker, _loses_a_broker_of_some, _asks_a_former_leader, _overtakes, _writes_to_governed_topics,
        _writes_whole_requests_to_governed_topics,
    ],
)  # fmt: skip
def test_however_its_batches_were_lost(
    sending: Sending, lose: Callable[[Sending], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.gateway.ordinary_produce._MOST_EXPECTED", 1)
    lose(sending)
    assert len(sending.client.ordinary.expected) == 2
    assert sending.client.connection.closed


def splits(sending: Sending, *sequences: int) -> Generator[None, None, None]:
    """A request that is taken up in slices: what is left of that."""
    request, fields = sending.asks(*sequences)
    sending.client.ordinary.were_sent = True
    nothing = cast(Any, None)
    api = ProduceApi(sending.produce.upstream, nothing, NameResolver(), nothing, nothing)
    facts = Facts(sending.view, NameResolver(), ANONYMOUS)
    return api._split(cast(Any, sending.client), request, fields, facts, [])


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BOUNDS, "turn", 1)


@pytest.mark.usefixtures("small_slices")
def test_a_leader_that_moves_between_two_slices_is_not_sent_what_comes_later(sending: Sending) -> None:
    sending.sends_whole(0)
    steps = splits(sending, 1, 0)
    next(steps)
    sending.leads({0: 2, 1: 1}, epoch=1)
    at_once(steps)
    assert sending.went == [(1, 1)], "partition 0 went to its new leader, and the former has an earlier batch"
    assert sending.client.ordinary.expected.keys() == {(TOPIC, 0)}


@pytest.mark.usefixtures("small_slices")
def test_a_batch_that_is_lost_between_two_slices_goes_first(sending: Sending) -> None:
    first = sending.sends_whole(0)
    steps = splits(sending, 1, 0)
    next(steps)
    first.refuse(ErrorCode.REQUEST_TIMED_OUT)
    at_once(steps)
    assert sending.went == [(1, 1)], "partition 0 went ahead of the batch that is to be sent again"
    assert sending.client.ordinary.expected[TOPIC, 0].sequence == 0


@pytest.mark.usefixtures("small_slices")
def test_a_leader_that_moves_and_comes_back_has_all_in_order(sending: Sending) -> None:
    sending.sends_whole(0)
    steps = splits(sending, 1, 0)
    next(steps)
    sending.leads({0: 2, 1: 1}, epoch=1)
    next(steps)
    sending.leads({0: 1, 1: 1}, epoch=2)
    at_once(steps)
    assert sending.went == [(1, 0), (1, 1)]
