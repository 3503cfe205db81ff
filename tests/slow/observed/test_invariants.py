"""What docs/reference/metrics.md promises of the numbers, on two nodes behind which lies a scene of everything."""

from __future__ import annotations

import pytest

from tests.slow.observed.conftest import Observed
from tests.slow.observed.prometheus import instance

SAME = {
    "open connections are those accepted less those that ended": (
        "sum by (instance) (sidecar_client_connections)",
        "sum by (instance) (sidecar_client_connections_total) - sum by (instance) (sidecar_client_disconnects_total)",
    ),
    "each request has a duration": (
        "sum by (instance, api) (sidecar_request_duration_seconds_count)",
        "sum by (instance, api) (sidecar_requests_total) > 0",
    ),
    "each request has a share of the node's": (
        "sidecar_overhead_seconds_count",
        'sidecar_requests_total{api=~"Produce|Fetch"}',
    ),
    "the node's share and Kafka's make up the whole": (
        "sum by (instance, api) (sidecar_overhead_seconds_sum + sidecar_upstream_duration_seconds_sum)",
        'sum by (instance, api) (sidecar_request_duration_seconds_sum{api=~"Produce|Fetch"})',
    ),
    "each takeover has a duration": (
        "sum by (instance) (sidecar_takeovers_total)",
        "sum by (instance) (sidecar_takeover_duration_seconds_count)",
    ),
    "a topic has one owner in all nodes": (
        "count by (topic) (sidecar_producer_owner_info)",
        "count by (topic) (count by (topic, owner) (sidecar_producer_owner_info))",
    ),
}
NEVER = {
    "nothing is in flight where nobody asks": "sum by (instance) (sidecar_requests_in_flight) > 0",
    "a topic has two owners": "count by (topic) (sidecar_producer_owner_info) > 1",
    "more was dropped than came": "sidecar_produce_duplicates_total > sidecar_produce_records_total",
    "Kafka was asked more often than the node": (
        "sidecar_upstream_duration_seconds_count > sidecar_overhead_seconds_count"
    ),
    "who is stranded does not wait": "sidecar_producer_stranded > sidecar_producer_waiting",
    "a live node's lease has run out": (
        "sidecar_lease_expiry_timestamp_seconds < timestamp(sidecar_lease_expiry_timestamp_seconds)"
    ),
    "a topic has no series of its own": "sidecar_labels_dropped_total > 0",
}


def numbers(observed: Observed, query: str) -> dict[tuple[tuple[str, str], ...], float]:
    found = observed.prometheus.query(query, observed.scene.at)
    return {
        tuple(sorted((name, value) for name, value in series["metric"].items() if name != "__name__")): float(
            series["value"][1]
        )
        for series in found
    }


@pytest.mark.parametrize(("left", "right"), SAME.values(), ids=SAME)
def test_two_ways_of_counting_come_to_the_same(observed: Observed, left: str, right: str) -> None:
    first, second = numbers(observed, left), numbers(observed, right)
    assert first
    assert {labels: value for labels, value in first.items() if labels in second} == pytest.approx(second)


@pytest.mark.parametrize("query", NEVER.values(), ids=NEVER)
def test_what_can_never_be_is_not(observed: Observed, query: str) -> None:
    assert numbers(observed, query) == {}


def test_the_scene_has_left_what_it_did_in_the_numbers(observed: Observed) -> None:
    scene = observed.scene
    topic, first = scene.orders, instance(scene.nodes[0])
    fenced = {
        dict(labels)["reason"]: value for labels, value in numbers(observed, "sidecar_produce_fenced_total").items()
    }
    assert fenced == {"deposed": 3, "not_owner": 3, "waiting": 3}
    duplicates = numbers(observed, f'sidecar_produce_duplicates_total{{topic="{scene.payments}"}}')
    assert list(duplicates.values()) == [3 * 3]
    owner = numbers(observed, f'sidecar_producer_owner_info{{topic="{topic}"}}')
    assert [(dict(labels)["owner"], dict(labels)["instance"]) for labels in owner] == [("heir-3", first)]
    assert list(numbers(observed, f'sidecar_producer_generation{{topic="{topic}"}}').values()) == [6]
    lag = numbers(observed, f'sidecar_shadow_max_lag_records{{shadow="{scene.audit}"}}')
    [found] = lag.values()
    assert found in {15, 20, 25, 30}, "as the second node counted it when it started, or half a minute later"
