"""What belongs to one listener: its name, and how certificates and logins of its clients are read."""

from dataclasses import dataclass
from typing import Final

from sidecar.gateway.logins import Logins
from sidecar.security.listener import ListenerTls


@dataclass(frozen=True, slots=True)
class ClientListener:
    """One listener. `tls`: how certificates name principals, None without TLS; `logins` None: clients do not log in.

    Answers that name nodes name them at the addresses that they publish for this `name` (KIP-103).
    """

    name: str
    tls: ListenerTls | None = None
    logins: Logins | None = None


UNNAMED: Final = ClientListener("")
"""The only listener of a node that publishes one address."""
