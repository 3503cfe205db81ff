"""Requests of many consumer groups on a few connections to each coordinator.

A client has connections to brokers of its own, as a broker answers the requests of a connection one after the other:
a JoinGroup waits for other members. Where thousands of groups read through a node, that would be as many connections,
of which each carries a heartbeat every three seconds. So once a node has `CROWD` connections for its clients, others
use some that all clients share.

Each of them takes a connection for itself until it is answered (`sidecar.cluster.pools`), as a coordinator may answer
any of them late. A JoinGroup waits for other members, a SyncGroup for the leader's. All others of one partition of
__consumer_offsets wait for what was written to it before, heartbeats too, until that is replicated: up to
offsets.commit.timeout.ms (5 seconds) where a replica stands still. Heartbeats of other groups behind them would come
too late, and their members be expelled.

Each request passes as it is, under the group's own member and generation. What a broker would hang up on, or is large,
does not travel with others; nor does a client that a broker has throttled: the broker stops reading its connection. The
shared one on which that shows is closed.
"""

import asyncio
from typing import Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway import passing
from sidecar.gateway.client import AnswerWaiter, Client
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.upstream import UpstreamConnection
from sidecar.protocol.api import APIS
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.messages import groups, new_groups, shares
from sidecar.protocol.primitives import I32, MalformedFrameError

CROWD: Final = 500
"""Connections to brokers that a node has for its clients before they share some."""
LARGEST: Final = 4096
"""Bytes of a request that travels with others: as many as there are clients may wait."""
_UNBOUNDED: Final = frozenset({groups.JOIN_GROUP.key, groups.SYNC_GROUP.key})
"""What other members are waited for with, for as long as their clients have said."""
_SHARED: Final = {
    message.key: (message, since)
    for message, since in (
        (groups.OFFSET_COMMIT, 3),
        (groups.OFFSET_FETCH, 3),
        (groups.JOIN_GROUP, 2),
        (groups.HEARTBEAT, 1),
        (groups.LEAVE_GROUP, 1),
        (groups.SYNC_GROUP, 1),
        (new_groups.CONSUMER_GROUP_HEARTBEAT, 0),
        (shares.SHARE_GROUP_HEARTBEAT, 0),
        (new_groups.STREAMS_GROUP_HEARTBEAT, 0),
    )
}
"""From the version on whose answers begin with the time for which a client is throttled."""


class GroupLinks:
    """The connections for groups of all clients of a node."""

    def __init__(self, upstream: KafkaUpstream) -> None:
        self._upstream = upstream

    async def ask(self, client: Client, broker_id: int, request: Request) -> Frame:
        """The coordinator's answer. Raises `DisconnectedError`."""
        links = client.links
        if (
            links.user is not None
            or not links.are_many
            or links.stands(broker_id)
            or not _may_share(links.throttled, request)
        ):
            return await passing.ask(client, broker_id, request)
        pool, waits = self._upstream.pool(broker_id), request.key in _UNBOUNDED
        connection = await pool.take(links.opened, client.connection.answers, at_once=waits)
        if waits:
            if client.connection.closed:
                pool.give_back(connection)
                raise DisconnectedError("its client is gone", sent=False)
            links.borrowed = connection
        try:
            limit = None if waits else self._upstream.request_timeout
            answer = await self._ask(connection, client, request, limit)
            if _throttle_ms(request, answer):
                links.throttled = True
                connection.close("a broker does not read it for now")
        finally:
            links.borrowed = None
            pool.give_back(connection)
        return answer

    async def _ask(
        self, connection: UpstreamConnection, client: Client, request: Request, limit: float | None
    ) -> Frame:
        waiter = AnswerWaiter(request.correlation_id)
        passing.send(connection, client, request, waiter)
        try:
            async with asyncio.timeout(limit):
                return await waiter.future
        except TimeoutError:
            connection.close(f"no answer within {limit:g} s")
            raise DisconnectedError(f"the coordinator did not answer within {limit:g} s", sent=True) from None


def _may_share(throttled: bool, request: Request) -> bool:
    message, since = _SHARED.get(request.key, (None, 0))
    if message is None or request.version < since or throttled:
        return False
    if request.frame.size > LARGEST and request.key not in _UNBOUNDED:
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
