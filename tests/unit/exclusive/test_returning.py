"""What is kept of clients that were not let in: whatever becomes of them, its room is given back once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.dedup.content import Content
from sidecar.dedup.gate import DUPLICATE
from sidecar.dedup.turned_away import KeptBytes
from sidecar.exclusive.producing import ProducingState
from sidecar.exclusive.returning import ClientReply, Door
from sidecar.forwarder.outcome import Outcome
from sidecar.network.aside import Allowance
from sidecar.policy.admission import checked_header
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import ProducerId
from sidecar.protocol.produce import ProducePart
from tests.unit.dedup.paper import HEADERS, batch, recs

TOPIC = b"orders"


def door() -> Door:
    """Of a node with one topic with sequence ids."""
    ids = SimpleNamespace(services=SimpleNamespace(headers=HEADERS, names_limit=100))
    return Door(KeptBytes(), {TOPIC: cast(Any, SimpleNamespace(ids=ids))}, lambda: 0.0)


class Client:
    """A connection without idempotence, as far as its refusals go."""

    allowance = Allowance()
    connection_id = 7
    producer = ("billing", True, None, None)

    def __init__(self) -> None:
        self.governed = ProducingState()
        self.alive = True

    def is_alive(self) -> bool:
        return self.alive

    def sever(self) -> None:
        self.alive = False


def arrives(at: Door, client: Client, number: int, producer_id: int = -1) -> tuple[ClientReply, Content]:
    """A batch with this sequence id. `producer_id`: -1 without idempotence."""
    found = batch(recs(number))
    header = checked_header(found)._replace(producer_id=ProducerId(producer_id))
    answer = ClientReply(at, client, ProducePart(TOPIC, 0, 0, len(found)), header, found, lambda outcome: None)  # type: ignore[arg-type]
    return answer, Content(found, 1, HEADERS, b"billing", at_once=True)


def test_a_batch_of_a_closed_connection_gives_no_room_back_a_second_time() -> None:
    """It stood before its gate as its connection was closed: what that had kept is looked at all the same."""
    at, client = door(), Client()
    first, _ = arrives(at, client, 1)
    first.answer(Outcome(ErrorCode.LEADER_NOT_AVAILABLE))
    assert at.kept.in_all > 0
    behind, content = arrives(at, client, 2)
    client.alive = False
    at.kept.forget(client.connection_id)
    refused = behind.out_of_turn(content)
    assert refused is not None, "the first one has to come again before"
    assert refused.error == ErrorCode.LEADER_NOT_AVAILABLE
    assert at.kept.in_all == 0
    assert not at.kept._by_connection


@pytest.mark.parametrize("producer_id", [-1, 7], ids=["plain", "idempotent"])
def test_ids_that_were_refused_are_no_duplicates_of_higher_ones_written_since(producer_id: int) -> None:
    """A duplicate would be acknowledged, though nobody has written them."""
    at, client = door(), Client()
    refused, _ = arrives(at, client, 1, producer_id)
    refused.answer(Outcome(ErrorCode.POLICY_VIOLATION))
    behind, content = arrives(at, client, 2, producer_id)
    assert behind.out_of_turn(content) is None
    behind.answer(Outcome(ErrorCode.NONE, 0))
    again, content = arrives(at, client, 1, producer_id)
    late = again.out_of_turn(content)
    assert late is not None
    assert late.error == ErrorCode.POLICY_VIOLATION


def test_ids_that_are_a_duplicate_were_not_written_by_this_connection() -> None:
    """Others have written them, so what was refused here before may be there, too."""
    at, client = door(), Client()
    refused, _ = arrives(at, client, 1)
    refused.answer(Outcome(ErrorCode.POLICY_VIOLATION))
    behind, content = arrives(at, client, 2)
    assert behind.out_of_turn(content) is None
    behind.answer(DUPLICATE)
    again, content = arrives(at, client, 1)
    assert again.out_of_turn(content) is None
