from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from sidecar.cluster.resolver import ANONYMOUS, ANYBODY, NameResolver, Source
from sidecar.cluster.view import ClusterView
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState
from sidecar.shadow.views import Read, layers, log_of, source_of, topic_id_of

ORDERS = UUID(int=7)


class Part(NamedTuple):
    topic: bytes
    partition: int = 0


def views(*, topic_id: UUID = ORDERS, known: bool = True, is_closed: bool = False) -> tuple[NameResolver, ClusterView]:
    """`audit` is a shadow of `orders`, whose id is `topic_id` by now; `making` is about to be one."""
    resolver, view = NameResolver(), ClusterView()
    resolver.set_shadows({b"audit": Source(b"orders", ORDERS, is_closed=is_closed), b"making": None})
    topics = (TopicState("orders", 0, topic_id, False, (PartitionState(0, 0, 1, 5),)),) if known else ()
    view.apply(ClusterState(0, (Broker(1, "h", 9092),), "c", 1, topics))
    return resolver, view


def test_a_shadow_is_read_from_its_source_and_every_other_name_from_its_own_log() -> None:
    names = b"audit", b"orders", b"other"
    assert [log_of(name, ANONYMOUS, *views()) for name in names] == [b"orders", b"orders", b"other"]
    assert [topic_id_of(name, *views()) for name in names] == [ORDERS.bytes, ORDERS.bytes, b""]


def test_a_shadow_of_a_topic_that_was_created_anew_is_read_from_nowhere() -> None:
    again = views(topic_id=UUID(int=8))
    assert log_of(b"audit", ANONYMOUS, *again) is None
    assert source_of(b"audit", ANONYMOUS, *again) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert log_of(b"orders", ANONYMOUS, *again) == b"orders"


def test_one_that_another_node_has_closed_is_read_from_nowhere() -> None:
    """This node still takes the source for the topic that it was."""
    assert source_of(b"audit", ANONYMOUS, *views(is_closed=True)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_that_is_being_made_is_read_from_nowhere() -> None:
    assert source_of(b"making", ANONYMOUS, *views()) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def allowing(*principals: str) -> tuple[NameResolver, ClusterView]:
    resolver, view = NameResolver(), ClusterView()
    resolver.set_shadows({b"audit": Source(b"orders", ORDERS, frozenset(principals))})
    return resolver, view


def test_only_principals_that_a_shadow_allows_read_it() -> None:
    assert log_of(b"audit", "User:alice", *allowing("User:alice")) == b"orders"
    assert source_of(b"audit", "User:bob", *allowing("User:alice")) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert log_of(b"audit", ANONYMOUS, *allowing("User:alice", ANYBODY)) == b"orders"
    assert log_of(b"audit", ANONYMOUS, *allowing()) is None
    assert log_of(b"orders", ANONYMOUS, *allowing()) == b"orders", "the source is not the shadow's to guard"


def test_shadows_and_other_topics_are_asked_for_apart_where_that_is_wanted() -> None:
    """A request that is checked afterwards names topics of one kind."""
    shadow, other, more, again = (
        Read(Part(b"audit"), b"orders"), Read(Part(b"a"), b"a"), Read(Part(b"b"), b"b"), Read(Part(b"copy"), b"orders"),
    )  # fmt: skip
    assert layers([shadow, other, more, again]) == [[shadow, other, more], [again]]
    assert layers([shadow, other, more, again], apart=True) == [[shadow], [other, more], [again]]


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
