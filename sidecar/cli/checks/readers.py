"""Does somebody read a shadow past the nodes? It is empty there: such a member resets the cursors of its group.

A coordinator knows the address that a member came from. Through a node that is the node's own, so a member from
anywhere else has bypassed them; readers on a node's own machine cannot be distinguished from it.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address
from typing import Final, NamedTuple

from sidecar.cli.checks.finding import Finding, ok, warn
from sidecar.cli.output import counted
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.calls.groups import ListGroups
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.messages.groups import DESCRIBE_GROUPS
from sidecar.protocol.primitives import MalformedFrameError, Reader
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View

_AT_ONCE: Final = 100
"""Groups in one question."""
_SHOWN: Final = 5


class Member(NamedTuple):
    """A member of a group that has partitions of a shadow. `host`: the address that its coordinator sees."""

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
    """Everybody who has partitions of these topics. Raises UpstreamError, KafkaError."""
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
    """The topics in the assignment of a consumer (`ConsumerProtocolAssignment`); none in what is no such thing."""
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
    """The addresses that brokers may see of these nodes. `towards`: brokers, for nodes that advertise a loopback
    address and so run here.
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
    """The address of this machine as a broker sees it; nothing is sent."""
    try:
        kind = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(kind[0], kind[1]) as probe:
            probe.connect(kind[4])
            return {str(probe.getsockname()[0])}
    except OSError:
        return set()


def judged(members: Sequence[Member], hosts: Collection[str]) -> Finding:
    """Findings about consumers that read shadows. `hosts`: where members come from that came through a node."""
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
