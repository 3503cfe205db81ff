from __future__ import annotations

from uuid import UUID

from sidecar.cluster.view import NO_LEADER, ClusterView
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.leaders import Found
from sidecar.protocol.metadata import Broker, ClusterState, PartitionState, TopicState

ID, OTHER_ID = UUID(int=1), UUID(int=2)
BROKERS = tuple(Broker(number, "127.0.0.1", 9000 + number) for number in (1, 2, 3))


def said(
    *partitions: tuple[int, int], topic_id: UUID = ID, error: int = 0, brokers: tuple[Broker, ...] = BROKERS
) -> ClusterState:
    """Metadata of the topic `t`: (leader, leader epoch) of each partition."""
    states = tuple(PartitionState(index, 0, leader, epoch) for index, (leader, epoch) in enumerate(partitions))
    return ClusterState(0, brokers, "cluster", 1, (TopicState("t", error, topic_id, False, states),))


def view_of(*states: ClusterState) -> ClusterView:
    view = ClusterView()
    for state in states:
        view.apply(state)
    return view


def leaders(view: ClusterView, partitions: int = 1) -> list[int]:
    return [view.leader(b"t", index) for index in range(partitions)]


def test_the_newest_leaders_are_known() -> None:
    assert leaders(view_of(said((1, 5), (2, 5))), 3) == [1, 2, NO_LEADER]
    assert leaders(view_of(said((1, 5)), said((2, 6)))) == [2]


def test_a_broker_that_lags_behind_does_not_lead_back() -> None:
    view = view_of(said((1, 5), (1, 5)), said((2, 6), (1, 5)), said((1, 5), (3, 7)))
    assert leaders(view, 2) == [2, 3]
    assert view.route(b"t").leader_epochs == {0: 6, 1: 7}  # type: ignore[union-attr]


def test_the_same_epoch_again_is_taken_as_it_is() -> None:
    assert leaders(view_of(said((1, 5)), said((NO_LEADER, 5)), said((1, 5)))) == [1]


def test_a_topic_made_anew_begins_its_epochs_anew() -> None:
    assert leaders(view_of(said((1, 5)), said((2, 0), topic_id=OTHER_ID))) == [2]


def test_a_new_partition_is_known_beside_older_ones() -> None:
    assert leaders(view_of(said((1, 5)), said((1, 4), (2, 0))), 2) == [1, 2]


def test_a_broker_that_lags_behind_takes_no_partition_away() -> None:
    view = view_of(said((1, 5), (2, 5)), said((1, 5)))
    assert leaders(view, 2) == [1, 2]
    view.apply(said((1, 0), topic_id=OTHER_ID))
    assert leaders(view, 2) == [1, NO_LEADER]


def test_a_leader_that_is_no_live_broker_is_none() -> None:
    view = view_of(said((1, 5)), said((1, 5), brokers=BROKERS[1:]))
    assert leaders(view) == [NO_LEADER]
    assert view.why_no_leader(b"t", 0) == ErrorCode.LEADER_NOT_AVAILABLE


def test_a_topic_that_is_gone_is_forgotten() -> None:
    view = view_of(said((1, 5)), said(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert leaders(view) == [NO_LEADER]
    assert view.why_no_leader(b"t", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_partition_that_a_topic_does_not_have_does_not_exist() -> None:
    assert view_of(said((1, 5))).why_no_leader(b"t", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_without_a_known_leader_are_named() -> None:
    view = view_of(said((1, 5), (NO_LEADER, 5)))
    assert view.missing([(b"t", 0)]) == set()
    assert view.missing([(b"t", 0), (b"t", 1), (b"u", 0)]) == {b"t", b"u"}


def test_an_answer_without_brokers_leaves_them_as_they_were() -> None:
    assert leaders(view_of(said((1, 5)), said((2, 6), brokers=()))) == [2]


def test_a_topic_is_known_by_its_id_as_long_as_it_is_known_by_its_name() -> None:
    view = view_of(said((1, 5)))
    assert view.names == {ID.bytes: b"t"}
    view.apply(said((1, 6)))
    assert view.names == {ID.bytes: b"t"}
    view.forget([b"t"])
    assert view.names == {}


def test_a_topic_made_anew_has_no_old_id() -> None:
    view = view_of(said((1, 5)), said((2, 0), topic_id=OTHER_ID))
    assert view.names == {OTHER_ID.bytes: b"t"}
    view.apply(said(topic_id=ID, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    assert (view.names, view.route(b"t")) == ({}, None)


def test_an_id_that_a_broker_does_not_know_has_no_name_any_more() -> None:
    unknown = TopicState("", ErrorCode.UNKNOWN_TOPIC_ID, ID, False, ())
    view = view_of(said((1, 5)), ClusterState(0, BROKERS, "cluster", 1, (unknown,)))
    assert (view.names, view.route(b"t")) == ({}, None)
    view = view_of(said((1, 5), topic_id=OTHER_ID), ClusterState(0, BROKERS, "cluster", 1, (unknown,)))
    assert view.names == {OTHER_ID.bytes: b"t"}


def test_a_broker_without_ids_names_no_topic_by_one() -> None:
    assert view_of(said((1, 5), topic_id=UUID(int=0))).names == {}


def test_a_brokers_word_of_a_newer_leader_is_taken() -> None:
    view = view_of(said((1, 5), (1, 5)))
    before = view.version
    view.learn({(b"t", 0): Found(2, 6), (b"t", 1): Found(3, 5), (b"other", 0): Found(2, 9), (b"t", 7): Found(2, 9)})
    assert (leaders(view, 2), view.leader_epoch(b"t", 0), view.leader_epoch(b"t", 1)) == ([2, 1], 6, 5)
    assert view.version > before
    assert view.route(b"other") is None


def test_a_leader_that_is_no_broker_is_not_taken() -> None:
    view = view_of(said((1, 5)))
    view.learn({(b"t", 0): Found(9, 6), (b"t", 1): Found(-1, -1)})
    assert (leaders(view), view.leader_epoch(b"t", 0), view.leader_epoch(b"t", 9)) == ([1], 5, -1)


def test_a_reader_never_hears_that_a_leader_is_not_available() -> None:
    """Java's consumer throws an IllegalStateException there."""
    view = ClusterView()
    view.apply(
        ClusterState(
            0,
            (Broker(1, "here", 1),),
            "cluster",
            1,
            (TopicState("orders", 0, UUID(int=1), False, (PartitionState(0, 5, -1, 3),)),),
        )
    )
    assert (view.leader(b"orders", 0), view.why_no_leader(b"orders", 0)) == (NO_LEADER, 5)
    assert view.why_no_leader(b"orders", 1) == 3
