"""Pass one request to one broker on the client's own connection, and its answer back, both as they are.

The only change a request may need is its client id: upstream sees the bare name, so that quotas still match.
"""

from sidecar.gateway.client import AnswerWaiter, Client, header_without_settings
from sidecar.network.framing import Frame
from sidecar.network.request import Request
from sidecar.network.upstream import Reply, UpstreamConnection


def send(connection: UpstreamConnection, client: Client, request: Request, reply: Reply | None) -> None:
    """Forward a whole request. The frame may be borrowed."""
    identity = client.identity
    if identity is None or not identity.has_settings:
        connection.send_frame(request.frame, reply)
        return
    name = identity.name.encode()
    request.own()
    rest = request.frame.view(request.body, request.frame.end)
    header = header_without_settings(request.key, request.version, request.correlation_id, name, len(rest))
    connection.send_parts([header, rest], reply)


async def ask(client: Client, broker_id: int, request: Request) -> Frame:
    """Forward an owned request and return the broker's answer. Raises `DisconnectedError`."""
    waiter = AnswerWaiter(request.correlation_id)
    send(client.links.to(broker_id), client, request, waiter)
    return await waiter.future
