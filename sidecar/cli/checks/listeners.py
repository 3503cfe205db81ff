"""The listeners of a node: does each answer at its advertised address, over TLS if it has TLS, and with a certificate
for that address? Without a node: are the ports free?

No login is tried: ApiVersions comes before it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from sidecar.cli.checks.finding import Finding, fail, ok
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.caller import UpstreamError
from sidecar.protocol.calls.admin import ApiVersions
from sidecar.security.broker_access import PLAIN_TCP, BrokerAccess
from sidecar.security.tls import TlsFileError, TlsFiles, client_context
from sidecar.settings import Address, Settings
from sidecar.settings.listeners import ListenerSettings

_TIMEOUT: Final = 5.0
_CLIENTS: Final = "clients: they are sent to this address"


async def check_advertised(settings: Settings, status: Mapping[str, Any] | None) -> list[Finding]:
    """Check every advertised address. `status`: the node's own answer, None without a node."""
    if status is None:
        return _check_free(settings)
    listeners: list[dict[str, str]] = status["listeners"]
    here = {each.name: each for each in settings.all_listeners}
    found: list[Finding] = []
    for each in listeners:
        name = "advertised" if len(listeners) == 1 else f"advertised {each['name']}"
        address, protocol = Address.parse(each["advertise"]), each["security_protocol"]
        found.append(await _check_one(name, address, protocol, here.get(each["name"])))
    return found


async def _check_one(name: str, address: Address, protocol: str, settings: ListenerSettings | None) -> Finding:
    with_tls = protocol.endswith("SSL")
    setting = "SIDECAR_ADVERTISE" if name == "advertised" else "SIDECAR_ADVERTISED_LISTENERS"
    remedy = f"set {setting} to where clients reach this node"
    said = ""
    access = PLAIN_TCP
    if with_tls:
        try:
            context, said = _context(settings)
            await _shake_hands(address, context)
        except TlsFileError as error:
            return fail(name, f"{address}: {error}", "see the settings SIDECAR_SSL_… of this listener", _CLIENTS)
        except ssl.SSLCertVerificationError as error:
            detail = f"{address}: its certificate is not right: {error.verify_message}"
            return fail(name, detail, f"issue a certificate for this address, or {remedy}", _CLIENTS)
        except (OSError, TimeoutError) as error:
            return fail(name, f"{address}: {error or 'no answer'}", remedy, _CLIENTS)
        if settings is not None and settings.ssl_client_auth == "required":
            return ok(name, f"{address} answers with {protocol}{said}, and wants a certificate of its clients")
        access = BrokerAccess(lambda: context)
    upstream = KafkaUpstream([address], connect_timeout=_TIMEOUT, request_timeout=_TIMEOUT, access=access)
    try:
        served = await upstream.call(None, ApiVersions())
    except UpstreamError as error:
        return fail(name, f"{address}: {error}", remedy, _CLIENTS)
    finally:
        await upstream.close()
    by = f" with {protocol}{said}" if with_tls else ""
    reach = "; only programs on this machine can use it" if address.loopback else ""
    return ok(name, f"{address} answers{by} and serves {len(served)} APIs{reach}")


def _context(settings: ListenerSettings | None) -> tuple[ssl.SSLContext, str]:
    """A context that trusts the listener's own certificate and checks its host name. If the certificate is not known
    here, the context accepts any certificate.
    """
    if settings is not None and settings.ssl_certificate is not None:
        return client_context(TlsFiles(ca=Path(settings.ssl_certificate))), " and its certificate"
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context, " (its certificate was not looked at: it is not in the settings here)"


async def _shake_hands(address: Address, context: ssl.SSLContext) -> None:
    """Do a TLS handshake. Raises OSError, TimeoutError."""
    async with asyncio.timeout(_TIMEOUT):
        _, writer = await asyncio.open_connection(*address, ssl=context)
    writer.transport.abort()


def _check_free(settings: Settings) -> list[Finding]:
    found: list[Finding] = []
    addresses = list(_addresses(settings))
    for name, address in addresses:
        try:
            family, _, _, _, where = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(where)
        except OSError as error:
            remedy = f"free the port, or choose another {name}"
            detail = f"nobody can listen at {address}: {error.strerror or error}"
            found.append(fail("listen", detail, remedy, "the start of a node here"))
    *most, last = (str(address) for _, address in addresses)
    return found or [ok("listen", f"{', '.join(most)} and {last} are free")]


def _addresses(settings: Settings) -> Iterator[tuple[str, Address]]:
    name = "SIDECAR_LISTENERS" if settings.listeners else "SIDECAR_LISTEN"
    yield from ((name, each.listen) for each in settings.all_listeners)
    yield "SIDECAR_ADMIN_LISTEN", settings.admin_listen
