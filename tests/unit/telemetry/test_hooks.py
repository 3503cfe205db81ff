import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.telemetry.hooks import NodeMetrics
from sidecar.telemetry.series import OTHER, REQUEST_BOUNDS, Histogram, TopicTable
from tests.unit.telemetry.paper_request import REQUEST


def metrics(topic_limit: int = 2) -> NodeMetrics:
    return NodeMetrics({0: "Produce", 1: "Fetch"}, "0.1.0", topic_limit)


@given(st.lists(st.sampled_from(["connect", "closed", "rejected", "idle"])))
def test_open_connections_are_those_accepted_less_those_that_ended(events: list[str]):
    counted, open_now = metrics(), 0
    for event in events:
        if event == "connect":
            counted.client_connected("INSIDE")
            open_now += 1
        elif open_now:
            counted.client_disconnected(event, "INSIDE")
            open_now -= 1
    assert counted.client_connections == open_now
    accepted = counted.counted["client_connections"][()]
    assert counted.client_connections == accepted - sum(counted.counted["client_disconnects"].values())


def test_a_request_counts_with_its_sizes_and_its_time():
    counted = metrics()
    counted.request_done(0, 0.0004, 100, 10, 0.0, REQUEST)
    counted.request_done(0, 3.0, 200, 20, 0.0, REQUEST)
    counted.request_done(0, 60.0, 0, 0, 0.0, REQUEST)
    stats = counted.apis[0]
    assert (stats.count, stats.bytes_in, stats.bytes_out, stats.seconds) == (3, 300, 30, 63.0004)
    assert (stats.buckets[0], stats.buckets[-1]) == (1, 1)
    assert counted.apis[1].count == 0


def test_an_api_that_no_table_knows_counts_as_other():
    counted = metrics()
    counted.request_done(1000, 0.1, 1, 1, 0.0, REQUEST)
    assert (counted.other_api.name, counted.other_api.count) == (OTHER, 1)


@given(st.lists(st.tuples(st.floats(0, 60), st.floats(0, 90))))
def test_the_brokers_share_and_the_nodes_make_up_the_whole(requests: list[tuple[float, float]]):
    counted = metrics()
    for seconds, upstream in requests:
        counted.request_done(0, seconds, 0, 0, upstream, REQUEST)
    stats = counted.apis[0]
    assert stats.upstream is not None
    assert stats.overhead is not None
    assert stats.upstream.total + stats.overhead.total == pytest.approx(stats.seconds)
    assert stats.overhead.total >= 0.0
    assert stats.overhead.count == stats.count == len(requests)
    assert stats.upstream.count == sum(upstream > 0 for _, upstream in requests)


def test_what_is_waited_for_longer_than_the_request_lasted_is_all_of_it():
    counted = metrics()
    counted.request_done(1, 0.5, 0, 0, math.inf, REQUEST)
    stats = counted.apis[1]
    assert stats.upstream is not None
    assert stats.overhead is not None
    assert (stats.upstream.total, stats.overhead.total, stats.overhead.buckets[0]) == (0.5, 0.0, 1)


@given(st.floats(0, 100))
def test_an_observation_lies_in_the_first_bucket_whose_bound_it_does_not_pass(seconds: float):
    histogram = Histogram(REQUEST_BOUNDS)
    histogram.observe(seconds)
    expected = next((i for i, bound in enumerate(REQUEST_BOUNDS) if seconds <= bound), len(REQUEST_BOUNDS))
    assert histogram.buckets.index(1) == expected
    assert (histogram.count, histogram.total) == (1, seconds)


def test_topics_beyond_the_cap_share_one_series_and_are_counted_as_folded():
    counted = metrics(topic_limit=2)
    for topic in ("a", "b", "c", "d", "c"):
        counted.governed_produce(topic, 1, 10)
    counted.owner_changed("d", 7, "somebody", "exclusive")
    series = dict(counted.topic_series())
    assert series.keys() == {"a", "b", OTHER}
    assert (series[OTHER].records, series[OTHER].owner, series[OTHER].generation) == (3, None, None)
    assert counted.topics.folded == 4


def test_a_forgotten_topic_makes_room_for_another():
    counted = metrics(topic_limit=1)
    counted.governed_produce("a", 1, 1)
    counted.topic_forgotten("a")
    counted.topic_forgotten("never-known")
    counted.governed_produce("b", 1, 1)
    assert [topic for topic, _ in counted.topic_series()] == ["b"]


def test_a_topic_called_like_the_folded_ones_takes_no_place():
    table = TopicTable(2)
    assert table.get(OTHER) is table.other


def test_a_new_owner_replaces_the_old_one():
    counted = metrics()
    counted.owner_changed("orders", 1, "billing", "exclusive")
    counted.owner_changed("orders", 2, "billing-2", "wait_for_exclusive")
    assert counted.topics.get("orders").owner == ("billing-2", "wait_for_exclusive")
    counted.owner_changed("orders", 2, None, None)
    assert (counted.topics.get("orders").owner, counted.topics.get("orders").generation) == (None, 2)
