from __future__ import annotations

from uuid import UUID

import pytest

from sidecar.protocol.metadata import PartitionState, TopicState
from sidecar.shadow.keeper import HALF_MADE_MS, ShadowVerdict, judged
from sidecar.v1 import state_pb2 as state

OWN, SOURCE, OTHER = UUID(int=1), UUID(int=2), UUID(int=3)
UNKNOWN, NO_LEADER, REFUSED = 3, 5, 29
MADE = state.Shadow(source="orders", source_topic_id=SOURCE.bytes, topic_id=OWN.bytes)


def topic(name: str, topic_id: UUID, partitions: int = 2, error: int = 0) -> TopicState:
    parts = tuple(PartitionState(0, number, 1, 5) for number in range(partitions))
    return TopicState(name, error, topic_id, False, parts)


def gone(name: str, error: int = UNKNOWN) -> TopicState:
    return topic(name, UUID(int=0), 0, error)


def verdict(*topics: TopicState, record: state.Shadow = MADE, now_ms: int = 0) -> ShadowVerdict | None:
    return judged("audit", record, {each.name: each for each in topics}, now_ms)


AUDIT, ORDERS = topic("audit", OWN), topic("orders", SOURCE)


def test_a_shadow_of_its_source_is_open_and_grows_with_it():
    assert verdict(AUDIT, ORDERS) == ShadowVerdict()
    assert verdict(AUDIT, topic("orders", SOURCE, 5)) == ShadowVerdict(partitions=5)
    assert verdict(topic("audit", OWN, 3), ORDERS) == ShadowVerdict()


@pytest.mark.parametrize(("source", "reason"), [(gone("orders"), "deleted"), (topic("orders", OTHER, 9), "again")])
def test_it_is_closed_without_its_source_and_never_grows_with_another(source: TopicState, reason: str):
    found = verdict(AUDIT, source)
    assert found is not None
    assert reason in found.closed
    assert "orders" in found.closed
    assert (found.forget, found.partitions) == ("", 0)


@pytest.mark.parametrize("own", [gone("audit"), topic("audit", OTHER)])
def test_it_is_none_any_more_without_its_own_topic(own: TopicState):
    found = verdict(own, ORDERS)
    assert found is not None
    assert "in Kafka directly" in found.forget


@pytest.mark.parametrize(
    "answer", [(), (AUDIT,), (ORDERS,), (AUDIT, gone("orders", NO_LEADER)), (gone("audit", REFUSED), ORDERS)]
)
def test_what_an_answer_does_not_say_is_not_guessed(answer: tuple[TopicState, ...]):
    assert verdict(*answer) is None


def test_one_that_is_being_made_is_left_alone_for_a_while():
    making = state.Shadow(source="orders", source_topic_id=SOURCE.bytes, created_ms=1_000)
    assert verdict(gone("audit"), ORDERS, record=making, now_ms=1_000 + HALF_MADE_MS) is None
    found = verdict(gone("audit"), ORDERS, record=making, now_ms=1_001 + HALF_MADE_MS)
    assert found is not None
    assert found.forget
