"""Produce (3-13): to the leaders, or to the room `exclusive` (`produce`)."""

from sidecar.gateway.access.asked import Operation, PerTopic
from sidecar.gateway.apis.spec import ApiKey, ApiSpec, Route
from sidecar.gateway.produce import ProduceApi

SPEC = ApiSpec(
    ApiKey.PRODUCE, (3, 13), Route.LEADERS, PerTopic(Operation.WRITE),
    hot=lambda row, of: ProduceApi(of.upstream, of.nodes, of.resolver, of.sessions, of.tasks, row.shadow).handle,
    reason="newest known; advertised from 0 as librdkafka needs it (KAFKA-18659)", advertised_first=0, flexible_since=9,
)  # fmt: skip
