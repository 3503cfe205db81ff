"""Who may write over HTTP. Reads, health and metrics are open to any client that reaches the port.

With a token, a client that sends it may write. Without one, only programs on the node's own machine may, and of those
not a browser that was led here by a page of somebody else: such a request carries the page's origin, or a host name
that somebody made to mean 127.0.0.1.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Caller:
    """What is known of a request's sender: its address, and the headers that identify it ("" where absent)."""

    peer: str
    host: str
    origin: str = ""
    authorization: str = ""
    forwarded: bool = False
    """True where a proxy says it passes on somebody else's request; `peer` is the proxy then."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not: an HTTP status (401 or 403) and what to do."""

    status: int
    message: str


def refusal_of_write(caller: Caller, token: str | None) -> Refusal | None:
    """None where the caller may write."""
    if token is not None:
        scheme, _, shown = caller.authorization.partition(" ")
        if scheme.lower() == "bearer" and hmac.compare_digest(
            shown.strip().encode(errors="surrogateescape"), token.encode()
        ):
            return None
        return Refusal(401, "this needs the node's token: Authorization: Bearer SIDECAR_ADMIN_TOKEN")
    if caller.forwarded or not _is_loopback(caller.peer):
        return Refusal(
            403, "without SIDECAR_ADMIN_TOKEN set on the node, it accepts writes only from its own machine or container"
        )
    if not _names_this_machine(caller.host) or (caller.origin and _place(caller.origin) != caller.host):
        return Refusal(403, "without SIDECAR_ADMIN_TOKEN set on the node, writes through another web site are refused")
    return None


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None


def _is_loopback(address: str) -> bool:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _names_this_machine(host: str) -> bool:
    """True for IP addresses and localhost: the names that no name server can turn into something else."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False
