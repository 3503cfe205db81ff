"""Whatever clients and brokers come up with, the number of series has a bound."""

from __future__ import annotations

from itertools import count
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from metadata.errors import Reason
from sidecar.telemetry.exposition import Exposition
from sidecar.telemetry.hooks import COUNTED, REDIS_ERRORS, WORDS_LIMIT, NodeMetrics
from sidecar.telemetry.series import Queue, ShadowSeries
from tests.unit.telemetry.paper_request import PaperClient, PaperRequest

TOPICS = 3
LABELLED = 1 + sum(bool(found.labels) and not found.bounds for found in COUNTED.values())
"""Families with a label whose values may come from outside: all that are counted, and a reason for each topic."""
HOSTILE = st.text(max_size=30) | st.sampled_from(["", "_other", "a\nb", 'a"} 1', "\\", "\x00", "\u2028", "é" * 100])


class _Lag(NamedTuple):
    groups: int = 1
    total: int = 1
    longest: int = 1


async def series(metrics: NodeMetrics) -> list[tuple[str, dict[str, str]]]:
    """Every series of the page that is no bucket of a histogram."""
    text = (await Exposition(metrics).render()).decode()
    return [
        (found.name, found.labels)
        for family in text_string_to_metric_families(text)
        for found in family.samples
        if found.name.startswith("sidecar_") and "le" not in found.labels
    ]


def everything_under(metrics: NodeMetrics, name: str, number: int) -> None:
    """One event of each kind under a name of somebody's own."""
    metrics.client_disconnected(name, "INSIDE")
    metrics.request_done(number, 0.1, 1, 1, 0.0, PaperRequest(name.encode(errors="replace"), number, PaperClient(name)))
    metrics.response_error(name, name)
    for family, found in COUNTED.items():
        if not found.bounds and len(found.labels) == 1:
            metrics.count(family, name)
    metrics.claims_answered(name, 1)
    metrics.governed_produce(name, 1, 1)
    metrics.fenced(name, "deposed")
    metrics.duplicates_dropped(name, 1)
    metrics.ids_unknown(name)
    metrics.owner_changed(name, number, name, name)


def flooded(names: list[str]) -> NodeMetrics:
    metrics = NodeMetrics({0: "Produce", 1: "Fetch"}, "0", topic_limit=TOPICS)
    numbers = count(2)
    metrics.queue = lambda topic: Queue(1, 1)
    metrics.read_shadows(lambda: [ShadowSeries(name, 1, 1, 1, 1, _Lag()) for name in names])
    for name in names:
        everything_under(metrics, name, next(numbers))
    return metrics


@settings(deadline=None)
@given(st.lists(HOSTILE, max_size=20, unique=True))
async def test_a_page_can_be_read_whatever_things_are_called(names: list[str]):
    found = await series(flooded(names))
    for family in ("sidecar_produce_records_total", "sidecar_shadow_readers", "sidecar_producer_generation"):
        labels = {labels.get("topic", labels.get("shadow")) for name, labels in found if name == family}
        assert len(labels) <= TOPICS + 1
    owners = {labels["topic"] for name, labels in found if name == "sidecar_producer_owner_info"}
    assert sum(name == "sidecar_producer_owner_info" for name, _ in found) == len(owners)


async def test_ten_thousand_names_make_no_more_series_than_there_is_room_for():
    few = len(await series(flooded([])))
    many = await series(flooded([f"name-{number}" for number in range(10_000)]))
    per_topic = 12 * (TOPICS + 1)
    per_shadow = 7 * (TOPICS + 1)
    assert len(many) <= few + LABELLED * (WORDS_LIMIT + 1) + per_topic + per_shadow
    names = [labels.get("topic") for name, labels in many if name == "sidecar_produce_records_total"]
    assert names == ["name-0", "name-1", "name-2", "_other"]
    queues = [labels.get("topic") for name, labels in many if name == "sidecar_producer_waiting"]
    assert queues == ["name-0", "name-1", "name-2"], "nobody can be asked who waits for all the others"


def test_the_ways_in_which_redis_fails_are_counted_from_the_start():
    assert set(REDIS_ERRORS) == {reason.value for reason in Reason}
