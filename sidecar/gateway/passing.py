"""Pass one request to one broker on the client's own connection, and its answer back, both as they are.

The only change a request may need is its client id: upstream sees the bare name, so that quotas still match.
"""

from __future__ import annotations

from sidecar.gateway.client import AnswerWaiter, Client, header_without_settings
from sidecar.network.client import RequestHead
from sidecar.network.framing import Frame
from sidecar.network.upstream import Reply, UpstreamConnection


def send(connection: UpstreamConnection, client: Client, frame: Frame, head: RequestHead, reply: Reply | None) -> None:
    """Forward a whole request. The frame may be borrowed."""
    identity = client.identity
    if identity is None or not identity.has_settings:
        connection.send_frame(frame, reply)
        return
    name = identity.name.encode()
    owned = frame.own()
    body = head.body if owned is frame else head.body - frame.start
    rest = owned.view(body, owned.end)
    header = header_without_settings(head.key, head.version, head.correlation_id, name, len(rest))
    connection.send_parts([header, rest], reply)


async def ask(client: Client, broker_id: int, frame: Frame, head: RequestHead) -> Frame:
    """Forward an owned request and return the broker's answer. Raises `DisconnectedError`."""
    waiter = AnswerWaiter(head.correlation_id)
    send(client.links.to(broker_id), client, frame, head, waiter)
    return await waiter.future
