"""The metrics page: series, labels, limits. All metrics are listed in docs/reference/metrics.md, which is generated."""

import asyncio
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidecar.gateway.apis.table import APIS
from sidecar.telemetry.exposition import Exposition
from sidecar.telemetry.hooks import NodeMetrics
from sidecar.telemetry.series import ShadowSeries
from tests.unit.telemetry.paper_request import REQUEST


def metrics() -> NodeMetrics:
    return NodeMetrics({key: api.name for key, api in APIS.items()}, "0.1.0", topic_limit=2)


async def page(counted: NodeMetrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = (await Exposition(counted).render()).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def value(counted: NodeMetrics, name: str, **labels: str) -> float | None:
    return (await page(counted)).get((name, frozenset(labels.items())))


async def test_open_connections_accepted_and_ended_ones_add_up_on_the_page():
    counted = metrics()
    for _ in range(5):
        counted.client_connected("INSIDE")
    counted.client_disconnected("closed", "INSIDE")
    counted.client_disconnected("rejected", "INSIDE")
    found = await page(counted)
    ended = sum(amount for (name, _), amount in found.items() if name == "sidecar_client_disconnects_total")
    accepted = await value(counted, "sidecar_client_connections_total")
    assert await value(counted, "sidecar_client_connections") == 3 == (accepted or 0) - ended


async def test_buckets_are_cumulative_and_end_with_the_count():
    counted = metrics()
    for seconds in (0.0005, 0.002, 0.3, 60.0):
        counted.request_done(0, seconds, 10, 1, 0.0, REQUEST)
    labels = {"api": "Produce"}
    assert await value(counted, "sidecar_request_duration_seconds_bucket", le="0.0005", **labels) == 1
    assert await value(counted, "sidecar_request_duration_seconds_bucket", le="0.5", **labels) == 3
    assert await value(counted, "sidecar_request_duration_seconds_bucket", le="10.0", **labels) == 3
    assert await value(counted, "sidecar_request_duration_seconds_bucket", le="+Inf", **labels) == 4
    assert await value(counted, "sidecar_request_duration_seconds_count", **labels) == 4
    assert await value(counted, "sidecar_request_duration_seconds_sum", **labels) == pytest.approx(60.3025)


async def test_finite_series_are_there_before_anything_happens():
    found = await page(metrics())
    names = {(name, *dict(labels).values()) for name, labels in found}
    assert {("sidecar_requests_total", api.name) for api in APIS.values()} <= names
    assert ("sidecar_client_disconnects_total", "rejected") in names
    assert ("sidecar_takeovers_total", "exclusive_with_fencing") in names
    assert any(name == "sidecar_request_duration_seconds_count" for name, *_ in names)
    assert ("sidecar_response_errors_total", "Produce", "PRODUCER_FENCED") in {
        (name, dict(labels).get("api"), dict(labels).get("error")) for name, labels in found
    }


async def test_an_api_gets_its_histogram_with_its_first_request():
    counted = metrics()
    assert await value(counted, "sidecar_request_duration_seconds_count", api="JoinGroup") is None
    counted.request_done(11, 0.1, 1, 1, 0.0, REQUEST)
    assert await value(counted, "sidecar_request_duration_seconds_count", api="JoinGroup") == 1


async def test_the_owner_that_was_is_gone_from_the_page():
    counted = metrics()
    counted.owner_changed("orders", 1, "billing", "exclusive")
    counted.owner_changed("orders", 2, "audit", "exclusive")
    owners = [dict(labels) for name, labels in await page(counted) if name == "sidecar_producer_owner_info"]
    assert owners == [{"topic": "orders", "owner": "audit", "mode": "exclusive"}]
    assert await value(counted, "sidecar_producer_generation", topic="orders") == 2


async def test_names_with_quotes_and_line_breaks_do_not_break_the_page():
    counted = metrics()
    counted.owner_changed("orders", 1, 'a"b\\c\nd', "exclusive")
    assert await value(counted, "sidecar_producer_owner_info", topic="orders", owner='a"b\\c\nd', mode="exclusive") == 1


async def test_gauges_are_read_when_the_page_is_asked_for():
    counted = metrics()
    assert await value(counted, "sidecar_redis_up") is None
    state = {"up": True}
    counted.read_gauge("redis_up", lambda: state["up"])
    assert await value(counted, "sidecar_redis_up") == 1
    state["up"] = False
    assert await value(counted, "sidecar_redis_up") == 0
    counted.upstream_opened()
    assert await value(counted, "sidecar_upstream_connections") == 1
    counted.upstream_closed()
    assert await value(counted, "sidecar_upstream_connections") == 0


async def test_there_are_no_series_of_creation_times():
    counted = metrics()
    counted.redis_command("claim", 0.001)
    counted.count("redis_errors", "timeout")
    assert not [name for name, _ in await page(counted) if name.endswith("_created")]


async def test_the_event_loop_gets_its_turn_between_families():
    counted, turns = metrics(), 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    families = (await Exposition(counted).render()).count(b"# TYPE")
    task.cancel()
    assert turns >= families > 20


async def test_the_oldest_shadows_keep_their_series_and_the_others_share_one():
    class Lag(NamedTuple):
        groups: int
        total: int
        longest: int

    counted = metrics()
    shadows = [
        ShadowSeries("a", 1, 10, 1_000, 0, Lag(1, 5, 5)),
        ShadowSeries("b", 2, 20, 0, 0, None),
        ShadowSeries("c", 3, 30, 3_000, 1, Lag(2, 7, 4)),
        ShadowSeries("d", 4, 40, 2_000, 2, Lag(3, 9, 6)),
        ShadowSeries("e", 5, 50, 0, 3, None),
    ]
    counted.read_shadows(lambda: shadows)
    readers = {name: await value(counted, "sidecar_shadow_readers", shadow=name) for name in ("a", "b", "c", "_other")}
    assert readers == {"a": 1, "b": 2, "c": None, "_other": 12}
    assert await value(counted, "sidecar_shadow_read_bytes_total", shadow="_other") == 120
    assert await value(counted, "sidecar_shadow_last_read_timestamp_seconds", shadow="_other") == 3
    assert await value(counted, "sidecar_shadow_cursor_resets_total", shadow="_other") == 6
    assert await value(counted, "sidecar_shadow_groups", shadow="_other") == 5
    assert await value(counted, "sidecar_shadow_lag_records", shadow="_other") == 16
    assert await value(counted, "sidecar_shadow_max_lag_records", shadow="_other") == 6
    assert await value(counted, "sidecar_shadow_lag_records", shadow="b") is None
    assert await value(counted, "sidecar_shadow_last_read_timestamp_seconds", shadow="b") is None
