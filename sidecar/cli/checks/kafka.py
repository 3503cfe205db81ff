"""Is Kafka there, does it serve what a node needs, can somebody get round the sidecar, will fences last?"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from sidecar.changelog.topics import TopicNames, check
from sidecar.cli.checks.finding import Finding, fail, ok, warn
from sidecar.cli.checks.readers import hosts_of, judged, members_of
from sidecar.cli.output import counted
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.fencing import KeepAlive, read_keep_alives
from sidecar.gateway.relay import lacking
from sidecar.protocol.api import APIS
from sidecar.protocol.caller import FixedRequest, UpstreamError
from sidecar.protocol.calls.admin import (
    ApiVersions,
    ConfigResource,
    CreateTopics,
    DescribeConfigs,
    DescribeTopics,
    FindCoordinator,
    Resource,
    ServedVersions,
)
from sidecar.protocol.calls.logs import FetchPartition, ListOffsets, ProduceBatch
from sidecar.protocol.calls.transactions import AddPartitionsToTxn, DescribeProducers, EndTxn, InitProducerId
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.security.broker_access import BrokerAccess, access_of
from sidecar.settings import Address, Settings

_TIMEOUT: Final = 10.0
_NEEDED: Final[tuple[type[FixedRequest], ...]] = (
    AddPartitionsToTxn,
    ApiVersions,
    CreateTopics,
    DescribeConfigs,
    DescribeProducers,
    DescribeTopics,
    EndTxn,
    FetchPartition,
    FindCoordinator,
    InitProducerId,
    ListOffsets,
    ProduceBatch,
)
_NO_NODE: Final = "every node: without Kafka none serves"
_NO_START: Final = "the start of every node"
_EVERY_BROKER: Final = "a node needs every broker at the address it advertises"
_SHORTEST_KEEP_ALIVE: Final = 5.0
"""Seconds: a fence that has to be kept alive more often is lost by one slow takeover elsewhere."""


async def check_kafka(
    settings: Settings, governed: Sequence[str], shadows: Collection[str] = (), nodes: Sequence[str] = ()
) -> list[Finding]:
    """All findings; `governed` are the topics whose fences have to last, `nodes` the hosts that nodes advertise."""
    try:
        access = access_of(settings)
    except ValueError as error:
        remedy = "see the settings SIDECAR_KAFKA_SSL_… and SIDECAR_KAFKA_SASL_…"
        return [fail("kafka", str(error), remedy, _NO_NODE)]
    silent = {server: await _silence(server, settings, access) for server in settings.bootstrap_servers}
    remedy = (
        "is Kafka running, SIDECAR_BOOTSTRAP_SERVERS correct, and its listener one for"
        f" SIDECAR_KAFKA_SECURITY_PROTOCOL={access.protocol} and the settings beside it?"
    )
    if all(silent.values()):
        return [fail("kafka", reason, remedy, _NO_NODE) for reason in silent.values()]
    found = [warn("kafka", reason, remedy) for reason in silent.values() if reason]
    upstream = _upstream([server for server, reason in silent.items() if not reason], settings, access)
    try:
        found.append(ok("kafka", f"{counted(len(await upstream.brokers()), 'broker')} in the cluster"))
        found += await _brokers(upstream)
        found += await _internal_topics(upstream, settings.cluster)
        found += await _keep_alive(upstream, governed)
        found += await _tokens(upstream, settings)
        found += await _readers(upstream, shadows, nodes)
    except (UpstreamError, KafkaError) as error:
        found.append(fail("kafka", str(error), _EVERY_BROKER, _NO_NODE))
    finally:
        await upstream.close()
    return found


async def _tokens(upstream: KafkaUpstream, settings: Settings) -> list[Finding]:
    """Whether each broker takes a login by delegation token, where clients' connections are to log in so."""
    mechanism = settings.kafka_delegation_tokens
    if mechanism is None:
        return []
    lacks, offers = await lacking(upstream, mechanism)
    if not lacks:
        return [ok("tokens", f"{counted(offers, 'broker')} offer {mechanism} for logins by delegation token")]
    blocks = "clients that log in, at this broker" if offers else _NO_START
    return [fail("tokens", problem, remedy, blocks) for problem, remedy in lacks]


async def _readers(upstream: KafkaUpstream, shadows: Collection[str], nodes: Sequence[str]) -> list[Finding]:
    if not shadows:
        return []
    members = await members_of(upstream, shadows)
    brokers = [(broker.host, broker.port) for broker in upstream.view.brokers.values()]
    return [judged(members, await asyncio.to_thread(hosts_of, nodes, brokers))]


def _upstream(servers: Sequence[Address], settings: Settings, access: BrokerAccess) -> KafkaUpstream:
    return KafkaUpstream(
        list(servers),
        connect_timeout=settings.kafka_connect_timeout_ms / 1000,
        request_timeout=min(_TIMEOUT, settings.kafka_request_timeout_ms / 1000),
        access=access,
    )


async def _silence(server: Address, settings: Settings, access: BrokerAccess) -> str:
    """Why a bootstrap server does not answer; "" where it does. Before a login brokers answer ApiVersions alone."""
    upstream = _upstream([server], settings, access)
    try:
        served = await upstream.call(None, ApiVersions())
        if _covers(served.get(DescribeTopics.api_key), DescribeTopics.api_version):
            await upstream.call(None, DescribeTopics(()))
    except UpstreamError as error:
        reason = str(error)
        if reason.endswith(" closed the connection") and access.protocol != "SASL_SSL":
            return f"{reason} before it answered: the port may require a login or TLS"
        return reason
    else:
        return ""
    finally:
        await upstream.close()


async def _brokers(upstream: KafkaUpstream) -> list[Finding]:
    """Each broker at the address it advertises: versions, and whether clients elsewhere could reach it too."""
    found: list[Finding] = []
    open_to_others: list[str] = []
    for number, broker in sorted(upstream.view.brokers.items()):
        name, address = f"broker {number}", Address(broker.host, broker.port)
        try:
            served = await upstream.call(number, ApiVersions())
        except UpstreamError as error:
            found.append(fail(name, f"{address}: {error}", _EVERY_BROKER, "the partitions that this broker leads"))
            continue
        found.append(_versions(name, address, served))
        if not address.loopback:
            open_to_others.append(str(address))
    if open_to_others:
        remedy = "let only the sidecar's nodes reach these addresses: a firewall, a network of its own, or ACLs"
        detail = (
            f"{', '.join(open_to_others)} can be reached from here: a client that can reach them too cannot be"
            " stopped by a fence"
        )
        found.append(warn("bypass", detail, remedy))
    else:
        found.append(ok("bypass", "the brokers advertise loopback addresses: only programs on this machine can bypass"))
    return found


def _versions(name: str, address: Address, served: Mapping[int, ServedVersions]) -> Finding:
    lacking = [
        f"{request.__name__} v{request.api_version}"
        for request in _NEEDED
        if not _covers(served.get(request.api_key), request.api_version)
    ]
    if lacking:
        return fail(name, f"{address} does not serve {', '.join(lacking)}", "Kafka 3.0 or newer is needed", _NO_NODE)
    shared = sum(1 for key, api in APIS.items() if key in served and served[key].highest >= api.first)
    produce, fetch = served[ProduceBatch.api_key], served[FetchPartition.api_key]
    ranges = f"Produce {produce.lowest}-{produce.highest}, Fetch {fetch.lowest}-{fetch.highest}"
    return ok(name, f"{address} serves {shared} of {len(APIS)} APIs that clients may use ({ranges})")


def _covers(served: ServedVersions | None, version: int) -> bool:
    return served is not None and served.lowest <= version <= served.highest


async def _internal_topics(upstream: KafkaUpstream, cluster: str) -> list[Finding]:
    names = TopicNames.of(cluster)
    roles = {names.ownership: "ownership", names.snapshots: "snapshots", names.events: "events"}
    described = await upstream.call(None, DescribeTopics(names.all))
    answers = await upstream.call(None, DescribeConfigs(tuple(Resource(ConfigResource.TOPIC, name) for name in roles)))
    found: list[Finding] = []
    missing: list[str] = []
    for topic in described.topics:
        if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(topic.name)
            continue
        answer = answers.get(Resource(ConfigResource.TOPIC, topic.name))
        if topic.error or answer is None or answer.error:
            code = topic.error or (answer.error if answer else ErrorCode.UNKNOWN_SERVER_ERROR)
            remedy = "the node has to be allowed to read and describe it"
            found.append(fail(topic.name, error_name(code), remedy, _NO_START))
            continue
        for each in check(roles[topic.name], answer.values, topic, len(described.brokers)):
            remedy = "kafka-configs --alter on this topic, then start the nodes again"
            found.append(
                fail(topic.name, each.what, remedy, _NO_START) if each.fatal else warn(topic.name, each.what, remedy)
            )
    if len(missing) == len(roles):
        found.append(warn("internal topics", "none yet", "the first node of this cluster creates them when it starts"))
    elif missing:
        remedy = "nodes do not start like this; see the topic's entry in the operations manual"
        found.append(fail("internal topics", f"deleted: {', '.join(missing)}", remedy, _NO_START))
    elif not found:
        found.append(ok("internal topics", f"{', '.join(roles)} exist and are configured correctly"))
    return found


async def _keep_alive(upstream: KafkaUpstream, governed: Sequence[str]) -> list[Finding]:
    if not governed:
        return []
    found: dict[str, KeepAlive] = await read_keep_alives(upstream, list(governed))
    if not found:
        return []
    topic, shortest = min(found.items(), key=lambda item: item[1].interval)
    detail = f"a fence of {topic} lasts {4 * shortest.interval:g} s without a record or a takeover ({shortest.setting})"
    if shortest.interval < _SHORTEST_KEEP_ALIVE:
        remedy = f"raise {shortest.setting}: Kafka forgets fences too soon"
        return [fail("fences", detail, remedy, "fencing: a deposed producer may write again")]
    if shortest.assumed:
        remedy = "allow the node DESCRIBE_CONFIGS on the cluster: until then Kafka's defaults are assumed"
        return [warn("fences", detail, remedy)]
    return [ok("fences", detail)]
