"""A topic whose policy ends under batches on their way: what follows them to Kafka itself does not overtake them.

Kafka does not know the producer there, as the node wrote for it, and takes any sequence for its first.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.changelog.records import RawRecord, build_batch
from sidecar.cluster.resolver import NameResolver
from sidecar.forwarder.outcome import Outcome
from sidecar.gateway.gaps import OrdinaryBatches, signature
from sidecar.gateway.ordinary_produce import refusal
from sidecar.gateway.produce import MergedProduce, ProduceApi
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.protocol.batch import Numbers
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ClientSequence as Client
from sidecar.protocol.ids import ProducerEpoch, ProducerId, Stamp
from sidecar.protocol.produce import ProducePart, ProduceRequest, ProduceResult

PART, OTHER = ProducePart(b"orders", 0, 0, 70), ProducePart(b"orders", 1, 70, 140)
AGAIN = [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]


def kept(sequence: int) -> bytes:
    batch = build_batch([RawRecord(b"k", b"v")], Stamp(ProducerId(7), ProducerEpoch(3)), sequence)
    return bytes(signature(batch, 0, len(batch)))


class Connected(SimpleNamespace):
    """A client with requests on their way. `pending`: the oldest first."""

    def __init__(self) -> None:
        self.pending: list[MergedProduce] = []
        connection = SimpleNamespace(
            pending=self.pending, closed=False, error_answered=lambda *_: None, answer_ready=lambda *_: None
        )
        super().__init__(
            connection=connection,
            ordinary=OrdinaryBatches(),
            note_refusal=lambda *_: None,
            governed=SimpleNamespace(claimants={(b"orders", 7): None}),
        )

    def asks(self, *parts: ProducePart, is_governed: bool) -> MergedProduce:
        request = Request(0, 8, 1, b"", Frame(bytearray(210), 0, 210, True), 0)
        fields = ProduceRequest(None, -1, 1_000, [*parts, ProducePart(b"another", 0, 140, 210)])
        found = MergedProduce(cast(Any, self), request, cast(Any, None), fields, is_governed=is_governed)
        self.pending.append(found)
        return found


@pytest.fixture
def client() -> Connected:
    return Connected()


@pytest.mark.parametrize("code", AGAIN, ids=lambda code: code.name)
def test_what_was_answered_under_a_policy_and_comes_again_is_expected_first(client: Connected, code: ErrorCode) -> None:
    merge = client.asks(PART, OTHER, is_governed=True)
    merge.settle_governed(PART, kept(17), refusal(PART, code))
    merge.settle_outcome(OTHER, Numbers(7, 3, Client(4), 1, 0), Outcome(code))
    assert not client.ordinary.admits(b"orders", 0, kept(18))
    assert not client.ordinary.admits(b"orders", 1, kept(5))
    assert client.ordinary.admits(b"orders", 0, kept(17))
    assert client.ordinary.admits(b"orders", 1, kept(4))


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.POLICY_VIOLATION, ErrorCode.MESSAGE_TOO_LARGE])
def test_what_is_answered_for_good_is_not(client: Connected, code: ErrorCode) -> None:
    merge = client.asks(PART, OTHER, is_governed=True)
    merge.settle_governed(PART, kept(17), ProduceResult(b"orders", 0, code))
    merge.settle_outcome(OTHER, Numbers(7, 3, Client(4), 1, 0), Outcome(code))
    assert not client.ordinary.expected


def test_a_batch_waits_for_one_of_its_partition_that_was_sent_under_a_policy(client: Connected) -> None:
    api = ProduceApi(
        cast(Any, SimpleNamespace(view=None)), cast(Any, None), NameResolver(), cast(Any, None), cast(Any, None)
    )
    fields = ProduceRequest(None, -1, 1_000, [PART])
    client.asks(PART, is_governed=False)
    assert not api._follows_governed(cast(Any, client), fields)
    governed = client.asks(PART, is_governed=True)
    assert api._follows_governed(cast(Any, client), fields)
    assert not api._follows_governed(cast(Any, client), ProduceRequest(None, -1, 1_000, [OTHER]))
    governed.settle(ProduceResult(b"orders", 0, ErrorCode.NONE))
    assert not api._follows_governed(cast(Any, client), fields)


class CountedPart(ProducePart):
    """Counts how often somebody looked at which partition any of them is for."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        CountedPart.looks += 1
        return super().__getitem__(index)


def test_what_a_request_of_many_partitions_awaits_is_found_without_a_walk_for_each(client: Connected) -> None:
    parts = [CountedPart(b"orders", index, 0, 70) for index in range(2_000)]
    merge = client.asks(*parts, is_governed=True)
    for part in parts[:1_000]:
        merge.settle(ProduceResult(b"orders", part.partition, ErrorCode.NONE))
    CountedPart.looks = 0
    assert [merge.awaits(part) for part in parts] == [False] * 1_000 + [True] * 1_000
    assert not merge.awaits(ProducePart(b"orders", 2_000, 0, 70))
    assert CountedPart.looks <= 2 * len(parts), f"{CountedPart.looks} looks at {len(parts)} partitions"
