"""The sockets of a node's listeners for clients: taken together, opened together, closed together."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from sidecar.cluster.nodes import NodeAddress
from sidecar.gateway.handler import Gateway
from sidecar.gateway.logins import ClientListener
from sidecar.network.listening import Listener, PlainListener
from sidecar.network.tls_listening import TlsListener
from sidecar.node.hooks import NodeHooks
from sidecar.node.port import ListenerFacts
from sidecar.settings import Address, Settings


class ClientSockets:
    """All of a node's. `bind` takes the addresses, so that a client that connects early waits; `start` accepts."""

    def __init__(self, settings: Settings, listeners: Sequence[ClientListener], hooks: NodeHooks) -> None:
        self.listeners = listeners
        self._settings = settings
        self._hooks = hooks
        self._bound: list[Listener] = []

    async def bind(self, gateway: Gateway) -> list[int]:
        """Take the addresses; returns the port of each. Raises OSError where one is taken or is not this machine's."""
        handshake_s, unfinished = self._settings.login_timeout_ms / 1000, self._settings.max_unfinished_handshakes
        for each, listener in zip(self._settings.all_listeners, self.listeners, strict=True):
            new, tls = partial(gateway.new_connection, listener), listener.tls
            bound: Listener = PlainListener(new)
            if tls is not None:
                bound = TlsListener(new, tls.context, self._hooks, gateway.admission, handshake_s, unfinished)
            self._bound.append(bound)
            await bound.bind(each.listen.host, each.listen.port)
        return [bound.port for bound in self._bound]

    @property
    def unfinished(self) -> int:
        """Connections of all TLS listeners without a finished handshake."""
        return sum(bound.unfinished for bound in self._bound if isinstance(bound, TlsListener))

    async def start(self) -> None:
        """Accept clients from now on."""
        for bound in self._bound:
            await bound.start()

    async def close(self) -> None:
        """Accept no more; harmless where nothing was bound."""
        for bound in self._bound:
            await bound.close()


def listener_facts(settings: Settings, me: NodeAddress) -> list[ListenerFacts]:
    """Every listener as it is: where it listens, and the address that its clients get."""
    return [
        ListenerFacts(each.name, str(each.listen), str(Address(at.host, at.port)), each.security_protocol)
        for each, at in zip(settings.all_listeners, me.listeners, strict=True)
    ]
