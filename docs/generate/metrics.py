"""docs/reference/metrics.md from the families that a node exposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from docs.generate import markdown
from docs.generate.sources import mentioned
from sidecar.protocol.api import ALL_APIS
from sidecar.telemetry.exposition import NodeCollector
from sidecar.telemetry.hooks import TOPIC_LIMIT, Gauge, NodeMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_FED_BY: Final = {
    "sidecar_response_errors_total": (r"\bresponse_error\b", "the series exist and stay 0"),
    "sidecar_redis_command_duration_seconds": (r"\bredis_command\b", "no series appear"),
    "sidecar_requests_in_flight": (r"\brequests_in_flight\b", "not exposed"),
}
"""Families that need a word of the rooms: where it is said nowhere, what is seen of them."""

_BEFORE: Final = f"""
    `GET /metrics` on the admin port, Prometheus text format. Besides these, `process_*` (CPU seconds, memory, files) is
    exposed. All durations are seconds, all sizes bytes.

    Only governed topics become labels, at most {TOPIC_LIMIT}; what comes beyond is counted under topic `_other` and in
    `sidecar_labels_dropped_total`. Likewise the {TOPIC_LIMIT} oldest shadows; what is told of the others stands under
    shadow `_other`. Client ids, addresses and groups are never labels; the owner's name stands in
    `sidecar_producer_owner_info` alone, one series per topic.
    """
_BEHIND: Final = """
    `sidecar_produce_records_total` and `sidecar_produce_bytes_total` count when a batch is taken, before its
    answer; one that is refused then, by its ids or by Kafka, is counted too. `sidecar_kafka_up` follows the reading of
    the ownership topic: 0 while its leader does not answer.

    Reasons in `sidecar_produce_fenced_total`: `deposed` (answered 90), `not_owner` (44), `waiting` (7: told to come
    again), `redis_down` (5). Causes in `sidecar_client_disconnects_total`: `closed`, `rejected` (what the client sent
    made no sense).

    Readers, bytes and resets of shadows are those of the node that is scraped: sum them. Groups and lag are the whole
    cluster's and are told by one node alone, every half minute: sum them as well. Lag is counted in offsets, so control
    batches and compacted records are in it.

    Invariants: `sidecar_client_connections` = `sidecar_client_connections_total` − the sum of
    `sidecar_client_disconnects_total`
    (`tests/unit/telemetry/test_exposition.py::test_open_connections_accepted_and_ended_ones_add_up_on_the_page`); one
    owner per topic at most; the generation is REST's; without deduplication `sidecar_produce_records_total` is the
    number of records in the log, where Kafka refused none; each refusal is counted once under its reason; takeovers
    and requests are as many as
    their durations (`tests/integration/exclusive/test_ownership.py::test_metrics_agree_with_rest_and_with_the_log`).

    Where partitions have owners of their own `sidecar_producer_generation` is the highest of them, and no owner is
    named.
    """


def page() -> str:
    """Every family with its kind, labels and meaning."""
    metrics = NodeMetrics({key: api.name for key, api in ALL_APIS.items()}, "0")
    for gauge in get_args(Gauge):
        metrics.read_gauge(gauge, lambda: 0.0)
    families = list(NodeCollector(metrics).collect())
    return markdown.page(
        [
            "# Metrics",
            "",
            *markdown.note("`sidecar/telemetry/exposition.py`"),
            *markdown.prose(_BEFORE),
            *markdown.table(("metric", "kind", "labels", "meaning"), [_row(family) for family in families]),
            "",
            *markdown.prose(_BEHIND),
        ]
    )


def _row(family: Metric) -> tuple[str, str, str, str]:
    name = f"{family.name}_total" if family.type == "counter" else family.name
    labels: tuple[str, ...] = getattr(family, "_labelnames", ())
    pattern, seen = _FED_BY.get(name, ("", ""))
    idle = seen and not mentioned(pattern, without="telemetry")
    text = family.documentation + (f" **Not counted in this version: {seen}.**" if idle else "")
    return markdown.code(name), family.type, ", ".join(map(markdown.code, labels)), text
