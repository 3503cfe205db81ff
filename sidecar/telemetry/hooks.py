"""`NodeMetrics`: what a node counts, as methods that rooms call through their own protocol.

Every method is cheap and none raises; `request_done` is on the path of every request and touches plain integers only.
Labels that could grow without bound are never kept: topics are capped, API names come from a fixed table, client ids
and addresses of clients are not counted at all.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

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
    "dedup_names": "Producer names whose sequence ids this node remembers, counted per partition.",
    "shadows_closed": (
        "Shadow topics of the cluster that cannot be read, because their source was deleted or created again."
    ),
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

RELOADS: Final[tuple[str, ...]] = ("success", "failure")
ACCESS_MODES: Final[tuple[str, ...]] = ("shared", "exclusive", "wait_for_exclusive", "exclusive_with_fencing")
CLAIM_OUTCOMES: Final[tuple[str, ...]] = ("granted", "waiting", "released", "lost", "held", "unavailable")
"""Those that exist from the start; besides them the errors of the own APIs."""
LOOPS: Final[tuple[str, ...]] = (
    "ACLs", "claims", "cursors", "heartbeat", "idle clients", "keep-alive", "metadata", "ownerships",
    "settings", "shadows", "silent clients", "snapshots",
)  # fmt: skip
"""What a node does all the time."""
OUTCOMES: Final[tuple[str, ...]] = ("success", "failure")
"""Of TLS handshakes and of logins."""
MECHANISMS: Final[tuple[str, ...]] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DISCONNECT_CAUSES: Final[tuple[str, ...]] = ("closed", "idle", "rejected", "silent")
REFUSALS: Final[tuple[str, ...]] = ("address", "files", "principal", "rate", "total")
"""Why a connection is closed as soon as it is accepted."""
REJECTIONS: Final[tuple[str, ...]] = (
    "login_timeout", "malformed", "memory", "too_large", "too_many", "too_slow", "truncated", "unread",
)  # fmt: skip
"""Why a client's requests are refused with more than an error code. These exist from the start."""
EXPECTED_ERRORS: Final[tuple[tuple[str, str], ...]] = (
    ("Produce", "LEADER_NOT_AVAILABLE"),
    ("Produce", "NOT_LEADER_OR_FOLLOWER"),
    ("Produce", "POLICY_VIOLATION"),
    ("Produce", "PRODUCER_FENCED"),
    ("Produce", "REQUEST_TIMED_OUT"),
)
"""Series that exist from the start: the first such answer is an increase then, not the first value of a series."""
REDIS_ERRORS: Final[tuple[str, ...]] = (
    "away", "closed", "cluster", "denied", "loading", "out of memory", "read only", "timeout",
)  # fmt: skip
"""Likewise."""

Key = TypeVar("Key", str, tuple[str, str])


def _count(counts: dict[Key, int], key: Key, other: Key, more: int = 1) -> None:
    """One more of a word; under `other` where there are too many already."""
    if key not in counts and len(counts) >= WORDS_LIMIT:
        key = other
    counts[key] = counts.get(key, 0) + more


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
        self.config_reloads: dict[str, int] = dict.fromkeys(RELOADS, 0)
        self.clients_accepted = 0
        self.listener_connections: dict[str, int] = {}
        """Open connections by the name of the listener, of which settings have a few."""
        self.disconnects: dict[str, int] = dict.fromkeys(DISCONNECT_CAUSES, 0)
        self.refusals: dict[str, int] = dict.fromkeys(REFUSALS, 0)
        self.rejections: dict[str, int] = dict.fromkeys(REJECTIONS, 0)
        self.throttles: dict[str, int] = {"Fetch": 0, "Produce": 0}
        self.throttle_seconds = 0.0
        self.events_left_out: Callable[[], int] = int
        """Events that were not logged, as there were many of their kind; asked when metrics are."""
        self.handshakes: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        self.logins: dict[tuple[str, str], int] = {(name, end): 0 for name in MECHANISMS for end in OUTCOMES}
        self.upstream_open = 0
        self.upstream_errors: dict[str, int] = {"bootstrap": 0}
        self.loop_failures: dict[str, int] = dict.fromkeys(LOOPS, 0)
        self.response_errors: dict[tuple[str, str], int] = dict.fromkeys(EXPECTED_ERRORS, 0)
        self.takeovers: dict[str, int] = dict.fromkeys(ACCESS_MODES, 0)
        self.takeover_seconds = Histogram(REQUEST_BOUNDS)
        self.ids_recovered_records = 0
        self.ids_recovery_seconds = Histogram(REQUEST_BOUNDS)
        self.snapshots = 0
        self.snapshot_bytes = 0
        self.claims: dict[str, int] = dict.fromkeys(CLAIM_OUTCOMES, 0)
        self.redis_errors: dict[str, int] = dict.fromkeys(REDIS_ERRORS, 0)
        self.redis_seconds: dict[str, Histogram] = {}
        self.loop_lag = Histogram(LAG_BOUNDS)
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

    # Clients ------------------------------------------------------------------------------------------------------

    def client_connected(self, listener: str) -> None:
        """A client's connection was accepted."""
        self.clients_accepted += 1
        _count(self.listener_connections, listener, OTHER)

    def client_disconnected(self, cause: str, listener: str) -> None:
        """It ended; `cause` is one of a few words."""
        _count(self.disconnects, cause, OTHER)
        _count(self.listener_connections, listener, OTHER, -1)

    def connection_refused(self, reason: str) -> None:
        """A connection, or one to a broker for a client, was one too many; `reason` is one of a few words."""
        _count(self.refusals, reason, OTHER)

    def client_rejected(self, reason: str) -> None:
        """A client sent what is not taken from it; `reason` is one of a few words."""
        _count(self.rejections, reason, OTHER)

    def throttled(self, key: int, seconds: float) -> None:
        """A client is over its quota with a request of this API, and is not read for so long."""
        stats = self.apis.get(key, self.other_api)
        _count(self.throttles, stats.name, OTHER)
        self.throttle_seconds += seconds

    def handshake_done(self, *, success: bool) -> None:
        """A TLS handshake with a client ended."""
        self.handshakes["success" if success else "failure"] += 1

    def login_done(self, mechanism: str, *, success: bool) -> None:
        """A client was let in by SASL, or refused."""
        name = mechanism if mechanism in MECHANISMS else OTHER
        key = name, "success" if success else "failure"
        self.logins[key] = self.logins.get(key, 0) + 1

    @property
    def client_connections(self) -> int:
        """How many are open."""
        return self.clients_accepted - sum(self.disconnects.values())

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
        _count(self.response_errors, (api, error), (OTHER, OTHER))

    # Upstream -----------------------------------------------------------------------------------------------------

    def upstream_opened(self) -> None:
        """A connection to a broker stands."""
        self.upstream_open += 1

    def upstream_closed(self) -> None:
        """One that stood has ended."""
        self.upstream_open -= 1

    def upstream_error(self, broker: str) -> None:
        """A connection could not be opened, or broke. `broker` is an id or an address of the bootstrap list."""
        _count(self.upstream_errors, broker, OTHER)

    def loop_failed(self, name: str) -> None:
        """A loop that runs as long as the node raised, and begins again."""
        _count(self.loop_failures, name, OTHER)

    # Governed topics ----------------------------------------------------------------------------------------------

    def governed_produce(self, topic: str, records: int, size: int) -> None:
        """Records were appended; `size` is that of their batch in bytes."""
        stats = self.topics.get(topic)
        stats.records += records
        stats.bytes += size

    def fenced(self, topic: str, reason: str) -> None:
        """A batch was refused for want of a right to write; `reason` is one of a few words."""
        _count(self.topics.get(topic).fenced, reason, OTHER)

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

    def takeover(self, mode: str, seconds: float) -> None:
        """A change of owner or a failover was completed in `seconds`."""
        _count(self.takeovers, mode, OTHER)
        self.takeover_seconds.observe(seconds)

    def duplicates_dropped(self, topic: str, records: int) -> None:
        """Records whose sequence ids the log held were acknowledged and not written."""
        self.topics.get(topic).duplicates += records

    def ids_unknown(self, topic: str) -> None:
        """A batch got a retriable error: it is not known yet whether its sequence ids are in the log."""
        self.topics.get(topic).unknown += 1

    def ids_read(self, records: int) -> None:
        """`records` more were read from a log, to find the sequence ids of a topic that was taken over."""
        self.ids_recovered_records += records

    def ids_recovered(self, seconds: float) -> None:
        """The sequence ids of such a topic are known."""
        self.ids_recovery_seconds.observe(seconds)

    def snapshot_written(self, size: int) -> None:
        """A snapshot of a partition's sequence ids is in Kafka; `size` in bytes."""
        self.snapshots += 1
        self.snapshot_bytes += size

    # Claims -------------------------------------------------------------------------------------------------------

    def claims_answered(self, outcome: str, resources: int) -> None:
        """Claims to so many free strings or readers' resources came to this; `outcome` is one of a few words."""
        _count(self.claims, outcome, OTHER, resources)

    # Redis --------------------------------------------------------------------------------------------------------

    def redis_command(self, script: str, seconds: float) -> None:
        """A script was answered."""
        histogram = self.redis_seconds.get(script)
        if histogram is None:
            histogram = self.redis_seconds[script] = Histogram(SHORT_BOUNDS)
        histogram.observe(seconds)

    def redis_error(self, kind: str) -> None:
        """A script was not answered, or with an error; `kind` is one of a few words."""
        _count(self.redis_errors, kind, OTHER)

    # The settings -------------------------------------------------------------------------------------------------

    def config_reloaded(self, *, success: bool) -> None:
        """The settings were read again, and taken over or not."""
        self.config_reloads["success" if success else "failure"] += 1

    # The loop -----------------------------------------------------------------------------------------------------

    def loop_lagged(self, seconds: float) -> None:
        """A timer of the event loop fired this much late."""
        self.loop_lag.observe(seconds)

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
