"""Is Kafka reachable, does it support what a node needs, can clients bypass the sidecar, will fences last?

Does a consumer read a shadow without the nodes? The topic is empty in Kafka, so such a member resets the cursors of its
group. A coordinator knows the address that a member came from. Through a node that is the node's own, so a member from
any other address has bypassed the nodes. Readers on a node's own machine cannot be distinguished from it.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from sidecar.changelog.topics import TopicNames, check
from sidecar.cli.checks.finding import Finding, fail, ok, warn
from sidecar.cli.checks.quotas import check_quotas
from sidecar.cli.output import counted
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.exclusive.advice import read_by_offsets, unprotected, weak_fence
from sidecar.exclusive.cleaning import read_cleaning
from sidecar.fencing.expiry import KeepAlive, read_keep_alives
from sidecar.gateway.apis.table import APIS
from sidecar.gateway.relay import lacking
from sidecar.protocol.caller import Request, UpstreamError
from sidecar.protocol.calls import admin
from sidecar.protocol.calls.groups import ListGroups
from sidecar.protocol.calls.logs import FetchPartition, ListOffsets, ProduceBatch
from sidecar.protocol.calls.transactions import AddPartitionsToTxn, DescribeProducers, EndTxn, InitProducerId
from sidecar.protocol.errors import ErrorCode, KafkaError, error_name
from sidecar.protocol.messages.groups import DESCRIBE_GROUPS
from sidecar.protocol.primitives import MalformedFrameError, Reader
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View
from sidecar.security.broker_access import BrokerAccess, access_of
from sidecar.settings import Address, Settings

_AT_ONCE: Final = 100
"""The most groups in one request."""
_SHOWN: Final = 5
_RAISE: Final = (
    "raise min.compaction.lag.ms, and max.compaction.lag.ms if that is lower."
    " A node with ALTER_CONFIGS on the topics raises the first itself"
)


class Member(NamedTuple):
    """A group member that has partitions of a shadow. `host`: the address that its coordinator sees."""

    group: str
    client_id: str
    host: str
    shadow: str


class _DescribeGroups(View[list[tuple[str, Values]]], of=DESCRIBE_GROUPS, version=0):
    """Every member with its group."""

    groups: Sequence[str]

    def asked(self) -> Values:
        return {"groups": self.groups}

    def answered(self, values: Values) -> list[tuple[str, Values]]:
        return [(group["group_id"], member) for group in values["groups"] for member in group["members"]]


async def members_of(upstream: KafkaUpstream, shadows: Collection[str]) -> list[Member]:
    """All group members that have partitions of these topics. Raises UpstreamError, KafkaError."""
    found: list[Member] = []
    for broker in sorted(upstream.view.brokers):
        listed = await upstream.call(broker, ListGroups())
        if listed.error:
            raise KafkaError(listed.error, "the groups of a broker")
        groups = [each.name for each in listed.groups]
        for first in range(0, len(groups), _AT_ONCE):
            described = await upstream.call(broker, _DescribeGroups(groups[first : first + _AT_ONCE]))
            for group, member in described:
                found += [
                    Member(group, member["client_id"], member["client_host"].removeprefix("/"), topic)
                    for topic in assigned(member["member_assignment"])
                    if topic in shadows
                ]
    return found


def assigned(assignment: bytes) -> list[str]:
    """The topics in the assignment of a consumer (`ConsumerProtocolAssignment`); none if it is something else."""
    reader = Reader(assignment, 0, len(assignment))
    try:
        reader.i16()
        topics: list[str] = []
        for _ in range(reader.array(element_bytes=6)):
            topics.append(reader.text())
            reader.skip(4 * reader.array(element_bytes=4))
    except (MalformedFrameError, UnicodeDecodeError):
        return []
    return topics


def hosts_of(nodes: Iterable[str], towards: Iterable[tuple[str, int]]) -> set[str]:
    """The addresses of these nodes that brokers may see. `towards`: the brokers, for nodes that advertise a loopback
    address and so run on this machine.
    """
    found: set[str] = set()
    for node in nodes:
        found |= _resolved(node)
    if any(ip_address(address).is_loopback for address in found):
        found |= {address for host, port in towards for address in _own(host, port)}
    return found


def _resolved(host: str) -> set[str]:
    try:
        return {str(found[4][0]).partition("%")[0] for found in socket.getaddrinfo(host, None)}
    except OSError:
        return set()


def _own(host: str, port: int) -> set[str]:
    """The address of this machine that a broker would see; sends nothing."""
    try:
        kind = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind[0], kind[1]) as probe:
            probe.connect(kind[4])
            return {str(probe.getsockname()[0])}
    except OSError:
        return set()


def judged(members: Sequence[Member], hosts: Collection[str]) -> Finding:
    """Finding about consumers that read shadows. `hosts`: the addresses of members that came through a node."""
    strangers = sorted({member for member in members if member.host not in hosts})
    if strangers:
        shown = [f"{each.client_id} ({each.group}) at {each.host} reads {each.shadow}" for each in strangers[:_SHOWN]]
        more = f" and {len(strangers) - _SHOWN} more" if len(strangers) > _SHOWN else ""
        remedy = "at a broker a shadow is empty, and such readers reset its cursors: let them bootstrap from the nodes"
        return warn("shadow readers", f"not from the host of a node: {'; '.join(shown)}{more}", remedy)
    if members:
        return ok(
            "shadow readers",
            f"{counted(len(members), 'member')} of groups,"
            " all from hosts of nodes; readers on a node's own machine cannot be distinguished from it",
        )
    return ok("shadow readers", "no member of a group has partitions of a shadow now")


_TIMEOUT: Final = 10.0
_NEEDED: Final[tuple[type[Request[object]], ...]] = (
    AddPartitionsToTxn,
    admin.ApiVersions,
    admin.CreateTopics,
    admin.DescribeConfigs,
    DescribeProducers,
    admin.DescribeTopics,
    EndTxn,
    FetchPartition,
    admin.FindCoordinator,
    InitProducerId,
    ListOffsets,
    ProduceBatch,
)
_NO_NODE: Final = "every node: without Kafka none serves"
_NO_START: Final = "the start of every node"
_EVERY_BROKER: Final = "a node needs every broker at the address it advertises"
_SHORTEST_KEEP_ALIVE: Final = 5.0
"""Seconds: a fence that needs keep-alives more often is lost during one slow takeover elsewhere."""


async def check_kafka(
    settings: Settings,
    governed: Sequence[str],
    shadows: Collection[str] = (),
    nodes: Sequence[str] = (),
    with_ids: Collection[str] = (),
) -> list[Finding]:
    """All findings; `governed` are the topics whose fences have to last, `with_ids` those of them that have sequence
    ids, `nodes` the hosts that nodes advertise.
    """
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
        found += await _governed(upstream, governed, with_ids)
        found += await _tokens(upstream, settings)
        found += await check_quotas(upstream, settings)
        found += await _readers(upstream, shadows, nodes)
    except (UpstreamError, KafkaError) as error:
        found.append(fail("kafka", str(error), _EVERY_BROKER, _NO_NODE))
    finally:
        await upstream.close()
    return found


async def _tokens(upstream: KafkaUpstream, settings: Settings) -> list[Finding]:
    """Whether each broker accepts logins by delegation token, if clients' connections are to use them."""
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
    """Why a bootstrap server does not answer; "" if it does. Before a login brokers answer only ApiVersions."""
    upstream = _upstream([server], settings, access)
    try:
        served = await upstream.call(None, admin.ApiVersions())
        if _covers(served.get(admin.DescribeTopics.api_key), admin.DescribeTopics.api_version):
            await upstream.call(None, admin.DescribeTopics(()))
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
    """Check each broker at its advertised address: its versions, and whether clients elsewhere could reach it too."""
    found: list[Finding] = []
    open_to_others: list[str] = []
    for number, broker in sorted(upstream.view.brokers.items()):
        name, address = f"broker {number}", Address(broker.host, broker.port)
        try:
            served = await upstream.call(number, admin.ApiVersions())
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


def _versions(name: str, address: Address, served: Mapping[int, admin.ServedVersions]) -> Finding:
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


def _covers(served: admin.ServedVersions | None, version: int) -> bool:
    return served is not None and served.lowest <= version <= served.highest


async def _internal_topics(upstream: KafkaUpstream, cluster: str) -> list[Finding]:
    names = TopicNames.of(cluster)
    roles = {names.ownership: "ownership", names.snapshots: "snapshots", names.events: "events"}
    described = await upstream.call(None, admin.DescribeTopics(names.all))
    resources = tuple(admin.Resource(admin.ConfigResource.TOPIC, name) for name in roles)
    answers = await upstream.call(None, admin.DescribeConfigs(resources))
    found: list[Finding] = []
    missing: list[str] = []
    for topic in described.topics:
        if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            missing.append(topic.name)
            continue
        answer = answers.get(admin.Resource(admin.ConfigResource.TOPIC, topic.name))
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


async def _governed(upstream: KafkaUpstream, governed: Sequence[str], with_ids: Collection[str]) -> list[Finding]:
    if not governed:
        return []
    terms: dict[str, KeepAlive] = await read_keep_alives(upstream, list(governed))
    if not terms:
        return []
    found: list[Finding] = []
    topic, shortest = min(terms.items(), key=lambda item: item[1].interval)
    detail = (
        f"fences are renewed, those of {topic} the most often: every {shortest.interval:g} s, as Kafka may forget them"
        f" {4 * shortest.interval:g} s after a record or a takeover ({shortest.setting})"
    )
    if shortest.interval < _SHORTEST_KEEP_ALIVE:
        remedy = f"raise {shortest.setting}: Kafka forgets fences too soon"
        found.append(fail("fences", detail, remedy, "fencing: a deposed producer may write again"))
    elif shortest.assumed:
        remedy = "allow the node DESCRIBE_CONFIGS on the cluster: until then Kafka's defaults are assumed"
        found.append(warn("fences", detail, remedy))
    else:
        found.append(ok("fences", detail))
    weak = [each for each in (weak_fence(name, term) for name, term in terms.items()) if each is not None]
    if weak:
        more = f" (so are {len(weak) - 1} more topics)" if len(weak) > 1 else ""
        found.append(warn("fences", weak[0] + more, "kafka-configs --alter on the topic"))
    if low := unprotected(await read_cleaning(upstream, [name for name in with_ids if name in terms]), terms):
        found.append(warn("compaction", low, _RAISE))
    if read := read_by_offsets(terms):
        found.append(warn("readers to the end", read, "sidecar topic unset, or a longer prefix without these topics"))
    return found
