"""docs/reference/metrics.md from the families that a node exposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, get_args

from docs.generate import markdown
from docs.generate.sources import mentioned
from sidecar.protocol.api import ALL_APIS
from sidecar.telemetry.exposition import NodeCollector
from sidecar.telemetry.hooks import TOPIC_LIMIT, WORDS_LIMIT, Gauge, NodeMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_FED_BY: Final = {
    "sidecar_response_errors_total": (r"\bresponse_error\b", "the series exist and stay 0"),
    "sidecar_redis_command_duration_seconds": (r"\bredis_command\b", "no series appear"),
}
"""Families that need a word of the rooms: where it is said nowhere, what is seen of them."""

_BEFORE: Final = f"""
    `GET /metrics` on the admin port, in Prometheus' text format, or as OpenMetrics 1.0 for those whose `Accept` names
    it, as Prometheus itself does. Besides these, `process_*` (CPU seconds, memory, files) is exposed. All durations are
    seconds, all sizes bytes. One process is one node, has one registry and one endpoint: with `serve --workers N`
    scrape each worker's admin port.

    Only governed topics become labels, at most {TOPIC_LIMIT}; what comes beyond is counted under topic `_other` and in
    `sidecar_labels_dropped_total`. A topic that was deleted in Kafka gives its place back within two minutes; one that
    is there again counts from 0. Likewise the {TOPIC_LIMIT} oldest shadows; what is told of the others stands under
    shadow `_other`. Client ids, addresses and groups are never labels; the owner's name stands in
    `sidecar_producer_owner_info` alone, one series per topic. No other label has more than {WORDS_LIMIT} values; what
    comes beyond is counted as `_other`.
    """
_BEHIND: Final = """
    `sidecar_produce_records_total` and `sidecar_produce_bytes_total` count when a batch is taken, before its
    answer; one that is refused then, by its ids or by Kafka, is counted too. `sidecar_kafka_up` follows the reading of
    the ownership topic: 0 while its leader does not answer, and at a node that has found no Kafka yet.

    Is it the node or Kafka? `sidecar_request_duration_seconds` runs from reading a request off its socket to handing
    the answer to the socket. Of Produce and Fetch it is in two parts. `sidecar_upstream_duration_seconds`: from handing
    the request to the connection of its broker to reading the answer that completed it. So the network, a connection
    that has to be opened first, and the broker's own waiting are in it (`acks=all`, a long poll); the poll of a Fetch
    that reads together with others, or from several brokers, counts in full, whoever began it.
    `sidecar_overhead_seconds` is the rest of the same request: parsing, checking, claims and takeovers, batches that
    wait for their turn in a
    partition or for sequence ids, what had to be sent again, and answers that wait for earlier ones of their
    connection. What a node answers by itself is overhead alone, so that one counts every request, the other only those
    that a broker was asked for. What waits in the socket's buffer before it is read is in neither; it shows as
    `sidecar_event_loop_lag_seconds`.

    Exemplars (OpenMetrics alone): each bucket of `sidecar_request_duration_seconds` carries the first request that fell
    into it since the last scrape with exemplars: `client_id`, `address` and `correlation_id`, as clients write them to
    their own logs and `GET /v1/clients` shows them; 128 characters at most, the client id cut. There is no trace id,
    as Kafka's protocol carries none. Prometheus stores them with `--enable-feature=exemplar-storage`. Series of
    creation times (`_created`) are not exposed.

    `sidecar_lease_expiry_timestamp_seconds` is the node's: a node holds one lease, and all topics that it serves with
    it. `sidecar_producer_waiting` counts at the node that serves the topic, as REST lists them;
    `sidecar_producer_stranded` those of them whose wait nobody can end by letting go. `sidecar_produce_unknown_total`
    are batches answered 5, as their ids can be judged neither new nor duplicate yet; such a batch is never counted as
    a duplicate.

    What is not here, and why. `kafka_up` by broker: a node has connections to a broker only while clients want them, so
    silence says nothing; `sidecar_upstream_connection_errors_total` names the broker that fails. Connections by broker:
    Kafka counts them itself. Hits and misses of a cache of ids: there is no cache, a partition's ids are all in memory
    or its batches wait, so `sidecar_dedup_names` and `sidecar_produce_duplicates_total` say it all; for the same reason
    duplicates have no scope. Lag by group or partition: unbounded; `sidecar cursor list` and REST have it. Client ids,
    addresses and offsets: unbounded; exemplars, logs and REST have them.

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
    and requests are as many as their durations; the sums of overhead and upstream make up that of the durations, and
    nothing is in flight where nobody asks
    (`tests/kafka/exclusive/test_ownership.py::test_metrics_agree_with_rest_and_with_the_log`).

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
