"""Gauges of a node: values that each scrape reads from its rooms, rather than counters of events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.gateway.enforcement import AclMirror
from sidecar.gateway.sequence_ids import State, state_of
from sidecar.node import port
from sidecar.node.hooks import shadow_series
from sidecar.node.parts import Parts, Rooms
from sidecar.telemetry.series import Queue


def observe(node: Parts, rooms: Rooms) -> None:
    """Register the gauges, to be read at every scrape."""
    metrics = node.metrics
    metrics.read_gauge("redis_up", lambda: float(rooms.membership.available))
    metrics.read_gauge("kafka_up", lambda: float(rooms.changelog.tailer.last_error is None))
    metrics.read_gauge("lease_expiry_timestamp_seconds", lambda: rooms.membership.lease_until)
    metrics.read_gauge("weak_fences", lambda: float(weak_fences(rooms.governed)))
    metrics.read_gauge("dedup_names", lambda: float(names_known(rooms.governed)))
    metrics.in_flight = rooms.gateway.unanswered_by_api
    metrics.queue = lambda topic: queue_of(rooms.governed, topic)
    metrics.read_gauge("dedup_reading_topics", lambda: float(known_ids(rooms.governed).reading))
    metrics.read_gauge("dedup_lost_topics", lambda: float(known_ids(rooms.governed).lost))
    metrics.read_gauge("dedup_crowded_topics", lambda: float(known_ids(rooms.governed).crowded))
    metrics.read_gauge("dedup_unprotected_topics", lambda: float(known_ids(rooms.governed).unprotected))
    metrics.read_gauge("claims_held", lambda: float(len(rooms.claims.claims.table.owners)))
    metrics.read_gauge("claims_waiting", lambda: float(rooms.claims.claims.table.waiting.wishes))
    metrics.read_gauge("shadows_closed", lambda: float(rooms.shadows.closed))
    metrics.read_shadows(lambda: shadow_series(rooms.cursors.statistics))
    metrics.read_gauge("config_last_reload_successful", lambda: float(node.settings_good))
    metrics.read_gauge("config_last_reload_success_timestamp_seconds", lambda: node.settings_read)
    if rooms.acls is not None:
        metrics.read_gauge("acls_age_seconds", _age_of(rooms.acls))
    quotas = rooms.quotas
    metrics.read_gauge("client_quotas", lambda: 0.0 if quotas is None else float(len(quotas.quotas)))
    metrics.read_gauge("client_quotas_readable", lambda: float(quotas is None or quotas.is_read))
    metrics.read_gauge("live_nodes", lambda: float(len(node.nodes.placement.nodes)))


def _age_of(acls: AclMirror) -> Callable[[], float]:
    return lambda: acls.age


def known_ids(governed: GovernedTopics) -> port.Deduplicated:
    """Count the topics that this node serves, by the state of their sequence ids."""
    topics = [governed.topic(name) for name in governed.served_topics()]
    count = Counter(state_of(topic, elsewhere=False)[0] for topic in topics)
    crowded = sum(topic.ids is not None and topic.ids.crowded is not None for topic in topics)
    unprotected = sum(topic.ids is not None and topic.ids.unprotected is not None for topic in topics)
    return port.Deduplicated(count[State.READY], count[State.READING], count[State.LOST], crowded, unprotected)


def weak_fences(governed: GovernedTopics) -> int:
    """Return the number of topics with settings that delete a fence's marker before it is renewed."""
    return sum(bool(topic.upkeep.terms.short) for topic in governed.kept_topics())


def names_known(governed: GovernedTopics) -> int:
    """Return the number of producer names with sequence ids in memory, counted once per partition."""
    ids = [governed.topic(name).ids for name in governed.served_topics()]
    return sum(len(state.marks) for each in ids if each is not None for state in each.partitions.values())


def queue_of(governed: GovernedTopics, topic: str) -> Queue:
    """Return the number of requests that wait for a topic or its partitions at this node."""
    waiting = stranded = 0
    for part in governed.topic(topic).parts if governed.serves(topic) else ():
        if there := len(part.waiting()):
            waiting += there
            if part.current is None and not part.shared.connected():
                stranded += there
    return Queue(waiting, stranded)
