"""`NodeMetrics`: what a node counts, as methods that rooms call through their own protocol.

Every method is cheap and none raises; `request_done` is on the path of every request and touches plain integers only.
Labels that could grow without bound are never kept: topics are capped, API names come from a fixed table, client ids
and addresses of clients are not counted at all.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

from sidecar.telemetry.series import (
    LAG_BOUNDS,
    OTHER,
    OVERHEAD_BOUNDS,
    REQUEST_BOUNDS,
    SHORT_BOUNDS,
    ApiStats,
    Example,
    Histogram,
    Queue,
    ShadowSeries,
    TopicStats,
    TopicTable,
    Traced,
    folded,
)

TOPIC_LIMIT: Final = 200
"""Governed topics with their own series."""

WORDS_LIMIT: Final = 500
"""Values that any other label may have, whatever brokers and clients come up with."""

GAUGES: Final = {
    "upstream_connections": "Open connections to brokers.",
    "redis_up": "1 while Redis answers. 0: claims are refused, owners keep writing.",
    "redis_noeviction": (
        "1 while Redis has maxmemory-policy noeviction, 0 if it may evict keys; checked every half minute."
    ),
    "lease_expiry_timestamp_seconds": "When this node's lease expires, and with it the right to serve its topics.",
    "kafka_up": "1 while Kafka answers, 0 while it does not.",
    "dedup_reading_topics": "Topics served here whose sequence ids are being read; their batches wait.",
    "dedup_lost_topics": (
        "Topics served here with partitions whose sequence ids cannot be known: these accept no batches."
    ),
    "weak_fences": "Governed topics kept here whose settings may delete a fence's marker within 20 minutes.",
    "dedup_crowded_topics": (
        "Topics served here with a partition that remembers 80 % of the producer names that it may"
        " (SIDECAR_PRODUCER_NAMES_LIMIT): above the limit the longest unused names are forgotten."
    ),
    "dedup_unprotected_topics": (
        "Compacted topics served here whose min.compaction.lag.ms is too low and could not be raised: compaction may"
        " remove sequence ids before a snapshot has them."
    ),
    "dedup_names": "Producer names whose sequence ids this node remembers, counted per partition.",
    "shadows_closed": "Shadow topics that cannot be read, because their source was deleted or created again.",
    "claims_held": "Free strings and reader claims that have an owner; reported by the coordinator of claims.",
    "claims_waiting": "Places in their queues; reported by the coordinator of claims.",
    "fanout_polls": "Shared long polls in progress for readers at the ends of logs.",
    "fanout_waiting": "Partitions for which readers wait in shared long polls, counted per reader.",
    "live_nodes": "Live nodes of this cluster, including this one.",
    "tls_handshakes_unfinished": "Connections of clients whose TLS handshake is not finished, or has not begun.",
    "logins_under_way": "Logins that brokers are asked about.",
    "logins_waiting": "Logins that wait for others to end, as there are so many.",
    "request_memory_bytes": "Memory for requests that is taken: large ones being received, and all that wait.",
    "request_memory_waiting": "Connections that are not read, because that memory is used up.",
    "response_memory_bytes": "Memory for answers of 64 KiB or more that are being received, or were not read yet.",
    "response_memory_waiting": "Answers of brokers that are not received yet, because that memory is used up.",
    "acls_age_seconds": "Seconds since Kafka's ACLs were read; 0 if they are not enforced.",
    "client_quotas": "Client quotas of Kafka that this node knows; 0 if there are none, or they cannot be read.",
    "client_quotas_readable": (
        "1 while brokers show their client quotas to this node, or SIDECAR_CLIENT_QUOTAS is off. 0: those of governed"
        " topics and shared reads may not be enforced."
    ),
    "config_last_reload_successful": "1 if the last reading of the settings found no errors, else 0.",
    "config_last_reload_success_timestamp_seconds": "When the settings were last read without errors.",
}
"""Numbers that somebody else keeps, which are read when metrics are asked for: by name, what each is."""

COUNTS: Final = {
    "turns_cut": "How often other clients had their turn before the requests of one connection were all taken up.",
    "slices": "How often others had their turn while one long request or answer was taken up.",
    "decompressed_bytes": "Bytes of large batches of clients that were decompressed.",
    "decompression_wait_seconds": "Time for which such batches waited, as their connection had used its bytes up.",
}
"""The same, of what only grows."""


class Counted(NamedTuple):
    """A family of numbers that a node counts under words: what it is, its labels, and those series of it that exist
    from the start, so that the first event is an increase and not the first value of a series. `bounds`: of a
    histogram, in seconds; `falls`: a gauge, no counter.
    """

    text: str
    labels: tuple[str, ...] = ()
    first: Sequence[tuple[str, ...]] = ()
    bounds: tuple[float, ...] = ()
    falls: bool = False


_ENDS: Final = ("success", "failure")
MECHANISMS: Final[tuple[str, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
REDIS_ERRORS: Final[tuple[str, ...]] = (
    "away", "closed", "cluster", "denied", "loading", "out of memory", "read only", "timeout",
)  # fmt: skip


_QUOTAS: Final = ("producer_byte_rate", "consumer_byte_rate")
_LEVELS: Final = ("user", "client-id", "user,client-id")


def _each(*words: str) -> list[tuple[str, ...]]:
    return [(word,) for word in words]


COUNTED: Final = {
    "client_connections": Counted("Connections of clients accepted."),
    "listener_connections": Counted("Open connections of clients by listener.", ("listener",), falls=True),
    "client_disconnects": Counted(
        "Connections of clients that ended, by cause.", ("cause",), _each("closed", "idle", "rejected", "silent")
    ),
    "client_connections_refused": Counted(
        "Connections that were closed at once, as there were too many: in all, of one address or principal, per second,"
        " or for the open files that are left.",
        ("reason",),
        _each("address", "files", "principal", "rate", "total"),
    ),
    "client_rejections": Counted(
        "Clients that sent what is not taken from them, by why. Of one connection each reason counts once or, where the"
        " connection goes on, once in a while.",
        ("reason",),
        _each("login_timeout", "malformed", "memory", "too_large", "too_many", "too_slow", "truncated", "unread"),
    ),
    "client_throttles": Counted(
        "Requests with which clients were over their quotas.", ("api",), _each("Fetch", "Produce")
    ),
    "client_throttle_seconds": Counted("Time for which they had to wait."),
    "client_quota_throttles": Counted(
        "Requests with which clients were over quotas of Kafka that this node enforces, by the quota and by what it"
        " is set for.",
        ("quota", "level"),
        [*product(_QUOTAS, _LEVELS)],
    ),
    "client_quota_throttle_seconds": Counted(
        "Time for which they had to wait.", ("quota", "level"), [*product(_QUOTAS, _LEVELS)]
    ),
    "log_events_left_out": Counted("Events that were not logged, as there were many of their kind."),
    "tls_handshakes": Counted("TLS handshakes of clients that ended.", ("result",), _each(*_ENDS)),
    "authentications": Counted(
        "Logins of clients by SASL that ended.", ("mechanism", "result"), [*product(MECHANISMS, _ENDS)]
    ),
    "response_errors": Counted(
        "Errors in answers, by Kafka's name of the code.",
        ("api", "error"),
        [
            ("Produce", "LEADER_NOT_AVAILABLE"),
            ("Produce", "NOT_LEADER_OR_FOLLOWER"),
            ("Produce", "POLICY_VIOLATION"),
            ("Produce", "PRODUCER_FENCED"),
            ("Produce", "REQUEST_TIMED_OUT"),
        ],
    ),
    "takeovers": Counted(
        "Completed changes of owner and failovers.",
        ("mode",),
        _each("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing"),
    ),
    "takeover_duration_seconds": Counted(
        "Time from the start of a takeover to its commit in the ownership topic.", bounds=REQUEST_BOUNDS
    ),
    "fence_renewals": Counted(
        "Fences of topics that were renewed: because it was time, or before for what would have made them fail.",
        ("cause",),
        _each("log_start", "lost", "replicas", "time"),
    ),
    "dedup_recovered_records": Counted("Records read to find the sequence ids of topics taken over."),
    "dedup_recovery_duration_seconds": Counted(
        "Time from a topic's fence until its sequence ids are known.", bounds=REQUEST_BOUNDS
    ),
    "dedup_names_forgotten": Counted("Producer names that were forgotten to make room for newer ones."),
    "dedup_snapshots": Counted("Snapshots of sequence ids written, one per partition."),
    "dedup_snapshot_bytes": Counted("Size of the snapshots of sequence ids written."),
    "claims": Counted(
        "Claims to free strings and for reading; each resource counts.",
        ("outcome",),
        _each("granted", "waiting", "released", "lost", "held", "unavailable"),
    ),
    "redis_errors": Counted("Redis scripts without an answer, or with an error.", ("kind",), _each(*REDIS_ERRORS)),
    "redis_command_duration_seconds": Counted("Time until a Redis script's answer.", ("script",), bounds=SHORT_BOUNDS),
    "event_loop_lag_seconds": Counted("How late timers of the event loop fire.", bounds=LAG_BOUNDS),
    "upstream_connection_errors": Counted(
        "Connections to brokers that failed or broke.", ("broker",), _each("bootstrap")
    ),
    "loop_failures": Counted(
        "Failures of the node's background loops; each is restarted.",
        ("loop",),
        _each(
            *("ACLs", "claims", "cursors", "heartbeat", "idle clients", "keep-alive", "metadata", "ownerships"),
            *("settings", "shadows", "silent clients", "snapshots"),
        ),
    ),
    "config_reload": Counted("Reloads of the settings by SIGHUP.", ("outcome",), _each(*_ENDS)),
}
"""In the order of the metrics page. Values of labels are a few words each, however they come about."""


class NodeMetrics:
    """Everything a node counts since it started. Not for use from several threads.

    Invariant: client connections open now = connections accepted in all - the sum of disconnects over all causes, since
    that is how the gauge is made; it is 0 once all clients are gone only if each of them was reported both ways.
    """

    def __init__(self, api_names: Mapping[int, str], version: str, topic_limit: int = TOPIC_LIMIT) -> None:
        self.version = version
        self.apis = {key: ApiStats(name) for key, name in api_names.items()}
        self.other_api = ApiStats(OTHER)
        self.topics = TopicTable(topic_limit)
        self._topic_limit = topic_limit
        self._read_shadows: Callable[[], Sequence[ShadowSeries]] = tuple
        self.in_flight: Callable[[], Mapping[str, int]] = dict
        """Requests without an answer by API; asked when metrics are."""
        self.queue: Callable[[str], Queue] = lambda topic: Queue(0, 0)
        """Who waits for a topic; likewise."""
        self.counted: dict[str, dict[tuple[str, ...], float]] = {}
        """The numbers of `COUNTED`, by name and values of labels."""
        self.histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        for name, found in COUNTED.items():
            series = found.first if found.labels else [()]
            if found.bounds:
                self.histograms[name] = {words: Histogram(found.bounds) for words in series}
            else:
                self.counted[name] = dict.fromkeys(series, 0)
        self.upstream_open = 0
        self.counts: dict[str, Callable[[], float]] = {}
        self.gauges: dict[str, Callable[[], float]] = {"upstream_connections": lambda: self.upstream_open}

    def read_count(self, name: str, read: Callable[[], float]) -> None:
        """The same for a count, one of `COUNTS`."""
        assert name in COUNTS, name
        self.counts[name] = read

    def read_gauge(self, gauge: str, read: Callable[[], float]) -> None:
        """Have `read` called whenever the gauge is asked for, one of `GAUGES`. One without is not exported."""
        assert gauge in GAUGES, gauge
        self.gauges[gauge] = read

    def count(self, name: str, *words: str, more: float = 1) -> None:
        """Add to a number of `COUNTED`, under `_other` where its labels have too many values already."""
        counts = self.counted[name]
        if words not in counts and len(counts) >= WORDS_LIMIT:
            words = (OTHER,) * len(words)
        counts[words] = counts.get(words, 0) + more

    def observe(self, name: str, seconds: float, *words: str) -> None:
        """Count a duration in a histogram of `COUNTED`."""
        found = self.histograms[name]
        histogram = found.get(words)
        if histogram is None:
            histogram = found[words] = Histogram(COUNTED[name].bounds)
        histogram.observe(seconds)

    # Clients ------------------------------------------------------------------------------------------------------

    def client_connected(self, listener: str) -> None:
        """A client's connection was accepted."""
        self.count("client_connections")
        self.count("listener_connections", listener)

    def client_disconnected(self, cause: str, listener: str) -> None:
        """It ended; `cause` is one of a few words."""
        self.count("client_disconnects", cause)
        self.count("listener_connections", listener, more=-1)

    def throttled(self, key: int, seconds: float) -> None:
        """A client is over its quota with a request of this API, and is not read for so long."""
        self.count("client_throttles", self.apis.get(key, self.other_api).name)
        self.count("client_throttle_seconds", more=seconds)

    def over_client_quota(self, quota: str, level: str, seconds: float) -> None:
        """A client is over a quota of Kafka, and is not read for so long."""
        self.count("client_quota_throttles", quota, level)
        self.count("client_quota_throttle_seconds", quota, level, more=seconds)

    @property
    def client_connections(self) -> int:
        """How many are open."""
        return int(self.counted["client_connections"][()] - sum(self.counted["client_disconnects"].values()))

    def request_done(
        self, key: int, seconds: float, bytes_in: int, bytes_out: int, upstream: float, request: Traced
    ) -> None:
        """A request was answered: its API key, the time from its arrival to its answer, sizes of both frames. For
        `upstream` seconds of it a broker was waited for (more than there are: all of it).
        """
        stats = self.apis.get(key)
        if stats is None:
            stats = self.other_api
        stats.bytes_in += bytes_in
        stats.bytes_out += bytes_out
        stats.seconds += seconds
        bucket = bisect_left(REQUEST_BOUNDS, seconds)
        stats.buckets[bucket] += 1
        if stats.wanted[bucket]:
            stats.wanted[bucket] = False
            stats.examples[bucket] = Example(
                seconds, time.time(), request.client_id, request.correlation_id, request.connection.peer
            )
        overhead = stats.overhead
        if overhead is not None:
            if upstream > 0.0:
                if upstream > seconds:  # noqa: PLR1730 - calling min() takes longer
                    upstream = seconds
                asked = stats.upstream
                assert asked is not None
                asked.buckets[bisect_left(REQUEST_BOUNDS, upstream)] += 1
                asked.total += upstream
                seconds -= upstream
            overhead.buckets[bisect_left(OVERHEAD_BOUNDS, seconds)] += 1
            overhead.total += seconds

    def response_error(self, api: str, error: str) -> None:
        """An answer carried an error: names of the API and of the code. Several in one answer count each."""
        self.count("response_errors", api, error)

    # Upstream -----------------------------------------------------------------------------------------------------

    def upstream_opened(self) -> None:
        """A connection to a broker stands."""
        self.upstream_open += 1

    def upstream_closed(self) -> None:
        """One that stood has ended."""
        self.upstream_open -= 1

    # Governed topics ----------------------------------------------------------------------------------------------

    def governed_produce(self, topic: str, records: int, size: int) -> None:
        """Records were appended; `size` is that of their batch in bytes."""
        stats = self.topics.get(topic)
        stats.records += records
        stats.bytes += size

    def fenced(self, topic: str, reason: str) -> None:
        """A batch was refused for want of a right to write; `reason` is one of a few words."""
        fenced = self.topics.get(topic).fenced
        fenced[reason] = fenced.get(reason, 0) + 1

    def owner_changed(self, topic: str, generation: int, name: str | None, mode: str | None) -> None:
        """The topic's owner, as this node knows it; `name` None: it has none.

        Topics beyond the cap share one series: nothing is kept for them.
        """
        stats = self.topics.get(topic)
        if stats is not self.topics.other:
            stats.generation = generation
            stats.owner = None if name is None else (name, mode or "")

    def topic_forgotten(self, topic: str) -> None:
        """The topic is no longer governed, another node serves it, or Kafka has it no more: its series end."""
        self.topics.forget(topic)

    def duplicates_dropped(self, topic: str, records: int) -> None:
        """Records whose sequence ids the log held were acknowledged and not written."""
        self.topics.get(topic).duplicates += records

    def ids_unknown(self, topic: str) -> None:
        """A batch got a retriable error: it is not known yet whether its sequence ids are in the log."""
        self.topics.get(topic).unknown += 1

    # Claims -------------------------------------------------------------------------------------------------------

    def claims_answered(self, outcome: str, resources: int) -> None:
        """Claims to so many free strings or readers' resources came to this; `outcome` is one of a few words."""
        self.count("claims", outcome, more=resources)

    # Redis --------------------------------------------------------------------------------------------------------

    def redis_command(self, script: str, seconds: float) -> None:
        """A script was answered."""
        self.observe("redis_command_duration_seconds", seconds, script)

    # Shadow topics ------------------------------------------------------------------------------------------------

    def read_shadows(self, read: Callable[[], Sequence[ShadowSeries]]) -> None:
        """Have `read` called whenever metrics are asked for: all shadows, those that are to keep their series first."""
        self._read_shadows = read

    def shadow_series(self) -> list[ShadowSeries]:
        """All shadows with series, and what is folded into `OTHER` if anything is."""
        return folded(self._read_shadows(), self._topic_limit)

    def topic_series(self) -> list[tuple[str, TopicStats]]:
        """All topics with series, and what is folded into `OTHER` if anything is."""
        found = list(self.topics.topics.items())
        if self.topics.folded:
            found.append((OTHER, self.topics.other))
        return found
