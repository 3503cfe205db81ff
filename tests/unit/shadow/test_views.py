from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sidecar.cluster.resolver import NameResolver, Source
from sidecar.cluster.view import ClusterView
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.shadow.views import Read, Views, layers

ORDERS = UUID(int=7)


class Part(NamedTuple):
    topic: bytes
    partition: int = 0


def views(*, topic_id: UUID = ORDERS, known: bool = True) -> Views:
    """`audit` is a shadow of `orders`, whose id is `topic_id` by now; `making` is about to be one."""
    resolver, view = NameResolver(), ClusterView()
    resolver.set_shadows({b"audit": Source(b"orders", ORDERS), b"making": None})
    topics = (TopicState("orders", 0, topic_id, False, (PartitionState(0, 0, 1, 5),)),) if known else ()
    view.apply(ClusterState(0, (Broker(1, "h", 9092),), "c", 1, topics))
    return Views(resolver, view)


def test_a_shadow_is_read_from_its_source_and_every_other_name_from_its_own_log() -> None:
    assert [views().log(name) for name in (b"audit", b"orders", b"other")] == [b"orders", b"orders", b"other"]


def test_a_shadow_of_a_topic_that_was_created_anew_is_read_from_nowhere() -> None:
    assert views(topic_id=UUID(int=8)).log(b"audit") is None
    assert views(topic_id=UUID(int=8)).log(b"orders") == b"orders"


def test_one_that_is_being_made_is_read_from_nowhere() -> None:
    assert views().log(b"making") is None


def test_leaders_are_asked_for_by_the_name_of_the_log() -> None:
    wanted = [Part(b"audit"), Part(b"making"), Part(b"other")]
    assert views().missing(wanted) == {b"other"}
    assert views(known=False).missing(wanted) == {b"orders", b"other"}


def test_only_requests_that_name_a_shadow_are_taken_apart() -> None:
    assert views().names_shadows([Part(b"orders"), Part(b"making")])
    assert not views().names_shadows([Part(b"orders"), Part(b"other")])


@given(st.lists(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 2)), max_size=12))
def test_no_layer_has_a_partition_of_a_log_twice_and_none_is_lost(asked: list[tuple[bytes, int]]) -> None:
    reads = [Read(Part(b"name %d" % number, partition), log) for number, (log, partition) in enumerate(asked)]
    found = layers(reads)
    assert sorted(read.part for layer in found for read in layer) == sorted(read.part for read in reads)
    for layer in found:
        keys = [(read.log, read.part.partition) for read in layer]
        assert len(set(keys)) == len(keys)
    assert all(len(before) >= len(after) for before, after in pairwise(found))
    assert len(found) == max([asked.count(key) for key in asked], default=0)
