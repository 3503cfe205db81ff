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
from sidecar.shadow.views import Read, Views, layers

ORDERS = UUID(int=7)


class Part(NamedTuple):
    topic: bytes
    partition: int = 0


def views(*, topic_id: UUID = ORDERS, known: bool = True, is_closed: bool = False) -> Views:
    """`audit` is a shadow of `orders`, whose id is `topic_id` by now; `making` is about to be one."""
    resolver, view = NameResolver(), ClusterView()
    resolver.set_shadows({b"audit": Source(b"orders", ORDERS, is_closed=is_closed), b"making": None})
    topics = (TopicState("orders", 0, topic_id, False, (PartitionState(0, 0, 1, 5),)),) if known else ()
    view.apply(ClusterState(0, (Broker(1, "h", 9092),), "c", 1, topics))
    return Views(resolver, view)


def test_a_shadow_is_read_from_its_source_and_every_other_name_from_its_own_log() -> None:
    assert [views().log(name, ANONYMOUS) for name in (b"audit", b"orders", b"other")] == [
        b"orders",
        b"orders",
        b"other",
    ]


def test_a_shadow_of_a_topic_that_was_created_anew_is_read_from_nowhere() -> None:
    assert views(topic_id=UUID(int=8)).log(b"audit", ANONYMOUS) is None
    assert views(topic_id=UUID(int=8)).log(b"orders", ANONYMOUS) == b"orders"


def test_one_that_another_node_has_closed_is_read_from_nowhere() -> None:
    """This node still takes the source for the topic that it was."""
    assert views(is_closed=True).log(b"audit", ANONYMOUS) is None
    assert views(is_closed=True).refusal(b"audit", ANONYMOUS) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_that_is_being_made_is_read_from_nowhere() -> None:
    assert views().log(b"making", ANONYMOUS) is None


def test_leaders_are_asked_for_by_the_name_of_the_log() -> None:
    wanted = [Part(b"audit"), Part(b"making"), Part(b"other")]
    assert views().missing(wanted, ANONYMOUS) == {b"other"}
    assert views(known=False).missing(wanted, ANONYMOUS) == {b"orders", b"other"}


def test_only_requests_that_name_a_shadow_are_taken_apart() -> None:
    assert views().names_shadows([Part(b"orders"), Part(b"making")])
    assert not views().names_shadows([Part(b"orders"), Part(b"other")])


def allowing(*principals: str) -> Views:
    resolver, view = NameResolver(), ClusterView()
    resolver.set_shadows({b"audit": Source(b"orders", ORDERS, frozenset(principals))})
    return Views(resolver, view)


def test_only_principals_that_a_shadow_allows_read_it() -> None:
    assert allowing("User:alice").log(b"audit", "User:alice") == b"orders"
    assert allowing("User:alice").log(b"audit", "User:bob") is None
    assert allowing("User:alice").refusal(b"audit", "User:bob") == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert allowing("User:alice", ANYBODY).log(b"audit", ANONYMOUS) == b"orders"
    assert allowing().log(b"audit", ANONYMOUS) is None
    assert allowing().reads([Part(b"audit")], ANONYMOUS) is None
    assert allowing().log(b"orders", ANONYMOUS) == b"orders", "the source is not the shadow's to guard"


def test_a_shadow_that_cannot_be_read_is_no_topic() -> None:
    for closed in (views(topic_id=UUID(int=8)).refusal(b"audit", ANONYMOUS), views().refusal(b"making", ANONYMOUS)):
        assert closed == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_log_that_goes_by_two_names_is_not_read_in_one_go() -> None:
    assert views().reads([Part(b"audit"), Part(b"orders", 1)], ANONYMOUS) is None
    both = [Part(b"audit"), Part(b"other"), Part(b"audit", 1)]
    assert views().reads(both, ANONYMOUS) == [
        Read(both[0], b"orders", ORDERS.bytes),
        Read(both[1], b"other"),
        Read(both[2], b"orders", ORDERS.bytes),
    ]


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
