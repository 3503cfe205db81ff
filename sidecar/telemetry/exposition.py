"""`NodeMetrics` in Prometheus' text format, or in OpenMetrics' with exemplars. The names of all metrics are here,
but for the gauges that others keep (`hooks.GAUGES`).

Families are made one after the other and the event loop gets its turn in between: a scrape of some thousand lines must
not be seen in the latency of a request.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Final

from prometheus_client import exposition as text_format
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar

from sidecar.telemetry.hooks import COUNTED, COUNTS, GAUGES, Counted, NodeMetrics
from sidecar.telemetry.series import OTHER, REQUEST_BOUNDS, ApiStats, Example, Histogram

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_TYPE: Final = openmetrics.CONTENT_TYPE_LATEST
_OPENMETRICS: Final = "application/openmetrics-text"
_END: Final = b"# EOF\n"

_ALWAYS: Final = frozenset({"Fetch", "Metadata", "Produce"})
"""APIs whose histogram exists before the first request; of the others only counters do, to keep a scrape short."""


class NodeCollector(Collector):
    """The node's own metrics for a registry of prometheus_client."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Every family of the catalogue, each as of the moment it is asked for."""
        metrics = self._metrics
        build = _gauge("build_info", "Version of the sidecar and of Python.", "version", "python")
        build.add_metric((metrics.version, platform.python_version()), 1)
        yield build
        open_now = _gauge("client_connections", "Open connections of clients: accepted minus ended.")
        yield _add_number(open_now, metrics.client_connections)
        for name, counted in COUNTED.items():
            if name in _IN_FRONT:
                yield from _IN_FRONT[name](metrics)
            yield _counted_family(metrics, name, counted)
        for name, text in COUNTS.items():
            if name in metrics.counts:
                yield _add_number(_counter(name, text), float(metrics.counts[name]()))
        for name, text in GAUGES.items():
            if name in metrics.gauges:
                yield _add_number(_gauge(name, text), float(metrics.gauges[name]()))


class Exposition:
    """The metrics page of a node: its own metrics and those of its process (`process_*`: CPU seconds, RSS, files)."""

    def __init__(self, metrics: NodeMetrics) -> None:
        self._collectors: tuple[Collector, ...] = (NodeCollector(metrics), ProcessCollector(registry=None))

    async def render(self, *, with_exemplars: bool = False) -> bytes:
        """The page as of now. Families are read at slightly different moments.

        `with_exemplars`: as OpenMetrics 1.0, not as Prometheus' text format.
        """
        parts: list[bytes] = []
        names: set[str] = set()
        for collector in self._collectors:
            for family in collector.collect():
                if with_exemplars:
                    parts.append(openmetrics.generate_latest(_One(_apart(family, names))).removesuffix(_END))
                else:
                    parts.append(text_format.generate_latest(_One(family)))
                await asyncio.sleep(0)
        return b"".join(parts) + (_END if with_exemplars else b"")


def takes_exemplars(accept: str) -> bool:
    """Whether a header `Accept` names OpenMetrics. Weights are not looked at: a client that names it prefers it."""
    return any(part.split(";")[0].strip().lower() == _OPENMETRICS for part in accept.split(","))


def _apart(family: Metric, names: set[str]) -> Metric:
    """OpenMetrics names a family once: a counter beside a gauge of its name is a family of its samples' name."""
    if family.name not in names:
        names.add(family.name)
        return family
    found = UnknownMetricFamily(f"{family.name}_total", family.documentation)
    found.samples = family.samples
    return found


class _One(Collector):
    """A single family as a collector."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterable[Metric]:
        return (self._family,)


def _counted_family(metrics: NodeMetrics, name: str, counted: Counted) -> Metric:
    if counted.bounds:
        found = _histogram(name, counted.text, *counted.labels)
        for words, histogram in metrics.histograms[name].items():
            _observe(found, words, histogram)
        return found
    family = (_gauge if counted.falls else _counter)(name, counted.text, *counted.labels)
    for words, number in metrics.counted[name].items():
        family.add_metric(words, number)
    return family


def _api_families(metrics: NodeMetrics) -> Iterator[Metric]:
    apis = list(metrics.apis.values())
    if metrics.other_api.count:
        apis.append(metrics.other_api)
    requests = _counter("requests", "Requests answered.", "api")
    bytes_in = _counter("request_bytes", "Size of requests.", "api")
    bytes_out = _counter("response_bytes", "Size of answers.", "api")
    seconds = _histogram(
        "request_duration_seconds", "Time from a request to its answer, including Kafka's part.", "api"
    )
    upstream = _histogram(
        "upstream_duration_seconds", "The part of that time in which the node waited for a broker.", "api"
    )
    overhead = _histogram("overhead_seconds", "The rest of that time: spent in the node itself.", "api")
    for api in apis:
        label = (api.name,)
        requests.add_metric(label, api.count)
        bytes_in.add_metric(label, api.bytes_in)
        bytes_out.add_metric(label, api.bytes_out)
        if api.count or api.name in _ALWAYS:
            _observe(seconds, label, _durations(api), api.take_examples())
        if api.upstream is not None and api.overhead is not None:
            _observe(upstream, label, api.upstream)
            _observe(overhead, label, api.overhead)
    yield from (requests, bytes_in, bytes_out, seconds, upstream, overhead)
    in_flight = _gauge("requests_in_flight", "Requests without an answer yet.", "api")
    for name, count in {**dict.fromkeys(sorted(_ALWAYS), 0), **metrics.in_flight()}.items():
        in_flight.add_metric((name,), count)
    yield in_flight


def _topic_families(metrics: NodeMetrics) -> Iterator[Metric]:
    records = _counter("produce_records", "Records accepted for governed topics, including duplicates.", "topic")
    size = _counter("produce_bytes", "Bytes of batches accepted for governed topics, including duplicates.", "topic")
    duplicates = _counter(
        "produce_duplicates",
        "Records acknowledged and not written, because their sequence ids were in the log.",
        "topic",
    )
    unknown = _counter(
        "produce_unknown",
        "Batches answered with a retriable error, because it is not known yet whether their ids are in the log.",
        "topic",
    )
    fenced = _counter(
        "produce_fenced", "Batches refused because their sender may not write to the topic.", "topic", "reason"
    )
    generation = _gauge("producer_generation", "The topic's generation, as this node knows it.", "topic")
    owner = _gauge("producer_owner_info", "The topic's owner, as this node knows it.", "topic", "owner", "mode")
    waiting = _gauge("producer_waiting", "Producers that wait for the topic at this node.", "topic")
    stranded = _gauge(
        "producer_stranded", "Of those, producers that wait although nobody owns the topic or writes to it.", "topic"
    )
    for topic, stats in metrics.topic_series():
        records.add_metric((topic,), stats.records)
        size.add_metric((topic,), stats.bytes)
        duplicates.add_metric((topic,), stats.duplicates)
        unknown.add_metric((topic,), stats.unknown)
        if topic != OTHER:
            queue = metrics.queue(topic)
            waiting.add_metric((topic,), queue.waiting)
            stranded.add_metric((topic,), queue.stranded)
        for reason, count in stats.fenced.items():
            fenced.add_metric((topic, reason), count)
        if stats.generation is not None:
            generation.add_metric((topic,), stats.generation)
        if stats.owner is not None:
            name, mode = stats.owner
            owner.add_metric((topic, name.replace("\0", "\ufffd"), mode), 1)
    yield from (records, size, duplicates, unknown, fenced, generation, owner, waiting, stranded)
    folded = _counter("labels_dropped", "Observations under topic `_other`, because there are too many topics.")
    yield _add_number(folded, metrics.topics.folded)


def _shadow_families(metrics: NodeMetrics) -> Iterator[Metric]:
    readers = _gauge("shadow_readers", "Connections to this node that read a shadow in the last 30 s.", "shadow")
    size = _counter("shadow_read_bytes", "Bytes of records that this node sent to readers of a shadow.", "shadow")
    last = _gauge("shadow_last_read_timestamp_seconds", "Time of the last Fetch of a shadow at this node.", "shadow")
    resets = _counter(
        "shadow_cursor_resets",
        "Cursors reset to the end because they fell too far behind; each partition counts.",
        "shadow",
    )
    groups = _gauge(
        "shadow_groups", "Groups with a cursor in a shadow; reported by one node, at most a minute old.", "shadow"
    )
    lag = _gauge(
        "shadow_lag_records",
        "Sum of the lags of all cursors of a shadow, in offsets; reported by one node.",
        "shadow",
    )
    longest = _gauge(
        "shadow_max_lag_records", "The lag of the group furthest behind, in offsets; reported by one node.", "shadow"
    )
    for found in metrics.shadow_series():
        label = (found.name,)
        readers.add_metric(label, found.readers)
        size.add_metric(label, found.bytes)
        resets.add_metric(label, found.resets)
        if found.last_read_ms:
            last.add_metric(label, found.last_read_ms / 1000)
        if found.lag is not None:
            groups.add_metric(label, found.lag.groups)
            lag.add_metric(label, found.lag.total)
            longest.add_metric(label, found.lag.longest)
    yield from (readers, size, last, resets, groups, lag, longest)


_IN_FRONT: Final = {"response_errors": _api_families, "takeovers": _topic_families, "claims": _shadow_families}
"""Families that are not in `COUNTED`, and in front of which of it they stand on the page."""


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sidecar_{name}", text, labels=labels)


def _counter(name: str, text: str, *labels: str) -> CounterMetricFamily:
    return CounterMetricFamily(f"sidecar_{name}", text, labels=labels)


def _histogram(name: str, text: str, *labels: str) -> HistogramMetricFamily:
    return HistogramMetricFamily(f"sidecar_{name}", text, labels=labels)


def _add_number(family: GaugeMetricFamily | CounterMetricFamily, value: float) -> Metric:
    family.add_metric((), value)
    return family


def _durations(api: ApiStats) -> Histogram:
    histogram = Histogram(REQUEST_BOUNDS)
    histogram.buckets, histogram.total = api.buckets, api.seconds
    return histogram


def _observe(
    family: HistogramMetricFamily,
    labels: tuple[str, ...],
    histogram: Histogram,
    examples: Sequence[Example | None] = (),
) -> None:
    """Prometheus counts what is at most the bound, not what is in the bucket."""
    buckets: list[tuple[str, float] | tuple[str, float, Exemplar]] = []
    bounds = (*map(repr, histogram.bounds), "+Inf")
    below = 0
    for bound, count, example in zip_longest(bounds, histogram.buckets, examples):
        below += count
        if example is None:
            buckets.append((bound, below))
        else:
            exemplar = Exemplar(example.labels(), example.seconds, round(example.at, 3))
            buckets.append((bound, below, exemplar))
    family.add_metric(labels, buckets, histogram.total)
