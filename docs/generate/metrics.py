"""docs/reference/metrics.md from the families that a node exposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from docs.generate import markdown
from sidecar.gateway.apis.table import ALL_APIS
from sidecar.telemetry.exposition import NodeCollector
from sidecar.telemetry.hooks import COUNTS, GAUGES, TOPIC_LIMIT, WORDS_LIMIT, NodeMetrics

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_BEFORE: Final = f"""
    `GET /metrics` on the admin port answers in Prometheus' text format, or in OpenMetrics 1.0 if the request's
    `Accept` header names it, as Prometheus' does. It also has `process_*` (CPU seconds, memory, files). All
    durations are in seconds, all sizes in bytes. One process is one node with one endpoint: with `serve --workers
    N` scrape each worker's admin port.

    Only governed topics become labels, at most {TOPIC_LIMIT}; further ones are counted under topic `_other` and in
    `sidecar_labels_dropped_total`. A topic that was deleted in Kafka frees its place within two minutes; if it is
    created again, its series start at 0. The same limit applies to shadows: the {TOPIC_LIMIT} oldest are labels, the
    others are counted under shadow `_other`. Client ids, addresses and groups are never labels. The owner's name is
    a label only of `sidecar_producer_owner_info`, one series per topic. No other label has more than {WORDS_LIMIT}
    values; further ones are counted as `_other`.
    """
_BEHIND: Final = """
    `sidecar_produce_records_total` and `sidecar_produce_bytes_total` count a batch when it is accepted, before its
    answer; a batch that is refused later, by its ids or by Kafka, is included. `sidecar_kafka_up` follows the
    reading of the ownership topic: 0 while its leader does not answer, and at a node that has found no Kafka yet.

    Is it the node or Kafka? `sidecar_request_duration_seconds` is the time from reading a request from its socket to
    passing the answer to the socket. For Produce and Fetch it has two parts. `sidecar_upstream_duration_seconds` is
    the time from passing the request to its broker's connection to reading the answer that completed it. It includes
    the network, opening a connection, and the broker's own waiting (`acks=all`, a long poll). For a Fetch that shares
    its long poll with others, or reads from several brokers, the whole poll counts. `sidecar_overhead_seconds` is the
    rest of the same request: parsing, checking, claims and takeovers, waiting for earlier batches of the partition or
    for sequence ids, batches that were sent again, and answers that wait for earlier ones of their connection. A
    request that the node answers by itself has only overhead, so `sidecar_overhead_seconds` counts every request, the
    other metric only those that a broker answered. The time in the socket's buffer before the node reads a request is
    in neither; see `sidecar_event_loop_lag_seconds`.

    Exemplars (only in OpenMetrics): each bucket of `sidecar_request_duration_seconds` has the first request in it
    since the last scrape with exemplars: `client_id`, `address` and `correlation_id`, as in the
    clients' own logs and in `GET /v1/clients`; 128 characters at most, the client id is truncated. There is no
    trace id, because Kafka's protocol has none. Prometheus stores them with `--enable-feature=exemplar-storage`.
    Series of creation times (`_created`) are not exposed.

    `sidecar_lease_expiry_timestamp_seconds`: a node has one lease, for all topics that it serves. The node that
    serves a topic counts its queue in `sidecar_producer_waiting`, as REST lists it; `sidecar_producer_stranded`
    counts producers that wait although nobody owns the topic. `sidecar_produce_unknown_total` counts batches that were
    answered 5 LEADER_NOT_AVAILABLE because the node does not know yet whether their ids are new; such a batch is
    never counted as a duplicate.

    These metrics do not exist, for the given reasons. `kafka_up` by broker: a node connects to a broker only for its
    clients, so a missing connection means nothing; `sidecar_upstream_connection_errors_total` names the broker that
    fails. Connections by broker: Kafka counts them itself. Hits and misses of a cache of ids: there is no cache,
    because all ids of a partition are in memory or its batches wait. Lag by group or partition: unbounded; `sidecar
    cursor list` and REST have it. Client ids, addresses and offsets: unbounded; exemplars, logs and REST have them.

    Reasons in `sidecar_produce_fenced_total`: `deposed` (90 PRODUCER_FENCED), `not_owner` (44 POLICY_VIOLATION),
    `waiting` (7 REQUEST_TIMED_OUT: the client tries again), `redis_down` (5 LEADER_NOT_AVAILABLE). Causes in
    `sidecar_client_disconnects_total`: `closed`, `rejected` (the client sent an invalid request), `idle` (it sent no
    request for `SIDECAR_CONNECTIONS_MAX_IDLE_MS`), `silent` (it sent no first request within
    `SIDECAR_LOGIN_TIMEOUT_MS`).

    Readers, bytes and resets of shadows are per node: sum them. Groups and lag are of the whole cluster, and only
    one node reports them, every half minute: sum them as well. Lag is counted in offsets, so it includes control
    batches and compacted records.

    Invariants: `sidecar_client_connections` = `sidecar_client_connections_total` − the sum of
    `sidecar_client_disconnects_total`; a topic has at most one owner; the generation is the same as in REST;
    without deduplication `sidecar_produce_records_total` is the number of records in the log, if Kafka refused
    none; each refusal is counted once under its reason; the number of takeovers and of requests equals the count of
    their durations; the sum of the durations is that of overhead plus upstream; without requests nothing is in
    flight.

    With the scope `partition`, `sidecar_producer_generation` is the highest generation of the topic's partitions,
    and `sidecar_producer_owner_info` has no series.
    """


def page() -> str:
    """Every family with its kind, labels and meaning."""
    metrics = NodeMetrics({key: api.name for key, api in ALL_APIS.items()}, "0")
    for gauge in GAUGES:
        metrics.read_gauge(gauge, lambda: 0.0)
    for name in COUNTS:
        metrics.read_count(name, lambda: 0.0)
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
    return markdown.code(name), family.type, ", ".join(map(markdown.code, labels)), family.documentation
