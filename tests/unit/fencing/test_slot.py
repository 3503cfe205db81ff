"""Transactional ids of slots: one slot, one id."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import MASTER_SLOT, SlotName, partition_slot, shared_slot
from sidecar.fencing.slot import transactional_id

clusters = st.from_regex(r"[A-Za-z0-9_-]{1,8}", fullmatch=True)
topics = st.from_regex(r"[A-Za-z0-9._-]{1,12}", fullmatch=True)
slots = st.one_of(st.just(MASTER_SLOT), st.integers(0, 999).map(partition_slot), st.integers(1, 999).map(shared_slot))
names = st.tuples(clusters, topics, slots)


@given(names, names)
def test_no_two_slots_share_a_transactional_id(
    left: tuple[str, str, SlotName], right: tuple[str, str, SlotName]
) -> None:
    assert (transactional_id(*left) == transactional_id(*right)) == (left == right)


def test_a_topic_called_like_anothers_slot_has_an_id_of_its_own() -> None:
    assert transactional_id("c", "orders.p3") != transactional_id("c", "orders", partition_slot(3))
    assert transactional_id("c", "orders.1") != transactional_id("c", "orders", shared_slot(1))


def test_the_owner_of_a_topic_has_the_plain_name() -> None:
    assert transactional_id("default", "orders") == "sidecar.default.orders"
    assert transactional_id("default", "orders", partition_slot(3)) == "sidecar.default.orders/p3"


@pytest.mark.parametrize("cluster", ["", "a.b", "a/b", "ä"])
def test_a_cluster_name_that_could_be_read_two_ways_is_refused(cluster: str) -> None:
    with pytest.raises(ValueError, match="name of a cluster"):
        transactional_id(cluster, "orders")
