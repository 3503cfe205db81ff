"""Requests of many consumer groups on a few connections to each coordinator.

A client has connections to brokers of its own, as a broker answers the requests of a connection one after the other:
a JoinGroup waits for other members. Where thousands of groups read through a node, that would be as many connections,
of which each carries a heartbeat every three seconds. So once a node has `CROWD` connections for its clients, what a
coordinator answers promptly goes out on connections that all clients share, and a client gives its own up when its
group is in balance (SyncGroup). A client that needs one again, as for the next JoinGroup, gets one.

Commits have connections apart: a broker answers them when they are replicated, which takes up to
offsets.commit.timeout.ms (5 seconds) where a replica stands still. Heartbeats behind them would come too late, and
members be expelled. Where a commit finds all of these at work, it has its client's own connection. Heartbeats of groups
whose coordinator assigns partitions (KIP-848, KIP-932, KIP-1071) go as commits do: those that change a group are
answered when that is replicated.

Each request passes as it is, under the group's own member and generation. What a broker would hang up on, or is large,
does not travel with others; nor does a client that a broker has throttled: the broker stops reading its connection. The
shared one on which that shows is left alone for as long.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from sidecar.gateway import passing
from sidecar.gateway.client import AnswerWaiter
from sidecar.protocol.api import APIS
from sidecar.protocol.caller import Channel, DisconnectedError
from sidecar.protocol.messages import groups, new_groups, shares
from sidecar.protocol.primitives import I32, MalformedFrameError

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream
    from sidecar.gateway.client import Client
    from sidecar.network.framing import Frame
    from sidecar.network.request import Request
    from sidecar.network.upstream import UpstreamConnection

CROWD: Final = 500
"""Connections to brokers that a node has for its clients before they share some."""
LARGEST: Final = 4096
"""Bytes of a request that travels with others: as many as there are clients may wait."""
_CHANNELS: Final = [Channel(f"groups-{number}") for number in range(8)]
_REPLICATED: Final = [Channel(f"commits-{number}") for number in range(32)]
"""For what is answered when it is replicated, and until then nothing else on its connection: one at a time on each."""
_SHARED: Final = {
    message.key: (message, since)
    for message, since in (
        (groups.OFFSET_COMMIT, 3),
        (groups.OFFSET_FETCH, 3),
        (groups.HEARTBEAT, 1),
        (groups.LEAVE_GROUP, 1),
        (new_groups.CONSUMER_GROUP_HEARTBEAT, 0),
        (shares.SHARE_GROUP_HEARTBEAT, 0),
        (new_groups.STREAMS_GROUP_HEARTBEAT, 0),
    )
}
"""What is answered promptly, from the version on whose answers begin with the time for which a client is throttled."""
_WRITES: Final = frozenset(_SHARED) - {
    message.key for message in (groups.OFFSET_FETCH, groups.HEARTBEAT, groups.LEAVE_GROUP)
}
_IN_BALANCE: Final = groups.SYNC_GROUP.key


class GroupLinks:
    """The connections for groups of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream) -> None:
        self._upstream = upstream
        self._unread_until: dict[UpstreamConnection, float] = {}
        """By the loop's clock: the connections on which a broker has throttled somebody."""

    async def ask(self, client: Client, broker_id: int, request: Request) -> Frame:
        """The coordinator's answer. Raises `DisconnectedError`."""
        links = client.links
        gives_up = request.key == _IN_BALANCE
        if links.are_many and not links.stands(broker_id) and _may_share(links.throttled, request):
            connection = self._connection(broker_id, request.key)
            if connection is not None:
                answer = await self._ask_with_others(connection, client, request)
                if throttle_ms := _throttle_ms(request, answer):
                    links.throttled = True
                    self._leave_alone(connection, throttle_ms / 1000)
                return answer
            gives_up = True
        answer = await passing.ask(client, broker_id, request)
        if gives_up and links.are_many and not links.throttled:
            links.rest(broker_id)
        return answer

    async def _ask_with_others(self, connection: UpstreamConnection, client: Client, request: Request) -> Frame:
        waiter = AnswerWaiter(request.correlation_id)
        passing.send(connection, client, request, waiter)
        limit = self._upstream.request_timeout
        try:
            async with asyncio.timeout(limit):
                return await waiter.future
        except TimeoutError:
            connection.close(f"no answer within {limit:g} s")
            raise DisconnectedError(f"the coordinator did not answer within {limit:g} s", sent=True) from None

    def _leave_alone(self, connection: UpstreamConnection, seconds: float) -> None:
        now = asyncio.get_running_loop().time()
        self._unread_until = {each: until for each, until in self._unread_until.items() if until > now}
        self._unread_until[connection] = now + seconds

    def _connection(self, broker_id: int, key: int) -> UpstreamConnection | None:
        """One on which nothing is under way, else the one with the least; None for what writes then, and where brokers
        read none. Raises `DisconnectedError`.
        """
        found: list[UpstreamConnection] = []
        now = asyncio.get_running_loop().time()
        for channel in _REPLICATED if key in _WRITES else _CHANNELS:
            connection = self._upstream.connection(broker_id, channel)
            if self._unread_until.get(connection, 0.0) > now:
                continue
            if not connection.unanswered:
                return connection
            found.append(connection)
        return None if key in _WRITES else min(found, key=lambda each: each.unanswered, default=None)


def _may_share(throttled: bool, request: Request) -> bool:
    message, since = _SHARED.get(request.key, (None, 0))
    if message is None or request.version < since or throttled or request.frame.size > LARGEST:
        return False
    try:
        message.decode_request(request.frame.buffer, request.body, request.frame.end, request.version)
    except MalformedFrameError:
        return False
    return True


def _throttle_ms(request: Request, answer: Frame) -> int:
    """Behind length and correlation id, and an empty section of tagged fields in flexible versions."""
    flexible = APIS[request.key].is_flexible(request.version)
    found: int = I32.unpack_from(answer.buffer, answer.start + (9 if flexible else 8))[0]
    return found
