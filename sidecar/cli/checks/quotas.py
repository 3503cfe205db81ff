"""Checks Kafka's client quotas: whether a node may read them, and whether one holds for what nodes send themselves."""

from __future__ import annotations

from typing import Final

from sidecar.cli.checks.finding import Finding, ok, warn
from sidecar.cli.output import counted
from sidecar.cluster.brokers import CLIENT_ID
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.kafka_quotas import UNKNOWN_USER
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.security import DescribeClientQuotas, DescribedQuotas
from sidecar.protocol.errors import error_name
from sidecar.security.broker_access import user_at_brokers
from sidecar.security.client_quotas import ClientQuotas, Quota, Who
from sidecar.settings import Settings

_CHECK: Final = "quotas"
_REMEDY: Final = "allow the node DESCRIBE_CONFIGS on the cluster, or set SIDECAR_CLIENT_QUOTAS=false"


async def check_quotas(upstream: KafkaUpstream, settings: Settings) -> list[Finding]:
    """All findings."""
    if not settings.client_quotas:
        return [ok(_CHECK, "SIDECAR_CLIENT_QUOTAS is off: for governed topics and shared reads none are enforced")]
    try:
        answer = await upstream.ask_any(DescribeClientQuotas())
    except UpstreamError as error:
        return [warn(_CHECK, f"client quotas cannot be read: {error}", _REMEDY)]
    return [judged(answer, Who(user_at_brokers(settings) or UNKNOWN_USER, CLIENT_ID))]


def judged(answer: DescribedQuotas, node: Who) -> Finding:
    """Finding about the quotas that brokers describe. `node`: as whom brokers see what nodes send in their own name."""
    if answer.error:
        detail = f"{error_name(answer.error)}: client quotas are not enforced for governed topics and shared reads"
        return warn(_CHECK, detail, _REMEDY)
    quotas = ClientQuotas.of(answer.entries)
    limits = [limit for quota in Quota if (limit := quotas.limit(quota, node)) is not None]
    if limits:
        shown = " and ".join(f"{each.quota}={each.per_second:g} (by {each.level})" for each in limits)
        detail = f"brokers hold governed topics and shared reads of all clients of a node together to {shown}"
        remedy = f"give the node's user, or client id {node.client_id!r}, a high quota of its own in Kafka"
        return warn(_CHECK, detail, remedy)
    return ok(_CHECK, f"{counted(len(quotas), 'client quota')} for bytes, none of them for nodes themselves")
